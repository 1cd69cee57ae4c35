"""The same attack under two ids: both run, and neither takes the other's evidence, finding, gallery or draws."""

from pathlib import Path

from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.reports.result import AuditResult
from tests.audit.evidence.test_variants import TEXT
from tests.audit.tiny import VERDICTS

TWICE = "attacks: [{name: count_recovery, id: one}, {name: count_recovery, id: two}, prototype_inversion]\n"


def test_the_same_attack_under_two_ids_leaves_two_of_everything(tmp_path: Path) -> None:
    text = TEXT.partition("attacks:")[0] + TWICE + "report: [json]\n"
    (tmp_path / "c.yaml").write_text(text.replace("prototype_inversion", "prototype_membership"))
    done = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
    assert done.exit_code in VERDICTS, done.output
    files = sorted(p.name for p in (tmp_path / "out" / "evidence").glob("[0-9]*.json"))
    assert files == ["00-one.json", "01-two.json", "02-prototype_membership.json"]
    result = AuditResult.model_validate_json((tmp_path / "out" / "audit.json").read_bytes())
    found = {f.id: f for f in result.findings if f.source == "attack"}
    assert set(found) == {"one", "two", "prototype_membership"}
    assert found["one"].evidence and found["one"].evidence == found["two"].evidence
    assert found["one"].title != found["two"].title and "(two)" in found["two"].title
    figures = [f.finding for f in result.figures if f.finding in ("one", "two")]
    assert len(figures) == len(set(figures)) * max(1, len(figures) // 2)
