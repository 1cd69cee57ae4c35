"""A config that came with a folder of others: it names no code that is not trusted, and opens nothing outside."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.fl.runtime.errors import UserError


def load_run_config(file: Path, *, trust_plugins: bool, data: Mapping[str, Path]) -> Config:
    """The config of a run folder. Raises UserError where it names code that the user does not trust.

    It reads nothing outside of its folder but `data`, paths of the user by name, and downloads nothing.
    """
    config = load(file, data)
    if trust_plugins:
        config.bring_code([file.parent, Path.cwd()])
        return config
    with locate_errors(file):
        for key, name in config.list_code():
            raise UserError(
                f"{key} names code of its own, {name!r}",
                hint="read that code, then add --trust-plugins, or give your own --config",
                key=key,
            )
    return config


def parse_data(entries: Sequence[str] | None) -> dict[str, Path]:
    """NAME=PATH of the command line; raises UserError for anything else and for what is not there."""
    found = {}
    for entry in entries or ():
        name, equals, text = entry.partition("=")
        path = Path(text).expanduser()
        if not name or not equals or not text or "\0" in text:
            raise UserError(f"--data must be NAME=PATH, got {entry!r:.200}", hint="--data npz=here/images.npz")
        if not path.exists():
            raise UserError(f"--data {name}: no file or folder {path}", hint="check the path")
        found[name] = path
    return found
