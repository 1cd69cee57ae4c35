# docker build -t fedaudit .                                                                    CPU
# docker build -t fedaudit --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .     CUDA
# docker run --rm -v "$PWD:/work" fedaudit run quickstart
FROM python:3.11-slim AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python -m venv /opt/fedaudit
WORKDIR /source
COPY constraints.txt requirements.lock ./
# torch from the index of its builds, everything else by digest
RUN /opt/fedaudit/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" \
      "$(grep -i '^torch==' constraints.txt)" "$(grep -i '^torchvision==' constraints.txt)" \
 && /opt/fedaudit/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock
COPY . .
RUN /opt/fedaudit/bin/pip install --no-cache-dir --no-deps .

FROM python:3.11-slim
COPY --from=build /opt/fedaudit /opt/fedaudit
RUN useradd --create-home auditor && mkdir /work && chown auditor /work
USER auditor
WORKDIR /work
ENTRYPOINT ["/opt/fedaudit/bin/fedaudit"]
CMD ["--help"]
