"""The config of an audit: one YAML file, checked, with a default for everything but the subject.

A plugin is written `name` or `{name: ..., its settings}`. Settings stay free here and are checked
against the plugin's own Config by audit/settings/resolve.py; names are checked at once, and import nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, cast

from pydantic import (
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    SerializerFunctionWrapHandler,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.consent import require_code, require_download
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.errors import locate_errors, validate
from fedaudit.audit.settings.federation import FederationSettings
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.record import Recorded
from fedaudit.audit.settings.spec import (
    AttackSpec,
    Group,
    NamedPlugin,
    Number,
    PluginSpec,
    Text,
    Whole,
    number_plugins,
)
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.audit.settings.system import SystemSettings
from fedaudit.audit.settings.variant import Variant
from fedaudit.fl.runtime import foreign
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import DATA
from fedaudit.fl.runtime.yaml import read_yaml

MOST_ROUNDS = 1_000_000
WORDS = ("title", "system", "policy")  # keys whose text names no code, whatever it looks like
PATH, TOKENIZER, SCHEMA = "path", "tokenizer", "schema"  # settings of data and networks that name files
BEGINNING = ("title", "system", "seed", "device", "workers")  # of a config that is written out


class Config(Group):
    """A whole audit: of a SimulatedConfig or of a RecordedConfig, which has a `subject`; what both have."""

    title: Text = Field(default="Federated learning audit", min_length=1, description="of the report")
    system: SystemSettings = Field(
        default=SystemSettings(), description="what the owner says of the audited system"
    )
    seed: Whole = Field(default=7, ge=0, description="of every random draw, 0 to 2^63")
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="cpu, cuda, or auto: CUDA where it is there and measured to be as fast"
    )
    workers: Literal["auto", "torchrun"] | Annotated[int, Field(ge=0, le=1024)] = Field(
        default="auto", description="worker processes; 0: all in this process; torchrun: those of its ranks"
    )
    protections: tuple[PluginSpec, ...] = Field(
        default=(),
        max_length=50,
        description="a list of plugins; in a variant of a recorded case, what its messages are passed through",
    )
    attacks: Annotated[tuple[AttackSpec, ...], Field(max_length=500)] | None = Field(
        default=None, description="a list of plugins; auto: every attack that applies, within the budget"
    )
    budget: Number = Field(
        default=10.0,
        ge=0,
        le=100_000,
        description="minutes of one core that `attacks: auto` may take, by the estimates on the attacks' cards",
    )
    checks: tuple[PluginSpec, ...] = Field(default=(), max_length=50, description="your own, beside ours")
    variants: Annotated[tuple[Variant, ...], Field(max_length=50)] | None = Field(
        default=(),
        description="the same run with other protections, each attacked; auto: protections against what was "
        "demonstrated, at most three",
    )
    matrix: Matrix | None = Field(
        default=None,
        description="attacks on the model by rules of the server, each pair run, or of a recorded federation "
        "replayed on the uploads of one round; without adversaries, what clients that do not answer cost; "
        "null: none",
    )
    replay: Replay = Field(default=Replay(), description="controls that the auditor recomputes")
    accountants: tuple[PluginSpec, ...] = Field(
        default=(PluginSpec(name="auto"),), max_length=50, description="a list of plugins"
    )
    delta: Number = Field(default=1e-5, ge=0, lt=1, description="of every (epsilon, delta) bound, below 1")
    noise_audit: bool = Field(
        default=True,
        description="whether the run is played again on neighbouring data, and the noise that it draws tested; "
        "without it bounds stay declared",
    )
    policy: Text = Field(default="default", description="a file of audit/policy/, or a path to one")
    report: tuple[Text, ...] = Field(
        default=("json", "html", "pdf"),
        max_length=50,
        description="formats to write, and sections of your own; what they may show says `show`",
    )
    show: Literal["auto", "redacted", "reconstructions", "full"] = Field(
        default="auto",
        description="what a report may show. redacted: no picture and no name; reconstructions: what attacks "
        "drew, too; full: examples and names as well; auto: full where the data set is public or invented, "
        "redacted elsewhere",
    )
    case: ClassVar[Literal["simulated", "recorded"]] = "simulated"  # who ran the federation

    _origin: Origin = PrivateAttr(default=Origin())

    @property
    def origin(self) -> Origin:
        """Where it comes from; set by `set_origin`."""
        return self._origin

    def set_origin(self, origin: Origin) -> Self:
        """The same config, as one that comes from there: errors about its keys name the line."""
        self._origin = origin
        return self

    @property
    def file(self) -> Path | None:
        """Where it was read from."""
        return self._origin.file

    @property
    def attack_matrix(self) -> Matrix | None:
        """The matrix, where somebody is malicious in it."""
        return self.matrix if self.matrix and self.matrix.adversaries else None

    @property
    def absence(self) -> Matrix | None:
        """The matrix, where nobody is: what it costs that clients do not answer, with the seeds of its runs."""
        if self.matrix is None or self.matrix.adversaries:
            return None
        return self.matrix.model_copy(update={"seeds": self.matrix.seeds or (self.seed,)})

    def locate_policy(self) -> str:
        """Name or path of the policy; raises UserError for a path outside of a folder that others wrote."""
        return self._origin.locate("policy", self.policy) if self.names_policy_file else self.policy

    @property
    def names_policy_file(self) -> bool:
        """Whether the policy is a file, and none of ours."""
        return "/" in self.policy or self.policy.endswith((".yaml", ".yml"))

    def locate_files(self, spec: PluginSpec) -> PluginSpec:
        """A data set or a network as it may be opened; raises UserError as `locate_policy`.

        The config of a run folder downloads nothing, and reads its folder or what the reader gave; another one
        downloads what its user agreed to.
        """
        if self._origin.data is None:
            if spec.settings.get("download") and not self._origin.trust:
                require_download(spec.name, spec.settings.get(PATH) or DATA, "federation.dataset")
            return spec
        settings = {key: value for key, value in spec.settings.items() if key != "download"}
        for key in (PATH, TOKENIZER, SCHEMA):
            if settings.get(key) is not None or (key == PATH and spec.name in self._origin.data):
                settings[key] = self._origin.locate(spec.name if key == PATH else key, str(settings.get(key)))
        return PluginSpec(name=spec.name, settings=settings)

    def list_plugins(self) -> Iterator[NamedPlugin]:
        """Every plugin that the config names."""
        if self.matrix is not None:
            yield from self.matrix.list_plugins()
        for key in ("protections", "attacks", "checks", "accountants"):
            yield from number_plugins(key, key, getattr(self, key) or ())
        for i, variant in enumerate(self.variants or ()):
            yield from number_plugins("protections", f"variants[{i}].protections", variant.protections)
        yield from number_plugins("renderers", "report", [PluginSpec(name=name) for name in self.report])

    def check_plugins(self) -> Self:
        """The same config, if every plugin of ours that it names is there; raises UserError with the key."""
        with locate_errors(self.file):
            for kind, where, spec in self.list_plugins():
                if not spec.foreign:
                    catalog.find(kind, spec.name, where)
        return self

    def list_code(self) -> list[tuple[str, str]]:
        """Everything in the config that names code outside this package, as (key, "module:Class").

        Looks at every value, wherever it stands: a place that takes plugins is then covered before anybody lists
        it.
        """
        found = []
        stack: list[tuple[str, Any]] = [(k, v) for k, v in self.model_dump().items() if k not in WORDS]
        while stack:
            key, value = stack.pop(0)
            if isinstance(value, str) and foreign.is_code(key, value):
                found.append((key, value))
            elif isinstance(value, Mapping):
                stack += [(f"{key}.{k}", v) for k, v in value.items()]
            elif isinstance(value, list | tuple):
                stack += [(f"{key}[{i}]", v) for i, v in enumerate(value)]
        return found

    def bring_code(self, folders: Sequence[Path]) -> Self:
        """The same config, once its code is loaded; raises UnconsentedError where its user has not agreed."""
        with locate_errors(self.file):
            for key, name in self.list_code():
                where = key.removesuffix(".name")
                admit = partial(require_code, key=where) if not self._origin.trust else lambda _: None
                foreign.bring(name, folders, where, admit)
        return self

    def with_workers(self, workers: str) -> "Config":
        """The config with another number of worker processes, as the command line gives it."""
        value: Any = int(workers) if workers.isdecimal() else workers
        return validate(Config, self.model_dump() | {"workers": value}, "--workers").set_origin(self.origin)

    def require_simulated(self) -> "SimulatedConfig":
        """The same config; raises UserError for that of a recorded case."""
        if isinstance(self, SimulatedConfig):
            return self
        raise UserError("a recorded case has nothing to simulate", hint="`fedaudit plan INBOX` says what applies")

    def require_recorded(self) -> "RecordedConfig":
        """The same config; raises UserError for that of a simulated case."""
        if isinstance(self, RecordedConfig):
            return self
        raise UserError("a simulated case has no inbox", hint="`fedaudit run CONFIG` runs it")

    @classmethod
    def choose_variant(cls, data: Mapping[str, Any]) -> "type[Config]":
        """The class of a config with these keys; raises UserError for one of the other class."""
        if cls is not Config:
            return cls
        cases: tuple[type[Config], type[Config]] = (SimulatedConfig, RecordedConfig)
        chosen, other = cases if data.get("subject") is None else cases[::-1]
        for key in data:
            if key in other.model_fields and key not in chosen.model_fields and data[key] is not None:
                raise UserError(
                    f"{key} belongs to a {other.case} case, and this one is {chosen.case}",
                    hint="leave it out: what somebody recorded has a subject, and what is run here has none",
                    key=key,
                )
        return chosen

    @model_validator(mode="wrap")
    @classmethod
    def _validate_as_its_case(cls, data: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        if cls is not Config or not isinstance(data, Mapping):
            return validate(data)
        return cast(Self, cls.choose_variant(data).model_validate(data))

    @model_serializer(mode="wrap")
    def _put_the_subject_first(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """What is audited stands before how, for people who read it."""
        values: dict[str, Any] = plain(self)
        own = [key for key in type(self).model_fields if key not in Config.model_fields]
        return {key: values[key] for key in (*BEGINNING, *own, *values) if key in values}

    @field_validator("workers", mode="before")
    @classmethod
    def _workers(cls, value: Any) -> Any:
        if value in ("auto", "torchrun") or (type(value) is int and 0 <= value <= 1024):
            return value
        raise ValueError("must be auto, torchrun or a whole number from 0 to 1024")

    @field_validator("attacks", "variants", mode="before")
    @classmethod
    def _list_or_auto(cls, value: Any) -> Any:
        if value == "auto":
            return None
        if not isinstance(value, list | tuple):
            raise ValueError("must be a list, or auto")
        return value

    @field_serializer("attacks", "variants", mode="wrap")
    def _auto(self, value: Any, plain: SerializerFunctionWrapHandler) -> Any:
        return "auto" if value is None else plain(value)

    @model_validator(mode="after")
    def _check_attacks(self) -> Self:
        names = [a.name for a in self.attacks or ()]
        seen: set[str] = set()
        for i, attack in enumerate(self.attacks or ()):
            again = names.count(attack.name) > 1 and attack.id is None
            if again or attack.label in seen:
                raise UserError(
                    f"attacks[{i}] is one of several {attack.label!r}",
                    hint=f"give each an id of its own: {{name: {attack.name}, id: {attack.fit_id}-2}}",
                    key=f"attacks[{i}]",
                )
            seen.add(attack.label)
        return self

    @model_validator(mode="after")
    def _check_variants(self) -> Self:
        variants = self.variants or ()
        known, names = self._repeatable(), [v.name for v in variants]
        for i, variant in enumerate(variants):
            if names.index(variant.name) < i:
                raise UserError(
                    f"variants must have different names, got {variant.name!r} twice",
                    hint="each names a folder under variants/",
                    key=f"variants[{i}].name",
                )
            for name in variant.attacks or ():
                if name not in known:
                    raise UserError(
                        f"variants[{i}].attacks must name attacks of the audit, got {name!r}",
                        hint="known: " + (", ".join(known) or "none; the audit names no attack"),
                        key=f"variants[{i}].attacks",
                    )
        return self

    def _repeatable(self) -> list[str]:
        """Attacks that a variant may name; with `auto`, any that exists."""
        return catalog.names("attacks") if self.attacks is None else [a.label for a in self.attacks]


class SimulatedConfig(Config):
    """An audit of a federation that fedaudit runs."""

    federation: FederationSettings = Field(description="at least {dataset: NAME}")
    method: PluginSpec = Field(description="at least a NAME, see `fedaudit tools list methods`")
    aggregator: PluginSpec = Field(
        default=PluginSpec(name="mean"), description="how the server makes one model of a round's models"
    )
    adversary: PluginSpec | None = Field(
        default=None, description="what compromised clients do, and how many or which they are; null: nobody"
    )
    record: Recorded = Field(
        default="last",
        description="which messages are kept: all, last (of each phase, and what is exchanged before training), "
        "every N with those, a list of rounds, or model (of the last, the released model and shared prototypes)",
    )
    evaluate_every: Whole = Field(
        default=1, ge=1, le=MOST_ROUNDS, description="rounds, after which a run that is stopped can go on too"
    )

    def list_plugins(self) -> Iterator[NamedPlugin]:
        """Every plugin that the config names; methods of variants and of the matrix as laid over its own."""
        yield from self.federation.list_plugins()
        yield NamedPlugin("methods", "method", self.method)
        yield NamedPlugin("aggregators", "aggregator", self.aggregator)
        if self.adversary is not None:
            yield NamedPlugin("adversaries", "adversary", self.adversary)
        for i, variant in enumerate(self.variants or ()):
            if variant.method:
                yield NamedPlugin("methods", f"variants[{i}].method", self._lay_over_method(variant.method))
        for i, spec in enumerate(self.matrix.methods if self.matrix else ()):
            method = self._lay_over_method(spec.settings | {"name": spec.name})
            yield NamedPlugin("methods", f"matrix.methods[{i}]", method)
        yield from super().list_plugins()

    def _lay_over_method(self, settings: Mapping[str, Any]) -> PluginSpec:
        laid = merge({"method": self.method.model_dump()}, {"method": settings})
        return PluginSpec.model_validate(laid["method"])

    def check_plugins(self) -> Self:
        """The same config, as `Config.check_plugins`; raises UserError for more rounds than can end too."""
        super().check_plugins()
        rounds = self.method.settings.get("rounds", 1)
        if type(rounds) is int and rounds > MOST_ROUNDS:
            with locate_errors(self.file):
                raise UserError(
                    f"method.rounds must be <= {MOST_ROUNDS}, got {rounds}",
                    hint="a federation of a million rounds never ends",
                    key="method.rounds",
                )
        return self

    @model_validator(mode="after")
    def _check_matrix(self) -> Self:
        if self.matrix is None:
            return self
        self.matrix.check_case(self.case)
        if (most := max(self.matrix.malicious)) > self.federation.clients:
            raise UserError(
                f"matrix.malicious must be at most federation.clients ({self.federation.clients}), got {most}",
                hint="rules can hold against less than half of them",
                key="matrix.malicious",
            )
        named = {"adversary": self.adversary is not None, "aggregator": self.aggregator.name != "mean"}
        if key := next((k for k, there in named.items() if there), ""):
            raise UserError(
                f"{key} is what the matrix varies, and the config sets it as well",
                hint=f"move it into matrix, or leave out {key}",
                key=key,
            )
        return self


class RecordedConfig(Config):
    """An audit of what somebody recorded of a federation that ran elsewhere."""

    case = "recorded"
    subject: RecordedSubject = Field(description="what its operator states")

    def list_plugins(self) -> Iterator[NamedPlugin]:
        """Every plugin that the config names."""
        yield from self.subject.list_plugins()
        yield from super().list_plugins()

    @model_validator(mode="after")
    def _check_replayed_matrix(self) -> Self:
        if self.matrix is not None:
            self.matrix.check_case(self.case)
        return self

    @model_validator(mode="after")
    def _check_that_clients_trained_already(self) -> Self:
        for i, variant in enumerate(self.variants or ()):
            if variant.method:
                raise UserError(
                    f"variants[{i}].method changes how clients train, and this federation was recorded",
                    hint="name protections: recorded messages are passed through them",
                    key=f"variants[{i}].method",
                )
        return self


# What is simulated; other keys say what is kept, attacked and reported of it
SIMULATED = ("federation", "method", "aggregator", "adversary", "protections")


def load(path: Path, data: Mapping[str, Path] | None = None, *, trust: bool = False) -> Config:
    """Read and check a config file; raises UserError with the file's name, the line and the key's path.

    `data` is what the reader gives to the config of a run folder, `trust` whether its code may run (`Origin`).
    """
    return validate(Config, read_yaml(path), path).set_origin(Origin(path, data, trust)).check_plugins()
