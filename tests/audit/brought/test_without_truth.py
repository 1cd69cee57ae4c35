"""The audit of a recorded federation whose clients' examples the auditor was not given, or of one client only."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks.attack import Attack
from audit.cli.ending import explained
from audit.phases.plan import execute
from audit.phases.report import read_result
from audit.settings import catalog
from reports.result import AuditResult, Outcome, Severity
from tests.audit.brought.theirs import FLOWER, brought, nodes

PHASES = ["attack", "account", "score", "report"]
READERS = ["label_counts_from_update", "example_numbers", "loss_threshold"]


def audited(folder: Path, truth: Path | None, attacks: list[Any] | None = None) -> AuditResult:
    run, config, _ = brought(folder, truth)
    config = config.model_copy(
        update={
            "attacks": type(config).model_validate(config.model_dump() | {"attacks": attacks or READERS}).attacks
        }
    )
    execute(run, config, PHASES, lambda *_: None, skip_finished=False)
    return read_result(run)


def of(folder: Path, *names: str) -> Path:
    """Truth of these clients only; "own" are the auditor's own examples."""
    some = folder / "some"
    some.mkdir()
    for name in names:
        shutil.copy(FLOWER / "truth" / f"{name}.npz", some / f"{name}.npz")
    return some


def labels(node: str) -> set[int]:
    with np.load(FLOWER / "truth" / f"{node}.npz") as file:
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
        f"{len(np.load(FLOWER / 'truth' / f'{node}.npz')['y'])} examples" for node in nodes()
    ]
    assert found["loss_threshold"].claims == []


def test_an_unverified_claim_has_no_severity_and_is_never_not_demonstrated(
    blind: tuple[AuditResult, Path],
) -> None:
    result, _ = blind
    own = [f for f in result.findings if f.source == "attack"]
    assert {f.outcome for f in own} == {Outcome.INCONCLUSIVE} and {f.severity for f in own} == {Severity.NONE}
    assert all("could not be verified" in f.title for f in own)
    assert result.headline.sentence.startswith("Nothing that attacks claim could be verified: 3 attacks ran")


def test_report_and_explain_list_what_is_claimed_and_what_checking_needs(blind: tuple[AuditResult, Path]) -> None:
    result, run = blind
    html = (run / "report.html").read_text()
    assert "Unverified claims" in html and "classes zero and four" in html and "which classes it owns" in html
    told = " ".join(" ".join(explained(result, "label_counts_from_update")).split())
    assert "Unverified claim: Client 0: classes " in told and "to check it, see which classes it owns" in told


def test_with_truth_of_everybody_nothing_is_unverified(tmp_path: Path) -> None:
    result = audited(tmp_path, FLOWER / "truth", READERS[:2])
    assert result.unverified == [] and "verified" not in result.headline.sentence


QUICK = 0.5  # seconds of effort: those that invert gradients take minutes


@pytest.mark.slow
def test_no_attack_fails_for_want_of_truth(tmp_path: Path) -> None:
    cards = {n: p.card for n in catalog.names("attacks") if issubclass(p := catalog.load("attacks", n), Attack)}
    quick = [n for n, c in cards.items() if c.effort.seconds <= QUICK and not c.control]
    result = audited(tmp_path, None, [*quick, "label_counts_from_gradient"])
    assert [f"{f.id}: {f.summary}" for f in result.findings if f.outcome is Outcome.FAILED] == []
    assert not [f for f in result.findings if f.source == "attack" and f.outcome is Outcome.NOT_DEMONSTRATED]
