"""The audit of a recorded federation whose clients' examples the auditor was not given, or of one client only."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.attack import Attack
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.cli.ending import explain_finding
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult, Outcome, Severity
from tests.audit.importing.theirs import METHOD, TRUTH, brought, changed, check, nodes

PHASES = ["attack", "account", "score", "report"]
REPLAY = {"sizes": [1, 5, 20, 100], "clients": 3}
READERS = ["label_counts_from_update", "example_numbers", "loss_threshold"]


def audited(
    folder: Path,
    truth: Path | None,
    attacks: list[Any] | None = None,
    replay: dict[str, Any] | None = None,
    **subject: Any,
) -> AuditResult:
    run, config, _ = brought(folder, truth, **subject)
    given = {"attacks": attacks or READERS, "replay": replay or {}}
    config = validate(Config, config.model_dump(mode="json", exclude_defaults=True) | given, "test")
    execute(run, config, PHASES, lambda *_: None, skip_finished=False)
    return read_result(run.path)


def of(folder: Path, *names: str) -> Path:
    """Truth of these clients only; "own" are the auditor's own examples."""
    some = folder / "some"
    some.mkdir()
    for name in names:
        shutil.copy(TRUTH / f"{name}.npz", some / f"{name}.npz")
    return some


def labels(node: str) -> set[int]:
    with np.load(TRUTH / f"{node}.npz") as file:
        return set(file["y"].tolist())


@pytest.fixture(scope="module")
def blind(tmp_path_factory: pytest.TempPathFactory) -> tuple[AuditResult, Path]:
    folder = tmp_path_factory.mktemp("blind")
    return audited(folder, None), folder / "run"


def test_claims_are_listed_for_the_operator_and_are_those_that_truth_would_have_borne_out(
    blind: tuple[AuditResult, Path],
) -> None:
    found = {u.attack: u for u in blind[0].unverified}
    classes = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    said = {c.client: c for c in found["label_counts_from_update"].claims}
    right = [
        said[k].says == "classes " + " and ".join(classes[c] for c in sorted(labels(node)))
        for k, node in enumerate(nodes())
    ]
    assert len(said) == 8 and sum(right) >= 7
    assert said[0].check == "which classes it owns"
    assert [c.says for c in found["example_numbers"].claims] == [
        f"{len(np.load(TRUTH / f'{node}.npz')['y'])} examples" for node in nodes()
    ]
    assert found["loss_threshold"].claims == []


def test_an_unverified_claim_has_no_severity(blind: tuple[AuditResult, Path]) -> None:
    result, _ = blind
    own = [f for f in result.findings if f.source == "attack"]
    assert {f.severity for f in own} == {Severity.NONE}
    assert all("could not be verified" in f.title for f in own)
    assert result.headline.sentence.startswith("Nothing that attacks claim could be verified: 3 attacks ran")


def test_report_and_explain_list_what_is_claimed_and_what_checking_needs(blind: tuple[AuditResult, Path]) -> None:
    result, run = blind
    html = (run / "report.html").read_text()
    assert "Unverified claims" in html and "classes zero and four" in html and "which classes it owns" in html
    told = " ".join(" ".join(explain_finding(result, "label_counts_from_update")).split())
    assert "Unverified claim: client 0: classes " in told and "to check it, see which classes it owns" in told


def test_with_truth_of_everybody_nothing_is_unverified(tmp_path: Path) -> None:
    result = audited(tmp_path, TRUTH, READERS[:2])
    assert result.unverified == [] and "verified" not in result.headline.sentence


QUICK = 0.5  # seconds of effort: those that invert gradients take minutes


@pytest.mark.nightly
def test_no_attack_fails_for_want_of_truth(tmp_path: Path) -> None:
    cards = {n: p.card for n in catalog.names("attacks") if issubclass(p := catalog.load("attacks", n), Attack)}
    quick = [n for n, c in cards.items() if c.effort.seconds <= QUICK and not c.control]
    result = audited(tmp_path, None, [*quick, "label_counts_from_gradient"])
    assert [f"{f.id}: {f.summary}" for f in result.findings if f.outcome is Outcome.FAILED] == []
    assert not [f for f in result.findings if f.source == "attack" and f.is_demonstrated]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """Nobody's truth; examples of the auditor's own."""
    folder = tmp_path_factory.mktemp("planted")
    return audited(folder, of(folder, "own"), ["loss_threshold"], REPLAY, method=METHOD)


@pytest.mark.nightly
def test_planted_messages_give_a_curve_with_the_recorded_models_up_to_the_recorded_n(
    planted: AuditResult,
) -> None:
    (one,) = [f for f in planted.findings if f.id == "loss_threshold"]
    curve = {int(e.condition["n"]): e.value for e in one.evidence if e.measure == "auc" and "n" in e.condition}
    assert sorted(curve) == [1, 5, 20, 100, 106]
    assert any(f.finding == one.id and f.kind == "line" for f in planted.figures)
    assert not [e for e in one.evidence if e.control == "none"]


def test_the_auditors_own_examples_are_planted_and_known_to_no_adversary(tmp_path: Path) -> None:
    run, config, _ = brought(tmp_path, of(tmp_path, "own"))
    case = RecordedCase(config, run.artifacts, *run.find_truth())
    pools = [case.examples.auxiliary, case.examples.reference, case.examples.planted]
    assert all(len(p) > 150 for p in pools) and len(np.unique(np.concatenate(pools))) == sum(map(len, pools))
    assert set(np.unique(case.data.train.y[case.examples.planted])) == set(range(10))
    run, config, _ = brought(tmp_path / "told", TRUTH)
    assert len(RecordedCase(config, run.artifacts, *run.find_truth()).examples.planted) == 0


@pytest.fixture(scope="module")
def canary(tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """Truth of one client, which is the auditor's own, and examples of the auditor's own."""
    folder, attacks = tmp_path_factory.mktemp("canary"), READERS
    return audited(folder, of(folder, nodes()[2], "own"), attacks, REPLAY, method=METHOD, canaries=[nodes()[2]])


@pytest.mark.nightly
def test_of_a_canary_client_there_are_findings_and_of_the_others_unverified_claims(canary: AuditResult) -> None:
    found = {f.id: f for f in canary.findings if f.source == "attack"}
    exact = [e for e in found["example_numbers"].evidence if e.measure == "size_known" and e.control == "none"]
    assert [(e.value, e.trials) for e in exact] == [(1.0, 1)]
    uploads = [e for e in found["loss_threshold"].evidence if e.condition.get("model") == "update"]
    assert {e.condition["origin"] for e in uploads if e.control == "none"} == {"recorded"}
    assert (
        "could not be verified" not in found["loss_threshold"].title
        and "verified" not in canary.headline.sentence
    )
    claims = {u.attack: [c.client for c in u.claims] for u in canary.unverified}
    assert claims["label_counts_from_update"] == [0, 1, 3, 4, 5, 6, 7] == claims["example_numbers"]


@pytest.mark.nightly
def test_the_report_counts_the_canary_and_says_of_whom_it_was_measured(canary: AuditResult) -> None:
    assert canary.imported is not None
    assert (canary.imported.truth, canary.imported.clients, canary.imported.canaries) == (1, 8, ["client/2"])
    own = next(f for f in canary.findings if f.id == "loss_threshold")
    assert own.summary.endswith(
        "Measured on 1 of 8 clients, whose examples were given, 1 of them the auditor's own."
    )


def test_a_canary_that_shares_its_number_of_examples_is_not_known_by_it(tmp_path: Path) -> None:
    def alike(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if "num_examples/count" in arrays:
            arrays["num_examples/count"] = np.full_like(arrays["num_examples/count"], 107)

    node = next(n for n in nodes() if len(np.load(TRUTH / f"{n}.npz")["y"]) == 107)
    inbox = changed(tmp_path, alike)
    _, _, found = brought(tmp_path, of(tmp_path, node, "own"), inbox=inbox, aggregation="other")
    assert check(found, "who").status == "open"


@pytest.mark.parametrize(
    ("named", "phrase"), [("12", "which the inbox does not know"), ("NODE", "no truth of it was given")]
)
def test_a_canary_that_cannot_be_one_is_refused(named: str, phrase: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=phrase):
        brought(tmp_path, of(tmp_path, nodes()[2], "own"), canaries=[named.replace("NODE", nodes()[0])])
