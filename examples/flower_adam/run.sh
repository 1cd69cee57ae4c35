#!/usr/bin/env bash
# A second app in Flower, recorded and audited with one command: no subject is written by hand.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$PWD/runs/flower-adam}

rm -rf "$work"/{inbox,truth,run}
if ! "$here/../flower/app.sh" "$here" "$work" 5 app:client "record-dir='$work/inbox' truth-dir='$work/truth'"; then
  echo "SKIPPED: Flower 1.42 does not install here, or the app did not run"
  exit 0
fi
cd "$here"  # where the network's file is
${FEDAUDIT:-fedaudit} import "$work/inbox" --truth "$work/truth" --model net:Net --out "$work/run" --trust-plugins ||
  test $? -ne 2  # 1 and 3 are verdicts
