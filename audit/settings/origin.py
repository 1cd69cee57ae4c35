"""Where a config comes from: a file that the user named, or a run folder, which others may have made."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedaudit.fl.runtime.errors import UserError


class Origin(NamedTuple):
    """Where a config was read from and, where it is a run folder's, what its reader gives to it."""

    file: Path | None = None  # None: a program gave its settings
    data: Mapping[str, Path] | None = None  # by name: a data set, "policy", the stem of a file of claims
    trust: bool = False  # whether its reader runs and fetches whatever it names

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
