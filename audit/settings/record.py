"""The `record` key of a simulated case: which messages are kept on disk; all others are still counted."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from fedaudit.audit.settings.controls import MOST_CLIENTS
from fedaudit.fl.kinds import Kind

WORDS = ("all", "last", "model")
RELEASED = frozenset({Kind.GLOBAL_MODEL, Kind.GLOBAL_PROTOTYPES})  # what `model` keeps


def _read(value: Any) -> Any:
    every = re.fullmatch(r"every (\d+)", value) if isinstance(value, str) else None
    if every and int(every[1]):
        return int(every[1])
    if isinstance(value, str) and value in WORDS:
        return value
    is_short = isinstance(value, list | tuple) and len(value) <= MOST_CLIENTS
    if is_short and all(type(v) is int and v >= 0 for v in value):
        return tuple(value)
    raise ValueError("must be all, last, model, every N (N >= 1), or a list of rounds")


def _write(value: Any) -> Any:
    return f"every {value}" if isinstance(value, int) else value


# A number N is "every N"
Recorded = Annotated[
    Literal["all", "last", "model"] | int | tuple[int, ...],
    BeforeValidator(_read),
    PlainSerializer(_write),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(WORDS)},
                {"type": "string", "pattern": r"^every 0*[1-9]\d*$"},
                {"type": "array", "items": {"type": "integer", "minimum": 0}},
            ]
        }
    ),
]


def is_recorded(record: Recorded, round: int) -> bool:
    """Whether a round's messages are kept, whichever round it is; the last of a phase may be kept besides."""
    if isinstance(record, tuple):
        return round in record
    return record == "all" or (isinstance(record, int) and round % record == 0)


def keeps_last(record: Recorded) -> bool:
    """Whether the last round of each phase is kept, and what is exchanged before training."""
    return record in ("last", "model") or isinstance(record, int)


def list_kinds(record: Recorded) -> frozenset[Kind] | None:
    """Kinds that are kept; None: all."""
    return RELEASED if record == "model" else None
