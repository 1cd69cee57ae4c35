"""Training: how well the audited model learned, and what it cost; a leak needs both sides."""

from collections.abc import Sequence

from fedaudit.attacks.evidence import Series
from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult, Figure, History
from fedaudit.reports.section import Block, Card, Chart, Folded, KeyValues, Paragraph, Section, Table

MOST_ROWS = 12
TIMED = "clock-accuracy"  # the figure of the same accuracies over simulated time, of which paper needs one
OTHERS = ("absence", "alternatives", "budget", "robustness")  # figures of other sections


class Training(Section):
    card = Card(title="Training", order=60)

    def build(self, result: AuditResult) -> list[Block]:
        figures = [f for f in result.figures if not f.finding and not f.id.startswith(OTHERS)]
        blocks: list[Block] = []
        if result.history:
            facts = "; ".join(f"{k.lower()}: {v}" for k, v in _facts(result.history).items())
            blocks += [Paragraph(f"{fmt.sentence_case(facts)}."), *_draw_accuracy(result), *_list_classes(result)]
            blocks.append(Folded("Round by round", [_rounds(result.history)]))
        else:
            blocks.append(Paragraph("No round was measured, so there is no accuracy to show."))
        if result.summary_metrics:
            one = "class" if result.scope.has_classes else "group"
            measures = KeyValues(items={_name(k, one): _value(k, v) for k, v in result.summary_metrics.items()})
            blocks.append(Folded("Summary measures", [measures]))
        return [*blocks, *(Chart(f) for f in figures)]


def _facts(history: Sequence[History]) -> dict[str, str]:
    measured = [h for h in history if h.accuracy is not None]
    facts = {}
    if measured:
        last = measured[-1]
        facts[f"Accuracy after round {last.round + 1}"] = fmt.percent(last.accuracy or 0.0)
    selected, delivered = sum(h.selected for h in history), sum(h.delivered for h in history)
    rejected = sum(h.rejected for h in history)
    facts["Replies"] = f"{delivered:,} delivered of {selected:,} selected, {rejected:,} rejected"
    facts["Uplink"] = fmt.volume(sum(h.bytes_up for h in history))
    facts["Downlink"] = fmt.volume(sum(h.bytes_down for h in history))
    facts["Counted over"] = fmt.plural(len(history), "measured round")
    return facts


def _draw_accuracy(result: AuditResult) -> list[Block]:
    """Accuracy over rounds."""
    measured = [h for h in result.history if h.accuracy is not None]
    if len(measured) < 2:
        return []
    accuracy = [100 * (h.accuracy or 0.0) for h in measured]
    span = f"from {accuracy[0]:.1f} % to {accuracy[-1]:.1f} %"
    is_class = result.scope.has_classes
    what = (
        "Share of the whole test set classified rightly"
        if is_class
        else "Mean score of the task, on the test set"
    )
    chart = Chart(
        Figure(
            id="training-accuracy",
            title="Accuracy over rounds",
            caption=f"{what}, {span}.",
            alt=f"Line chart: test accuracy over {len(measured)} measured rounds, {span}.",
            x_label="round",
            y_label="test accuracy (%)",
            series=[Series(name="accuracy", x=[h.round + 1 for h in measured], y=accuracy)],
        )
    )
    is_timed = any(f.id == TIMED for f in result.figures)
    return [Folded("Accuracy over rounds", [chart])] if is_timed else [chart]


def _list_classes(result: AuditResult) -> list[Block]:
    """Accuracy by class, or the mean score by group, at the end."""
    last = next((h for h in reversed(result.history) if h.class_accuracy), None)
    if last is None or not last.class_accuracy:
        return []
    names, is_class = result.scope.class_names, result.scope.has_classes
    one, many, score = ("class", "classes", "Accuracy") if is_class else ("group", "groups", "Score")
    if len(names) != len(last.class_accuracy):
        names = [f"{one} {i}" for i in range(len(last.class_accuracy))]
    rows = [[n, fmt.percent(a)] for n, a in zip(names, last.class_accuracy, strict=True)]
    half = -(-len(rows) // 2)  # two columns of classes side by side
    blank = [["", ""]] * (2 * half - len(rows))
    pairs = zip(rows[:half], [*rows[half:], *blank], strict=True)
    table = Table(
        header=[one.capitalize(), score, one.capitalize(), score],
        rows=[[*a, *b] for a, b in pairs],
        align="llll",
        caption=f"{score} by {one} after round {last.round + 1}. Look for {many} that few clients hold.",
    )
    return [Folded(f"{score} by {one}", [table])]


def _rounds(history: Sequence[History]) -> Table:
    last = len(history) - 1
    picked = sorted({round(i * last / (MOST_ROWS - 1)) for i in range(MOST_ROWS)})
    chosen = list(history) if len(history) <= MOST_ROWS else [history[i] for i in picked]
    names = sorted({k for h in chosen for k in h.values})[:3]
    rows = [
        [
            str(h.round + 1),
            "–" if h.accuracy is None else fmt.percent(h.accuracy),
            f"{h.selected:,}",
            f"{h.delivered:,}",
            f"{h.rejected:,}",
            fmt.volume(h.bytes_up),
            fmt.volume(h.bytes_down),
            *(_value(k, h.values[k]) if k in h.values else "–" for k in names),
        ]
        for h in chosen
    ]
    caption = "Measured rounds: accuracy, clients selected and replies delivered, bytes on the wire."
    if len(chosen) < len(history):
        caption += f" {len(chosen)} of {len(history):,}, evenly spaced; all are in audit.json."
    header = ["Round", "Accuracy", "Selected", "Delivered", "Rejected", "Uplink", "Downlink"]
    return Table(header=[*header, *map(_name, names)], rows=rows, caption=caption)


def _name(key: str, group: str = "class") -> str:
    return fmt.sentence_case(key.replace("_", " ").replace("class", group))


def _value(key: str, value: float) -> str:
    """Accuracies are fractions of the test set; other measures have units of their own."""
    return fmt.percent(value) if "accuracy" in key else fmt.format_measurement(value)
