#!/usr/bin/env bash
# One federation twice: simulated by fedaudit, and run in Flower with the same split, first weights and settings,
# recorded and imported; then their findings side by side. FEDAUDIT and PYTHON are of the environment that audits.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=${WORK:-$PWD/runs/side-by-side}
fedaudit=${FEDAUDIT:-fedaudit}

rm -rf "$work"/{simulated,inbox,truth,recorded}
mkdir -p "$work"
$fedaudit run "$here/simulated.yaml" --out "$work/simulated" --trust-plugins || test $? -ne 2  # 1 and 3 are verdicts
${PYTHON:-python} "$here/ours.py" "$here/simulated.yaml" "$work/simulated" "$work"
"$here/app.sh" "$here" "$work" 8 digits_app.client:app "record-dir='$work/inbox' truth-dir='$work/truth'" \
  "split='$work/split.npz' initial='$work/initial.npz'"
$fedaudit import "$work/inbox" --subject "$here/subject.yaml" --config "$work/settings.yaml" --truth "$work/truth" \
  --out "$work/recorded" --trust-plugins
$fedaudit run "$work/recorded" --trust-plugins || test $? -ne 2  # 1 and 3 are verdicts
$fedaudit compare "$work/simulated" "$work/recorded"
