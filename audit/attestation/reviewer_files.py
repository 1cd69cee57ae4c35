"""A reviewer's own files: the attacks that must have run, and findings that somebody answers for.

attacks.yaml    attacks: [upcnn, {name: lira, shadows: 16}]
waivers.yaml    waivers: [{finding: upcnn, reason: ..., owner: ..., expires: 2027-01-31}]
"""

from datetime import date
from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import Group, PluginSpec
from fedaudit.audit.settings.yaml import read_yaml


class Required(Group):
    """Attacks by name, with the settings that they must have had."""

    attacks: tuple[PluginSpec, ...] = Field(min_length=1, description="names, or a name with settings")


class Waiver(Group):
    """One finding that is accepted for a while."""

    finding: str = Field(min_length=1, description="id of the finding")
    reason: str = Field(min_length=10, description="why it is accepted")
    owner: str = Field(min_length=1, description="who answers for it")
    expires: date = Field(description="the last day on which it counts, as 2027-01-31")

    @field_validator("expires", mode="before")
    @classmethod
    def _a_day(cls, value: Any) -> Any:
        return value.isoformat() if isinstance(value, date) else value


class Waivers(Group):
    waivers: tuple[Waiver, ...] = Field(description="a list of waivers")


def required(path: Path | None) -> list[tuple[str, dict[str, object]]]:
    """Name and settings of every attack that must have run."""
    if path is None:
        return []
    return [(s.name, dict(s.settings)) for s in validate(Required, read_yaml(path), path).attacks]


def waivers(path: Path | None) -> list[Waiver]:
    return [] if path is None else list(validate(Waivers, read_yaml(path), path).waivers)
