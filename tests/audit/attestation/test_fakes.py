"""Ways to fake a clean verdict: whatever an owner edits in a folder, `check` and `verify` refuse it by name."""

import json
import re
import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner, Result

from fedaudit.audit.attestation import chain as links
from fedaudit.audit.case.digests import of_value
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.phase import PHASES, read_phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.training.local import Trained
from fedaudit.reports.decision import Word
from tests.audit.tiny import TEXT

RUNNER = CliRunner()


class Miscounts(FedAvg):
    """Clients send more examples than they hold, each a number of its own."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(len(client.y) + 1 + client.index)}
        return reply


MORE = """
workers: 0
report: [json]
record: all
attacks: [example_numbers, buffer_membership]
noise_audit: false
"""


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run which has a finding of medium severity: clients send other numbers than they hold."""
    folder = tmp_path_factory.mktemp("fakes")
    (folder / "c.yaml").write_text(TEXT.replace("name: fedavg", f'name: "{__name__}:Miscounts"') + MORE)
    with chdir(folder):
        run = RunDir.create(folder / "run")
        names = [p.name for p in PHASES]
        execute(run, load(folder / "c.yaml"), names, lambda *_: None, skip_finished=False)
    return folder / "run"


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "run")
    return tmp_path / "run"


def check(folder: Path, *more: str, **terms: Any) -> Result:
    path = folder.with_name("terms.yaml")
    path.write_text(json.dumps({"fail_on": "medium"} | terms))
    return RUNNER.invoke(app, ["check", str(folder), "--trust-plugins", "--terms", str(path), *more])


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


def sealed_again(folder: Path, *phases: str) -> None:
    """What an owner does who knows of the chain: makes all its digests fit."""
    run = RunDir.open(folder)
    for name in phases:
        links.end(run.path, name)
    chain, record = links.read_chain(run.path), read_phases(run.path)
    for name, link in chain.links.items():
        link.settings = of_value(record[name]["settings"])
        link.read |= {other: chain.links[other].digest() for other in links.READS[name]}
    run.write_json(run.chain, chain.model_dump())


def without(*names: str) -> Callable[[Any], Any]:
    return lambda record: {k: v for k, v in record.items() if k not in names}


def harmless(audit: Any) -> Any:
    for finding in audit["findings"]:
        finding["severity"] = "none"
    return audit


def tolerant(policy: Any) -> Any:
    return {**policy, "decision": {**policy["decision"], "not_ready": "critical"}}


def cut(path: Path, keep: Callable[[Any], bool]) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if keep(json.loads(line))))


def last_round_gone(folder: Path) -> None:
    cut(folder / "artifacts/manifest.jsonl", lambda line: line["round"] == 0)
    for name in ("ledger.jsonl", "metrics.jsonl"):
        cut(folder / name, lambda line: line["round"] == 0)


def three_clients_gone(folder: Path) -> None:
    cut(
        folder / "artifacts/manifest.jsonl",
        lambda line: line.get("sender") not in ("client/1", "client/2", "client/3"),
    )


def planned_less(folder: Path) -> None:
    """The attack that found something leaves the config, its record and the evidence."""
    (folder / "evidence" / "00-example_numbers.json").unlink()
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(re.sub(r"attacks:\n(.|\n)*?(?=\n[a-z])", "attacks: []", text))
    edit(
        folder / "phases.json",
        lambda r: {**r, "attack": {**r["attack"], "settings": {**r["attack"]["settings"], "attacks": []}}},
    )


def bounded(folder: Path) -> None:
    edit(folder / "evidence" / "budgets.json", lambda budgets: [{**b, "epsilon_upper": 1.0} for b in budgets])


def unfinished(folder: Path) -> None:
    edit(folder / "phases.json", lambda r: {**r, "attack": {**r["attack"], "seconds": None}})


FAKES: dict[str, tuple[Callable[[Path], Any], tuple[str, ...], str]] = {
    # what the owner does: (edit, phases whose digests are made anew, what is said)
    "findings made harmless": (
        lambda f: edit(f / "audit.json", harmless),
        (),
        "audit.json is not what score wrote",
    ),
    "findings made harmless, chain made anew": (
        lambda f: edit(f / "audit.json", harmless),
        ("score",),
        "audit.json does not follow from the evidence",
    ),
    "findings left out, chain made anew": (
        lambda f: edit(f / "audit.json", lambda a: {**a, "findings": []}),
        ("score",),
        "audit.json does not follow from the evidence",
    ),
    "evidence deleted, chain made anew": (
        lambda f: (f / "evidence" / "00-example_numbers.json").unlink(),
        ("attack",),
        "1 of 2 attacks left evidence",
    ),
    "fewer attacks planned": (planned_less, ("attack",), "is there, and no attack or setting leaves it"),
    "an old verdict beside an unfinished attack phase": (unfinished, (), "its attack phase did not end"),
    "a policy of rules that grade nothing": (
        lambda f: edit(f / "policy.json", lambda p: {"name": "default", "version": "1", "rules": []}),
        ("score",),
        "policy.json is damaged",
    ),
    "another policy than audit.json was judged by": (
        lambda f: edit(f / "policy.json", tolerant),
        ("score",),
        "the verdict is of another policy",
    ),
    "a bound written into the evidence, chain made anew": (
        bounded,
        ("account",),
        "budgets.json does not follow from the ledger",
    ),
    "the last round left out everywhere, chain made anew": (
        last_round_gone,
        ("simulate",),
        "ends after 1 of the 2 rounds",
    ),
    "three clients left out, chain made anew": (three_clients_gone, ("simulate",), "lists messages of 1"),
    "a verdict that is no JSON": (lambda f: (f / "audit.json").write_text("{"), (), "audit.json is damaged"),
    "a verdict of another shape": (
        lambda f: (f / "audit.json").write_text('{"title": 3}'),
        ("score",),
        "is not an audit result",
    ),
    "no verdict": (lambda f: (f / "audit.json").unlink(), (), "audit.json is missing"),
    "no chain": (lambda f: (f / "chain.json").unlink(), (), "does not say what simulate left"),
    "another data set's digests": (
        lambda f: edit(f / "data.json", lambda d: {**d, "data": "0" * 64}),
        ("simulate",),
        "is not what this run was trained on",
    ),
}


@pytest.mark.parametrize("fake", FAKES)
def test_a_faked_verdict_is_refused_by_name(fake: str, folder: Path) -> None:
    do, phases, phrase = FAKES[fake]
    do(folder)
    sealed_again(folder, *phases) if phases else None
    for command in (["check"], ["verify"]):
        done = RUNNER.invoke(app, [*command, str(folder), "--trust-plugins"])
        assert done.exit_code == 2, done.output
        assert phrase in done.stderr and "hint: " in done.stderr, done.stderr


def test_the_untouched_folder_is_decided_under_a_policy_named_by_its_digest(folder: Path) -> None:
    done = check(folder)
    assert done.exit_code == 1, done.output
    policy = r"policy: default, version \d+, SHA-256 [0-9a-f]{64}, as fedaudit ships it"
    assert re.search(rf"{policy}\nstated by the owner: policy fixed at 20", done.stdout)


def test_the_reviewers_bar_moves_the_verdict(folder: Path) -> None:
    bars = ("critical", "high", "medium", "low")
    codes = [check(folder, fail_on=bar).exit_code for bar in bars]
    assert codes == [3, 3, 1, 1]  # at high: nothing, and an attack that could not tell


def test_a_reviewers_policy_decides_and_is_not_called_fixed_before(folder: Path, tmp_path: Path) -> None:
    default = (Path(__file__).parents[3] / "audit/policy/default.yaml").read_text()
    (tmp_path / "strict.yaml").write_text(default.replace("not_ready: high", "not_ready: medium"))
    done = check(folder, "--policy", str(tmp_path / "strict.yaml"))
    assert done.exit_code == 1 and "not pre-registered" in done.stdout
    assert "the folder's own verdict is by policy default" in done.stdout


def test_attacks_that_are_required_must_have_run_and_as_required(folder: Path) -> None:
    for name, phrase in [
        ("upcnn", "upcnn is required and was not planned"),
        ("buffer_membership", "buffer_membership is required and did not run"),
    ]:
        done = check(folder, fail_on="high", attacks=[name])
        assert done.exit_code == 3 and phrase in done.stdout, done.output


def waivers_of(folder: Path) -> list[dict[str, str]]:
    """A waiver for every demonstrated finding, by the values that `explain` prints."""
    audit, made = json.loads((folder / "audit.json").read_text()), []
    for finding in (f for f in audit["findings"] if f["severity"] != "none" and not f["part_of"]):
        done = RUNNER.invoke(app, ["explain", finding["id"], "--run", str(folder), "--trust-plugins"])
        named = dict(re.findall(r"^  (run|finding|severity|digest): (\S+)$", done.stdout, re.M))
        assert len(named) == 4, done.output
        made.append(
            {**named, "reason": "a pilot without real data", "owner": "A. Person", "expires": "2999-01-31"}
        )
    return made


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        ({}, ""),
        ({"expires": "2020-01-31"}, "expired on 2020-01-31"),
        ({"run": "0" * 64}, "it is about another run, 000000000000"),
        ({"severity": "low"}, "it accepts low, and the finding is medium"),
        ({"digest": "0" * 64}, "no longer the one that was accepted"),
    ],
)
def test_a_waiver_holds_for_one_finding_of_one_run_as_it_was_seen(
    change: dict[str, str], phrase: str, folder: Path
) -> None:
    done = check(folder, waivers=[w | change for w in waivers_of(folder) if w["severity"] == "medium"])
    assert done.exit_code == (1 if change else 3), done.output  # 3: an attack could not tell
    assert phrase in done.stdout and ("accepted by name" in done.stdout) is not bool(change)


def test_what_the_baseline_has_does_not_fail_again(folder: Path, original: Path) -> None:
    assert check(folder).exit_code == 1
    assert check(folder, "--baseline", str(original)).exit_code != 1


@pytest.mark.parametrize(
    ("format", "begins"), [("json", "{"), ("junit", "<?xml"), ("sarif", "{"), ("markdown", "# ")]
)
def test_the_decision_is_printed_in_every_format(format: str, begins: str, folder: Path) -> None:
    done = check(folder, "--format", format)
    assert done.exit_code == 1 and done.stdout.startswith(begins), done.output


def verify(folder: Path, *more: str) -> Result:
    return RUNNER.invoke(app, ["verify", str(folder), "--trust-plugins", *more])


def test_verify_compares_with_a_digest_that_a_reviewer_holds(folder: Path) -> None:
    done = verify(folder)
    assert done.exit_code == 3 and "consistent, no more" in done.stdout, done.output
    digests = dict(re.findall(r"^(content|record): SHA-256 ([0-9a-f]{64})$", done.stdout, re.M))
    held = verify(folder, "--digest", digests["record"])
    assert held.exit_code == 3 and "nothing in the folder changed" in held.stdout
    held = verify(folder, "--digest", f"SHA256:{digests['content'].upper()}")
    assert held.exit_code == 3 and "times, commit and hardware are stated by the owner" in held.stdout
    other = verify(folder, "--digest", "0" * 64)
    assert other.exit_code == 2 and "neither is the one that was given" in other.stderr


def test_every_command_speaks_the_same_verdict_and_exits_with_its_code(folder: Path) -> None:
    result = json.loads((folder / "audit.json").read_text())
    decision, finding = result["decision"], result["findings"][0]["id"]
    word, sentence = Word(decision["word"]).words, decision["page"]["sentence"]
    for command, code in (
        (["run", str(folder)], 3),
        (["check", str(folder)], 3),
        (["verify", str(folder)], 3),
        (["explain", finding, "--run", str(folder)], 0),
    ):
        done = RUNNER.invoke(app, [*command, "--trust-plugins"])
        said = " ".join(done.stdout.split())
        assert done.exit_code == code and sentence in said and word.lower() in said.lower(), (
            command,
            done.output,
        )
    done = RUNNER.invoke(app, ["compare", str(folder), str(folder), "--trust-plugins"])
    assert done.exit_code == 0 and f"verdict\t{Word(decision['word']).words}\t" in done.stdout, done.output


def swapped_report(folder: Path) -> None:
    (folder / "report.json").write_text('{"title": "Ready to deploy"}')


def unnamed_report(folder: Path) -> None:
    """A report of an owner who takes every word of reports out of the folder's records."""
    edit(folder / "chain.json", lambda c: c | {"links": without("report")(c["links"])})
    edit(folder / "phases.json", without("report"))


def further_report(folder: Path) -> None:
    (folder / "report.pdf").write_bytes(b"%PDF-1.7 Ready to deploy")
    sealed_again(folder, "report")


@pytest.mark.parametrize("command", ["check", "verify"])
@pytest.mark.parametrize(
    ("change", "says"),
    [
        (swapped_report, "report.json is not what report wrote"),
        (unnamed_report, "chain.json does not say what report left"),
        (further_report, "report.pdf is there, and the config names no such report"),
    ],
)
def test_a_report_that_the_records_do_not_name_is_refused(
    change: Callable[[Path], None], says: str, command: str, folder: Path
) -> None:
    change(folder)
    done = RUNNER.invoke(app, [command, str(folder), "--trust-plugins"])
    assert done.exit_code == 2 and says in done.stderr, done.output


def test_only_verify_sees_a_report_whose_digest_was_made_anew(folder: Path) -> None:
    swapped_report(folder)
    sealed_again(folder, "report")
    assert "report.json: the bytes that chain.json names, not rendered here" in check(folder).stdout
    done = RUNNER.invoke(app, ["verify", str(folder), "--trust-plugins"])
    assert done.exit_code == 3 and "report.json: not what this audit is written as here" in done.stdout


def test_a_false_verdict_is_printed_by_no_command_and_in_no_report(folder: Path) -> None:
    edit(folder / "audit.json", lambda a: {**a, "decision": {**a["decision"], "word": "ready", "rule": ""}})
    sealed_again(folder, "score")
    for command in (
        ["run", str(folder)],
        ["run", str(folder), "--phase", "report"],
        ["check", str(folder)],
        ["verify", str(folder)],
        ["explain", "example_numbers", "--run", str(folder)],
        ["compare", str(folder), str(folder)],
    ):
        done = RUNNER.invoke(app, [*command, "--trust-plugins"])
        assert done.exit_code == 2 and "Ready" not in done.stdout, (command, done.output)
        assert "does not follow from the evidence" in done.stderr


def test_what_the_owner_says_of_the_system_is_content_of_the_run_and_stands_in_audit_json(folder: Path) -> None:
    before = links.read_chain(folder).content()
    text = (folder / "config.yaml").read_text()
    (folder.parent / "named.yaml").write_text(text.replace("controller: ''", "controller: A hospital trust"))
    config = load(folder.parent / "named.yaml")
    run = RunDir.open(folder)
    names = [p.name for p in PHASES]
    execute(run, config, names, lambda *_: None, skip_finished=True)
    assert json.loads((folder / "audit.json").read_text())["system"]["controller"] == "A hospital trust"
    assert links.read_chain(run.path).content() != before
