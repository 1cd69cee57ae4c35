"""The plugins of docs/own-plugin.md run as they stand there, named as their first lines say."""

import json
import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.reports.result import AuditResult
from tests.audit.tiny import TEXT, VERDICTS

PAGE = (Path(__file__).parents[2] / "docs" / "own-plugin.md").read_text()
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.S))
CONFIGS = [yaml.safe_load(c) for c in re.findall(r"```yaml\n(.*?)```", PAGE, re.S)]


def test_the_check_the_attack_and_the_protection_of_the_page_run_in_one_audit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, code in FILES.items():
        Path(name).write_text(code)
    given = next(c for c in CONFIGS if "checks" in c)
    given["attacks"] = given["attacks"][1:]
    given |= {"report": ["json"], "noise_audit": False, "workers": 0}
    given["federation"] |= {
        k: v for k, v in yaml.safe_load(TEXT)["federation"].items() if k in ("dataset", "model")
    }
    Path("c.yaml").write_text(yaml.safe_dump(given))
    ran = CliRunner().invoke(app, ["run", "c.yaml", "--out", "out", "--trust-plugins"])
    assert ran.exit_code in VERDICTS and "failed" not in ran.output, ran.output
    found = {f.id: f for f in AuditResult.model_validate_json(Path("out/audit.json").read_bytes()).findings}
    assert found["clear"].title == "The server reads 4 clients' models" and found["sure.Sure"].people > 0
    [people] = json.loads(Path("out/evidence/00-sure.Sure.json").read_text())["people"]
    assert {len(rows) for rows in people["tested"].values()} == set(people["held"].values())
    assert len(people["planted"]) == 4 and all(p["trials"] == 1 for p in people["planted"].values())
    assert Path("out/variants/rounded/audit.json").is_file()


def test_the_data_set_and_the_task_of_the_page_are_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("beds.py").write_text(FILES["beds.py"])
    given = next(c for c in CONFIGS if c.get("federation", {}).get("dataset") == "beds:Beds")
    Path("c.yaml").write_text(yaml.safe_dump(given | {"attacks": [], "report": ["json"], "workers": 0}))
    ran = CliRunner().invoke(app, ["run", "c.yaml", "--out", "out", "--trust-plugins"])
    assert ran.exit_code in VERDICTS and "failed" not in ran.output, ran.output
    found = AuditResult.model_validate_json(Path("out/audit.json").read_bytes())
    assert found.scope.dataset == "Beds" and not found.scope.has_classes
