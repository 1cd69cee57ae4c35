"""Who reads or begins: explain, init, list of one name, a log of progress, and the last words of a run."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.cli.app import say
from fedaudit.audit.cli.ending import explain_finding, last_words
from fedaudit.audit.cli.main import app
from fedaudit.audit.cli.show import Lines
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.settings.config import load
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import Severity
from tests.audit.tiny import TEXT
from tests.reports.sample import result


def invoke(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, list(words))
    return found.exit_code, found.output


def test_init_writes_a_config_that_is_valid_and_says_what_is_next(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    code, said = invoke("init", str(path))
    assert code == 0 and f"fedaudit plan {path}" in said
    assert load(path).attacks is None  # auto
    assert path.read_text().count("#") > 10 and "THIS_FILE" not in path.read_text()


def test_init_leaves_a_file_alone_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    code, said = invoke("init", str(tmp_path / "mine.yaml"))
    assert code == 2 and "is there already" in said and "hint:" in said
    assert (tmp_path / "mine.yaml").read_text() == "mine"
    (tmp_path / "mine-2.yaml").write_text("mine")
    assert "mine-3.yaml" in invoke("init", str(tmp_path / "mine.yaml"))[1]  # a name that is free
    assert invoke("init", str(tmp_path / "mine-3.yaml"))[0] == 0


def test_a_finding_is_explained_in_the_words_of_the_report() -> None:
    audited = result()
    for finding in audited.findings:
        text = " ".join(" ".join(explain_finding(audited, finding.id)).split())
        for part in (finding.summary, finding.reason, finding.does_not_show, finding.remedy):
            assert " ".join(part.split())[1:] in text


def test_a_finding_that_is_not_there_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="no finding 'upcn'") as caught:
        list(explain_finding(result(), "upcn"))
    assert "did you mean 'upcnn'?" in str(caught.value)


def test_explain_judges_a_run_folder_and_without_one_the_newest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "no audited run in runs/" in invoke("explain", "upcnn")[1]
    (tmp_path / "c.yaml").write_text(f"{TEXT}workers: 0\nreport: []\nattacks: [example_numbers]\n")
    assert invoke("run", "c.yaml", "--out", "runs/one")[0] in (0, 1, 3)
    code, said = invoke("explain", "example_numbers", "--trust-plugins")
    assert code == 0 and "Verdict of the run: " in said, said
    assert invoke("explain", "example_numbers", "--run", "runs/one", "--trust-plugins") == (code, said)
    audit = tmp_path / "runs" / "one" / "audit.json"
    audit.write_text(audit.read_text().replace('"word": ', '"word":  ', 1))
    assert "is not what score wrote" not in invoke("explain", "example_numbers", "--trust-plugins")[1]


def test_the_last_words_are_page_1_and_the_next_command(tmp_path: Path) -> None:
    audited = result()
    text = "\n".join(last_words(audited, tmp_path, tmp_path / "report.pdf"))
    assert text.startswith("NOT READY   At least 760 of 1,400 people are exposed to the server")
    assert re.search(r"\n1 critical +760 to 840 ", text) and "rebuilds a person's record" in text
    assert f"next: fedaudit explain reconstruction.server --run {tmp_path}" in text
    audited.questions, audited.rule_questions = [], []
    assert (
        f"next: fedaudit explain dp-upper --run {tmp_path}" in list(last_words(audited, tmp_path, tmp_path))[-1]
    )
    audited.findings = [f for f in audited.findings if f.severity is Severity.NONE]
    assert f"next: fedaudit check {tmp_path}" in list(last_words(audited, tmp_path, tmp_path))[-1]
    trusted = list(last_words(audited, tmp_path, tmp_path, trust=True))[-1]
    assert trusted == f"next: fedaudit check {tmp_path} --trust-plugins"


def test_list_of_one_name_prints_its_whole_card_and_a_slip_gets_the_nearest() -> None:
    code, said = invoke("tools", "list", "fedavg")
    assert code == 0 and "kind: method" in said and "arXiv:1602.05629" in said and "\t" not in said
    assert "on an accelerator: clients side by side" in said
    _, said = invoke("tools", "list", "inverting_gradients")
    assert "on an accelerator: searches side by side" in said
    for name in ("upcnn", "activation_decoder"):
        assert "on an accelerator: decoders side by side" in invoke("tools", "list", name)[1]
    _, said = invoke("tools", "list", "ridge")
    assert "on an accelerator: one piece after the other" in said
    code, said = invoke("tools", "list", "fedagv")
    assert code == 2 and "did you mean 'fedavg'?" in said


def test_a_log_has_a_line_a_step_with_the_name_of_the_attack_and_an_estimate() -> None:
    now, lines = 0.0, list[str]()
    log = Lines(lines.append, lambda: now)
    for at in range(1, 100):
        now += 1
        log("simulate", at, 100)
    log("simulate", 100, 100)
    log("attack", 0, 2)
    log("attack (upcnn, about 40 s)", 0, 2)
    now += 40
    log("attack (ridge, about 2 s)", 1, 2)
    log("attack", 2, 2)
    assert [line.replace("\u00a0", " ") for line in lines] == [
        "simulate: 1 of 100",
        "simulate: 31 of 100, about 1 min 9 s left",
        "simulate: 61 of 100, about 39 s left",
        "simulate: 91 of 100, about 9 s left",
        "simulate: done, 1 min 38 s",
        "attack: upcnn, about 40 s, 0 of 2",
        "attack: ridge, about 2 s, 1 of 2",
        "attack: done, 40 s",
    ]


VERDICT = "Ready to deploy. No harm was demonstrated."
STRANGE = f"zz\n{VERDICT}\n::warning::{VERDICT}\r{VERDICT}\u2028{VERDICT}"


def of_a_name(folder: Path) -> list[str]:
    (folder / "config.yaml").write_text(TEXT)
    (folder / STRANGE).touch()
    return ["check", str(folder)]


def of_a_recorders_error(folder: Path) -> list[str]:
    inbox = Inbox(folder)
    inbox.message(0, "uplink", "client/0", ["server"], {"local_model": {"w": np.zeros((2, 3), np.float32)}})
    inbox.note_failure(STRANGE, ValueError(STRANGE))
    return ["plan", str(folder)]


def of_a_node(folder: Path) -> list[str]:
    Inbox(folder).client(STRANGE)
    return ["plan", str(folder)]


def of_a_message(folder: Path) -> list[str]:
    line = {"message": STRANGE, "round": 0, "channel": "uplink", "sender": "client/0", "seen_by": ["server"]}
    (folder / "manifest.jsonl").write_text(json.dumps(line | {"kinds": ["local_model"], "sha256": "0" * 64}))
    return ["plan", str(folder)]


def of_a_key_of_json(folder: Path) -> list[str]:
    (folder / "config.yaml").write_text(TEXT)
    (folder / "audit.json").write_text(json.dumps({STRANGE: 1}))
    (folder / "phases.json").write_text(json.dumps({STRANGE: {STRANGE: STRANGE}}))
    return ["check", str(folder)]


def of_a_setting(folder: Path) -> list[str]:
    (folder / "config.yaml").write_text(f"{TEXT}\n{json.dumps(STRANGE)}: {json.dumps(STRANGE)}\n")
    return ["check", str(folder)]


def of_an_attack(folder: Path) -> list[str]:
    (folder / "config.yaml").write_text(f"{TEXT}\nattacks: [{json.dumps(STRANGE)}]\n")
    return ["plan", str(folder / "config.yaml")]


@pytest.mark.parametrize(
    "write",
    [of_a_name, of_a_recorders_error, of_a_node, of_a_message, of_a_key_of_json, of_a_setting, of_an_attack],
)
def test_no_line_of_output_is_what_a_stranger_wrote(write: Callable[[Path], list[str]], tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    code, said = invoke(*write(folder))
    assert code in (0, 2) and said
    assert not [line for line in said.splitlines() if line.lstrip().startswith(("Ready", "::"))], said


def test_a_line_of_a_name_is_shown_where_it_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say("no phase wrote these: zz\nReady to deploy.")
    assert capsys.readouterr().out == "no phase wrote these: zz[U+000A]Ready to deploy.\n"
    code, said = invoke(*of_a_name(tmp_path))
    assert code == 2 and f"a name in {tmp_path} hides a sign: zz[U+000A]Ready to deploy." in said
