"""A federation that really ran, brought to the audit: found, checked, and never believed where it can be seen."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.importing import messages
from fedaudit.audit.importing.identity import matches
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.review.review import review
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult, Severity
from tests.audit.importing.theirs import FLOWER, TRUTH, brought, changed, check, config, nodes, written

PHASES = ["attack", "account", "score", "report"]
LABELS = "label_counts_from_update"


def audited(folder: Path, **changes: Any) -> AuditResult:
    run, config, _ = brought(folder, **changes)
    execute(run, config, PHASES, lambda *_: None, skip_finished=False)
    return read_result(run.path)


def finding(result: AuditResult, id: str) -> Any:
    return next(f for f in result.findings if f.id == id)


def test_label_sets_of_a_recorded_federation_are_read_and_the_report_says_it_was_not_simulated(
    tmp_path: Path,
) -> None:
    run, config, found = brought(tmp_path)
    said = {c.id: c.status for c in found.checks}
    assert said.pop("training") == "open" and said.pop("declared") == "declared"
    assert said == dict.fromkeys(["who", "meaning", "fit", "aggregate"], "holds")
    execute(run, config, PHASES, lambda *_: None, skip_finished=False)
    result = read_result(run.path)
    labels = finding(result, LABELS)
    exact = max(e.value for e in labels.evidence if e.measure == "label_set_exact_match" and e.control == "none")
    assert labels.is_demonstrated and exact >= 7 / 8
    html = (run.path / "report.html").read_text()
    assert "This federation was not simulated" in html and "simulated from one seed" not in html
    assert result.scope.clients == 8 and result.imported is not None and result.imported.truth == 8
    reviewed = review(run, config, load_policy("default"))
    assert reviewed.result.headline == result.headline


def test_a_permuted_map_is_contradicted_and_nothing_follows_from_it(tmp_path: Path) -> None:
    turned = dict(zip(nodes(), [*nodes()[1:], nodes()[0]], strict=True))
    result = audited(tmp_path, identities=turned)
    assert result.imported is not None
    who = check(result.imported, "who")
    assert who.status == "contradicted" and "number of examples" in who.text
    matrix = np.array(who.matrix)
    assert (matrix.argmin(axis=0) != np.arange(8)).sum() >= 7
    assert finding(result, LABELS).severity is Severity.NONE and not finding(result, LABELS).at_least
    assert "not established which client holds" in finding(result, LABELS).reason
    assert result.headline.severity is Severity.NONE or LABELS not in result.headline.sentence


def test_a_number_of_examples_that_is_ten_times_what_its_client_holds_is_named(tmp_path: Path) -> None:
    def inflate(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if line.get("sender") == "client/2" and "num_examples/count" in arrays:
            arrays["num_examples/count"] = np.asarray(10 * arrays["num_examples/count"])

    inbox = changed(tmp_path, inflate)
    who = check(brought(tmp_path, inbox=inbox, aggregation="other")[2], "who")
    assert who.status == "contradicted" and "7 of 8 clients sent the number of examples" in who.text
    assert who.text.startswith("Client 2 sent ")


def without_counts(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    if "num_examples" in line["kinds"]:
        line["kinds"].remove("num_examples")
        del arrays["num_examples/count"]


def test_without_counts_the_loss_of_uploads_tells_who_is_who(tmp_path: Path) -> None:
    inbox = changed(tmp_path, without_counts)
    right = check(brought(tmp_path / "a", inbox=inbox, aggregation="other")[2], "who")
    assert right.status == "holds" and "probability" in right.text
    turned = dict(zip(nodes(), [*nodes()[1:], nodes()[0]], strict=True))
    wrong = check(brought(tmp_path / "b", inbox=inbox, aggregation="other", identities=turned)[2], "who")
    assert wrong.status == "contradicted" and "Another map fits" in wrong.text


def test_the_probability_that_a_random_map_fits_is_that_of_fixed_points() -> None:
    assert [matches(h, 3) for h in range(4)] == pytest.approx([1, 4 / 6, 1 / 6, 1 / 6])
    assert matches(8, 8) == pytest.approx(1 / 40320)


MODEL = {"examples": {"classes": ["a", "b"], "shape": [1, 8, 8]}}
WRONG = {  # six statements that cannot be true of what was recorded
    "another network": ({"model": "mlp"}, "unknown to it"),
    "too few clients": ({"clients": 3}, "subject.clients is 3, and the inbox names 8"),
    "a layout of its own": (
        {"examples": {"classes": [str(c) for c in range(10)], "shape": [8, 8, 1]}},
        "examples are [1, 8, 8], and the subject says [8, 8, 1]",
    ),
    "two classes": (MODEL, "the subject names 2 classes"),
    "an unknown node": ({"identities": {"12": "a"}}, "identities names node '12'"),
    "truth of somebody else": ({"identities": {"NODE": "nobody"}}, "no client of the inbox has that name"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_statement_that_cannot_be_true_is_refused_with_one_sentence(name: str, tmp_path: Path) -> None:
    changes, phrase = WRONG[name]
    changes = json.loads(json.dumps(changes).replace("NODE", nodes()[0]))
    with pytest.raises(UserError) as error:
        brought(tmp_path, **changes)
    assert phrase in str(error.value.args[0]) and error.value.hint


def test_classes_that_the_network_has_no_outputs_for_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="gives 10 outputs, and 2 classes are stated"):
        brought(tmp_path, truth=None, **MODEL)


def test_changes_recorded_as_models_are_refused(tmp_path: Path) -> None:
    def as_change(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        for name in [n for n in arrays if n.startswith("local_model")]:
            arrays[name] = (np.random.default_rng(len(name)).normal(size=arrays[name].shape) * 0.01).astype("f4")

    with pytest.raises(UserError, match="they look like model_delta"):
        brought(tmp_path, inbox=changed(tmp_path, as_change))


def test_other_weights_than_stated_are_named(tmp_path: Path) -> None:
    found = check(brought(tmp_path, aggregation="uniform")[2], "aggregate")
    assert found.status == "contradicted" and "weighted by numbers of examples" in found.text


def test_central_noise_that_is_claimed_and_not_added_is_named_and_refutes_the_claim(tmp_path: Path) -> None:
    claim = [{"name": "central_dp", "clip_norm": 100.0, "noise_multiplier": 1.0}]
    result = audited(tmp_path, protections=claim, aggregation="samples")
    assert result.imported is not None
    central = check(result.imported, "central")
    assert central.status == "contradicted" and "the noise is not there" in central.text
    named = finding(result, "import-central")
    assert named.severity is Severity.CRITICAL


@pytest.mark.parametrize("stated", ["expected", "clients", "nothing"])
@pytest.mark.parametrize("heard", [1, 3, 8, 20])
def test_honest_central_noise_is_not_contradicted_however_few_of_the_expected_came(
    stated: str, heard: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty are expected of forty; without the noise the claim is contradicted all the same."""
    rng, m = np.random.default_rng(heard), 20
    dp = {"name": "central_dp", "clip_norm": 1.0, "noise_multiplier": 1.0}
    dp |= {"expected": m} if stated == "expected" else {}
    clients = 40 if stated == "clients" else None
    subject = config(clients=clients, protections=[dp]).require_recorded().subject
    claim = [build_plugin("protections", spec, "test") for spec in subject.protections]
    for noise, status in ((1.0 / m, "declared"), (0.0, "contradicted")):
        rounds = []
        for number in range(3):
            before, changes = rng.normal(size=500), rng.normal(size=(heard, 500)) / 500**0.5
            divisor = m if noise else heard
            after = before + changes.sum(0) / divisor + rng.normal(size=500) * noise
            rounds.append(messages._Round(number, before, after, before + changes, np.ones(heard), False))
        monkeypatch.setattr(messages, "whole_rounds", lambda _, own=rounds: own)
        found = next(c for c in messages.aggregate(Path(), subject, claim) if c.id == "central")
        assert found.status == status, found.text


def test_a_clip_that_is_claimed_and_was_not_made_is_named(tmp_path: Path) -> None:
    claim = [{"name": "central_dp", "clip_norm": 0.001, "noise_multiplier": 1.0}]
    found = check(brought(tmp_path, protections=claim)[2], "protection-0")
    assert found.status == "contradicted" and "changes 8 of the 8 latest uploads" in found.text


def test_a_message_that_is_not_finite_is_left_out_and_counted(tmp_path: Path) -> None:
    def broken(line: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        if line["message"] == "r00000/client-0.uplink":
            arrays["local_model/conv.bias"][0] = np.nan

    _, _, found = brought(tmp_path, inbox=changed(tmp_path, broken))
    assert found.messages == 27 and "local_model/conv.bias holds NaN" in found.unread[0].why
    assert check(found, "aggregate").status == "holds"  # of the rounds of which all uploads were read


def test_without_truth_nothing_is_claimed_of_members_and_all_else_is_there(tmp_path: Path) -> None:
    result = audited(tmp_path, truth=None)
    assert finding(result, LABELS).severity is Severity.NONE
    assert result.exposures and result.bounds


def test_the_case_knows_what_it_was_told_and_no_more(tmp_path: Path) -> None:
    run, config, _ = brought(tmp_path)
    case = RecordedCase(config, run.artifacts, *run.find_truth())
    assert case.clients == 8 and case.simulated is False and len(case.examples.parts) == 8
    pools = [*case.examples.parts.values(), case.examples.auxiliary, case.examples.reference]
    rows = np.concatenate(pools)
    assert len(np.unique(rows)) == len(rows) and len(case.examples.reference) > 300
    first = case.network.initial()
    assert (
        first is not None
        and case.network.make is not None
        and set(first) == set(case.network.make().state_dict())
    )
    assert case.participation.heard is not None and case.participation.heard[0] == frozenset(range(8))


@pytest.mark.parametrize(
    ("settings", "phrase"),
    [
        ({"subject": {}}, "title is missing"),
        (
            {
                "subject": {"title": "a", "examples": {"classes": ["a", "b"], "shape": [1]}},
                "federation": {"dataset": "digits"},
            },
            "federation belongs to a simulated case",
        ),
        (
            {
                "federation": {"dataset": "digits"},
                "method": "fedavg",
                "subject": {"title": "a", "examples": {"classes": ["a", "b"], "shape": [1]}},
            },
            "federation belongs to a simulated case",
        ),
    ],
)
def test_each_case_refuses_the_keys_of_the_other(settings: dict[str, Any], phrase: str) -> None:
    with pytest.raises(UserError, match=phrase):
        validate(Config, settings, "test")


def test_the_commands_say_what_an_inbox_holds_and_write_a_first_subject(tmp_path: Path) -> None:
    runner = CliRunner()
    told = runner.invoke(app, ["plan", str(FLOWER / "inbox")])
    assert told.exit_code == 0 and len(told.stdout.strip().splitlines()) == 10
    assert "recorded by: flower" in told.stdout and "label_counts_from_update" in told.stdout
    first = tmp_path / "first.yaml"
    assert runner.invoke(app, ["init", "--from", str(FLOWER / "inbox"), str(first)]).exit_code == 0
    text = first.read_text()
    found, truth = tmp_path / "told.yaml", str(TRUTH)
    seen = ["init", "--from", str(FLOWER / "inbox"), "--truth", truth, str(found)]
    assert runner.invoke(app, seen).exit_code == 0
    assert "shape: [1, 8, 8]  # seen in truth" in found.read_text() and "# guessed: channels" in text
    taken = ["import", str(FLOWER / "inbox"), "--subject", str(found), "--truth", truth]
    assert runner.invoke(app, [*taken, "--out", str(tmp_path / "first")]).exit_code == 0  # as it was written
    assert all("# guessed" in x or "seen" in x or x.startswith(("#", "examples")) for x in text.splitlines())
    out = runner.invoke(app, ["import", str(FLOWER / "inbox"), "--subject", str(written(tmp_path))])
    assert out.exit_code == 2 and "net.py would run here" in out.stderr and "--trust-plugins" in out.stderr
