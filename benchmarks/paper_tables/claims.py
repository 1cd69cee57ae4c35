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


def section(table: Table, runs: Sequence[Finished]) -> str:
    """The claims of a table as Markdown: a line each with its verdict, the commands, and what was compared.

    A difference above 0 is for the claim.
    """
    claims = table.header.claims
    level = f"{100 * (1 - correct_alpha(ALPHA, len(claims))):.4g} %"
    head = ("no.", "claim", "each seed", f"mean [{level}]", "printed", "verdict")
    lines = [f"### {table.header.title} (`{table.name}`)", ""]
    lines += [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head))]
    settings: dict[str, list[int]] = {}
    rows: dict[tuple[str, int], dict[str, None]] = {}
    seeds: dict[tuple[str, int], set[int]] = {}
    for number, claim in enumerate(claims, 1):
        rounds = claim.rounds or table.rounds
        found = differences(claim, runs, rounds)
        lines.append(_line(table, claim, number, rounds, found))
        settings.setdefault(_describe_setting(table, claim, rounds), []).append(number)
        where = claim.column, rounds
        rows.setdefault(where, {}).update({claim.below: None, claim.above: None})
        seeds.setdefault(where, set()).update(found)
    lines.append("")
    for (column, rounds), which in rows.items():
        have = seeds[column, rounds]
        others = (s for s in itertools.count(7) if s not in have)
        wanted = [*sorted(have), *itertools.islice(others, max(0, LEAST_SEEDS - len(have)))]
        lines.append(
            f"    make paper TABLE={table.name} COLUMN={column} ROWS={','.join(which)} ROUNDS={rounds} "
            f"SEEDS={','.join(map(str, wanted))}"
        )
    said = (f"* {_join(of)}: {text}" for text, of in settings.items())
    return "\n".join([*lines, "", *said, ""])


def _describe_setting(table: Table, claim: Claim, rounds: int) -> str:
    """What is compared, after how many rounds, and what is not the paper's."""
    what = claim.statistic + (f" at equal {claim.equal}" if claim.equal else "")
    often = f"{rounds} rounds" if rounds == table.rounds else f"{rounds} of {table.rounds} rounds"
    return f"{what}, {often}. {claim.setting}".strip()


def _join(numbers: Sequence[int]) -> str:
    """Numbers in their order, neighbours as "4-11"."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)


def _line(table: Table, claim: Claim, number: int, rounds: int, found: dict[int, float]) -> str:
    claims, values = len(table.header.claims), list(found.values())
    is_papers = rounds == table.rounds and not claim.setting
    mean = "–" if not values else f"{statistics.fmean(values):+.2f}"
    if len(values) > 1:
        low, high = t_interval(values, correct_alpha(ALPHA, claims))
        mean += f" [{low:+.2f}, {high:+.2f}]"
    cells = (
        str(number),
        claim.says,
        ", ".join(f"{v:+.2f}" for v in values) or "not run",
        mean,
        "–" if claim.printed is None else f"{claim.printed:+g}",
        f"**{verdict(values, claim.least, claims, is_papers)}**",
    )
    return f"| {' | '.join(cells)} |"
