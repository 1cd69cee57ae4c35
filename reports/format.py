"""Numbers as people read them: three significant digits, percent, kB, intervals in brackets."""

import math
import re
from datetime import UTC, datetime

from fl.threat import ThreatModel
from reports.result import Outcome, Severity

NBSP = "\u00a0"  # a number and its unit stay on one line

OUTCOMES = {
    Outcome.DEMONSTRATED: "Demonstrated",
    Outcome.NOT_DEMONSTRATED: "Not demonstrated",
    Outcome.INCONCLUSIVE: "Inconclusive",
    Outcome.NOT_APPLICABLE: "Not applicable",
    Outcome.FAILED: "Failed",
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


def measured(value: float) -> str:
    """A measured number: as `number`, but 1.2 is 1.20, so that columns and brackets line up."""
    if not math.isfinite(value) or value == int(value) or abs(value) >= 1000 or abs(value) < 1e-4:
        return number(value)
    return f"{value:#.3g}".removesuffix(".")


def percent(fraction: float) -> str:
    """A measured fraction as percent. 100 % is printed only when it is exactly that."""
    if not math.isfinite(fraction):
        return number(fraction)
    value = round(100 * fraction, 10)  # 0.07 * 100 is 7.000000000000001
    usual = 1e-4 <= abs(value) < 1000
    text = f"{value:#.3g}".removesuffix(".") if usual else number(value)
    if text == "100" and fraction < 1:
        text = f"{math.floor(1e6 * fraction) / 1e4:g}"  # rounded down, so never up to all of it
    return f"{text}{NBSP}%"


def rate(fraction: float) -> str:
    """A chosen fraction as percent, with no more digits than it was chosen with: 95 %, 0.1 %."""
    return f"{100 * fraction:g}{NBSP}%"


def quantity(value: float, unit: str) -> str:
    """A value with its unit: fractions as percent, indices bare."""
    if unit == "fraction":
        return percent(value)
    if unit in ("", "index", "count") or not math.isfinite(value):
        return measured(value)
    return f"{measured(value)}{NBSP}{unit}"


def interval(bounds: tuple[float, float] | None, unit: str) -> str:
    """[low, high] unit; "none" where an estimate has no interval."""
    if bounds is None:
        return "none"
    if unit == "fraction":
        low, high = (percent(b).removesuffix(f"{NBSP}%") for b in bounds)
        return f"[{low}, {high}]{NBSP}%"
    suffix = "" if unit in ("", "index", "count") else f"{NBSP}{unit}"
    return f"[{measured(bounds[0])}, {measured(bounds[1])}]{suffix}"


def volume(size: int) -> str:
    """Bytes in decimal units: 1 kB is 1000 B."""
    scaled = float(size)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if abs(scaled) < 999.5 or unit == "TB":
            break
        scaled /= 1000
    return f"{number(scaled)}{NBSP}{unit}"


def duration(seconds: float) -> str:
    """Seconds as 0.52 s, 3 min 20 s, 2 h 5 min."""
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
    """ISO 8601 as "5 March 2026, 14:07 UTC"."""
    when = moment(text)
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def sentence_case(text: str) -> str:
    """The first letter large, the rest as it is: "PSNR" stays."""
    return text[:1].upper() + text[1:]


def plural(count: int, noun: str, many: str = "") -> str:
    """1 client, 10 clients."""
    return f"{count:,} {noun if count == 1 else many or noun + 's'}"


def threat(threat: ThreatModel) -> str:
    """A threat model as one phrase."""
    knows = ", ".join(k.replace("_", " ") for k in sorted(threat.knows))
    position = threat.position.replace("_", " ")
    conduct = threat.conduct.replace("_", " ").replace("honest but curious", "honest-but-curious")
    return f"{position}, {conduct}; knows {knows or 'nothing beforehand'}"
