"""Evidence into the numbers of figures: one figure a finding and measure, over the condition n."""

from collections.abc import Mapping, Sequence
from typing import Any

from fedaudit.attacks.evidence import WHOLE, Evidence, Series
from fedaudit.attacks.measure import MEASURES
from fedaudit.reports import format as fmt
from fedaudit.reports.result import Figure


def by_samples(finding: str, evidence: Sequence[Evidence]) -> list[Figure]:
    """Leakage against the number of samples behind an artifact, with every baseline."""
    figures = []
    for row in (m for m in MEASURES.values() if m.curve):
        found = [
            e
            for e in evidence
            if e.measure == row.name
            and e.control != "negative"
            and "n" in e.condition
            and e.condition.get("origin") != WHOLE  # the tables have those
        ]
        scale = 100 if row.unit == "fraction" else 1
        if len({e.condition["n"] for e in found}) < 2:
            continue
        series = []
        for origin in sorted({str(e.condition.get("origin", "recorded")) for e in found}, reverse=True):
            points = _sort([e for e in found if e.condition.get("origin", "recorded") == origin])
            if points:
                series.append(_series(f"attack ({origin})", points, scale))
        curve = _sort([e for e in found if str(e.condition.get("origin", "")).startswith("replayed")]) or _sort(
            found
        )
        for name in dict.fromkeys(b.name for e in curve for b in e.baselines):
            pairs = [(e, b) for e in curve for b in e.baselines if b.name == name]
            series.append(
                Series(name=name, x=[_n(e) for e, _ in pairs], y=[scale * b.value for _, b in pairs], blind=True)
            )
        words = row.words
        figures.append(
            Figure(
                id=f"{finding}-{row.name}",
                finding=finding,
                title=f"{fmt.sentence_case(words)} by number of samples",
                caption=f"{fmt.sentence_case(words)} against the number of samples behind the artifact. "
                "Where the attack's line meets the grey ones, it showed no more than a baseline does.",
                alt=_alt(words, series, row.unit),
                x_label="samples behind the artifact",
                y_label=f"{words} (%)" if row.unit == "fraction" else words,
                x_log=True,
                series=series,
            )
        )
    return figures


def by_frozen(finding: str, evidence: Sequence[Evidence]) -> list[Figure]:
    """What attacks on updates get where the first layers are not sent, against how many of them."""
    found = [e for e in evidence if "frozen" in e.condition and e.control != "negative"]
    found = [e for e in found if e.measure in ("auc", "label_set_exact_match", "named")]
    if len({e.condition["frozen"] for e in found}) < 2:
        return []
    lines: dict[str, list[Evidence]] = {}
    for e in found:
        by = str(e.condition.get("by", ""))
        words = {"auc": "membership (AUC)", "label_set_exact_match": "class known"}.get(
            e.measure, f"image, by {by}"
        )
        lines.setdefault(f"{words}, {e.condition['origin']}", []).append(e)
    series, guessing = [], dict[str, Series]()
    for name, points in lines.items():
        points = sorted(points, key=_frozen)
        series.append(Series(name=name, x=[_frozen(e) for e in points], y=[e.value for e in points]))
        # one line of guessing for each height
        guess = [e.strongest.value if e.strongest else float("nan") for e in points]
        height = f"guessing: {fmt.percent(guess[0])}"
        if len(points) > len(guessing.get(height, Series(name="", x=[], y=[])).x):
            guessing[height] = Series(name=height, x=[_frozen(e) for e in points], y=guess, blind=True)
    parts = [f"{s.name}: {s.y[0]:.3g} with {s.x[0]:g} left out, {s.y[-1]:.3g} with {s.x[-1]:g}" for s in series]
    return [
        Figure(
            id=f"{finding}-frozen",
            finding=finding,
            title="What frozen layers hide of an update",
            caption="Success of attacks on one step over one image, of which so many first layers are not sent, "
            "and of the attack on membership on what clients sent. Where a line stays above guessing, freezing "
            "hides nothing of that.",
            alt="Success of attacks on updates. " + "; ".join(parts),
            x_label="first layers that are not sent",
            y_label="share of updates, or AUC",
            series=[*series, *guessing.values()],
        )
    ]


def _frozen(evidence: Evidence) -> float:
    return float(evidence.condition["frozen"])


def roc(finding: str, curves: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """ROC curves on log axes, from what the attack returned."""
    curves = [c for c in curves if WHOLE not in c["name"]]  # the tables have those
    if not curves:
        return []
    series = [Series(name=c["name"], x=list(c["x"]), y=list(c["y"]), blind=bool(c.get("blind"))) for c in curves]
    return [
        Figure(
            id=f"{finding}-roc",
            finding=finding,
            kind="roc",
            title="Membership: true against false positives",
            caption="Both axes are logarithmic: the left edge is where an attacker who must not be wrong "
            "works. On the diagonal the attack does no better than guessing.",
            alt=_roc_alt(series),
            x_label="false-positive rate",
            y_label="true-positive rate",
            x_log=True,
            y_log=True,
            series=series,
        )
    ]


def _roc_alt(series: Sequence[Series]) -> str:
    """What is seen: how many members each group gives away at one false alarm in a hundred."""
    parts = []
    for s in series:
        reached = max((y for x, y in zip(s.x, s.y, strict=True) if x <= 0.01), default=0.0)
        parts.append(f"{s.name}: {fmt.percent(reached)}")
    return f"ROC curves on log axes. True positives at 1 % false positives, {'; '.join(parts)}; guessing: 1 %"


def _n(evidence: Evidence) -> float:
    return float(evidence.condition["n"])


def _sort(evidence: Sequence[Evidence]) -> list[Evidence]:
    return sorted(evidence, key=_n)


def _series(name: str, points: Sequence[Evidence], scale: int) -> Series:
    bounded = all(e.interval for e in points)
    return Series(
        name=name,
        x=[_n(e) for e in points],
        y=[scale * e.value for e in points],
        low=[scale * e.interval[0] for e in points if e.interval] if bounded else None,
        high=[scale * e.interval[1] for e in points if e.interval] if bounded else None,
    )


def _alt(words: str, series: Sequence[Series], unit: str) -> str:
    sign = f"{fmt.NBSP}%" if unit == "fraction" else ""
    parts = [
        f"{s.name}: from {s.y[0]:.3g}{sign} at n = {s.x[0]:g} to {s.y[-1]:.3g}{sign} at n = {s.x[-1]:g}"
        for s in series
    ]
    return f"{words}. " + "; ".join(parts)
