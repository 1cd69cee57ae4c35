"""The `subject` key of a recorded case, and the file subject.yaml: what the auditor is told and cannot see.

Everything here is a statement of the federation's operator. What the recorded messages can tell of it is checked
when they are imported (audit/importing/); the rest is said to be stated.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedaudit.audit.settings.federation import AdapterSettings
from fedaudit.audit.settings.spec import Group, NamedPlugin, Number, PluginSpec, Text, Whole, number_plugins

if TYPE_CHECKING:
    from fedaudit.fl.data.columns import Columns

Size = Annotated[Whole, Field(ge=1, le=100_000)]
MOST_NODES = 1_000_000
OwnKind = Annotated[Text, Field(pattern=r"^class:[A-Za-z]\w{0,59}$")]


class ExampleLayout(Group):
    """How examples look to the model. Nothing is guessed: truth of another layout is refused."""

    classes: tuple[Text, ...] = Field(
        default=(),
        max_length=100_000,
        description="names of the classes, in the order of their labels; of findings, or of classes of places",
    )
    task: Text = Field(
        default="classify",
        description="what the network gives for an example, and so what labels are: a name of fl/tasks/",
    )
    are: Literal["text", "table"] | None = Field(
        default=None,
        description="what examples of one axis are, where none is given: tokens or columns; null: tokens",
    )
    columns: dict[Text, dict[Text, Any]] = Field(
        default={},
        max_length=100_000,
        description="of a table, as in a schema of `init --from`: column -> kind, unit, step, levels ... Rows "
        "are then in raw units, a category as its place in levels, and NaN where missing",
    )
    shape: tuple[Size, ...] = Field(
        min_length=1, max_length=4, description="of one example: [channels, height, width]"
    )
    mean: tuple[Number, ...] = Field(
        default=(0.0,),
        min_length=1,
        description="of each channel or column; the model sees (x - mean) / std of values from 0 to 1, or in "
        "the units of columns, categories one-hot and behind a column that may be missing a flag that it is",
    )
    std: tuple[Annotated[Number, Field(gt=0)], ...] = Field(
        default=(1.0,), min_length=1, description="of each channel or column"
    )

    @model_validator(mode="after")
    def _named(self) -> Self:
        from fedaudit.fl.runtime.task import load_task  # which loads torch

        least = load_task(self.task, "subject.examples.task").fewest_names
        if len(self.classes) < least or (self.classes and not least):
            wanted = f"{least} names at least" if least else "none: numbers have no names"
            raise ValueError(f"classes has {len(self.classes)} names, and task {self.task} wants {wanted}")
        return self

    @property
    def width(self) -> int:
        """How many numbers the network gives for an example, or for each place of it."""
        return len(self.classes) or 1

    @model_validator(mode="after")
    def _by_channel(self) -> Self:
        if self.columns and self.shape != (len(self.columns),):
            raise ValueError(f"columns has {len(self.columns)} names, and shape is {list(self.shape)}")
        for name, value in (("mean", self.mean), ("std", self.std)):
            if len(value) not in (1, self.shape[0]):
                raise ValueError(f"{name} has {len(value)} numbers, and examples have {self.shape[0]} channels")
        return self

    @property
    def is_table(self) -> bool:
        """Whether an example is a row, where its shape does not say so."""
        return self.are == "table" or bool(self.columns)

    @property
    def table(self) -> "Columns | None":
        """What columns are, with the stated scale. Raises UserError."""
        from fedaudit.fl.data.columns import read_columns

        if not self.columns:
            return None
        mean, std = (
            values * len(self.columns) if len(values) == 1 else values for values in (self.mean, self.std)
        )
        return replace(read_columns(self.columns, "subject.examples.columns"), mean=mean, std=std)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one example as the network is given it."""
        return tuple(self.shape) if (table := self.table) is None else (table.width,)


class RecordedSubject(Group):
    """A federation that somebody recorded."""

    title: Text = Field(min_length=1, description="what the federation is called")
    examples: ExampleLayout = Field(
        description="at least {classes: [...], shape: [...]}, or {task: regression, shape: [...]}"
    )
    clients: Annotated[Whole, Field(ge=1, le=MOST_NODES)] | None = Field(
        default=None, description="how many there are, heard or not; null: those in the inbox"
    )
    identities: dict[Text, Text] = Field(
        default={},
        max_length=MOST_NODES,
        description="node in the inbox -> name of its truth; a node left out has its own name",
    )
    canaries: tuple[Text, ...] = Field(
        default=(),
        max_length=1000,
        description="nodes of the auditor's own that took part, whose examples are given as truth",
    )
    model: PluginSpec | None = Field(
        default=None, description="the network: a name of ours, or yours as module:Class; null: not stated"
    )
    base: Text = Field(
        default="", description="weights that every client has and nobody sends, by name; empty: all are sent"
    )
    adapters: AdapterSettings | None = Field(
        default=None, description="adapters that clients train on the base and send; null: not stated"
    )
    trained: Annotated[tuple[Text, ...], Field(max_length=1000)] = Field(
        default=(), description="arrays that clients train, as patterns such as *lora_*; empty: those they send"
    )
    method: PluginSpec | None = Field(
        default=None,
        description="the method of ours whose clients do what theirs do, with the settings of their training; "
        "null: not stated, and no client can be played",
    )
    aggregation: Literal["samples", "uniform", "other"] = Field(
        default="samples",
        description="how the server makes a model of uploads: their mean by numbers of examples, the plain mean, "
        "or something else",
    )
    protections: tuple[PluginSpec, ...] = Field(
        default=(), max_length=50, description="those that are claimed, with their parameters"
    )
    prototypes: dict[OwnKind, Annotated[tuple[Text, ...], Field(min_length=1, max_length=3)]] = Field(
        default={},
        max_length=20,
        description="kind of the federation's own that is read as prototypes, such as class:means -> its array "
        "with a row of features for each class, [c, D], that with the class of each row, [c] (left out: row c is "
        "of class c), and that which counts the examples behind each row, [c]",
    )
    sees: dict[
        Literal["uplink", "downlink", "relay", "release"], Annotated[tuple[Text, ...], Field(max_length=100)]
    ] = Field(
        default={},
        description="channel -> who could read its messages, where the recorder sat at clients and cannot "
        "know; uplink: [] is secure aggregation",
    )

    def list_plugins(self) -> Iterator[NamedPlugin]:
        """Every plugin that is named here."""
        if self.model is not None:
            yield NamedPlugin("models", "subject.model", self.model)
        if self.method is not None:
            yield NamedPlugin("methods", "subject.method", self.method)
        yield from number_plugins("protections", "subject.protections", self.protections)

    @model_validator(mode="after")
    def _trained_whole(self) -> Self:
        if self.adapters and not (self.base and self.model):
            raise ValueError("adapters: they stand on a network, state model and base")
        if self.base and self.method and not self.adapters:
            raise ValueError("method: clients of ours train every array of a network; with a base, state none")
        return self

    @field_validator("identities")
    @classmethod
    def _one_node_each(cls, value: dict[str, str]) -> dict[str, str]:
        if twice := [name for name, nodes in Counter(value.values()).items() if nodes > 1]:
            raise ValueError(f"must give every node a truth of its own, and two have {twice[0]!r}")
        return value
