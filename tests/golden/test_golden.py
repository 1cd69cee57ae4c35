"""Folders that earlier versions left: sealed, kept as they were made, and judged for ever.

An upgrade may say things in other words. It may not void an audit: a folder of today's form is derived again, of
an earlier form digests and seal hold.
"""

import dataclasses
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.audit.attestation import chain
from fedaudit.audit.attestation.chain import FORM
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.review import review
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict import decision, findings, page, policy
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError

HERE = Path(__file__).parent
# Name -> the exit code of its word, and how the verdict begins
GOLDEN = {
    "counts": (1, "not ready"),
    **dict.fromkeys(("noise", "sums", "attackers", "options"), (3, "cannot tell")),
}


@pytest.fixture(params=sorted(GOLDEN))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def folder(name: str, tmp_path: Path) -> Path:
    """One of today's form."""
    shutil.copytree(HERE / f"form_{FORM}" / name, tmp_path / name)
    return tmp_path / name


@pytest.fixture(params=range(1, FORM))
def older(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Path:
    """One of each form before."""
    shutil.copytree(HERE / f"form_{request.param}" / name, tmp_path / name)
    return tmp_path / name


def fedaudit(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def judge(folder: Path, command: str, *more: object) -> Result:
    """`check`, `verify`, or `verify --key`."""
    key = ("--key", folder / "key.pub.pem") if command == "key" else ()
    return fedaudit("verify" if command == "key" else command, folder / "run", *key, *more)


def test_every_golden_folder_is_judged() -> None:
    for form in range(1, FORM + 1):
        assert GOLDEN.keys() == {path.parent.name for path in HERE.glob(f"form_{form}/*/key.pub.pem")}
    assert all(path.stat().st_size < 80_000 for path in HERE.rglob("run/**/*"))


@pytest.mark.parametrize("command", ["check", "verify", "key"])
def test_a_golden_folder_gets_the_verdict_that_it_had(command: str, name: str, folder: Path) -> None:
    done, (code, words) = judge(folder, command), GOLDEN[name]
    assert done.exit_code == code and done.stdout.lower().startswith(words), done.output
    assert "policy: default, version" in done.stdout and "as fedaudit ships it" in done.stdout
    assert ("signed by SHA-256" in done.stdout) == (command == "key")


def reword_title(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CountRecovery, "card", dataclasses.replace(CountRecovery.card, title="Another headline"))


def reword_sentence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(findings, "_summarise", lambda *_: "The same in other words.")
    patch.setattr(decision, "_describe_ready", lambda *_: "The same in other words.")


def lay_out_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(page, "list_options", lambda *_: [])


REWORDED: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a title": reword_title,
    "a sentence": reword_sentence,
    "a row of page 1": lay_out_anew,
}


@pytest.mark.parametrize("what", REWORDED)
@pytest.mark.parametrize("command", ["check", "key"])
def test_a_version_that_says_it_in_other_words_judges_the_folder_as_before(
    command: str, what: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    REWORDED[what](monkeypatch)
    done = judge(folder, command)
    assert done.exit_code == GOLDEN[name][0], done.output


def test_a_version_with_another_policy_judges_by_that_and_names_the_one_that_the_folder_keeps(
    folder: Path, tmp_path: Path
) -> None:
    text = (Path(policy.__file__).parents[1] / "policy/default.yaml").read_text()
    (tmp_path / "next.yaml").write_text(re.sub(r"(?m)^version: .*", 'version: "999"', text))
    kept = json.loads((folder / "run/policy.json").read_text())["version"]
    for command in ("check", "key"):
        done = judge(folder, command, "--policy", tmp_path / "next.yaml")
        assert done.exit_code in (0, 1, 3), done.output
        assert "policy: default, version 999" in done.stdout and "the owner's own" in done.stdout
        assert f"the folder's own verdict is by policy default, version {kept}, SHA-256 " in done.stdout
    assert "as fedaudit ships it" in done.stdout


def test_another_policy_in_the_folder_is_refused(folder: Path) -> None:
    path = folder / "run/policy.json"
    path.write_text(path.read_text().replace('"not_ready": "high"', '"not_ready": "critical"'))
    for command in ("check", "verify", "key"):
        done = judge(folder, command)
        assert done.exit_code == 2 and "policy.json is not what score wrote" in done.stderr, done.output


def drop_setting(patch: pytest.MonkeyPatch) -> None:
    def lack(*_: object, **__: object) -> object:
        raise UserError("there is no such attack")

    patch.setattr(plugin, "find_module", lack)


def drop_number(patch: pytest.MonkeyPatch) -> None:
    kept = review.review

    def differ(*given: object, **more: object) -> object:
        kept(*given, **more)  # type: ignore[arg-type]
        raise UserError("the verdict by what the folder holds is another one")

    patch.setattr(review, "review", differ)


def add_check(patch: pytest.MonkeyPatch) -> None:
    list_names(patch, lambda names: [*names, "spelling"])


def list_names(patch: pytest.MonkeyPatch, change: Callable[[list[str]], list[str]]) -> None:
    """Other checks are made here."""
    ours = catalog.names
    patch.setattr(catalog, "names", lambda shelf: change(ours(shelf)) if shelf == "checks" else ours(shelf))


LACKING: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a setting": drop_setting,
    "a number": drop_number,
    "what a check saw": add_check,
}


@pytest.mark.parametrize("what", LACKING)
@pytest.mark.parametrize(("command", "is_signed"), [("check", False), ("verify", False), ("key", True)])
def test_code_that_lacks_something_says_why_and_what_the_other_judged(
    command: str, is_signed: bool, what: str, name: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the same code the same fault is an error: then nothing but the folder can have changed."""
    LACKING[what](monkeypatch)
    scored = json.loads((folder / "run/chain.json").read_text())["links"]["score"]["packages"]
    with monkeypatch.context() as same:
        same.setattr(chain, "packages", lambda: scored)
        assert judge(folder, command).exit_code == 2
    monkeypatch.setattr(chain, "packages", lambda: scored | {"fl": "0" * 64})
    done, (code, words) = judge(folder, command), GOLDEN[name]
    assert done.exit_code == (code if is_signed else 3), done.output
    assert done.stdout.lower().startswith(words), done.output
    why = "no such attack|another one|check spelling"
    assert re.search(rf"judged by fedaudit \S+, not derived again: .*({why})", done.stdout)
    changed = min((folder / "run").glob("artifacts/**/*.safetensors"))
    changed.write_bytes(changed.read_bytes().replace(b"0", b"1"))
    assert judge(folder, command).exit_code == 2


def test_what_a_check_saw_that_is_made_no_more_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = json.loads((folder / "run/evidence/checks.json").read_text())
    list_names(monkeypatch, lambda names: [n for n in names if n not in ("sample_counts", "traffic")])
    done, kept = judge(folder, "check", "--format", "json"), EvidenceFolder(folder / "run").checks
    assert done.exit_code == judge(folder, "check").exit_code in (1, 3), done.output
    assert [f.id for f in kept.results] == [f["id"] for name in sorted(file) for f in file[name]["results"]]
    assert {"sample_counts", "traffic"} <= file.keys() and "Not made" not in str(kept.declared)
    assert "not derived again" not in done.output


def test_a_folder_from_before_a_check_was_made_is_read_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = EvidenceFolder(folder / "run").checks
    list_names(monkeypatch, lambda names: sorted({*names, "wording"} - {"texts"}))  # one has another name
    after = EvidenceFolder(folder / "run").checks
    assert after.results == before.results and after.constant == before.constant
    assert after.declared == [
        *before.declared,
        "Not made of this run: the check wording. What it sees is not known.",
    ]
    done = fedaudit("run", folder / "run", "--phase", "report")
    assert done.exit_code == 0, done.output


# A folder of an earlier form


@pytest.mark.parametrize(("command", "is_signed"), [("check", False), ("verify", False), ("key", True)])
def test_of_an_earlier_form_the_word_is_printed_and_counts_by_its_signer_alone(
    command: str, is_signed: bool, name: str, older: Path
) -> None:
    done, (code, words) = judge(older, command), GOLDEN[name]
    assert done.exit_code == (code if is_signed else 3), done.output
    assert done.stdout.lower().startswith(words)
    assert re.search(r"judged by fedaudit \S+, not derived again", done.stdout)


@pytest.mark.parametrize("file", ["audit.json", "ledger.jsonl", "evidence/*.json", "artifacts/**/*.safetensors"])
def test_of_an_earlier_form_a_file_that_changed_is_named(file: str, older: Path) -> None:
    path = next(iter(sorted((older / "run").glob(file))))
    name = path.relative_to(older / "run").as_posix()
    path.write_bytes(path.read_bytes().replace(b"0", b"1"))
    for command in ("check", "key"):
        done = judge(older, command)
        assert done.exit_code == 2 and name in done.stderr, done.output


def test_of_an_earlier_form_a_word_with_digests_made_anew_counts_for_nobody(older: Path) -> None:
    from fedaudit.audit.case.digests import of_file

    audit, chain = older / "run/audit.json", older / "run/chain.json"
    result, links = json.loads(audit.read_text()), json.loads(chain.read_text())
    result["decision"]["word"] = "ready"
    audit.write_text(json.dumps(result))
    links["links"]["score"]["wrote"]["audit.json"] = of_file(audit, "audit.json")
    del links["links"]["report"]
    chain.write_text(json.dumps(links))
    assert judge(older, "check").exit_code == 3
    assert judge(older, "key").exit_code == 2


def test_of_an_earlier_form_what_decides_about_a_derived_audit_is_refused_by_name(older: Path) -> None:
    for words in (
        ["explain", "example_numbers", "--run", older / "run"],
        ["compare", older / "run", older / "run"],
    ):
        done = fedaudit(*words)
        assert done.exit_code == 2 and "earlier version" in done.stderr, done.output
    done = judge(older, "verify", "--replay")
    assert done.exit_code == 2 and "--replay decides about an audit that is derived here" in done.stderr


def test_a_folder_of_a_later_form_is_refused(folder: Path) -> None:
    path = folder / "run/chain.json"
    path.write_text(path.read_text().replace(f'"form": {FORM}', '"form": 999'))
    done = judge(folder, "check")
    assert done.exit_code == 2 and "made by a later version of fedaudit" in done.stderr
