"""Files that phases leave, in their forms: those of evidence/, each read and checked once, and audit.json.

Whether these fit the evidence is asked in audit/phases/score.py.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fedaudit.attacks.attack import Card
from fedaudit.audit.accounting.budget import SpentBudget
from fedaudit.audit.accounting.status import BoundCheck
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.schemas import AttackFile, VerifiedFile
from fedaudit.audit.observer.check import Checked
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.audit.verdict.policy import GradingPolicy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.reports.absence import Absence
from fedaudit.reports.result import AuditResult, NoiseAuditRecord
from fedaudit.reports.robustness import Robustness

if TYPE_CHECKING:
    from fedaudit.audit.planning.choice import AttackChoice

T = TypeVar("T")
# names of the files; each attack leaves one of its own beside them
CHECKS = "checks.json"
LEDGER, BUDGETS = "ledger.json", "budgets.json"
REPLAY, NOISE_AUDITS = "replay.json", "noise_audits.json"
MATRIX, ABSENCE = "matrix.json", "absence.json"
NOTHING: Mapping[str, Any] = {  # of an attack that measured nothing
    **{key: [] for key in ("assertions", "evidence", "people", "galleries", "texts", "rows", "curves")},
    "remedy": "",
}


class EvidenceFolder:
    """Of one run. Raises UserError for a file that is damaged, or missing where its phase always writes one."""

    def __init__(self, folder: Path, checks: Sequence[PluginSpec] = ()) -> None:
        """`checks` are those of the config, beside ours."""
        self._run, self._checks = RunDir(folder), {*catalog.names("checks"), *(c.name for c in checks)}
        self.path = self._run.evidence

    @cached_property
    def attacks(self) -> list[dict[str, Any]]:
        """What the attacks left, in the order they ran."""
        files = sorted(self.path.glob("[0-9]*.json"))
        for file in files:
            self._run.read(file, AttackFile)
        return [self._run.read_json(file) for file in files]

    @cached_property
    def _by_check(self) -> dict[str, Checked]:
        """What each check said, whether or not it is made here."""
        return self._run.read(self.path / CHECKS, dict[str, Checked])

    @cached_property
    def unmade(self) -> list[str]:
        """Checks that are made here and were not made of this run."""
        return sorted(self._checks - self._by_check.keys())

    @cached_property
    def checks(self) -> Checked:
        """What all checks say, and which were not made."""
        said = [one for _, one in sorted(self._by_check.items())]
        unmade = [f"Not made of this run: the check {name}. What it sees is not known." for name in self.unmade]
        return Checked(
            results=[r for one in said for r in one.results],
            declared=[*(d for one in said for d in one.declared), *unmade],
            constant=[k for one in said for k in one.constant],
            rows=[r for one in said for r in one.rows],
        )

    @cached_property
    def ledger(self) -> VerifiedFile:
        """What the verifier said of the run's ledger."""
        return self._run.read(self.path / LEDGER, VerifiedFile)

    @cached_property
    def budgets(self) -> list[SpentBudget]:
        return self._run.read(self.path / BUDGETS, list[SpentBudget])

    @cached_property
    def bound_checks(self) -> list[BoundCheck]:
        """What the replay said of each bound; empty where nothing was played."""
        return self._run.read(self.path / REPLAY, list[BoundCheck])

    @cached_property
    def noise_audits(self) -> list[NoiseAuditRecord]:
        """The tests of the run's noise; empty where none were made."""
        return self._run.read(self.path / NOISE_AUDITS, list[NoiseAuditRecord])

    @cached_property
    def matrix(self) -> Robustness | None:
        """None where the config has no matrix."""
        return self._read_if_there(MATRIX, Robustness)

    @cached_property
    def absence(self) -> Absence | None:
        """None where the config compares no absent clients."""
        return self._read_if_there(ABSENCE, Absence)

    def _read_if_there(self, name: str, form: type[T]) -> T | None:
        path = self.path / name
        return self._run.read(path, form) if path.is_file() else None


def name_file(number: int, label: str) -> str:
    """The file of an attack, by its place in the list."""
    return f"{number:02d}-{label.replace(':', '.')}.json"


def card_fields(card: Card, spec: AttackSpec | None = None) -> dict[str, Any]:
    """The card as JSON, and all that it may read; of one attack twice the headlines differ."""
    fields = dataclasses.asdict(card)
    fields["threat"]["knows"] = sorted(card.threat.knows)
    if spec is not None and spec.id:
        fields["title"] += f" ({spec.label})"
    return fields | {"reads": list(card.reads)}


def put_own_card(file: Mapping[str, Any], choice: "AttackChoice") -> dict[str, Any]:
    """An attack's file with the card that its attack has here: what it is called is no matter of evidence."""
    spec = next((s for s in choice.specs if s.label == file["name"]), None)
    if spec is None:
        return dict(file)
    return {**file, "card": parse_json(json.dumps(card_fields(choice.cards[spec.label], spec)))}


def read_result(folder: Path) -> AuditResult:
    """audit.json of a run, validated; what another version says besides is left out."""
    audit = folder / "audit.json"
    if not audit.exists():
        raise UserError(f"no audit.json in {folder}", hint="`fedaudit run RUN --phase score` writes it")
    try:
        data = audit.read_bytes()
        parse_json(data)  # a key that stands twice
        return AuditResult.model_validate_json(data, extra="ignore")
    except ValueError as error:
        lines = str(error).splitlines()
        raise UserError(
            f"{audit} is not an audit result: {' '.join(lines[1:3] or lines).strip()}",
            hint="`fedaudit run RUN --phase score` makes it again",
        ) from error


def read_policy(folder: Path) -> GradingPolicy:
    """The policy that the folder keeps, by which its audit.json was judged."""
    run = RunDir(folder)
    found = run.read(run.policy, GradingPolicy)
    if found.decision is None or found.questions is None or found.panel is None:
        raise UserError(
            f"{run.policy} is not a whole policy", hint="`fedaudit run RUN --phase score` makes it again"
        )
    return found
