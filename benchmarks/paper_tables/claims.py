"""Claims of papers and what finished cells decide of them, by one rule.

A claim says that a row is above another by more than `least` (0 if nothing is said). From the differences of the
two rows at the same seed (where the claim says `equal`, of as many rounds of each as used no more examples than
the other row in all), and the interval of their mean by Student's t, at 95 % for all claims of the table together
(Bonferroni):

    reproduced                   the interval lies above `least`, in the paper's own setting
    same sign, other setting     it lies above `least`, with other data, another network or fewer rounds
    not reproduced               it lies at or below `least`
    cannot be decided            it holds `least`, or there are fewer than three seeds

The setting that was run stands beside the verdict.
"""

import itertools
import statistics
from collections.abc import Sequence

from benchmarks.paper_tables.report import Finished
from benchmarks.paper_tables.table import Claim, Table
from fedaudit.attacks.stats import ALPHA, correct_alpha, t_interval

LEAST_SEEDS = 3
REPRODUCED, SAME, NOT, OPEN = "reproduced", "same sign, other setting", "not reproduced", "cannot be decided"


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


def verdict(found: Sequence[float], least: float = 0.0, claims: int = 1, is_papers: bool = True) -> str:
    """By the rule above, of one of so many claims, in the paper's own setting or another."""
    if len(found) < LEAST_SEEDS:
        return OPEN
    low, high = t_interval(found, correct_alpha(ALPHA, claims))
    return (REPRODUCED if is_papers else SAME) if low > least else NOT if high <= least else OPEN


def section(table: Table, claim: Claim, runs: Sequence[Finished]) -> str:
    """One claim as Markdown: the sentence, a table with its verdict, and the command."""
    rounds = claim.rounds or table.rounds
    found = differences(claim, runs, rounds)
    values = list(found.values())
    is_papers = rounds == table.rounds and not claim.setting
    mean = "–" if not values else f"{statistics.fmean(values):+.2f}"
    if len(values) > 1:
        low, high = t_interval(values, correct_alpha(ALPHA, len(table.header.claims)))
        mean += f" [{low:+.2f}, {high:+.2f}]"
    cells = {
        "difference": f"{claim.above} minus {claim.below}",
        "statistic": claim.statistic + (f" at equal {claim.equal}" if claim.equal else ""),
        "rounds": f"{rounds} of {table.rounds}",
        "seeds": ", ".join(map(str, found)) or "none",
        "each seed": ", ".join(f"{v:+.2f}" for v in values) or "–",
        f"mean [{100 * (1 - correct_alpha(ALPHA, len(table.header.claims))):.4g} %]": mean,
        "printed": "–" if claim.printed is None else f"{claim.printed:+g}",
        "verdict": f"**{verdict(values, claim.least, len(table.header.claims), is_papers)}**",
    }
    others = (s for s in itertools.count(7) if s not in found)
    seeds = ",".join(map(str, [*found, *itertools.islice(others, max(0, LEAST_SEEDS - len(found)))]))
    where = f"TABLE={table.name} COLUMN={claim.column} ROWS={claim.below},{claim.above}"
    lines = [f"#### {claim.says}", ""]
    lines += [f"| {' | '.join(line)} |" for line in (cells, ["---"] * len(cells), cells.values())]
    lines += ["", f"`make paper {where} ROUNDS={rounds} SEEDS={seeds}`", ""]
    lines += [f"Setting: {claim.setting}", ""] if claim.setting else []
    return "\n".join(lines)
