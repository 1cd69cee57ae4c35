"""Opacus' accountants without the rest of Opacus, which imports torch: they compute with numpy and scipy alone.

Of the packages round them only the paths are there while they are imported, and an empty optimiser, which is the
type of an argument that nothing here passes. Every process that accounts for sampled noise starts two seconds
sooner; the code that computes is Opacus' own (tests/audit/accounting/test_accountants.py).
"""

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

EMPTY = {"opacus": ".", "opacus.accountants": "accountants", "opacus.optimizers": "optimizers"}


class Accountants(NamedTuple):
    """Opacus' classes."""

    rdp: Any
    prv: Any


@cache
def load_accountants() -> Accountants:
    """The two accountants; raises ImportError where Opacus is not installed."""
    known = {name: module for name, module in sys.modules.items() if _is_of_opacus(name)}
    if not known:
        sys.modules.update({name: _make_empty(name, folder) for name, folder in EMPTY.items()})
    try:
        from opacus.accountants.prv import PRVAccountant
        from opacus.accountants.rdp import RDPAccountant
    finally:
        if not known:  # whoever trains imports all of it
            for name in [n for n in sys.modules if _is_of_opacus(n)]:
                del sys.modules[name]
    return Accountants(RDPAccountant, PRVAccountant)


def _is_of_opacus(name: str) -> bool:
    return name.partition(".")[0] == "opacus"


def _make_empty(name: str, folder: str) -> ModuleType:
    """A package with the path of Opacus' own and none of its code."""
    spec = find_spec("opacus")
    if spec is None or not spec.submodule_search_locations:
        raise ImportError("Opacus is not installed")
    made = ModuleType(name)
    path = Path(spec.submodule_search_locations[0]) / folder
    vars(made).update(__path__=[str(path)], DPOptimizer=object)
    return made
