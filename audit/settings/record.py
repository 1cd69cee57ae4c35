"""The `record` key of a simulated case: which messages are kept on disk."""

import re
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_serializer, field_validator

from fedaudit.audit.settings.controls import MOST_CLIENTS
from fedaudit.audit.settings.spec import Group
from fedaudit.fl.runtime.errors import suggest_name

Natural = Annotated[int, Field(ge=0)]
_ROUNDS = {
    "anyOf": [
        {"enum": ["all", "last"]},
        {"type": "string", "pattern": r"^every 0*[1-9]\d*$"},
        {"type": "array", "items": {"type": "integer", "minimum": 0}},
    ]
}


class RecordSettings(Group):
    """Which messages are kept on disk; all others are still counted."""

    rounds: Annotated[Literal["all", "last"] | int | tuple[int, ...], WithJsonSchema(_ROUNDS)] = Field(
        default="last",
        description="all, last (of each phase, and what is exchanged before training), every N with those, "
        "or a list of rounds",
    )
    clients: Literal["all"] | Natural | tuple[Natural, ...] = Field(
        default="all", description="all, how many (drawn at random), or a list of client numbers"
    )
    kinds: tuple[str, ...] | None = Field(default=None, description="artifact kinds to keep; null: all")

    @field_validator("rounds", mode="before")
    @classmethod
    def _rounds(cls, value: Any) -> Any:
        every = re.fullmatch(r"every (\d+)", value) if isinstance(value, str) else None
        if every and int(every[1]):
            return int(every[1])
        if value in ("all", "last"):
            return value
        return _numbers(value, "must be all, last, every N (N >= 1), or a list of rounds")

    @field_validator("clients", mode="before")
    @classmethod
    def _clients(cls, value: Any) -> Any:
        if value == "all" or (type(value) is int and value >= 0):
            return value
        return _numbers(value, "must be all, a number, or a list of client numbers")

    @field_validator("kinds", mode="before")
    @classmethod
    def _kinds(cls, value: Any) -> Any:
        from fedaudit.fl.kinds import Kind

        if value is not None and not isinstance(value, list | tuple):
            raise ValueError("must be a list of artifact kinds")
        known = [k.value for k in Kind]
        for kind in value or ():
            if kind not in known:
                near = f" ({near})" if (near := suggest_name(kind, known)) else ""
                raise ValueError(f"must hold artifact kinds{near}, got {kind!r}")
        return value

    @field_serializer("rounds")
    def _as_written(self, value: Any) -> Any:
        return f"every {value}" if isinstance(value, int) else value


def _numbers(value: Any, expected: str) -> tuple[int, ...]:
    """A list of distinct numbers >= 0, or a ValueError that says what was expected."""
    if not isinstance(value, list | tuple) or len(value) > MOST_CLIENTS:
        raise ValueError(expected)
    if not all(type(v) is int and v >= 0 for v in value):
        raise ValueError(expected)
    return tuple(value)
