"""The `federation` key of a simulated case: who takes part, with which data."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from fedaudit.audit.settings.controls import MOST_CLIENTS
from fedaudit.audit.settings.spec import Group, NamedPlugin, Number, PluginSpec, Text, Whole
from fedaudit.fl.clients.failures import FailureConfig

AtLeastOne = Annotated[Whole, Field(ge=1)]


class Holdout(Group):
    """Parts of the training data that no client gets."""

    auxiliary: Number = Field(default=0.2, ge=0, lt=1, description="share an attacker owns, 0 to 1")
    reference: Number = Field(default=0.2, ge=0, lt=1, description="share nobody ever sees, for controls")
    server: Number = Field(default=0.0, ge=0, lt=1, description="share the server trains on itself, if it does")
    own: Number | None = Field(
        default=None,
        ge=0,
        lt=1,
        description="share of each client's own examples that it does not train on, for controls of its style; "
        "left out, 0.1 where examples have owners and 0 elsewhere",
    )

    @model_validator(mode="after")
    def _leaves_data(self) -> "Holdout":
        if self.auxiliary + self.reference + self.server >= 1:
            raise ValueError("must leave data for the clients: auxiliary + reference + server < 1")
        return self


class AdapterSettings(Group):
    """A change of low rank to some linear layers of a frozen model (LoRA); nothing else is trained or sent."""

    rank: Whole = Field(default=8, ge=1, le=100_000, description="r: rank of each layer's change")
    alpha: Annotated[Number, Field(gt=0)] | None = Field(
        default=None, description="the change is alpha / rank times B A; null: twice the rank"
    )
    targets: tuple[Text, ...] = Field(
        default=("q", "v"), min_length=1, description="linear layers by the ends of their names"
    )
    in_full: tuple[Text, ...] = Field(
        default=(), description="modules that are trained and sent as they are besides, such as head"
    )


class FederationSettings(Group):
    """Who takes part, with which data."""

    dataset: PluginSpec = Field(description="the name of a data set, see `fedaudit tools list datasets`")
    clients: Whole = Field(default=10, ge=1, le=MOST_CLIENTS, description="how many clients, 1 to 1e6")
    partition: PluginSpec = Field(default=PluginSpec(name="iid"), description="who holds which examples")
    availability: PluginSpec = Field(
        default=PluginSpec(name="bernoulli"), description="who is selected and answers in a round"
    )
    selection: PluginSpec | None = Field(
        default=None,
        description="whom the server chooses for a round, among all and among those who answer; null: whom the "
        "method chooses, with most everybody",
    )
    model: PluginSpec = Field(default=PluginSpec(name="mlp"), description="the network that is trained")
    adapters: AdapterSettings | None = Field(
        default=None, description="adapters on the model, whose own weights are frozen; null: all is trained"
    )
    base: Annotated[Whole, Field(ge=1, le=1_000_000)] | None = Field(
        default=None,
        description="steps of AdamW on public text, Python's help pages cut by the federation's vocabulary, "
        "before the federation; null: random weights",
    )
    holdout: Holdout = Field(default=Holdout(), description="auxiliary and reference shares")
    limit: AtLeastOne | tuple[AtLeastOne | None, AtLeastOne] | None = Field(
        default=None,
        description="use that many training examples; two numbers: and that many to test with; null: all",
    )
    empty_round: Literal["redraw", "skip"] | None = Field(
        default=None,
        description="what to do when nobody answers; null: skip where noise for clients counts on how they are "
        "drawn (central_dp), else redraw",
    )
    time_model: Literal["none"] | PluginSpec = Field(
        default="none",
        description="the simulated clock, a class of devices; none: no clock, and `counted` for a method that "
        "decides by time",
    )
    failures: FailureConfig = Field(
        default=FailureConfig(), description="how clients fail in a round: late, for once, down, or unheard"
    )

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """How many examples are used, to train with and to test with; None: all."""
        return self.limit if isinstance(self.limit, tuple) else (self.limit, None)

    @property
    def is_timed(self) -> bool:
        """Whether a clock is simulated because the config says so."""
        return self.time_model != "none"

    def list_plugins(self) -> Iterator[NamedPlugin]:
        """Every plugin that is named here."""
        yield NamedPlugin("datasets", "federation.dataset", self.dataset)
        yield NamedPlugin("partitions", "federation.partition", self.partition)
        yield NamedPlugin("availability", "federation.availability", self.availability)
        if self.selection is not None:
            yield NamedPlugin("selections", "federation.selection", self.selection)
        yield NamedPlugin("models", "federation.model", self.model)
        if isinstance(self.time_model, PluginSpec):
            yield NamedPlugin("devices", "federation.time_model", self.time_model)

    @model_serializer(mode="wrap")
    def _without_unused(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without the keys of selections, adapters and bases where there are none."""
        unused = ("selection", "adapters", "base")
        return {k: v for k, v in plain(self).items() if v is not None or k not in unused}
