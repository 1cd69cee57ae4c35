"""A first schema of a CSV file, by its header and its entries alone; each guess says why."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fedaudit.fl.data.table_file import TableFile, is_number, order
from fedaudit.fl.data.table_schema import MISSING

FEW = 10  # different whole numbers, up to which they are taken for categories
MOST_GUESSED = 50  # different texts, up to which they are taken for categories
FINEST = 3  # digits behind the point, up to which they are taken for a grid
OWNERS = re.compile(
    r"(patient|subject|person|owner|client|user|mrn"
    r"|customer|member|account|household|borrower|applicant|employee|student)",
    re.I,
)
SITES = re.compile(r"(hospital|site|clinic|centre|center|institution)(_?(id|no|name|code))?", re.I)
LABELS = re.compile(r"(label|target|outcome|class|diagnosis|y|result|death|survived|readmitted)", re.I)
TIMES = re.compile(r".*(time|duration|follow_?up|survival|days_to).*", re.I)
EVENTS = re.compile(r".*(event|status|death|died|censor|relapse).*", re.I)


@dataclass
class Guess:
    """What a schema may say, with a reason for each of its keys and columns."""

    columns: dict[str, dict[str, Any]] = field(default_factory=dict)
    label: tuple[str, ...] = ()
    task: str = "classify"
    owner: str | None = None
    identifiers: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    why: dict[str, str] = field(default_factory=dict)  # of a column, or of `label` and `owner`


def guess_schema(table: TableFile) -> Guess:
    """A place for every column: what is predicted, whose a row is, what names somebody, and what is given."""
    found = Guess()
    entries = {name: table.column(name) for name in table.header}
    found.owner = _guess_owner(entries)
    found.label, found.task = _guess_label(entries, found.owner)
    found.why["owner"] = "rows repeat it" if found.owner else "no column says whose a row is: each is another's"
    found.why["label"] = _explain_label(found.label, table.header)
    for name, values in entries.items():
        if name in found.label or name == found.owner:
            continue
        known = [v for v in values if v not in MISSING]
        different, numbers = len(set(known)), all(map(is_number, known))
        whole = numbers and all("." not in v and "e" not in v.lower() for v in known)
        if not known:
            found.left_out.append(name)
            found.why[name] = "no entry"
        elif SITES.fullmatch(name) and different < len(values):
            found.left_out.append(name)
            found.why[name] = "a place, and no person; as `owner`, with partition: natural, each is a client"
        elif different == len(values) and (whole or not numbers):
            found.identifiers.append(name)
            found.why[name] = "no two rows have the same"
        elif numbers and not (whole and different <= FEW and len(known) > 2 * FEW):
            found.columns[name] = _guess_number(known)
            found.why[name] = f"{different:,} different numbers"
        elif different <= (FEW if numbers else MOST_GUESSED):
            found.columns[name] = {"kind": "category", "levels": sorted(set(known), key=order)}
            found.why[name] = f"{different} different {'whole numbers' if numbers else 'texts'}"
        else:
            found.left_out.append(name)
            found.why[name] = f"{different:,} different texts"
        if name in found.columns and len(known) < len(values):
            found.columns[name]["missing"] = True
    return found


def _guess_owner(entries: dict[str, list[str]]) -> str | None:
    for name, values in entries.items():
        repeated = 1 < len(set(values)) < len(values)
        if OWNERS.match(name) and repeated and not set(values) & set(MISSING):
            return name
    return None


def _guess_label(entries: dict[str, list[str]], owner: str | None) -> tuple[tuple[str, ...], str]:
    names = [name for name in entries if name != owner]
    events = [n for n in names if EVENTS.fullmatch(n) and {v.lower() for v in entries[n]} <= {"0", "1"}]
    times = [n for n in names if TIMES.fullmatch(n) and n not in events and all(map(is_number, entries[n]))]
    if events and times:
        return (times[0], events[0]), "survival"
    chosen = next((n for n in names if LABELS.fullmatch(n)), names[-1] if names else next(iter(entries)))
    values = [v for v in entries[chosen] if v not in MISSING]
    few = len(set(values)) <= max(2, min(20, len(values) // 10))
    return (chosen,), "regression" if not few and all(map(is_number, values)) else "classify"


def _explain_label(label: Sequence[str], header: Sequence[str]) -> str:
    if len(label) > 1:
        return "a time, and whether something was seen then, by their names"
    return (
        "by its name" if LABELS.fullmatch(label[0]) else "the last column" if label[0] == header[-1] else "left"
    )


def _guess_number(values: Sequence[str]) -> dict[str, Any]:
    digits = max(len(v.partition(".")[2]) if "e" not in v.lower() else FINEST + 1 for v in values)
    found: dict[str, Any] = {"kind": "number"}
    if digits <= FINEST and len(Counter(values)) < len(values):
        found["step"] = 1 if not digits else float(f"1e-{digits}")
    return found
