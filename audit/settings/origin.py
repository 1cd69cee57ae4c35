"""Where a config comes from: a file of the user's own, or a run folder that others may have made."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedaudit.fl.runtime.errors import UserError

ATTESTED = ("chain.json", "phases.json")  # beside a config: the folder is a run, and its config is not the user's


class Origin(NamedTuple):
    """Where a config was read from and, where others wrote it, what its reader gives to it."""

    file: Path | None = None
    data: Mapping[str, Path] | None = None  # by name: a data set, "policy", the stem of a file of claims

    def locate(self, name: str, path: str) -> str:
        """Where to read what the config has at `path`; raises UserError for one outside of a folder of others."""
        if self.data is None:
            return path
        if name in self.data:
            return str(self.data[name])
        folder = (self.file or Path()).parent
        if Path(path).expanduser().resolve().is_relative_to(folder.resolve()):
            return path
        raise UserError(
            f"the folder's config reads {name} from {path!r:.200}, outside of {folder}",
            hint=f"--data {name}=PATH names a copy of yours; a folder of others opens no file of its own choice",
        )


def is_run_folder(config: Path) -> bool:
    """Whether a config lies in a run folder, so that somebody else may have written it."""
    return any((config.parent / name).exists() for name in ATTESTED)
