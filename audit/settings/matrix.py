"""The `matrix` key of a config: attacks on the model by rules of the server, each pair a run of its own."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, WithJsonSchema, field_validator, model_validator

from fedaudit.audit.settings.spec import AttackSpec, Group, NamedPlugin, Whole, number_plugins
from fedaudit.fl.runtime.errors import UserError

AXES = {  # what entries of an axis are on the shelves of the catalogue
    "adversaries": "adversaries",
    "aggregators": "aggregators",
    "prototype_aggregators": "aggregators",
    "partitions": "partitions",
    "availabilities": "availability",
    "protections": "protections",
}

# What says how a federation is run, which of a recorded one nobody can run again
OF_RUNS = (
    "prototype_aggregators",
    "breakdown",
    "seeds",
    "partitions",
    "availabilities",
    "protections",
    "methods",
)
# YAML reads `true` as a truth value, and both are what a config may say
Told = Annotated[Literal["true", "half"], WithJsonSchema({"enum": ["true", True, "half"]})]


class Matrix(Group):
    """What is crossed; nobody malicious and the rule `mean` are always there, and two controls."""

    adversaries: tuple[AttackSpec, ...] = Field(
        min_length=1, max_length=50, description="a list of plugins; an `id` distinguishes one from itself"
    )
    aggregators: tuple[AttackSpec, ...] = Field(
        default=(), max_length=50, description="rules beside the mean; `assumed` sets f where a rule assumes one"
    )
    prototype_aggregators: tuple[AttackSpec, ...] = Field(
        default=(), max_length=50, description="rules for prototypes, models by the mean"
    )
    malicious: tuple[Annotated[Whole, Field(ge=1)], ...] = Field(
        default=(1,), min_length=1, max_length=50, description="how many clients are; none is always tried"
    )
    assumed: tuple[Told | Annotated[int, Field(ge=0)], ...] = Field(
        default=("true",), min_length=1, max_length=10, description="what rules assume: true, half, or numbers"
    )
    breakdown: bool = Field(
        default=False, description="whether to look for the fewest malicious clients that break each rule"
    )
    seeds: tuple[Annotated[Whole, Field(ge=0)], ...] = Field(
        default=(), max_length=100, description="one run of each pair for each; none: the audit's own"
    )
    partitions: tuple[AttackSpec, ...] = Field(
        default=(), max_length=20, description="who holds which examples; none: the audit's own"
    )
    availabilities: tuple[AttackSpec, ...] = Field(
        default=(), max_length=20, description="who answers in a round; none: the audit's own"
    )
    protections: tuple[AttackSpec, ...] = Field(
        default=(), max_length=20, description="each beside the audit's own; those are tried alone as well"
    )
    methods: tuple[AttackSpec, ...] = Field(
        default=(), max_length=20, description="laid over the audit's own; none: that alone"
    )

    def list_plugins(self) -> Iterator[NamedPlugin]:
        """Every plugin of an axis; methods are laid over the audit's own, and no plugins by themselves."""
        for axis, kind in AXES.items():
            yield from number_plugins(kind, f"matrix.{axis}", getattr(self, axis))

    def check_case(self, case: str) -> None:
        """Raises UserError for a key of runs in a recorded case."""
        for key in OF_RUNS if case == "recorded" else ():
            if key in self.model_fields_set and getattr(self, key) != type(self).model_fields[key].default:
                raise UserError(
                    f"matrix.{key} belongs to a simulated case: no client of a recorded federation trains again",
                    hint="leave it out",
                    key=f"matrix.{key}",
                )

    @field_validator("malicious", mode="before")
    @classmethod
    def _none_is_always_there(cls, value: Any) -> Any:
        return [v for v in value if v != 0 or v is False] if isinstance(value, list | tuple) else value

    @field_validator("assumed", mode="before")
    @classmethod
    def _true(cls, value: Any) -> Any:
        """YAML reads `true` as a truth value."""
        return ["true" if v is True else v for v in value] if isinstance(value, list | tuple) else value

    @model_validator(mode="after")
    def _labels_differ(self) -> "Matrix":
        for axis in (*AXES, "methods"):
            seen = {"mean"} if "aggregators" in axis else set[str]()  # which is always there
            for spec in getattr(self, axis):
                if spec.label in seen:
                    raise UserError(
                        f"matrix.{axis} has {spec.label!r} more than once",
                        hint="mean is always there; give another an id, as in "
                        f"{{name: {spec.name}, id: {spec.fit_id}-2}}",
                        key=f"matrix.{axis}",
                    )
                seen.add(spec.label)
        for i, spec in enumerate(self.adversaries):
            for key in ("clients", "share"):
                if spec.settings.get(key) is not None:
                    raise UserError(
                        f"matrix.adversaries[{i}].{key} is what matrix.malicious says",
                        hint="leave it out, and list numbers in matrix.malicious",
                        key=f"matrix.adversaries[{i}]",
                    )
        return self
