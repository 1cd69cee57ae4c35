"""What NVFlare's own exchange objects left (examples/nvflare/): kinds, rounds, and filters that messages name."""

from pathlib import Path

from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.importing.filters import KNOWN
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.recording.recorder import read
from tests.audit.importing.theirs import check

INBOX = Path(__file__).parent / "nvflare" / "inbox"
SUBJECT = {
    "title": "made with NVFlare's classes",
    "examples": {"classes": [str(c) for c in range(10)], "shape": [1, 8, 8]},
    "aggregation": "uniform",
}


def test_exchange_objects_come_in_as_changes_with_the_filters_they_name(tmp_path: Path) -> None:
    config = validate(Config, {"subject": SUBJECT}, "test")
    run = RunDir.create(tmp_path / "run")
    found = bring(run.path, config, ImportSources(inbox=INBOX), lambda *_: None)
    assert found.recorder == "nvflare" and found.nodes == {"client/0": "site-1", "client/1": "site-2"}
    assert found.filters == {"PercentilePrivacy": 2}
    named = check(found, "filter-PercentilePrivacy")
    assert "not differential privacy" in named.text and named.status == "open"
    assert check(found, "meaning").status == "holds" and check(found, "aggregate").status == "holds"
    deltas = [a for a in read(run.artifacts) if a.kind == "model_delta"]
    assert len(deltas) == 4 and {frozenset(a.payload) for a in deltas} == {frozenset({"fc.weight", "fc.bias"})}


def test_a_job_of_the_simulator_comes_in_round_by_round_with_its_filter_and_its_weights(tmp_path: Path) -> None:
    stated = {**SUBJECT, "aggregation": "samples"}
    config = validate(Config, {"subject": stated}, "test")
    run = RunDir.create(tmp_path / "run")
    found = bring(run.path, config, ImportSources(inbox=INBOX.parent / "run"), lambda *_: None)
    sent = [a for a in read(run.artifacts) if a.kind == "model_delta"]
    assert sorted((a.round, a.sender.index) for a in sent) == [(t, k) for t in range(3) for k in range(4)]
    models = {
        (a.round, a.payload["numpy_key"].tobytes()) for a in read(run.artifacts) if a.kind == "global_model"
    }
    assert sorted(t for t, _ in models) == [0, 1, 2]  # one model a round, whoever it was sent to
    assert found.filters == {"PercentilePrivacy": 12} and found.errors == []
    mean = check(found, "aggregate")
    assert mean.status == "holds" and "weighted by numbers of steps" in mean.text


def test_the_filters_that_are_known_say_what_they_are_by_default() -> None:
    assert all("no " in text or "not " in text for text in KNOWN.values())
    told = CliRunner().invoke(app, ["plan", str(INBOX)])
    assert "PercentilePrivacy (2 messages)" in told.stdout
