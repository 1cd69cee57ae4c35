"""The long run: `make fuzz MINUTES=10`, or python -m tests.fuzz --folders 2000 --configs 600.

Prints counts by kind, and every case that went wrong, shrunk as hypothesis has it, to be kept in corpus/.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from tests.fuzz import cases


def tried(strategy: SearchStrategy[Any], count: int, until: float) -> tuple[int, list[tuple[Any, str]]]:
    """How many were played, and those that went wrong."""
    played, wrong = 0, list[tuple[Any, str]]()

    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def one(case: Mapping[str, Any]) -> None:
        nonlocal played
        if time.monotonic() > until:
            return
        played += 1
        if found := cases.play(case):
            wrong.append((case, found))

    one()
    return played, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--folders", type=int, default=2000)
    parser.add_argument("--inboxes", type=int, default=600)
    parser.add_argument("--configs", type=int, default=600)
    parser.add_argument("--others", type=int, default=300, help="claims, terms and data files, of each so many")
    wanted = parser.parse_args()
    until, faults, total = time.monotonic() + 60 * wanted.minutes, Counter[str](), 0
    plan = (
        ("folder", cases.folders, wanted.folders),
        ("inbox", cases.inboxes, wanted.inboxes),
        ("config", cases.configs, wanted.configs),
        ("claims", cases.claims, wanted.others),
        ("terms", cases.terms, wanted.others),
        ("data", cases.data, wanted.others),
    )
    for name, strategy, count in plan:
        if not count:
            continue
        started = time.monotonic()
        played, wrong = tried(strategy, count, until)
        print(f"{name}: {played} played, {len(wrong)} went wrong, {time.monotonic() - started:.0f} s", flush=True)
        total += len(wrong)
        for case, found in wrong:
            kind = " ".join(found.split())[:120]
            faults[kind] += 1
            if faults[kind] <= 2:
                print(json.dumps(case), "\n   ", " ".join(found.split())[:700], flush=True)
    return 1 if total else 0


if __name__ == "__main__":
    sys.exit(main())
