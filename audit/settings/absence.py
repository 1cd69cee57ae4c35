"""The `absence` key of a config: clients that do not answer, for a while or for long, each a run."""

from typing import Annotated

from pydantic import Field, model_validator

from fedaudit.audit.settings.spec import AttackSpec, Group, Number, Whole
from fedaudit.fl.runtime.errors import UserError

AT_LEAST_ONCE = Annotated[Whole, Field(ge=1)]


class LeavingSettings(Group):
    """The only holders of a class leave together and come back."""

    label: Whole = Field(default=0, ge=0, description="number of the class")
    leave: Whole = Field(ge=1, description="first round without them")
    back: Whole = Field(ge=2, description="first round with them again")

    @model_validator(mode="after")
    def _in_order(self) -> "LeavingSettings":
        if self.back <= self.leave:
            raise UserError(
                f"absence.leaving.back must be after leave ({self.leave}), got {self.back}",
                hint="rounds are numbered from 0",
                key="absence.leaving.back",
            )
        return self


class DropoutSettings(Group):
    """What is varied, one at a time; every client answers in the run that they are compared with."""

    methods: tuple[AttackSpec, ...] = Field(
        default=(), max_length=20, description="laid over the audit's own; fedavg is always compared with"
    )
    answering: tuple[Annotated[Number, Field(gt=0, le=1)], ...] = Field(
        default=(0.1, 0.3, 0.5, 0.8), max_length=20, description="p: how likely a client answers in a round"
    )
    persistence: tuple[AT_LEAST_ONCE, ...] = Field(
        default=(), max_length=20, description="s: rounds for which who answers stays the same, at p = 0.5"
    )
    seeds: tuple[Annotated[Whole, Field(ge=0)], ...] = Field(
        default=(7, 8, 9), min_length=1, max_length=100, description="one run of each for each"
    )
    leaving: LeavingSettings | None = Field(
        default=None, description="the only holders of a class leave and return"
    )
