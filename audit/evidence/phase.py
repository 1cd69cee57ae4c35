"""Phases: which there are, which settings each depends on, and which of a folder are finished.

phases.json says what each phase ran with and how long it took.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaudit.audit.attestation import chain
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import PhaseEntry as Entry
from fedaudit.audit.settings.config import SIMULATED
from fedaudit.fl.runtime.errors import UserError

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Phase:
    """One phase: the config keys it depends on."""

    name: str
    keys: tuple[str, ...]
    module: str = ""  # below audit/, where it is not phases.NAME

    def settings(self, resolved: Mapping[str, Any]) -> dict[str, Any]:
        """Those of a resolved config."""
        found = {k: resolved[k] for k in self.keys if k in resolved}
        if not found.get("checks"):  # earlier folders say nothing of them
            found.pop("checks", None)
        return found


PHASES = (
    Phase("simulate", ("seed", *SIMULATED, "record", "evaluate_every")),
    Phase("attack", ("attacks", "checks", "budget", "replay")),
    Phase("account", ("accountants", "delta", "noise_audit")),
    Phase("matrix", ("matrix",), "experiments.matrix"),  # its cells are runs with phases of their own
    Phase("score", ("policy", "title", "system", "show", "variants")),
    Phase("report", ("report",)),
)
FIXED = PHASES[0].keys  # what a run folder can never change
IMPORT = Phase("import", ("seed", "subject", "protections"), "phases.import_")
_OF_RECORDED = (IMPORT, *(p for p in PHASES if p.name != "simulate"))


def phases(case: str) -> tuple[Phase, ...]:
    """Those of a simulated case, or of a recorded one, in their order."""
    return _OF_RECORDED if case == "recorded" else PHASES


def phase(name: str) -> Phase:
    return next(p for p in (*PHASES, IMPORT) if p.name == name)


def find_needed(name: str, resolved: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the phases whose output a phase reads."""
    return chain.reads(name, "import" if "subject" in resolved else "simulate")


def is_current(record: Mapping[str, Any], resolved: Mapping[str, Any], what: Phase) -> bool:
    """Whether a phase went to its end with these settings."""
    entry = record.get(what.name)
    if entry is None or entry["seconds"] is None:
        return False
    return bool(entry["settings"] == what.settings(resolved))


def is_complete(folder: Path, resolved: Mapping[str, Any], terms: Mapping[str, dict[str, str]]) -> bool:
    """Whether nothing is left to do of these phases; `terms`: name -> what it reads beside the folder."""
    record, links = read_phases(folder), chain.read_chain(folder)
    return all(is_current(record, resolved, phase(n)) and chain.current(links, n, t) for n, t in terms.items())


def is_audited_run(folder: Path, resolved: Mapping[str, Any]) -> bool:
    """Whether the folder holds an audit of what these settings simulate, attack and account for."""
    record, wanted = read_phases(folder), phases("recorded" if "subject" in resolved else "simulated")
    if any((record.get(p.name) or {}).get("seconds") is None for p in wanted if p.name != "report"):
        return False
    return all(
        record[name]["settings"] == phase(name).settings(resolved) for name in find_needed("score", resolved)
    )


def read_phases(folder: Path) -> dict[str, Any]:
    """phases.json: phase -> {started (ISO 8601, UTC), seconds (None: unfinished), settings}."""
    run = RunDir(folder)
    if not run.phases.exists():
        return {}
    record = run.read(run.phases, dict[str, Entry])
    if strange := sorted(record.keys() - {p.name for p in (*PHASES, IMPORT)}):
        raise UserError(
            f"{run.phases} is damaged: there is no phase {strange[0]!r}",
            hint="delete it and run the phases again",
        )
    if record and not record.keys() & {PHASES[0].name, IMPORT.name}:
        raise UserError(
            f"{run.phases} is damaged: it does not say what all other phases began with",
            hint="restore it, or run the phases again",
        )
    return {name: entry.model_dump() for name, entry in record.items()}
