#!/usr/bin/env bash
# A tiny GPT with adapters, trained in Flower, recorded by one line and audited. `make example-lora` runs this;
# FEDAUDIT is the command to audit with, FLOWER an environment that has Flower and torch already.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$PWD/runs/flower-lora}
fedaudit=${FEDAUDIT:-fedaudit}

rm -rf "$work"/{inbox,truth,run}
mkdir -p "$work"
status=0
PREPARE="lora_app.base $work/base.safetensors" "$here/../flower/app.sh" "$here" "$work" 6 lora_app.client:app \
  "record-dir='$work/inbox' truth-dir='$work/truth' base='$work/base.safetensors'" || status=$?
if [ "$status" != 0 ]; then
  echo "SKIPPED: Flower 1.42 does not install or run here"
  exit 0
fi
$fedaudit plan "$work/inbox"
$fedaudit import "$work/inbox" --subject "$here/subject.yaml" --config "$here/audit.yaml" --truth "$work/truth" \
  --base "$work/base.safetensors" --out "$work/run" --trust-plugins
$fedaudit run "$work/run" --trust-plugins || test $? -ne 2  # 1 and 3 are verdicts
