"""Configs as users give them: a file of theirs, one that comes with fedaudit, or one that others wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError

SHIPPED = Path(__file__).parents[1] / "configs"


def load_config(path: Path, data: Sequence[str] | None = None, *, trust_plugins: bool = False) -> Config:
    """Read a config file, or that of a run folder; plugins that it names may lie beside it.

    `data` are copies, NAME=PATH, of what a run folder's config reads elsewhere. Raises UserError with the file,
    the line and the key; for code to which the user has not agreed as well.
    """
    path, copies = find_config(path), parse_data(data)
    if path.is_dir():
        return RunDir.open(path).load_config(trust_plugins=trust_plugins, data=copies)
    if copies:
        raise UserError(
            f"--data gives copies to the config of a run folder, and {path} is a file",
            hint="name the folder, or write the path into the config",
        )
    config = load(path, trust=trust_plugins)
    load_policy(config.policy)  # now, not after an hour of training
    return config.bring_code([path.parent])


def make_config(settings: Mapping[str, Any]) -> Config:
    """Make a config of settings that a program gives, as a file would have them; nobody is asked about its code.

    Raises UserError with the key.
    """
    config = validate(Config, settings, "the config").set_origin(Origin(trust=True)).check_plugins()
    load_policy(config.policy)  # now, not after an hour of training
    return config.bring_code([Path()])


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


def find_config(path: Path) -> Path:
    """`quickstart` is configs/quickstart.yaml of this installation, where the user has no file of that name."""
    ours = SHIPPED / f"{path}.yaml"
    return ours if path.name == str(path) and not path.exists() and ours.is_file() else path
