"""Runs in which no client is heard, in any round or in some: what is asked, answered and said of them."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.settings.config import Config
from fedaudit.fl.data.participation import Availability, Participation
from fedaudit.reports.decision import Word
from fedaudit.reports.result import AuditResult, Outcome
from tests.audit.tiny import SMALL

TEXT: dict[str, Any] = {
    "federation": SMALL | {"empty_round": "skip"},
    "method": {"name": "rebafl", "rounds": 3, "local_epochs": 1},
    "workers": 0,
    "replay": {"sizes": [1, 5], "clients": 2, "groups": 10},
    "attacks": ["count_recovery", "loss_threshold"],
    "noise_audit": False,
    "report": ["json", "html"],
}
PHASES = ["simulate", "attack", "account", "score", "report"]


class LastRound(Availability):
    """Everybody answers in the last of three rounds, and nobody before."""

    title = "last round"

    def draw(self, round: int, candidates: Any, streams: object, attempt: int = 0) -> Participation:
        return Participation(tuple(candidates), tuple(candidates) if round == 2 else ())

    def describe(self) -> str:
        return "everybody answers in the last round"


def audit(folder: Path, **changes: Any) -> tuple[AuditResult, RunDir]:
    config = Config.model_validate(TEXT | {"federation": TEXT["federation"] | changes})
    made = RunDir.create(folder)
    WholeAudit(made, config).execute(PHASES, lambda *_: None)
    return AuditResult.model_validate_json(made.audit.read_bytes()), made


@pytest.mark.parametrize("protections", [[], ["secure_aggregation"]])
def test_a_run_that_heard_nobody_answers_nothing_and_is_not_ready(tmp_path: Path, protections: list[str]) -> None:
    config = Config.model_validate(
        TEXT | {"federation": TEXT["federation"] | {"failures": {"reply_loss": 1.0}}, "protections": protections}
    )
    made = RunDir.create(tmp_path / "run")
    WholeAudit(made, config).execute(PHASES, lambda *_: None)
    result = AuditResult.model_validate_json(made.audit.read_bytes())
    assert result.questions == [] and result.bounds == []
    assert result.decision is not None and result.decision.word is Word.CANNOT_TELL
    assert "No client was heard in any of 3 rounds" in result.decision.sentence
    assert result.decision.page.people.of == 0 and result.decision.page.readers == []
    assert {f.outcome for f in result.findings if f.source == "attack"} == {Outcome.NOT_APPLICABLE}
    said = [f.summary for f in result.findings if f.source == "attack"]
    assert all("no client was heard in any round" in text.lower() for text in said)
    page = (made.path / "report.html").read_text()
    assert "No message that is made of" in page and "0 of 0" not in page


def test_of_messages_before_anybody_was_heard_nothing_is_asked(tmp_path: Path) -> None:
    result, _ = audit(tmp_path / "run", availability="tests.audit.phases.test_nobody_heard:LastRound")
    asked = {(q.observer, kind) for q in result.questions for kind in q.kinds}
    # clients received the first model alone, of which nobody's examples are a part
    assert ("client", "global_model") not in asked
    assert ("public", "global_model") in asked and ("server", "local_model") in asked
