# docker build -t fedaudit .                                                                    CPU
# docker build -t fedaudit --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 .     CUDA
# docker run --rm -v "$PWD:/work" fedaudit run quickstart
FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7 AS build
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
RUN python -m venv /opt/fedaudit
WORKDIR /source
COPY constraints.txt requirements.lock ./
# everything by digest, then torch from the index of its builds, which finds what it needs there already
RUN /opt/fedaudit/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements.lock \
 && /opt/fedaudit/bin/pip install --no-cache-dir --index-url "$TORCH_INDEX" \
      "$(grep -i '^torch==' constraints.txt)" "$(grep -i '^torchvision==' constraints.txt)"
COPY . .
RUN /opt/fedaudit/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim@sha256:9c900dea9e8fb7e16277c179b555cc72d29a352dbc33cff48ad5a0412fd5bfc7
COPY --from=build /opt/fedaudit /opt/fedaudit
RUN useradd --create-home auditor && mkdir /work && chown auditor /work
USER auditor
WORKDIR /work
ENTRYPOINT ["/opt/fedaudit/bin/fedaudit"]
CMD ["--help"]
