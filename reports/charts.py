"""Charts: the numbers of a Figure drawn as SVG, the same bytes for PDF and HTML.

Readable in grey (every line has its own dash and marker, named beside the axes) and deterministic (fixed ids, no
date). Text becomes outlines, so no reader's fonts can change a chart; its words are in the alt text.
"""

import functools
import io
import math
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

from fedaudit.attacks.evidence import Series
from fedaudit.reports.format import number
from fedaudit.reports.result import Figure
from fedaudit.reports.typeset import own_fonts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLOURS = ("#17375e", "#b3541e", "#2f7d6d", "#7a4b8c", "#8a6d00", "#4a6fa5")
DASHES = ("-", (0, (6, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)), (0, (3, 1)), (0, (9, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREYS = ("#5f5f5f", "#757575", "#3f3f3f", "#6b6b6b")
BLIND_DASHES = ((0, (4, 2.5)), (0, (1.5, 2)), (0, (7, 2, 1.5, 2)), (0, (10, 3)))
HATCHES = ("////", "....", "\\\\\\\\", "xxxx")
WIDE = 34  # characters of a name on one line
STYLE = {
    "svg.fonttype": "path",
    "svg.hashsalt": "fedaudit",
    "font.family": ["Audit Sans", "DejaVu Sans"],
    "font.size": 8.6,
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
    "legend.labelspacing": 0.3,
}


class _Drawn(NamedTuple):
    """A line that needs its name, and the height that its place in the list of names follows."""

    name: str
    y: float
    line: Any


def svg(figure: Figure) -> bytes:
    """Draw a figure at the size it has on paper, 170 mm by 42 mm. Where a value is stands an element named
    `value-SERIES-POINT`.
    """
    return _draw(figure.model_dump_json())


@functools.lru_cache(maxsize=128)  # paper, screen and whoever renders them again to compare have the same charts
def _draw(content: str) -> bytes:
    """Draw the figure that this JSON is."""
    import matplotlib
    from matplotlib.figure import Figure as Canvas

    figure = Figure.model_validate_json(content)
    _add_fonts()
    with matplotlib.rc_context(STYLE):
        canvas = Canvas(figsize=(6.69, 1.65), layout="constrained")
        axes = canvas.add_subplot()
        axes.set_xlabel(figure.x_label)
        axes.set_ylabel(figure.y_label)
        if figure.kind == "moves":
            _moves(axes, figure)
        elif figure.kind in ("bar", "spans"):
            handles = (_bars if figure.kind == "bar" else _spans)(axes, figure)
            _scale(axes, figure)
            if len(handles) > 1:
                names = ["\n".join(textwrap.wrap(s.name, WIDE)) for s in figure.series]
                # a leading underscore would hide a name from matplotlib's legend
                names = [f" {n}" if n.startswith("_") else n for n in names]
                canvas.legend(handles, names, loc="outside right upper")
        else:
            drawn = _lines(axes, figure)
            _scale(axes, figure)
            if len(drawn) > 1:
                _list_names(canvas, drawn)
        out = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        canvas.savefig(out, format="svg", metadata=nothing)
    return out.getvalue()


@functools.cache
def _add_fonts() -> None:
    """Make our typeface known to matplotlib."""
    from matplotlib.font_manager import fontManager

    for path in sorted(own_fonts().glob("*.ttf")):
        fontManager.addfont(path)


def _lines(axes: "Axes", figure: Figure) -> list[_Drawn]:
    drawn = []
    blind = shown = 0
    if figure.kind == "roc":
        least = min((v for s in figure.series for v in s.x if v > 0), default=1e-3)
        (line,) = axes.plot([least, 1], [least, 1], color="#6b6b6b", linewidth=1.0, linestyle=(0, (1, 2)))
        drawn.append(_Drawn("guessing", least, line))
    for i, s in enumerate(figure.series):
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
                # of two lines of one colour the dashes differ
                "linestyle": DASHES[(shown + shown // len(COLOURS)) % len(DASHES)],
                "linewidth": 1.5,
            }
            if figure.kind == "points":
                look["linestyle"] = "none"
            look |= {
                "marker": MARKERS[shown % len(MARKERS)],
                "markersize": 3.6,
                "markevery": 1 if figure.kind == "points" else max(1, len(s.x) // 8),
            }
            shown += 1
        if s.blind and len(s.x) == 1:  # one number: the same everywhere
            line = axes.axhline(s.y[0], **look)
        else:
            if s.low is not None and s.high is not None:
                band = {"color": look["color"], "alpha": 0.14, "linewidth": 0}
                axes.fill_between(s.x, s.low, s.high, **band)
            (line,) = axes.plot(s.x, s.y, **look)
            _values(axes, i, s)
        # a ROC's lines all end in the corner: they differ where they begin
        start = next((y for x, y in zip(s.x, s.y, strict=True) if x > 0 and y > 0), 0.0)
        drawn.append(_Drawn(s.name, start if figure.kind == "roc" else s.y[-1], line))
    return drawn


MOST_VALUES = 60  # of a line, that are worth pointing at


def _values(axes: "Axes", number: int, series: Series) -> None:
    """An invisible mark at every value, for renderers that can be pointed at."""
    if len(series.x) > MOST_VALUES:
        return
    for j, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        axes.plot([x], [y], marker="o", markersize=9, alpha=0, gid=f"value-{number}-{j}")


def _list_names(canvas: "Canvas", drawn: list[_Drawn]) -> None:
    """Names of lines from the top down, beside the axes, so that lines that meet have names that do not."""
    ordered = sorted(drawn, key=lambda d: -d.y)
    names = ["\n".join(textwrap.wrap(d.name, WIDE)) or " " for d in ordered]
    names = [f" {n}" if n.startswith("_") else n for n in names]  # such a name would be hidden
    canvas.legend([d.line for d in ordered], names, loc="outside right upper")


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
        for j, bar in enumerate(bars):
            bar.set_gid(f"value-{i}-{j}")
        handles.append(bars)
    axes.set_xticks(range(len(places)), [f"{x:g}" for x in places])
    axes.grid(False, axis="x")
    return handles


def _spans(axes: "Axes", figure: Figure) -> list[Any]:
    """Bars from `low` to `high` in the row `x`: what went on when."""
    handles = []
    for i, s in enumerate(figure.series):
        look: dict[str, Any] = {"color": COLOURS[i % len(COLOURS)], "edgecolor": "white"}
        if s.blind:
            look = {"color": "#f0f0f0", "edgecolor": "#777777", "hatch": HATCHES[0]}
        lengths = [high - low for low, high in zip(s.low or s.y, s.high or s.y, strict=True)]
        bars = axes.barh(s.x, lengths, 0.8, left=s.low or s.y, linewidth=0.4, **look)
        for j, bar in enumerate(bars):
            bar.set_gid(f"value-{i}-{j}")
        handles.append(bars)
    axes.set_yticks([])
    axes.grid(False, axis="y")
    return handles


def _moves(axes: "Axes", figure: Figure) -> None:
    """An arrow a series, from a ring to a filled square, with its name beside the ring."""
    for i, s in enumerate(figure.series):
        colour = COLOURS[i % len(COLOURS)]
        (x, to_x), (y, to_y) = s.x, s.y
        arrow = {"arrowstyle": "->", "color": colour, "linewidth": 0.9, "shrinkA": 2.5, "shrinkB": 2.5}
        axes.annotate("", xy=(to_x, to_y), xytext=(x, y), arrowprops=arrow)
        axes.plot([x], [y], marker="o", markersize=4.5, color=colour, markerfacecolor="white", gid=f"value-{i}-0")
        axes.plot([to_x], [to_y], marker="s", markersize=3.6, color=colour, gid=f"value-{i}-1")
        axes.annotate(s.name, xy=(x, y), xytext=(4, 3), textcoords="offset points", color=colour)
    axes.margins(0.08, 0.12)


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
                axes.set(**{f"{which}lim": (min(*positive, 0.1), 1.0)})
        elif (which, figure.kind) in (("x", "line"), ("y", "points")) and all(map(_is_integer, values)):
            axis = axes.xaxis if which == "x" else axes.yaxis
            axis.set_major_locator(MaxNLocator(integer=True))


def _is_integer(value: float) -> bool:
    return math.isfinite(value) and value == int(value)
