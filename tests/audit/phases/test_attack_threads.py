"""Attacks run on one thread wherever they run, and leave the process as many as it had."""

from pathlib import Path

import torch
from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.phases import attack
from fedaudit.audit.settings.config import load
from tests.audit.evidence.test_variants import TEXT
from tests.audit.tiny import VERDICTS


def test_attacks_run_on_one_thread_and_give_the_others_back(tmp_path: Path) -> None:
    text = TEXT.partition("attacks:")[0] + "attacks: [count_recovery]\nreport: [json]\n"
    (tmp_path / "c.yaml").write_text(text)
    done = CliRunner().invoke(app, ["run", str(tmp_path / "c.yaml"), "--out", str(tmp_path / "out")])
    assert done.exit_code in VERDICTS, done.output
    before, inside = torch.get_num_threads(), []
    torch.set_num_threads(3)
    try:
        attack.run(
            RunDir(tmp_path / "out"), load(tmp_path / "c.yaml"), lambda *_: inside.append(torch.get_num_threads())
        )
        assert set(inside) == {1} and torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
