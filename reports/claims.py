"""Claims re-scored: what was promised, what the noise is worth, and what was measured, a page a claim."""

import math
from collections.abc import Sequence

from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.format import number, percent
from fedaudit.reports.result import ClaimRecord, ClaimRow
from fedaudit.reports.section import Block, Bullets, Callout, KeyValues, Paragraph, Table


def table(claims: Sequence[ClaimRecord]) -> Table:
    """The verdict on each claim, beside the numbers it rests on."""
    return Table(
        header=["Claim", "Verdict", "Claimed", "One release", "All releases", "Measured"],
        rows=[
            [
                c.title,
                c.outcome.value,
                c.claimed,
                digits(c.exact),
                label_bound(c.bound, digits) if c.bound else digits(None),
                "" if c.empirical is None else number(c.empirical),
            ]
            for c in claims
        ],
        align="llrrrr",
        widths=[3.0, 3.0, 1.7, 1.6, 2.2, 1.2],
        caption="Epsilon. One release and all of them are upper bounds for what is known to be so, declared "
        "since nothing ran; measured is a lower bound. A claim is refuted by a lower bound only.",
    )


def page(claim: ClaimRecord) -> list[Block]:
    """One claim: verdict, conditions, numbers under each assumption, the noise that would do."""
    blocks: list[Block] = [
        Paragraph(claim.words),
        Callout(title="Verdict", text=claim.verdict, severity=claim.severity),
        KeyValues(items={"Source": claim.source, "Claimed": claim.claimed}),
    ]
    if claim.conditions:
        blocks.append(
            Table(
                header=["Assumption", "Status", "Because"],
                rows=[[c.text, c.status, c.because] for c in claim.conditions],
                align="lll",
                widths=[3, 1.2, 4],
                caption="What the claim needs. Assumed: taken for granted here.",
            )
        )
    if claim.table:
        header, *rows = claim.table
        caption = (
            "Computed from the simulated clock; where two numbers stand, for two laws of the clients' sizes."
        )
        blocks.append(
            Table(
                header=header,
                rows=rows,
                align="l" + "r" * (len(header) - 1),
                widths=[3, *[1.5] * (len(header) - 1)],
                caption=caption,
            )
        )
    if claim.rows:
        blocks.append(_numbers(claim))
    if claim.sampled:
        blocks.append(_tabulate_samples(claim.sampled))
    if claim.empirical_text:
        blocks.append(Paragraph(claim.empirical_text))
    if claim.needed:
        blocks.append(
            Table(
                header=["To be true", "Sensitivity", "Over", "Noise needed"],
                rows=claim.needed,
                align="lrlr",
                caption="Standard deviation of the Gaussian noise that would keep each guarantee.",
            )
        )
    if claim.notes:
        blocks.append(Bullets(claim.notes))
    return blocks


def _numbers(claim: ClaimRecord) -> Table:
    formula = any(r.formula is not None for r in claim.rows)
    recovered = any(r.recovered is not None for r in claim.rows)
    header = ["Assumption", "Delta", "Noise / sensitivity", *claim.releases]
    header += ["Cited formula, one release"] if formula else []
    header += ["Recovered by rounding"] if recovered else []
    rows = []
    for r in claim.rows:
        cells = [r.name, number(r.delta), f"{r.multiplier:.4g}", *map(digits, r.epsilon)]
        cells += ["none" if r.formula is None else f"{r.formula:.4g}"] if formula else []
        cells += ["" if r.recovered is None else percent(r.recovered)] if recovered else []
        rows.append(cells)
    return Table(
        header=header,
        rows=rows,
        widths=[3.0, 0.9, *[1.3] * (len(header) - 2)],
        caption="Epsilon under each assumption: exact, rounded up.",
    )


def _tabulate_samples(rows: Sequence[ClaimRow]) -> Table:
    cited = any(r.formula is not None for r in rows)
    header = [
        "With sampling, shuffling or tuning",
        "Delta",
        "Noise / sensitivity",
        "Epsilon at most",
        "Computed by",
    ]
    table = []
    for r in rows:
        bound = digits(r.epsilon[0]) + ("" if r.lower is None else f", at least {number(r.lower)}")
        cells = [r.name, number(r.delta), f"{r.multiplier:.4g}", bound, r.how]
        cells += ["none" if r.formula is None else f"{r.formula:.4g}"] if cited else []
        table.append(cells)
    return Table(
        header=header + (["Cited formula"] if cited else []),
        rows=table,
        align="lrrrl" + ("r" if cited else ""),
        widths=[4, 0.8, 1.2, 2, 1, *([1.0] if cited else [])],
        caption="Epsilon of all releases. Sampling and shuffling count only if no reader knows who took part.",
    )


def digits(value: float | None) -> str:
    """Six significant digits, no trailing zeros; eight and a power of ten beyond ten million. None: a dash."""
    if value is None:
        return "–"
    if math.isinf(value):
        return "infinite"
    if value >= 1e7:
        mantissa, _, power = f"{value:.7e}".partition("e+")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(power)}"
    text = f"{value:,.{max(0, 5 - math.floor(math.log10(value)))}f}" if value > 0 else "0"
    return text.rstrip("0").rstrip(".") if "." in text else text
