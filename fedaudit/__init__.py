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
    from fedaudit.audit.mechanism.check import MechanismCheck as MechanismCheck
    from fedaudit.audit.mechanism.check import check_mechanism as check_mechanism
    from fedaudit.audits import Audit as Audit
    from fedaudit.audits import RecordedFederation as RecordedFederation
    from fedaudit.audits import Verdict as Verdict
    from fedaudit.audits import load as load
    from fedaudit.audits import load_inbox as load_inbox
    from fedaudit.audits import run as run
    from fedaudit.fl.runtime.errors import UserError as UserError
    from fedaudit.inversion import Reconstruction as Reconstruction
    from fedaudit.inversion import invert as invert
    from fedaudit.privacy import account as account
    from fedaudit.privacy import calibrate as calibrate
    from fedaudit.single_attacks import AttackResult as AttackResult
    from fedaudit.single_attacks import attack as attack
    from fedaudit.sweeps import HardeningResult as HardeningResult
    from fedaudit.sweeps import RobustnessResult as RobustnessResult
    from fedaudit.sweeps import Sweep as Sweep
    from fedaudit.sweeps import harden as harden
    from fedaudit.sweeps import robustness as robustness
    from fedaudit.sweeps import sweep as sweep
    from fedaudit.tables import Chart as Chart
    from fedaudit.tables import Table as Table

_MODULES = {
    "fedaudit.audits": ("Audit", "RecordedFederation", "Verdict", "load", "load_inbox", "run"),
    "fedaudit.audit.mechanism.check": ("MechanismCheck", "check_mechanism"),
    "fedaudit.fl.runtime.errors": ("UserError",),
    "fedaudit.inversion": ("Reconstruction", "invert"),
    "fedaudit.privacy": ("account", "calibrate"),
    "fedaudit.single_attacks": ("AttackResult", "attack"),
    "fedaudit.sweeps": ("HardeningResult", "RobustnessResult", "Sweep", "harden", "robustness", "sweep"),
    "fedaudit.tables": ("Chart", "Table"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("fedaudit")
    if name in _PLACES:
        return getattr(importlib.import_module(_PLACES[name]), name)
    raise AttributeError(f"module 'fedaudit' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
