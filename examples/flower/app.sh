#!/usr/bin/env bash
# Runs an example app in Flower 1.42, in an environment of its own, since Flower wants older typer and rich than
# fedaudit: app.sh APP WORK NODES CLIENTAPP RUN_CONFIG... leaves what the run config says. Exit status 3: Flower does
# not install here; 4: its simulation did not start, as on a machine that is busy. FEDAUDIT is the command to audit
# with, FLOWER an environment that has Flower already, PREPARE a module of the app, with its arguments, to run first.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
app=$1 work=$2 nodes=$3 clientapp=$4
shift 4
env=${FLOWER:-$work/env}

mkdir -p "$work"
if [ ! -x "$env/bin/flwr" ]; then
  python3 -m venv "$env"
  # Its requirements are installed beside it: some indexes have no certifi as new as it asks for
  if ! { "$env/bin/pip" install --quiet --no-deps "flwr==1.42.0" &&
    "$env/bin/python" "$here/requirements.py" > "$work/requirements.txt" &&
    "$env/bin/pip" install --quiet -r "$work/requirements.txt" torch numpy safetensors scikit-learn; }; then
    rm -rf "$env"
    exit 3
  fi
fi

rm -rf "$work/app"
cp -r "$app" "$work/app"
sed -i "s/^clientapp = .*/clientapp = \"$clientapp\"/" "$work/app/pyproject.toml"
${FEDAUDIT:-fedaudit} tools recorder flower --out "$work/app/fedaudit_recorder.py"
if [ -n "${PREPARE:-}" ]; then (cd "$work/app" && "$env/bin/python" -m $PREPARE); fi
export FLWR_HOME="$work/home" FLWR_TELEMETRY_ENABLED=0 FLWR_DISABLE_UPDATE_CHECK=1 RAY_USAGE_STATS_ENABLED=0
export FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION=1 PATH="$env/bin:$PATH"
mkdir -p "$FLWR_HOME"
# `flwr run` leaves its server behind
trap 'for pid in $(pgrep -f "$env/bin/flower-super"); do kill "$pid"; done' EXIT
cd "$work/app"
status=0
env -u PYTHONPATH flwr run . --stream \
  --federation-config "num-supernodes=$nodes client-resources-num-cpus=1 init-args-num-cpus=2" \
  --run-config "nodes=$nodes $*" 2>&1 | tee "$work/log" || status=$?
if grep -qE "Simulation Runtime crashed|Failed to start local SuperLink" "$work/log"; then exit 4; fi
exit $status
