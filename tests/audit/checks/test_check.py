"""A check that comes to no end ends no audit: what it saw stands, and why it saw no more is said."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.observer.check import SERVER, Check, Seen
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.side_by_side import DeadPart, Death
from fedaudit.reports.result import Finding, Outcome, Severity
from tests.audit.tiny import TEXT, VERDICTS

SEEN = Finding(id="a", title="t", summary="s", severity=Severity.LOW, threat=SERVER)


class Failing(Check):
    """Failing: it sees one thing and then raises."""

    error: Exception

    def inspect(self, federation: Any, lab: Any) -> Iterator[Seen]:
        yield SEEN
        raise self.error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (UserError("Net cannot compute [1, 64]"), "Net cannot compute [1, 64]"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError in test_check.py, line "),
    ],
)
def test_what_was_seen_stands_and_why_no_more_is_a_finding_that_failed(error: Exception, words: str) -> None:
    check = Failing()
    check.error = error
    checked = check.check(None, None)
    seen, end = checked.results
    assert seen == SEEN and not checked.declared
    assert end.title == "The check Failing could not be carried out" and end.outcome is Outcome.FAILED
    assert words in end.reason and end.severity is Severity.NONE


class YieldsNoFinding(Check):
    """One that yields what is neither a finding nor a sentence, or that returns nothing."""

    made: Any

    def inspect(self, federation: Any, lab: Any) -> Any:
        return self.made


@pytest.mark.parametrize("made", [None, [{"id": "x"}]], ids=["nothing", "mapping"])
def test_a_check_that_yields_no_finding_is_told_so(made: Any) -> None:
    check = YieldsNoFinding()
    check.made = made
    [end] = check.check(None, None).results
    assert "TypeError: inspect() must yield findings, or sentences, got" in end.reason


def test_the_reason_is_not_cut_where_it_says_much() -> None:
    check = Failing()
    check.error = ValueError("one field after another " * 40)
    assert check.check(None, None).results[1].reason.count("another") == 40
    check.error = ValueError("x" * 10_000)
    assert len(check.check(None, None).results[1].reason) < 2_100


class WrongSeverity(Check):
    """One whose finding has a severity that there is not."""

    def inspect(self, federation: Any, lab: Any) -> Iterator[Seen]:
        yield Finding(id="x", title="t", summary="s", severity="bad")  # type: ignore[arg-type]


def test_a_finding_with_a_wrong_field_is_told_what_that_must_be() -> None:
    [end] = WrongSeverity().check(None, None).results
    words = "Finding.severity must be 'critical', 'high', 'medium', 'low' or 'none', got 'bad'."
    assert end.reason.startswith("ValidationError in test_check.py, line ") and end.reason.endswith(words)


def test_a_part_that_dies_ends_the_phase_which_the_same_command_makes_again() -> None:
    check = Failing()
    check.error = DeadPart(Death(-9))
    with pytest.raises(DeadPart):
        check.check(None, None)


class PasswordsInClear(Check):
    """Passwords in clear: a check of one's own, as a file of one's own has it."""

    def inspect(self, federation: Any, lab: Any) -> Iterator[Seen]:
        yield Finding(
            id="passwords-sent",
            title="Clients send passwords in clear",
            summary="All ten do.",
            severity=Severity.HIGH,
            reason="Whoever reads them can act for these people.",
            does_not_show="who reads them",
            remedy="send none",
        )


def test_a_check_of_ones_own_says_how_bad_it_is() -> None:
    [seen] = PasswordsInClear().check(None, None).results
    finding = load_policy("default").rate(seen)
    assert (finding.severity, finding.title) == (Severity.HIGH, "Clients send passwords in clear")
    assert finding.is_demonstrated and finding.reason == "Whoever reads them can act for these people."


OWN = """
from fedaudit.audit.observer.check import Check
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.settings import settings
from fedaudit.reports.result import Finding, Severity
class Sees(Check):
    @settings
    class Config:
        most: int = 3
    def inspect(self, federation, lab):
        sent = [a for a in read(federation.artifacts) if a.kind == Kind.LOCAL_MODEL]
        title = f"{len(sent)} of {self.config.most} models"
        yield Finding(id="models", title=title, summary="s", severity=Severity.LOW)
class Raises(Check):
    def inspect(self, federation, lab):
        return iter([federation.passwords])
"""
CONFIG = TEXT + (
    "checks: [{name: 'mine:Sees', most: 4}, 'mine:Raises']\nattacks: []\nnoise_audit: false\n"
    "report: [markdown]\nworkers: 0\n"
)


def test_checks_of_ones_own_stand_in_the_config_and_one_that_raises_is_said_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "c.yaml").write_text(CONFIG)
    ran = CliRunner().invoke(app, ["run", "c.yaml", "--out", "out", "--trust-plugins"])
    assert ran.exit_code in VERDICTS, ran.output
    why = "AttributeError in mine.py, line 17: "
    assert f"failed: check-Raises: {why}" in ran.output
    page = (tmp_path / "out" / "report.md").read_text().replace("\\", "")
    assert (
        "| Failed | The check Raises could not be carried out | " + why in page
        and "| Low | 4 of 4 models |" in page
    )
    assert CliRunner().invoke(app, ["check", "out", "--trust-plugins"]).exit_code in VERDICTS
    (tmp_path / "c.yaml").write_text(CONFIG.replace(", 'mine:Raises'", ""))
    again = CliRunner().invoke(app, ["run", "c.yaml", "--out", "out", "--trust-plugins"])
    assert again.exit_code in VERDICTS and "failed:" not in again.output


class Elsewhere(Check):
    """Elsewhere: it sees something in what nobody sends."""

    def inspect(self, federation: Any, lab: Any) -> Iterator[Seen]:
        yield SEEN.model_copy(update={"artifacts": ["local_model"]})
        yield SEEN.model_copy(update={"id": "b", "artifacts": ["label_counts"]})


def test_a_finding_about_what_nobody_sends_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    settings = f'checks: ["{__name__}:Elsewhere"]\nattacks: []\nnoise_audit: false\nreport: [json]\n'
    config.write_text(f"{TEXT}\n{settings}")
    ran = CliRunner().invoke(app, ["run", str(config), "--out", str(tmp_path / "out")])
    assert ran.exit_code in VERDICTS, ran.output
    assert "its finding 'b' is about label_counts, which nobody sent" in " ".join(ran.output.split())
