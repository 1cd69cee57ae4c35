"""Every method's comparison as a table: reference, how far ours is from it, how much the method does.

    python -m tests.fl.equivalence.table          (`make equivalence`)

First the golden trajectories of public code, then the second programs. The effect is the largest difference of
the reference's final weights to plain FedAvg's: what a fault could show.
"""

import sys

import pytest

from fedaudit.audit.cli.show import print_table
from fedaudit.audit.settings import catalog
from tests.fl.equivalence.programs import PROGRAMS, name_method
from tests.fl.equivalence.replay import Case, cases, differences, replay
from tests.fl.equivalence.second import TOLERANCE

HEADER = ["case", "method", "reference", "largest difference", "effect", "tolerance"]


def _public(case: Case) -> tuple[list[str], bool]:
    worst: dict[str, float] = dict.fromkeys(case.entry["compare"], 0.0)
    for stacked in (False, True):
        for train_lost in (True, False):
            with pytest.MonkeyPatch.context() as patch:
                found = differences(case, replay(case, patch, stacked=stacked, train_lost=train_lost))
            worst = {group: max(worst[group], found[group]) for group in worst}
    good = all(worst[group] <= case.entry["tolerance"][group] for group in worst)
    reference = case.entry["reference"]
    gaps = ", ".join(f"{group} {gap:.1e}" for group, gap in worst.items())
    where = f"{reference['repository']} @ {reference['commit'][:8]}"
    return [case.name, case.entry["method"], where, gaps, f"{case.entry['effect']:.1e}", _word(good)], good


def _second(name: str) -> tuple[list[str], bool]:
    found, method = PROGRAMS[name](), name_method(name)
    good = found.difference() <= TOLERANCE
    gaps = [f"{found.difference():.1e}", f"{found.effect():.1e}"]
    return [f"second-{name}", method, describe_source(method), *gaps, _word(good)], good


def describe_source(method: str) -> str:
    source = catalog.load("methods", method).card.source
    return f"second program after {source.removeprefix('after ')}"


def _word(good: bool) -> str:
    return "within" if good else "OUTSIDE"


def main() -> int:
    found = [_public(case) for case in cases()] + [_second(name) for name in PROGRAMS]
    print_table(HEADER, [row for row, _ in found])
    good = sum(good for _, good in found)
    print(f"{good} of {len(found)} cases within tolerance; public code's one by one and stacked")
    return 0 if good == len(found) else 1


if __name__ == "__main__":
    sys.exit(main())
