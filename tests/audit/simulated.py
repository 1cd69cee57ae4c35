"""A federation of a config, simulated and recorded: what tests of the later phases read."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases import simulate
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate


def simulated(settings: Mapping[str, Any], folder: Path | None = None) -> tuple[RunDir, Config]:
    """The run folder, in `folder` or a new one, and the config."""
    config = validate(Config, settings, "test")
    run = RunDir.create((folder or Path(mkdtemp())) / "run")
    simulate.run(run, config, lambda *_: None)
    return run, config
