"""Configs as users give them: a file of theirs, one that comes with fedaudit, or one that others wrote."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import is_run_folder
from fedaudit.audit.settings.received import load_run_config, parse_data
from fedaudit.audit.verdict.policy import load_policy

SHIPPED = Path(__file__).parents[1] / "configs"


def load_config(path: Path, data: Sequence[str] | None = None, *, trust_plugins: bool = False) -> Config:
    """Read a config file; plugins that it names may lie beside it.

    `data` and `trust_plugins` concern a config that lies in a run folder, which others may have written. Raises
    UserError with the file, the line and the key.
    """
    path = find_config(path)
    if is_run_folder(path):
        return load_run_config(path, trust_plugins=trust_plugins, data=parse_data(data))
    config = load(path)
    _check_files(config.policy, config.claims)
    config.bring_code([path.parent])
    return config


def make_config(settings: Mapping[str, Any]) -> Config:
    """Make a config of settings that a program gives, as a file would have them.

    Raises UserError with the key.
    """
    config = validate(Config, settings, "the config").check_plugins()
    _check_files(config.policy, config.claims)
    config.bring_code([Path()])
    return config


def find_config(path: Path) -> Path:
    """`quickstart` is configs/quickstart.yaml of this installation, where the user has no file of that name."""
    ours = SHIPPED / f"{path}.yaml"
    return ours if path.name == str(path) and not path.exists() and ours.is_file() else path


def _check_files(policy: str, claims: Sequence[str]) -> None:
    """Read now what would otherwise be refused after an hour of training."""
    load_policy(policy)
    if claims:
        from fedaudit.audit.claims import claim  # loads the accountants

        for path in claims:
            claim.load(Path(path))
