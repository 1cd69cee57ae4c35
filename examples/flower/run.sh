#!/usr/bin/env bash
# Runs the example in an environment of its own, since Flower 1.42 wants older typer and rich than fedaudit, and
# audits what was recorded. `make example-flower` runs this; FEDAUDIT is the command to audit with.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$PWD/runs/flower-example}
fedaudit=${FEDAUDIT:-fedaudit}
env=$work/env

mkdir -p "$work"
if [ ! -x "$env/bin/flwr" ]; then
  python3 -m venv "$env"
  # Its requirements are installed beside it: some indexes have no certifi as new as it asks for
  if ! { "$env/bin/pip" install --quiet --no-deps "flwr==1.42.0" &&
    "$env/bin/python" "$here/requirements.py" > "$work/requirements.txt" &&
    "$env/bin/pip" install --quiet -r "$work/requirements.txt" torch numpy safetensors scikit-learn; }; then
    echo "SKIPPED: Flower 1.42 does not install here; tests/audit/brought/flower holds what it recorded elsewhere"
    rm -rf "$env"
    exit 0
  fi
fi

rm -rf "$work/app" "$work/inbox" "$work/truth" "$work/run"
cp -r "$here" "$work/app"
$fedaudit recorder flower --out "$work/app/fedaudit_recorder.py"
export FLWR_HOME="$work/home" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 RAY_USAGE_STATS_ENABLED=0
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 PATH="$env/bin:$PATH"
mkdir -p "$FLWR_HOME"
# `flwr run` leaves its server behind
trap 'for pid in $(pgrep -f "$env/bin/flower-super"); do kill "$pid"; done' EXIT
(cd "$work/app" && env -u PYTHONPATH flwr run . --stream \
  --federation-config "num-supernodes=8 client-resources-num-cpus=1 init-args-num-cpus=2" \
  --run-config "record-dir='$work/inbox' truth-dir='$work/truth'")

$fedaudit doctor "$work/inbox"
$fedaudit import "$work/inbox" --subject "$here/subject.yaml" --config "$here/audit.yaml" --truth "$work/truth" \
  --out "$work/run" --trust-plugins
$fedaudit run "$work/run" --trust-plugins
