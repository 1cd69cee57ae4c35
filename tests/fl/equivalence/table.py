"""Every golden trajectory as a table: method, reference, how far ours is from it, how much the method does.

    python -m tests.fl.equivalence.table          (`make equivalence`)

The effect is the largest difference of the reference's final weights to plain FedAvg's: what a fault could show.
"""

import sys

import pytest

from audit.cli.show import print_table
from tests.fl.equivalence.replay import cases, differences, replay


def main() -> int:
    rows, failed = [], 0
    for case in cases():
        worst: dict[str, float] = dict.fromkeys(case.entry["compare"], 0.0)
        for stacked in (False, True):
            for train_lost in (True, False):
                with pytest.MonkeyPatch.context() as patch:
                    found = differences(case, replay(case, patch, stacked=stacked, train_lost=train_lost))
                worst = {group: max(worst[group], found[group]) for group in worst}
        good = all(worst[group] <= case.entry["tolerance"][group] for group in worst)
        failed += not good
        reference = case.entry["reference"]
        rows.append(
            [
                case.name,
                case.entry["method"],
                f"{reference['repository']} @ {reference['commit'][:8]}",
                ", ".join(f"{group} {gap:.1e}" for group, gap in worst.items()),
                f"{case.entry['effect']:.1e}",
                "within" if good else "OUTSIDE",
            ]
        )
    print_table(["case", "method", "reference", "largest difference", "effect", "tolerance"], rows)
    print(f"{len(rows) - failed} of {len(rows)} cases within tolerance, one by one and stacked")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
