#!/usr/bin/env bash
# The example in Flower, recorded and audited; then the same with a client of the auditor's own, whose examples are the
# only ones that the second audit is told of. `make example-flower` runs this; FEDAUDIT is the command to audit with.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$PWD/runs/flower-example}
fedaudit=${FEDAUDIT:-fedaudit}

rm -rf "$work"/{inbox,truth,run,canary-inbox,canary,canary-run}
if ! "$here/app.sh" "$here" "$work" 8 digits_app.client:app "record-dir='$work/inbox' truth-dir='$work/truth'"; then
  echo "SKIPPED: Flower 1.42 does not install or run here; tests/audit/importing/flower holds what it recorded elsewhere"
  exit 0
fi
$fedaudit plan "$work/inbox"
$fedaudit import "$work/inbox" --subject "$here/subject.yaml" --config "$here/audit.yaml" --truth "$work/truth" \
  --out "$work/run" --trust-plugins
$fedaudit run "$work/run" --trust-plugins || test $? -ne 2  # 1 and 3 are verdicts

"$here/app.sh" "$here" "$work" 9 digits_app.canary:app \
  "num-server-rounds=2 record-dir='$work/canary-inbox' canary-dir='$work/canary'"
node=$(basename "$(ls "$work"/canary/*.npz | grep -v own.npz)" .npz)
cp "$here/net.py" "$work/net.py"
{ sed 's/rounds: 3/rounds: 2/' "$here/subject.yaml"; echo "canaries: [\"$node\"]"; } > "$work/canary.yaml"
$fedaudit import "$work/canary-inbox" --subject "$work/canary.yaml" --config "$here/audit.yaml" \
  --truth "$work/canary" --out "$work/canary-run" --trust-plugins
$fedaudit run "$work/canary-run" --trust-plugins || test $? -ne 2  # 1 and 3 are verdicts
