"""What config groups are made of: numbers as YAML writes them, and the name of a plugin with its settings."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_serializer, model_validator


def _parse_whole(value: Any) -> Any:
    """`1e4` and `"10"` are whole numbers, `true` and `2.5` are not."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number")
    try:
        number = float(value) if isinstance(value, str) else value
        return int(number) if isinstance(number, float) and number.is_integer() else value
    except ValueError:
        return value


def _number(value: Any) -> Any:
    """`true` is not a number; text such as `1e-5`, which YAML 1.1 leaves as text, is."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    return value


Whole = Annotated[int, BeforeValidator(_parse_whole)]
Number = Annotated[float, BeforeValidator(_number), Field(allow_inf_nan=False)]
Text = Annotated[str, Field(max_length=500)]


class Group(BaseModel):
    """Base of all groups of keys: immutable, unknown keys refused; costs nothing before it is used."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class PluginSpec(BaseModel):
    """A plugin's name (a file, or module:Class) and its settings."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)
    name: str
    settings: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, Mapping):
            raise ValueError("must be a name, or a group of keys with a name")
        if isinstance(data.get("settings"), Mapping) and set(data) <= set(cls.model_fields):
            return dict(data)  # made in Python
        if not isinstance(data.get("name"), str):
            raise ValueError("must have a name")
        own = {k: data[k] for k in cls.model_fields if k in data and k != "settings"}
        return own | {"settings": {str(k): v for k, v in data.items() if k not in own}}

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        return {"name": self.name, **self.settings}

    @property
    def foreign(self) -> bool:
        """Whether it names code outside this package."""
        return ":" in self.name


class AttackSpec(PluginSpec):
    """An attack; its `id` tells it from the same attack with other settings."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")] | None = Field(
        default=None, description="of its finding and evidence, where an attack is named more than once"
    )

    @model_serializer
    def _flat(self) -> dict[str, Any]:
        own = {"name": self.name, "id": self.id} if self.id else {"name": self.name}
        return {**own, **self.settings}

    @property
    def label(self) -> str:
        """What its evidence, its finding and its random streams are called."""
        return self.id or self.name

    @property
    def fit_id(self) -> str:
        """Its name as an id can be written."""
        return re.sub(r"[^a-z0-9_-]+", "-", self.name.lower())


class NamedPlugin(NamedTuple):
    """One plugin that a config names, and where."""

    kind: str  # a shelf of the catalogue
    where: str
    spec: PluginSpec

    @property
    def key(self) -> str:
        """The key of the config that it stands below."""
        return re.split(r"[\[.]", self.where)[0]


def number_plugins(kind: str, where: str, specs: Sequence[PluginSpec]) -> Iterator[NamedPlugin]:
    """The plugins of a list."""
    for i, spec in enumerate(specs):
        yield NamedPlugin(kind, f"{where}[{i}]", spec)
