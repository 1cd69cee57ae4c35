"""The Python interface: names that load lazily, an audit from settings, its rows, its page and its charts."""

import doctest
import html
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import fedaudit as fa
from tests.audit.tiny import TEXT
from tests.reports.sample import result

SETTINGS: dict[str, Any] = yaml.safe_load(TEXT) | {
    "attacks": ["label_counts_from_update"],
    "device": "cpu",
    "workers": 0,
    "report": ["html"],
}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[fa.Audit]:
    yield fa.run(SETTINGS, out=tmp_path_factory.mktemp("python") / "run")


def test_every_name_is_there_and_importing_loads_nothing() -> None:
    code = "import sys, fedaudit; print(len({'torch', 'numpy', 'pydantic'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "0"
    assert all(getattr(fa, name).__name__ == name for name in fa.__all__)
    assert set(fa.__all__) <= set(dir(fa))
    with pytest.raises(AttributeError):
        fa.nothing  # noqa: B018


def test_an_audit_has_the_verdict_of_its_report(audit: fa.Audit) -> None:
    assert audit.result.decision is not None
    assert audit.verdict == audit.result.decision.word.value and audit.verdict.why
    page = (audit.folder / "report.html").read_text()
    assert audit.result.decision.word.words in page
    assert audit.result.decision.word.words in audit._repr_html_()
    assert audit.result.decision.line in repr(audit)


def test_a_run_folder_that_is_run_again_is_finished_where_it_lies(audit: fa.Audit) -> None:
    again = fa.run(audit.folder, trust_plugins=True)
    assert again.folder == audit.folder and again.result == audit.result


def test_an_audit_opened_again_is_the_same_and_an_edited_one_is_refused(audit: fa.Audit, tmp_path: Path) -> None:
    assert fa.load(audit.folder, trust_plugins=True).result == audit.result
    forged = tmp_path / "forged"
    shutil.copytree(audit.folder, forged)
    text = (forged / "audit.json").read_text()
    word = audit.verdict
    (forged / "audit.json").write_text(text.replace(f'"word": "{word}"', '"word": "ready"', 1))
    with pytest.raises(fa.UserError):
        fa.load(forged, trust_plugins=True)
    assert (
        fa.load(audit.folder).result == audit.result
    )  # the program has imported its classes: it is asked nothing


def test_a_gate_in_python_judges_by_its_own_policy_and_not_by_that_of_the_folder(
    audit: fa.Audit, tmp_path: Path
) -> None:
    """A folder's policy may call itself default and let more pass."""
    default = (Path(__file__).parents[2] / "audit/policy/default.yaml").read_text()
    lax = default.replace("not_ready: high", "not_ready: critical")
    run = tmp_path / "run"
    shutil.copytree(audit.folder, run)
    (run / "default.yaml").write_text(lax)
    own = fa.run(SETTINGS | {"policy": str(run / "default.yaml")}, out=run)
    assert (own.result.policy.name, own.result.policy.owner) == ("default", "the owner's own")
    judged = fa.load(run, trust_plugins=True)
    assert (
        judged.result.policy.owner == "as fedaudit ships it" and judged.result.findings == audit.result.findings
    )
    assert (own.result.verdict.bar, judged.result.verdict.bar) == ("critical", "high")


def test_rows_are_numbers_and_text_and_an_index_is_a_name(audit: fa.Audit) -> None:
    rows = audit.findings.to_dicts()
    assert len(rows) == len(audit.findings) and {"id", "severity", "value", "baseline"} <= set(rows[0])
    first = audit.findings[0]
    assert audit.findings[first.id] is first
    assert [q.id for q in audit.questions] == [q["id"] for q in audit.questions.to_dicts()]
    sent = {(row["sender"], row["seen_by"], row["kinds"]) for row in audit.messages.to_dicts()}
    assert {("server", "client", "global_model"), ("client/3", "server", "local_model, num_examples")} <= sent
    assert [row["round"] for row in audit.metrics.to_dicts()] == [h.round for h in audit.result.history]
    with pytest.raises(fa.UserError, match="no row 'nothing'"):
        audit.findings["nothing"]


def test_a_finding_draws_its_own_figures_and_a_notebook_shows_it(audit: fa.Audit) -> None:
    shown = fa.Audit(audit.folder, result())
    figures = {f.id: [g for g in shown.result.figures if g.finding == f.id] for f in shown.result.findings}
    drawn = next(name for name, own in figures.items() if own)
    assert list(shown.findings[drawn].plot().figures) == figures[drawn]
    assert list(shown.findings.plot().figures) == [g for own in figures.values() for g in own]
    with pytest.raises(fa.UserError, match="nothing that can be drawn"):
        shown.findings[next(name for name, own in figures.items() if not own)].plot()
    for finding, plain in zip(shown.findings, shown.result.findings, strict=True):
        assert {"figures": figures[finding.id], **plain.model_dump()} == {
            **finding.model_dump(),
            "figures": finding.figures,
        }
        page = finding._repr_html_()
        assert html.escape(finding.summary) in page and page.count("<tr>") == len(plain.evidence) + bool(
            plain.evidence
        )


def test_evidence_rows_hold_every_measurement(audit: fa.Audit) -> None:
    assert len(audit.evidence) == sum(len(f.evidence) for f in audit.result.findings) > 0


def test_charts_are_saved_as_svg_alone(audit: fa.Audit, tmp_path: Path) -> None:
    chart = audit.metrics.plot()
    chart.save(tmp_path / "accuracy.svg")
    assert (tmp_path / "accuracy.svg").read_bytes().count(b"<svg") == 1
    assert "<svg" in chart._repr_html_() and "<?xml" not in chart._repr_html_()
    with pytest.raises(fa.UserError, match=r"saved as \.svg"):
        chart.save(tmp_path / "accuracy.png")
    with pytest.raises(fa.UserError, match="nothing that can be drawn"):
        audit.questions.plot()


def test_text_of_a_federation_is_escaped_in_notebooks() -> None:
    table = fa.Table([{"name": "<script>alert(1)</script>"}], dict)
    assert "<script>" not in table._repr_html_() and "&lt;script&gt;" in table._repr_html_()


def test_settings_that_are_wrong_end_in_a_sentence() -> None:
    with pytest.raises(fa.UserError, match="metod"):
        fa.run({"metod": "fedavg"})
    with pytest.raises(fa.UserError, match="no run folder"):
        fa.load("nowhere")


def test_calibrated_noise_keeps_the_budget() -> None:
    from dp_accounting.dp_event import GaussianDpEvent, SelfComposedDpEvent
    from dp_accounting.pld import PLDAccountant

    (plan,) = fa.calibrate(epsilon=3, rounds=8)

    def spent(z: float) -> float:
        accountant = PLDAccountant()
        accountant.compose(SelfComposedDpEvent(GaussianDpEvent(z), 8))
        return float(accountant.get_epsilon(1e-5))

    assert spent(plan.noise_multiplier) <= 3.001 and spent(0.99 * plan.noise_multiplier) > 3
    hidden = fa.calibrate(epsilon=3, rounds=8, clients=100, sampled=10)
    assert len(hidden) == 2 and hidden[1].noise_multiplier < hidden[0].noise_multiplier


def test_a_ledger_costs_what_the_audit_says(audit: fa.Audit) -> None:
    costs = fa.account(audit.folder / "ledger.jsonl")
    assert {c.observer for c in costs} == {b.observer for b in audit.bounds}
    with pytest.raises(fa.UserError):
        fa.account("nowhere/ledger.jsonl")


def test_examples_in_docstrings_hold() -> None:
    from fedaudit import privacy

    (example,) = doctest.DocTestFinder(recurse=False).find(privacy.calibrate, "calibrate")
    outcome = doctest.DocTestRunner().run(example)
    assert outcome.attempted and not outcome.failed


def test_an_inbox_is_taken_in_checked_and_audited(tmp_path: Path) -> None:
    inbox = Path(__file__).parents[1] / "audit/importing/flower/inbox"
    taken = fa.load_inbox(inbox, out=tmp_path / "run", attacks=["example_numbers"], variants=[], report=["json"])
    assert "holds" in {c.status for c in taken.checks} and "<table>" in taken._repr_html_()
    assert taken.imported.messages > 0 and str(taken.imported.messages) in repr(taken)
    audited = taken.run(workers=0)
    assert audited.verdict in ("not_ready", "cannot_tell") and "example_numbers" in {
        f.id for f in audited.findings
    }
    with pytest.raises(fa.UserError, match="no"):
        fa.load_inbox(tmp_path / "nothing", out=tmp_path / "other")
    assert not (tmp_path / "other" / "config.yaml").exists()
