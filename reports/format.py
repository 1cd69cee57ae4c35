"""Numbers as people read them: three significant digits, percent, kB, intervals in brackets."""

import math
import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime

from fedaudit.fl.threats.threat import ThreatModel
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.questions import Cell, Question, RuleQuestion, name_cell
from fedaudit.reports.result import Outcome, Severity

NBSP = "\u00a0"  # a number and its unit stay on one line

PERCENT = ("fraction", "share")  # units of measures that are printed as percent

OUTCOMES = {Outcome.RAN: "Ran", Outcome.NOT_APPLICABLE: "Not applicable", Outcome.FAILED: "Failed"}
MOST_SENDERS = 5  # of unread messages that are named
OBSERVERS = {
    "server": "the server",
    "client": "another client",
    "next_client": "the next client",
    "colluding_clients": "clients in collusion",
    "public": "whoever gets the model",
}
SEVERITIES = {
    Severity.CRITICAL: "Critical",
    Severity.HIGH: "High",
    Severity.MEDIUM: "Medium",
    Severity.LOW: "Low",
    Severity.NONE: "None",
}


def number(value: float) -> str:
    """Three significant digits; whole numbers keep all of theirs: 0.123, 12.3, 12,345, 1e-5."""
    if math.isnan(value):
        return "not defined"
    if math.isinf(value):
        return "infinite" if value > 0 else "minus infinity"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return re.sub(r"e([+-])0*(\d)", r"e\1\2", f"{value:.3g}")


def format_measurement(value: float) -> str:
    """A measured number: as `number`, but 1.2 is 1.20, so that columns and brackets line up."""
    if not math.isfinite(value) or value == int(value) or abs(value) >= 1000 or abs(value) < 1e-4:
        return number(value)
    return f"{value:#.3g}".removesuffix(".")


def percent(fraction: float) -> str:
    """A measured fraction as percent, to a tenth. 100 % and 0 % are printed only for what is exactly that; what
    rounds to them is >99.9 % or <0.1 %.
    """
    return number(fraction) if not math.isfinite(fraction) else f"{_hundredths(fraction)}{NBSP}%"


def _hundredths(fraction: float) -> str:
    value = 100 * fraction
    if value == int(value):
        return f"{int(value):,}"
    if 99.95 <= value < 100:
        return ">99.9"
    if 0 < value < 0.05:
        return "<0.1"
    text = f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"
    return "0.0" if text == "-0.0" else text


def rate(fraction: float) -> str:
    """A chosen fraction as percent, with no more digits than it was chosen with: 95 %, 0.1 %."""
    return f"{100 * fraction:g}{NBSP}%"


def quantity(value: float, unit: str) -> str:
    """A value with its unit: fractions and shares as percent, indices bare."""
    if unit in PERCENT:
        return percent(value)
    if unit in ("", "index", "count") or not math.isfinite(value):
        return format_measurement(value)
    return f"{format_measurement(value)}{NBSP}{unit}"


def interval(bounds: tuple[float, float] | None, unit: str) -> str:
    """The one way to write it, "74.7 to 91.6 %"; "no interval" where an estimate has none."""
    if bounds is None:
        return "no interval"
    if unit in PERCENT and all(map(math.isfinite, bounds)):
        low, high = map(_hundredths, bounds)
        return f"{low} to {high}{NBSP}%"
    suffix = "" if unit in ("", "index", "count") else f"{NBSP}{unit}"
    return f"{format_measurement(bounds[0])} to {format_measurement(bounds[1])}{suffix}"


def estimate(value: float, bounds: tuple[float, float] | None, unit: str) -> str:
    """A value with its interval behind it: 84.7 % (74.7 to 91.6 %)."""
    shown = quantity(value, unit)
    return shown if bounds is None else f"{shown} ({interval(bounds, unit)})"


def points(value: float, bounds: tuple[float, float] | None) -> str:
    """A fraction or a difference of two in percentage points, its interval behind it: 1.2 (0.3 to 2.0)."""
    shown = f"{100 * value:.1f}"
    return shown if bounds is None else f"{shown} ({100 * bounds[0]:.1f} to {100 * bounds[1]:.1f})"


def points_less(lost: float, bounds: tuple[float, float] | None) -> str:
    """What is lost, in words that fit where it is gained: 1.2 points less (0.3 to 2.0), 1.2 points more."""
    if round(100 * lost, 1) >= 0:
        value, word = max(lost, 0.0), "less"
    else:
        value, word, bounds = -lost, "more", None if bounds is None else (-bounds[1], -bounds[0])
    shown, _, interval = points(value, bounds).partition(" ")
    return f"{shown} points {word} {interval}".strip()


def volume(size: int) -> str:
    """Bytes in decimal units: 1 kB is 1000 B."""
    scaled = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(scaled) < 999.5 or unit == "TB":
            break
        scaled /= 1000
    return f"{number(scaled)}{NBSP}{unit}"


def duration(seconds: float) -> str:
    """Seconds as 0.52 s, 3 min 20 s, 2 h 5 min; what nobody would wait for as "under 0.1 s"."""
    if 0 < seconds < 0.1:
        return f"under 0.1{NBSP}s"
    if seconds < 59.95:
        return f"{number(seconds)}{NBSP}s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60}{NBSP}min {whole % 60}{NBSP}s"
    return f"{whole // 3600:,}{NBSP}h {whole % 3600 // 60}{NBSP}min"


def moment(text: str) -> datetime:
    """ISO 8601 to a time in UTC; a time without a zone is UTC. Raises ValueError on anything else."""
    when = datetime.fromisoformat(text)
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).astimezone(UTC)


def date(text: str) -> str:
    """ISO 8601 as "5 March 2026, 14:07 UTC"; what is no time, as it stands."""
    try:
        when = moment(text)
    except ValueError:
        return text
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def sentence_case(text: str) -> str:
    """The first letter large, the rest as it is: "PSNR" stays."""
    return text[:1].upper() + text[1:]


def shorten(text: str, most: int) -> str:
    """The text, or as many of its first words as fit; what fits keeps its spaces, those before units too."""
    return text if len(text) <= most else textwrap.shorten(text, most, placeholder=" \u2026")


def plural(count: int, noun: str, many: str = "") -> str:
    """1 client, 10 clients."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def count_answered(cells: Sequence[Cell]) -> str:
    """Coverage in one phrase: "18 of 24 questions answered"."""
    if not cells:
        return "no question was asked"
    return f"{sum(c.is_answered for c in cells)} of {plural(len(cells), 'question')} answered"


def describe_unread(found: ImportRecord | None) -> str:
    """How many messages were not read, and whose, in a sentence; empty where all were."""
    if found is None or not found.unread:
        return ""
    many = plural(found.messages + len(found.unread), "message")
    sent = Counter(u.sender for u in found.unread)
    whose = [f"{sender} sent {n:,}" for sender, n in sent.most_common(MOST_SENDERS)]
    rest = [plural(len(sent) - len(whose), "other") + " the rest"] if len(sent) > len(whose) else []
    was = "was not read: what it holds" if len(found.unread) == 1 else "were not read: what they hold"
    return f"{len(found.unread):,} of {many} {was} is open ({join_words(whose + rest)})."


def name_observer(position: str) -> str:
    """Who reads messages, in words."""
    return OBSERVERS.get(position, f"a {position.replace('_', ' ')}")


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Words as a list within a sentence: "a, b and c"."""
    return f" {last} ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def threat(threat: ThreatModel) -> str:
    """A threat model as one phrase."""
    knows = ", ".join(k.replace("_", " ") for k in sorted(threat.knows))
    position = threat.position.replace("_", " ")
    conduct = threat.conduct.replace("_", " ").replace("honest but curious", "honest-but-curious")
    return f"{position}, {conduct}; knows {knows or 'nothing beforehand'}"


def name_questions(cells: Sequence[Cell]) -> list[str]:
    """Questions in words, those of one harm together: "membership by the server, another client"."""
    readers: dict[str, list[str]] = {}
    for cell in cells:
        readers.setdefault(name_cell(cell), []).append(_name_subject(cell))
    return [f"{what} by {join_words(list(dict.fromkeys(who)))}" for what, who in readers.items()]


def name_question(cell: Cell) -> str:
    """One question in words."""
    return f"{name_cell(cell)} by {_name_subject(cell)}"


def _name_subject(cell: Cell) -> str:
    """Who reads, or under which rule."""
    if isinstance(cell, Question):
        return name_observer(cell.observer)
    return f"attackers under {cell.rule.replace('_', ' ')}" if isinstance(cell, RuleQuestion) else ""
