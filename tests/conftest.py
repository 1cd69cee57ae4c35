"""For all tests: our folders are imported as parts of `fedaudit`, never by their bare names.

The folders lie at the top of the repository, so `import fl` would work here and make every class a second time.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

FOLDERS = ("fl", "attacks", "audit", "reports")


class RefuseBareNames:
    """A finder that comes first and refuses `import fl`."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in FOLDERS:
            raise ModuleNotFoundError(f"import fedaudit.{name} instead of {name}", name=name)
        return None


sys.meta_path.insert(0, RefuseBareNames())
