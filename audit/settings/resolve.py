"""A config with every default written out, as the run folder keeps it."""

import hashlib
import json
import re
import sys
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path
from typing import Any, cast

import yaml

from fedaudit.audit.settings import catalog, index
from fedaudit.audit.settings.config import PATH, TOKENIZER, Config, SimulatedConfig
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.audit.settings.spec import NamedPlugin
from fedaudit.fl.runtime.plugin import configure


def resolve(config: Config) -> dict[str, Any]:
    """Every key with its value, plugin settings included, as plain values; imports the plugins.

    Raises UserError where a setting is unknown or out of range. resolve(load(dump(x))) == x. Where torch is not
    loaded yet the index is asked first: importing the plugins takes longer than all the rest of a light command.
    """
    if "torch" in sys.modules or config.list_code():
        return _resolve(config.model_dump(), config.list_plugins(), config.file)
    found: dict[str, Any] | None = index.recall("resolved", _key(config.model_dump()))
    if not isinstance(found, dict):
        found = _resolve(config.model_dump(), config.list_plugins(), config.file)
        keep(config.model_dump(), found)
    return found


def list_files(config: SimulatedConfig) -> list[Path]:
    """Files, and folders with all below them, that an audit reads besides its config: rules, a network and data.

    Code of a user's own, which may read what it likes, is left out.
    """
    files = [Path(config.locate_policy())] if config.names_policy_file else []
    model = config.locate_files(config.federation.model).settings
    files += [Path(str(model[key])).expanduser() for key in (PATH, TOKENIZER) if model.get(key)]
    data = resolve(config)["federation"]["dataset"]
    if PATH in data or data.get(TOKENIZER):  # without a path stated, its usual place
        spec = config.locate_files(config.federation.dataset)
        dataset = configure(catalog.load("datasets", spec.name), spec.settings, "federation.dataset")
        files += dataset.list_files()
    return files


def digest_files(config: Config) -> str:
    """Changes with every file that an audit reads besides its folder and our code (`list_files`).

    Empty where nobody can say what is read: with code of a user's own, or of what a federation recorded.
    """
    if not isinstance(config, SimulatedConfig) or config.list_code():
        return ""
    return index.digest_states(list_files(config))


def keep(values: Mapping[str, Any], resolved: dict[str, Any]) -> None:
    """Keep what a config of these values resolves to for later processes; it names no code of a user's own."""
    index.keep("resolved", _key(values), resolved)


def _key(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(catalog.plain(values)).encode()).hexdigest()


def _resolve(values: Mapping[str, Any], plugins: Iterable[NamedPlugin], file: Path | None) -> dict[str, Any]:
    out: dict[str, Any] = catalog.plain(values)
    for kind, where, spec in plugins:
        is_plain = kind == "renderers"  # a list of names, which were checked when it was read
        if is_plain and not spec.foreign:
            continue
        with locate_errors(file):
            settings = catalog.settings(kind, spec.name, spec.settings, where)
        if is_plain or where.endswith("].method") or where.startswith("matrix."):
            continue  # variants and cells keep what they change
        full = {k: v for k, v in spec.model_dump().items() if k not in spec.settings} | settings
        *path, last = [int(k) if k.isdigit() else k for k in re.findall(r"\w+", where)]
        reduce(lambda at, key: at[key], path, cast(Any, out))[last] = full
    return out


def dump(resolved: dict[str, Any]) -> str:
    """As YAML that load() reads back to the same values."""
    return yaml.safe_dump(resolved, sort_keys=False, allow_unicode=True, width=100)
