"""The adversary and the rule of docs/own-plugin.md run in a matrix as they stand there."""

import re
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fedaudit.audit.cli.main import app
from fedaudit.audit.robustness.plan import IDLE
from fedaudit.reports.result import AuditResult
from tests.audit.robustness.test_matrix import TEXT
from tests.audit.tiny import VERDICTS

PAGE = Path(__file__).parents[3] / "docs" / "own-plugin.md"


@pytest.mark.nightly
def test_an_adversary_and_a_rule_of_a_users_own_run_in_a_matrix(tmp_path: Path) -> None:
    text = PAGE.read_text()
    code = next(c for c in re.findall(r"```python\n(.*?)```", text, re.S) if "class Louder" in c)
    settings = next(c for c in re.findall(r"```yaml\n(.*?)```", text, re.S) if "Louder" in c)
    (tmp_path / "attack_and_rule.py").write_text(code)
    plain = yaml.safe_load(TEXT) | yaml.safe_load(settings) | {"report": ["json"]}
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(plain))
    done = CliRunner().invoke(
        app, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out"), "--trust-plugins"]
    )
    assert done.exit_code in VERDICTS, done.output
    matrix = AuditResult.model_validate_json((tmp_path / "out" / "audit.json").read_bytes()).robustness
    assert matrix is not None and not matrix.not_run
    own = {(c.rule, c.title) for c in matrix.cells if c.adversary != IDLE}
    assert own == {("mean", "Louder"), ("attack_and_rule-middle", "Louder")}
