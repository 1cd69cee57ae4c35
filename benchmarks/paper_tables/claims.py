"""Claims of papers and what finished cells decide of them, by one rule.

A claim says that a row is above another by more than `least` (0 if nothing is said). From the differences of the
two rows at the same seed (where the claim says `equal`, of as many rounds of each as used no more examples than
the other row in all), and the 95 % interval of their mean by Student's t:

    reproduced           the interval lies above `least`
    not reproduced       the interval lies at or below it
    cannot be decided    it holds `least`, or there are fewer than three seeds

Intervals are of single claims, over seeds; the verdict is on the setting that was run, which stands beside it.
"""

import itertools
import statistics
from collections.abc import Sequence

from benchmarks.paper_tables.report import Finished
from benchmarks.paper_tables.table import Claim, Table
from fedaudit.attacks.stats import t_interval

LEAST_SEEDS = 3
REPRODUCED, NOT, OPEN = "reproduced", "not reproduced", "cannot be decided"


def differences(claim: Claim, runs: Sequence[Finished], rounds: int) -> dict[int, float]:
    """Seed -> above minus below, of seeds at which both rows went to their end."""
    rows: dict[str, dict[int, Finished]] = {claim.above: {}, claim.below: {}}
    for run in runs:
        if (run.column, run.rounds) == (claim.column, rounds) and run.row in rows:
            rows[run.row][run.seed] = run
    found, (above, below) = {}, (rows[claim.above], rows[claim.below])
    for seed in sorted(above.keys() & below.keys()):
        one, other = above[seed], below[seed]
        if claim.equal:
            least = min(one.used(claim.equal), other.used(claim.equal))
            one, other = one.within(claim.equal, least), other.within(claim.equal, least)
        high, low = one.value(claim.statistic), other.value(claim.statistic)
        if high is not None and low is not None:
            found[seed] = high - low
    return found


def verdict(found: Sequence[float], least: float = 0.0) -> str:
    """By the rule above."""
    if len(found) < LEAST_SEEDS:
        return OPEN
    low, high = t_interval(found)
    return REPRODUCED if low > least else NOT if high <= least else OPEN


def section(table: Table, claim: Claim, runs: Sequence[Finished]) -> str:
    """One claim as Markdown: the sentence, a table with its verdict, and the command."""
    rounds = claim.rounds or table.rounds
    found = differences(claim, runs, rounds)
    values = list(found.values())
    mean = "–" if not values else f"{statistics.fmean(values):+.2f}"
    if len(values) > 1:
        low, high = t_interval(values)
        mean += f" [{low:+.2f}, {high:+.2f}]"
    cells = {
        "difference": f"{claim.above} minus {claim.below}",
        "statistic": claim.statistic + (f" at equal {claim.equal}" if claim.equal else ""),
        "rounds": f"{rounds} of {table.rounds}",
        "seeds": ", ".join(map(str, found)) or "none",
        "each seed": ", ".join(f"{v:+.2f}" for v in values) or "–",
        "mean [95 %]": mean,
        "printed": "–" if claim.printed is None else f"{claim.printed:+g}",
        "verdict": f"**{verdict(values, claim.least)}**",
    }
    others = (s for s in itertools.count(7) if s not in found)
    seeds = ",".join(map(str, [*found, *itertools.islice(others, max(0, LEAST_SEEDS - len(found)))]))
    where = f"TABLE={table.name} COLUMN={claim.column} ROWS={claim.below},{claim.above}"
    lines = [f"#### {claim.says}", ""]
    lines += [f"| {' | '.join(line)} |" for line in (cells, ["---"] * len(cells), cells.values())]
    lines += ["", f"`make paper {where} ROUNDS={rounds} SEEDS={seeds}`", ""]
    lines += [f"Setting: {claim.setting}", ""] if claim.setting else []
    return "\n".join(lines)
