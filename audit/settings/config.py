"""The config of an audit: one YAML file, checked, with a default for everything but the subject.

A plugin is written `name` or `{name: ..., its settings}`. Settings stay free here and are checked
against the plugin's own Config by audit/settings/resolve.py; names are checked at once, and import nothing.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, cast

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
from fedaudit.audit.settings.absence import DropoutSettings
from fedaudit.audit.settings.controls import NoiseAuditSettings, Replay, TimeBudget
from fedaudit.audit.settings.errors import locate_errors, validate
from fedaudit.audit.settings.federation import FederationSettings
from fedaudit.audit.settings.matrix import AXES, Matrix
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.record import RecordSettings
from fedaudit.audit.settings.report import ReportSettings
from fedaudit.audit.settings.spec import AttackSpec, Group, Number, PluginSpec, Text, Whole
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.audit.settings.system import SystemSettings
from fedaudit.audit.settings.variant import Variant
from fedaudit.audit.settings.yaml import read_yaml
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError

MOST_ROUNDS = 1_000_000
PATH, TOKENIZER = "path", "tokenizer"  # settings of data sets and networks that name a file or folder
BEGINNING = ("title", "system", "seed", "device", "workers")  # of a config that is written out


class Received(NamedTuple):
    """Where a config came from that others wrote, and what its reader gives to it."""

    folder: Path
    data: Mapping[str, Path]  # by name: a data set, "policy", the stem of a file of claims

    def locate(self, name: str, path: str) -> str:
        """Where to read what the config has at `path`; raises UserError for one that leads out of the folder."""
        if name in self.data:
            return str(self.data[name])
        if Path(path).expanduser().resolve().is_relative_to(self.folder.resolve()):
            return path
        raise UserError(
            f"the folder's config reads {name} from {path!r:.200}, outside of {self.folder}",
            hint=f"--data {name}=PATH names a copy of yours; a folder of others opens no file of its own choice",
        )


class Config(Group):
    """A whole audit: of a SimulatedConfig or of a RecordedConfig, as `case` says; here is what both have."""

    title: Text = Field(default="Federated learning audit", min_length=1, description="of the report")
    system: SystemSettings = Field(
        default=SystemSettings(), description="what the owner says of the audited system"
    )
    seed: Whole = Field(default=7, ge=0, description="of every random draw, 0 to 2^63")
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto, cpu or cuda")
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
    budget: TimeBudget = Field(default=TimeBudget(), description="what `attacks: auto` may take")
    variants: Annotated[tuple[Variant, ...], Field(max_length=50)] | None = Field(
        default=(),
        description="the same run with other protections, each attacked; auto: protections against what was "
        "demonstrated, at most three",
    )
    matrix: Matrix | None = Field(
        default=None,
        description="attacks on the model by rules of the server, each pair run, or of a recorded federation "
        "replayed on the uploads of one round; null: none",
    )
    replay: Replay = Field(default=Replay(), description="controls that the auditor recomputes")
    accountants: tuple[PluginSpec, ...] = Field(
        default=(PluginSpec(name="auto"),), max_length=50, description="a list of plugins"
    )
    delta: Number = Field(default=1e-5, ge=0, lt=1, description="of every (epsilon, delta) bound, below 1")
    noise_audit: NoiseAuditSettings = Field(
        default=NoiseAuditSettings(), description="lower bounds on epsilon by experiment"
    )
    claims: tuple[Text, ...] = Field(
        default=(), max_length=50, description="files of claims to re-score in the report"
    )
    prior: Annotated[Number, Field(gt=0, lt=1)] | None = Field(
        default=None,
        description="share of members among an adversary's candidates; says how often accusations are right",
    )
    policy: Text = Field(default="default", description="a file of audit/policy/, or a path to one")
    report: ReportSettings = Field(default_factory=ReportSettings, description="formats, and what they may show")
    sections: tuple[Text, ...] = Field(default=(), max_length=50, description="your own, as module:Class")

    _file: Path | None = PrivateAttr(default=None)
    _received: Received | None = PrivateAttr(default=None)

    @property
    def file(self) -> Path | None:
        """Where it was read from."""
        return self._file

    def locate_policy(self) -> str:
        """Name or path of the policy; raises UserError for a path outside of a folder that others wrote."""
        if self._received is None or not self.names_policy_file:
            return self.policy
        return self._received.locate("policy", self.policy)

    @property
    def names_policy_file(self) -> bool:
        """Whether the policy is a file, and none of ours."""
        return "/" in self.policy or self.policy.endswith((".yaml", ".yml"))

    def locate_files(self, spec: PluginSpec) -> PluginSpec:
        """A data set or a network as it may be opened; raises UserError as `locate_policy`.

        A config that others wrote downloads nothing, and reads its folder or what the reader gave.
        """
        if self._received is None:
            return spec
        settings = {key: value for key, value in spec.settings.items() if key != "download"}
        for key, name in ((PATH, spec.name), (TOKENIZER, TOKENIZER)):
            if settings.get(key) is not None or (key == PATH and name in self._received.data):
                settings[key] = self._received.locate(name, str(settings.get(key)))
        return PluginSpec(name=spec.name, settings=settings)

    def locate_claims(self) -> list[Path]:
        """Files of claims; raises UserError as `locate_policy`."""
        return [Path(self._received.locate(Path(p).stem, p) if self._received else p) for p in self.claims]

    @classmethod
    def choose_variant(cls, data: Mapping[str, Any]) -> "type[Config]":
        """The class of a config with these keys; raises UserError for one of the other class."""
        if cls is not Config:
            return cls
        recorded = data.get("case", "simulated") == "recorded"
        chosen, other = (RecordedConfig, SimulatedConfig) if recorded else (SimulatedConfig, RecordedConfig)
        words = {True: "recorded", False: "simulated"}
        for key in data:
            if key in other.model_fields and key not in chosen.model_fields and data[key] is not None:
                raise UserError(
                    f"{key} belongs to a {words[not recorded]} case, and this one is {words[recorded]}",
                    hint=f"leave it out, or set case: {words[not recorded]}",
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

    case: Literal["simulated"] = Field(
        default="simulated", exclude=True, description="fedaudit runs the federation"
    )
    federation: FederationSettings = Field(description="at least {dataset: NAME}")
    method: PluginSpec = Field(description="at least a NAME, see `fedaudit tools list methods`")
    aggregator: PluginSpec = Field(
        default=PluginSpec(name="mean"), description="how the server makes one model of a round's models"
    )
    prototype_aggregator: PluginSpec = Field(
        default=PluginSpec(name="mean"), description="how the server makes one prototype of a class of many"
    )
    adversary: PluginSpec | None = Field(
        default=None, description="what compromised clients do, and how many or which they are; null: nobody"
    )
    record: RecordSettings = Field(default=RecordSettings(), description="which messages are kept")
    absence: DropoutSettings | None = Field(
        default=None, description="clients that do not answer, each case run; null: none"
    )
    evaluate_every: Whole = Field(default=1, ge=1, le=MOST_ROUNDS, description="rounds")
    checkpoint_every: Whole = Field(default=1, ge=1, le=MOST_ROUNDS, description="rounds")

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
        named["prototype_aggregator"] = self.prototype_aggregator.name != "mean"
        if key := next((k for k, there in named.items() if there), ""):
            raise UserError(
                f"{key} is what the matrix varies, and the config sets it as well",
                hint=f"move it into matrix, or leave out {key}",
                key=key,
            )
        return self

    @model_validator(mode="after")
    def _check_recorded_clients(self) -> Self:
        chosen, total = self.record.clients, self.federation.clients
        if isinstance(chosen, tuple) and any(k >= total for k in chosen):
            raise UserError(
                f"record.clients must be below federation.clients ({total}), got {max(chosen)}",
                hint="clients are numbered from 0",
                key="record.clients",
            )
        return self


class RecordedConfig(Config):
    """An audit of what somebody recorded of a federation that ran elsewhere."""

    case: Literal["recorded"] = Field(description="somebody recorded the federation")
    subject: RecordedSubject = Field(description="what its operator states")

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
SIMULATED = ("federation", "method", "aggregator", "prototype_aggregator", "adversary", "protections")


class NamedPlugin(NamedTuple):
    """One plugin that a config names, and where."""

    kind: str  # a shelf of the catalogue
    where: str
    spec: PluginSpec


def plugins(config: Config) -> Iterator[NamedPlugin]:
    """Every plugin a config names."""
    if isinstance(config, RecordedConfig):
        yield from _of_subject(config.subject)
    if isinstance(config, SimulatedConfig):
        yield from _of_simulation(config)
    yield from _of_matrix(config.matrix)
    for i, spec in enumerate(config.protections):
        yield NamedPlugin("protections", f"protections[{i}]", spec)
    for i, variant in enumerate(config.variants or ()):
        for j, spec in enumerate(variant.protections):
            yield NamedPlugin("protections", f"variants[{i}].protections[{j}]", spec)
    for kind in ("attacks", "accountants"):
        for i, spec in enumerate(getattr(config, kind) or ()):
            yield NamedPlugin(kind, f"{kind}[{i}]", spec)
    for i, name in enumerate(config.sections):
        yield NamedPlugin("sections", f"sections[{i}]", PluginSpec(name=name))
    for i, name in enumerate(config.report.formats):
        yield NamedPlugin("renderers", f"report.formats[{i}]", PluginSpec(name=name))


def _of_subject(subject: RecordedSubject) -> Iterator[NamedPlugin]:
    if subject.model is not None:
        yield NamedPlugin("models", "subject.model", subject.model)
    if subject.method is not None:
        yield NamedPlugin("methods", "subject.method", subject.method)
    for i, spec in enumerate(subject.protections):
        yield NamedPlugin("protections", f"subject.protections[{i}]", spec)


def _of_matrix(matrix: Matrix | None) -> Iterator[NamedPlugin]:
    for axis, kind in AXES.items():
        for i, spec in enumerate(getattr(matrix, axis, ())):
            yield NamedPlugin(kind, f"matrix.{axis}[{i}]", spec)


def _of_simulation(config: SimulatedConfig) -> Iterator[NamedPlugin]:
    federation = config.federation
    yield NamedPlugin("datasets", "federation.dataset", federation.dataset)
    yield NamedPlugin("partitions", "federation.partition", federation.partition)
    yield NamedPlugin("availability", "federation.availability", federation.availability)
    yield NamedPlugin("models", "federation.model", federation.model)
    if isinstance(federation.time_model, PluginSpec):
        yield NamedPlugin("devices", "federation.time_model", federation.time_model)
    yield NamedPlugin("methods", "method", config.method)
    yield NamedPlugin("aggregators", "aggregator", config.aggregator)
    yield NamedPlugin("aggregators", "prototype_aggregator", config.prototype_aggregator)
    if config.adversary is not None:
        yield NamedPlugin("adversaries", "adversary", config.adversary)
    for i, variant in enumerate(config.variants or ()):
        if variant.method:
            method = merge({"method": config.method.model_dump()}, {"method": variant.method})["method"]
            yield NamedPlugin("methods", f"variants[{i}].method", PluginSpec.model_validate(method))
    for i, spec in enumerate(config.matrix.methods if config.matrix else ()):
        method = merge({"method": config.method.model_dump()}, {"method": spec.settings | {"name": spec.name}})
        yield NamedPlugin("methods", f"matrix.methods[{i}]", PluginSpec.model_validate(method["method"]))
    for i, spec in enumerate(config.absence.methods if config.absence else ()):
        yield NamedPlugin("methods", f"absence.methods[{i}]", PluginSpec(name=spec.name, settings=spec.settings))


def require_simulated(config: Config) -> SimulatedConfig:
    """The same config; raises UserError for that of a recorded case."""
    if isinstance(config, SimulatedConfig):
        return config
    raise UserError(
        "a recorded case has nothing to simulate", hint="`fedaudit tools doctor INBOX` says what applies"
    )


def require_recorded(config: Config) -> RecordedConfig:
    """The same config; raises UserError for that of a simulated case."""
    if isinstance(config, RecordedConfig):
        return config
    raise UserError("a simulated case has no inbox", hint="`fedaudit run CONFIG` runs it")


def load(path: Path) -> Config:
    """Read and check a config file; raises UserError with the file's name, the line and the key's path."""
    return check_plugins(remember_file(path, validate(Config, read_yaml(path), path)))


def check_plugins(config: Config) -> Config:
    """The config, once every plugin of ours that it names was found; raises UserError with the key's path."""
    with locate_errors(config.file):
        for kind, where, spec in plugins(config):
            if not spec.foreign:
                plugin.find_module(catalog.SHELVES[kind].packages, spec.name, where)
        rounds = config.method.settings.get("rounds", 1) if isinstance(config, SimulatedConfig) else 1
        if type(rounds) is int and rounds > MOST_ROUNDS:
            raise UserError(
                f"method.rounds must be <= {MOST_ROUNDS}, got {rounds}",
                hint="a federation of a million rounds never ends",
                key="method.rounds",
            )
    return config


def remember_file(file: Path | None, config: Config) -> Config:
    """The config as one that was read from that file: errors about its keys name the line."""
    config._file = file
    return config


def receive(config: Config, received: Received) -> Config:
    """The config as one that others wrote."""
    config._received = received
    return config


def inherit_origin(base: Config, config: Config) -> Config:
    """A config that was derived from `base`: read from where that was, and trusted as far."""
    config._received = base._received
    return remember_file(base.file, config)


def with_workers(config: Config, workers: str) -> Config:
    """The config with another number of worker processes, as the command line gives it."""
    value: Any = int(workers) if workers.isdecimal() else workers
    return inherit_origin(config, validate(Config, config.model_dump() | {"workers": value}, "--workers"))
