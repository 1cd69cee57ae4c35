"""The `matrix` key of a config: the same audit with something changed, side by side, each a run of its own.

With adversaries, attacks on the model by rules of the server; without, what clients that do not answer cost.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from fedaudit.audit.settings.spec import AttackSpec, Group, NamedPlugin, Whole, number_plugins
from fedaudit.fl.runtime.errors import UserError

AXES = {  # what entries of an axis are on the shelves of the catalogue
    "adversaries": "adversaries",
    "aggregators": "aggregators",
    "partitions": "partitions",
    "availabilities": "availability",
    "protections": "protections",
}

# What says how a federation is run, which of a recorded one nobody can run again
OF_RUNS = ("seeds", "partitions", "availabilities", "protections", "methods")
OF_ATTACKS = (
    "aggregators",
    "malicious",
    "partitions",
    "protections",
)  # which runs without adversaries leave as is


class Matrix(Group):
    """What is crossed; nobody malicious and the rule `mean` are always there, and two controls.

    Without adversaries methods by availabilities: everybody answering and fedavg are always there.
    """

    adversaries: tuple[AttackSpec, ...] = Field(
        default=(),
        max_length=50,
        description="a list of plugins; an `id` distinguishes one from itself; none: what absent clients cost",
    )
    aggregators: tuple[AttackSpec, ...] = Field(
        default=(),
        max_length=50,
        description="rules beside the mean; one that assumes f malicious clients, and has no f, knows how many "
        "there are",
    )
    malicious: tuple[Annotated[Whole, Field(ge=1)], ...] = Field(
        default=(1,), min_length=1, max_length=50, description="how many clients are; none is always tried"
    )
    seeds: tuple[Annotated[Whole, Field(ge=0)], ...] = Field(
        default=(), max_length=100, description="one run of each pair for each; none: the audit's own"
    )
    partitions: tuple[AttackSpec, ...] = Field(
        default=(), max_length=20, description="who holds which examples; none: the audit's own"
    )
    availabilities: tuple[AttackSpec, ...] = Field(
        default=(),
        max_length=20,
        description="who answers in a round; none: the audit's own. Without adversaries bernoulli, persistent "
        "and leaving, each beside everybody answering",
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
        """Raises UserError for a key of runs in a recorded case, or where nobody attacks in one."""
        if case == "recorded" and not self.adversaries:
            raise UserError(
                "matrix.adversaries is missing: of a recorded federation attacks are replayed on one round",
                hint="name some, as in {adversaries: [sign_flip]}",
                key="matrix.adversaries",
            )
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

    @model_validator(mode="after")
    def _compares_absence(self) -> "Matrix":
        if self.adversaries:
            return self
        if not self.availabilities:
            raise UserError(
                "matrix must have adversaries or availabilities",
                hint="adversaries: [sign_flip] are attacks on the model; without them availabilities: "
                "[{name: bernoulli, p: 0.3}] are clients that do not answer",
                key="matrix",
            )
        for key in OF_ATTACKS:
            if getattr(self, key) != type(self).model_fields[key].default:
                raise UserError(
                    f"matrix.{key} stands beside no adversaries",
                    hint="leave it out: methods by availabilities are compared, or name adversaries",
                    key=f"matrix.{key}",
                )
        return self

    @model_validator(mode="after")
    def _labels_differ(self) -> "Matrix":
        for axis in (*AXES, "methods") if self.adversaries else ("methods",):
            seen = {"mean"} if axis == "aggregators" else set[str]()  # which is always there
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
