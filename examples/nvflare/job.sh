#!/usr/bin/env bash
# Runs job.py in NVFlare 2.9, in an environment of its own: job.sh WORK [WORKFLOW] leaves WORK/inbox and WORK/truth.
# Exit status 3: NVFlare does not install here. FEDAUDIT is the command to audit with, NVFLARE an environment that has
# NVFlare already.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
work=$(cd "$1" && pwd)
env=${NVFLARE:-$work/env}

if [ ! -x "$env/bin/nvflare" ]; then
  python3 -m venv "$env"
  "$env/bin/pip" install --quiet "nvflare==2.9.0" scikit-learn || { rm -rf "$env"; exit 3; }
fi
rm -rf "$work"/{app,inbox,truth,simulator,poc,home}
mkdir "$work/home"
export HOME="$work/home" NVFLARE_POC_WORKSPACE="$work/poc"  # where a deployed server and sites keep their files
cp -r "$here" "$work/app"
${FEDAUDIT:-fedaudit} tools recorder nvflare --out "$work/app/fedaudit_recorder.py"
cd "$work/app"
env -u PYTHONPATH "$env/bin/python" data.py "$work/truth"
env -u PYTHONPATH PATH="$env/bin:$PATH" "$env/bin/python" job.py "$work/inbox" "$work/truth" "$work/simulator" "${2:-recipe}"
