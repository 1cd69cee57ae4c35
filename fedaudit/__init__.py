"""fedaudit: privacy and robustness audits for federated learning.

    import fedaudit as fa

    audit = fa.run("quickstart")
    audit.verdict, audit.findings.to_dicts()

What stands in `__all__` is for users and keeps its names. For whoever extends it, `fedaudit.fl` runs federations
and records their messages, `fedaudit.attacks` attacks what was recorded, `fedaudit.audit` plans, accounts and
judges, `fedaudit.reports` renders. Importing this loads none of them: a name is loaded when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedaudit.audits import Audit, Verdict, load, run
    from fedaudit.fl.runtime.errors import UserError
    from fedaudit.privacy import account, calibrate
    from fedaudit.tables import Chart, Table

__all__ = ["Audit", "Chart", "Table", "UserError", "Verdict", "account", "calibrate", "load", "run"]

_MODULES = {
    "Audit": "fedaudit.audits",
    "Chart": "fedaudit.tables",
    "Table": "fedaudit.tables",
    "UserError": "fedaudit.fl.runtime.errors",
    "Verdict": "fedaudit.audits",
    "account": "fedaudit.privacy",
    "calibrate": "fedaudit.privacy",
    "load": "fedaudit.audits",
    "run": "fedaudit.audits",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fedaudit")
    if name in _MODULES:
        return getattr(importlib.import_module(_MODULES[name]), name)
    raise AttributeError(f"module 'fedaudit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
