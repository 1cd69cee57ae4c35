"""A canary client that took part in a Flower run: the only client whose examples the auditor was told of."""

from pathlib import Path

import pytest

from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.result import AuditResult
from tests.audit.importing.theirs import DIGITS, METHOD, brought, check, write_truth

pytestmark = pytest.mark.nightly  # one import with plays, attacks and a report
CANARY = Path(__file__).parent / "canary"  # examples/flower with digits_app.canary, nine nodes, two rounds
NODE = "12632697272243193650"


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[ImportRecord, AuditResult, str]:
    folder = tmp_path_factory.mktemp("canary")
    subject = {"method": METHOD | {"rounds": 2}, "canaries": [NODE]}
    members, others = DIGITS["canary"]()
    truth = write_truth("canary", {NODE: members, "own": others})
    run, config, found = brought(folder, truth, CANARY / "inbox", **subject)
    more = {"attacks": ["example_numbers", "label_counts_from_update"]}
    config = validate(Config, config.model_dump(mode="json", exclude_defaults=True) | more, "test")
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    return found, read_result(run.path), (run.path / "report.html").read_text()


def test_a_canary_is_known_by_its_number_of_examples_and_trained_as_theirs_do(
    audited: tuple[ImportRecord, AuditResult, str],
) -> None:
    found, _, _ = audited
    assert found.clients == 9 and found.truth == 1 and found.nodes[found.canaries[0]] == NODE
    assert {id: check(found, id).status for id in ("who", "fit", "training", "aggregate")} == dict.fromkeys(
        ["who", "fit", "training", "aggregate"], "holds"
    )


def test_what_it_shows_is_measured_on_it_alone_and_the_report_says_of_whom_it_speaks(
    audited: tuple[ImportRecord, AuditResult, str],
) -> None:
    found, result, html = audited
    numbers = next(f for f in result.findings if f.id == "example_numbers")
    known = [e for e in numbers.evidence if e.measure == "size_known" and e.control == "none"]
    assert [(e.value, e.trials) for e in known] == [(1.0, 1)]
    own = int(found.canaries[0].removeprefix("client/"))
    claims = {u.attack: {c.client for c in u.claims} for u in result.unverified}
    assert claims["example_numbers"] == set(range(9)) - {own}
    assert f"{found.canaries[0]} is a client of the auditor" in html and "like the 8 others" in html
    assert "it measures none of them" in html
