"""Charts: the numbers of a Figure drawn as SVG, the same bytes for PDF and HTML.

Readable in grey (every line has its own dash and marker) and deterministic (fixed ids, no date).
Text becomes outlines, so no reader's fonts can change a chart; its words are in the alt text.
"""

import io
import math
from typing import TYPE_CHECKING, Any

from attacks.evidence import Series
from reports.format import number
from reports.result import Figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#17375e", "#b3541e", "#2f7d6d", "#7a4b8c", "#8a6d00", "#4a6fa5")
DASHES = ("-", (0, (6, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (9, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")
GREYS = ("#6b6b6b", "#909090", "#4a4a4a", "#a8a8a8")
BLIND_DASHES = ((0, (4, 2.5)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)), (0, (10, 3)))
HATCHES = ("////", "....", "\\\\\\\\", "xxxx")
STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "fedaudit",
    "font.family": ["DejaVu Sans"],
    "font.size": 8.0,
    "text.parse_math": False,  # a `$` in a name is a dollar sign
    "axes.unicode_minus": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.handlelength": 3.2,
}


def svg(figure: Figure) -> bytes:
    """Draw a figure, 160 mm by 72 mm."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(6.3, 2.85), layout="constrained")
        axes = canvas.add_subplot()
        draw = _bars if figure.kind == "bar" else _lines
        handles = draw(axes, figure)
        _scale(axes, figure)
        axes.set_xlabel(figure.x_label)
        axes.set_ylabel(figure.y_label)
        if len(handles) > 1:
            # a leading underscore would hide a name from matplotlib's legend
            names = [f" {s.name}" if s.name.startswith("_") else s.name for s in figure.series]
            canvas.legend(handles, names, loc="outside lower center", ncols=min(len(names), 3))
        out = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


def _lines(axes: "Axes", figure: Figure) -> list[Any]:
    handles = []
    blind = shown = 0
    for s in figure.series:
        if s.blind:
            look: dict[str, Any] = {
                "color": GREYS[blind % len(GREYS)],
                "linestyle": BLIND_DASHES[blind % len(BLIND_DASHES)],
                "linewidth": 1.1,
            }
            blind += 1
        else:
            look = {
                "color": COLOURS[shown % len(COLOURS)],
                "linestyle": DASHES[shown % len(DASHES)],
                "linewidth": 1.5,
            }
            if figure.kind == "points":
                look["linestyle"] = "none"
            if figure.kind in ("line", "points"):
                look |= {
                    "marker": MARKERS[(shown + shown // len(DASHES)) % len(MARKERS)],
                    "markersize": 3.6,
                    "markevery": max(1, len(s.x) // 20) if figure.kind == "line" else 1,
                }
            shown += 1
        if s.blind and len(s.x) == 1:  # one number: the same everywhere
            handles.append(axes.axhline(s.y[0], **look))
            continue
        if s.low is not None and s.high is not None:
            band = {"color": look["color"], "alpha": 0.14, "linewidth": 0}
            axes.fill_between(s.x, s.low, s.high, **band)
        handles.extend(axes.plot(s.x, s.y, **look))
    return handles


def _bars(axes: "Axes", figure: Figure) -> list[Any]:
    places = sorted({x for s in figure.series for x in s.x})
    width = 0.8 / len(figure.series)
    handles = []
    blind = shown = 0
    for i, s in enumerate(figure.series):
        at = [places.index(x) + (i - (len(figure.series) - 1) / 2) * width for x in s.x]
        if s.blind:
            look: dict[str, Any] = {
                "color": "#f0f0f0",
                "edgecolor": "#777777",
                "hatch": HATCHES[blind % len(HATCHES)],
            }
            blind += 1
        else:
            look = {"color": COLOURS[shown % len(COLOURS)], "edgecolor": "white"}
            shown += 1
        bars = axes.bar(at, s.y, 0.92 * width, linewidth=0.6, yerr=_errors(s), **look)
        handles.append(bars)
    axes.set_xticks(range(len(places)), [f"{x:g}" for x in places])
    axes.grid(False, axis="x")
    return handles


def _errors(series: Series) -> list[list[float]] | None:
    if series.low is None or series.high is None:
        return None
    low = [max(0.0, y - b) for y, b in zip(series.y, series.low, strict=True)]
    high = [max(0.0, b - y) for y, b in zip(series.y, series.high, strict=True)]
    return [low, high]


def _scale(axes: "Axes", figure: Figure) -> None:
    """Log axes where selected (always for a ROC: low false-positive rates matter), whole rounds."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    roc = figure.kind == "roc"
    for log, which in ((figure.x_log or roc, "x"), (figure.y_log or roc, "y")):
        values = [v for s in figure.series for v in getattr(s, which)]
        if log and any(v > 0 for v in values) and not (figure.kind == "bar" and which == "x"):
            positive = [v for v in values if v > 0]
            axis = axes.xaxis if which == "x" else axes.yaxis
            axes.set(**{f"{which}scale": "log"})
            decades = math.log10(max(positive) / min(positive))
            axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 2 else (1,)))
            axis.set_major_formatter(FuncFormatter(lambda v, _: number(v)))
            axis.set_minor_formatter(NullFormatter())
            if roc:
                axes.set(**{f"{which}lim": (min(positive), 1.0)})
        elif (which, figure.kind) in (("x", "line"), ("y", "points")) and all(map(_whole, values)):
            axis = axes.xaxis if which == "x" else axes.yaxis
            axis.set_major_locator(MaxNLocator(integer=True))


def _whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value)
