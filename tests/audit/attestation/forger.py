"""A folder made by somebody who means it: every way changes a finished run and makes all digests fit again.

Each way says which of the reviewer's four commands give a verdict of it, and refuse it not: `check`, `verify`,
`verify --replay` and `verify --key` (where somebody else sealed the run before). The forger has all of our code,
and not the sealer's key. `python -m tests.audit.attestation.forger` prints the table.
"""

import base64
import io
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from PIL import Image
from typer.testing import CliRunner, Result

from fedaudit.audit.attestation import chain as links
from fedaudit.audit.case.digests import of_file, of_value
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.phase import PHASES, read_phases
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load

RUNNER = CliRunner()
CHECK, VERIFY, REPLAY, KEY = "check", "verify", "replay", "key"
COMMANDS: dict[str, tuple[str, ...]] = {
    CHECK: ("check",),
    VERIFY: ("verify",),
    REPLAY: ("verify", "--replay"),
    KEY: ("verify", "--key"),
}
CONFIG = """
federation:
  dataset: {name: "tests.audit.tiny:TinyImages", examples: 120}
  clients: 4
  model: {name: "tests.audit.tiny:Linear", width: 5}
  availability: "tests.audit.tiny:Everyone"
  holdout: {auxiliary: 0.3, reference: 0.3}
method: {name: rebafl, rounds: 2, local_epochs: 1}
protections: [{name: dp_gaussian, kinds: [local_model], clip_norm: 1, noise_multiplier: 2}]
workers: 0
replay: {sizes: [1, 5], clients: 2, groups: 10}
record: all
attacks: [count_recovery, {name: prototype_membership, least_auxiliary: 5}, ridge, label_counts_from_update]
report: [json, html]
"""
COUNTS, MEMBERSHIP, RIDGE = (
    "evidence/00-count_recovery.json",
    "evidence/01-prototype_membership.json",
    "evidence/02-ridge.json",
)


def make_run(folder: Path) -> Path:
    """A finished run with findings, images, intervals, bounds and a noise audit."""
    folder.mkdir(exist_ok=True)
    (folder / "c.yaml").write_text(CONFIG)
    with chdir(folder):
        run = RunDir.create(folder / "run")
        execute(run, load(folder / "c.yaml"), [p.name for p in PHASES], lambda *_: None, skip_finished=False)
    return folder / "run"


def make_key(folder: Path, name: str = "sealer") -> Path:
    """A private key and, beside it, the public one; returns the path of the public one."""
    key = Ed25519PrivateKey.generate()
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    public = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (folder / f"{name}.pub.pem").write_bytes(public)
    return folder / f"{name}.pub.pem"


def fedaudit(*words: object) -> Result:
    return RUNNER.invoke(app, [*map(str, words), "--trust-plugins"])


def seal(folder: Path, key: Path, *more: str) -> None:
    done = fedaudit("check", folder, "--sign", key.with_name(key.name.replace(".pub", "")), *more)
    assert "sealed: " in done.output, done.output


def review(command: str, folder: Path, key: Path) -> Result:
    """One of the reviewer's commands on a folder."""
    words = COMMANDS[command]
    return fedaudit(words[0], folder, *words[1:], *([key] if command == KEY else []))


# The forger's tools


def edit(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text())), indent=1, ensure_ascii=False) + "\n")


def refit(folder: Path, *phases: str) -> None:
    """Make all digests of the chain fit what these phases are to have written."""
    run = RunDir.open(folder)
    for name in phases:
        links.end(run.path, name)
    chain, record = links.read_chain(run.path), read_phases(run.path)
    for name in (n for n in links.WRITES if n in chain.links):
        link = chain.links[name]
        link.settings = of_value(record[name]["settings"])
        link.read |= {o: chain.links[o].digest() for o in links.reads(name, links.first_of(chain))}
    run.write_json(run.chain, chain.model_dump())


def conclude(folder: Path) -> None:
    """Score and report anew, from whatever the folder holds now; a seal that was there is put back."""
    run = RunDir.open(folder)
    seal = (folder / "seal.json").read_bytes() if (folder / "seal.json").exists() else None
    config = run.load_config(trust_plugins=True)
    execute(run, config, ["score", "report"], lambda *_: None, skip_finished=False)
    if seal:
        (folder / "seal.json").write_bytes(seal)


def audit(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Another audit.json, with reports of it."""

    def forge(folder: Path) -> None:
        edit(folder / "audit.json", change)
        refit(folder, "score")
        from fedaudit.audit.phases.report import write_reports

        config = load(folder / "config.yaml")
        write_reports(folder, config.report)
        refit(folder, "report")

    return forge


def evidence(file: str, change: Callable[[Any], Any], phase: str = "attack") -> Callable[[Path], None]:
    """Other evidence, with a verdict and reports of it."""

    def forge(folder: Path) -> None:
        edit(folder / file, change)
        refit(folder, phase)
        conclude(folder)

    return forge


def each(change: Mapping[str, Any] | Callable[[Any], Any], control: str = "none") -> Callable[[Any], Any]:
    """Every measurement changed."""

    def forge(file: Any) -> Any:
        for e in (e for e in file["evidence"] if e["control"] == control):
            e.update(change(e) if callable(change) else change)
        return file

    return forge


def decision(**fields: Any) -> Callable[[Any], Any]:
    return lambda a: {**a, "decision": {**a["decision"], **fields}}


def harmless(a: Any) -> Any:
    for finding in a["findings"]:
        finding["severity"] = "none"
    return a


def chain(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        def changed(record: Any) -> Any:
            change(record)
            return record

        edit(folder / "chain.json", changed)
        conclude(folder)

    return forge


def other_machine(folder: Path) -> None:
    """Hardware of somebody else, so that a replay would have to be tolerant, and evidence that is tolerated."""
    edit(folder / "environment.json", lambda e: {**e, "hardware": {"system": "Plan 9", "processor": "another"}})
    for file in (COUNTS, MEMBERSHIP, RIDGE):
        edit(folder / file, each(lambda e: {"value": 0.0, "interval": [0.0, 1.0]}))
    refit(folder, "simulate", "attack")
    conclude(folder)


def grey(file: Any) -> Any:
    """Every image that an attack redrew is a grey one."""
    content = io.BytesIO()
    for gallery in file["galleries"]:
        for row in gallery["rows"].values():
            for i, image in enumerate(row):
                size = Image.open(io.BytesIO(base64.b64decode(image))).size
                content = io.BytesIO()
                Image.new("L", size, 128).save(content, "PNG")
                row[i] = base64.b64encode(content.getvalue()).decode()
    return file


def other_attacks(folder: Path) -> None:
    """Only the attack that finds least."""
    text = CONFIG.replace(
        "[count_recovery, {name: prototype_membership, least_auxiliary: 5}, ridge, label_counts_from_update]",
        "[lookup]",
    )
    (folder.parent / "less.yaml").write_text(text)
    run = RunDir.open(folder)
    names = ["attack", "account", "score", "report"]
    execute(run, load(folder.parent / "less.yaml"), names, lambda *_: None, skip_finished=False)


def other_model(folder: Path) -> None:
    """The released model replaced, with its digest in the manifest."""
    manifest = folder / "artifacts/manifest.jsonl"
    lines = [json.loads(line) for line in manifest.read_text().splitlines()]
    sent = [li for li in lines if "message" in li and "global_model" in li["kinds"]]
    path = folder / f"artifacts/{sent[-1]['message']}.safetensors"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    sent[-1]["sha256"] = sha256(path)
    manifest.write_text("".join(json.dumps(li, separators=(",", ":")) + "\n" for li in lines))
    refit(folder, "simulate")
    conclude(folder)


def swapped(name: str, content: bytes | None = None, *, linked: bool = True) -> Callable[[Path], None]:
    """Another report, with its digest in the chain, or with no line of the chain about reports."""

    def forge(folder: Path) -> None:
        path = folder / name
        before = path.read_bytes() if path.exists() else b""
        path.write_bytes(content or before.replace(b"exposed", b"spared"))
        if linked:
            refit(folder, "report")
        else:
            edit(
                folder / "chain.json",
                lambda c: {**c, "links": {k: v for k, v in c["links"].items() if k != "report"}},
            )
            edit(folder / "phases.json", lambda r: {k: v for k, v in r.items() if k != "report"})

    return forge


def twice(name: str, phase: str, key: str, value: str) -> Callable[[Path], None]:
    """A key that other readers read first."""

    def forge(folder: Path) -> None:
        path = folder / name
        path.write_text(path.read_text().replace("{", f'{{"{key}": {value}, ', 1))
        if phase:
            record = json.loads((folder / "chain.json").read_text())
            record["links"][phase]["wrote"][name] = of_file(path, "")
            (folder / "chain.json").write_text(json.dumps(record))

    return forge


def dated(record: Any) -> None:
    for registration in record["registrations"]:
        registration["at"] = "2020-01-01T00:00:00+00:00"


def last_round_gone(folder: Path) -> None:
    for name in ("artifacts/manifest.jsonl", "ledger.jsonl", "metrics.jsonl"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(li for li in lines if json.loads(li)["round"] == 0))
    refit(folder, "simulate")


def own_policy(folder: Path) -> None:
    """A policy of the owner's own, by which next to nothing forbids a deployment, beside the run."""
    default = Path(__file__).parents[3] / "audit/policy/default.yaml"
    lax = folder.parent / "lax.yaml"
    lax.write_text(default.read_text().replace("not_ready: high", "not_ready: critical"))
    config = (folder / "config.yaml").read_text().replace("policy: default", f"policy: {lax}")
    (folder / "config.yaml").write_text(config)
    run = RunDir.open(folder)
    execute(run, load(folder / "config.yaml"), ["score", "report"], lambda *_: None, skip_finished=False)


def added(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(b"%PDF-1.7 Ready to deploy")  # type: ignore[return-value]


def many_strangers(folder: Path) -> None:
    """Names that come before it, and a folder that nobody lists."""
    for name in "abcde":
        (folder / f"{name}.txt").write_text("notes")
    (folder / "final").mkdir()
    (folder / "final" / "report.pdf").write_bytes(b"%PDF-1.7 Ready to deploy")


def weaker_settings(folder: Path) -> None:
    """The record says that attacks ran at other settings than they did."""
    for name in ("config.yaml", "phases.json"):
        text = (folder / name).read_text()
        (folder / name).write_text(
            text.replace("least_auxiliary: 5", "least_auxiliary: 50").replace(
                '"least_auxiliary": 5', '"least_auxiliary": 50'
            )
        )
    refit(folder, "attack")
    conclude(folder)


@dataclass(frozen=True)
class Way:
    """One way to forge; `passes`: the commands that do not refuse it, and what each of them then says."""

    forge: Callable[[Path], Any]
    passes: tuple[str, ...] = ()
    says: str = ""
    resets: bool = False  # whether it changes settings, of which another run is made


TAKEN = "what the attacks measured was taken from evidence/"  # without --replay
UNDRAWN = "report.html, report.json: the bytes that chain.json names, not rendered here"
OTHER = "not what this audit is written as here"  # which `verify` says in place of it
STATED = "stated by the owner: "
NOTHING = {"value": 0.0, "interval": [0.0, 1.0]}
UNSEEN = (CHECK, VERIFY)  # what only a replay or a key sees
ALL = (CHECK, VERIFY, REPLAY)
WAYS: dict[str, Way] = {
    "the word is ready": Way(audit(decision(word="ready", rule=""))),
    "the word rests on another sentence": Way(
        audit(decision(sentence="Nothing was demonstrated.")), ALL, UNDRAWN
    ),
    "no risks on page 1": Way(audit(decision(risks=[]))),
    "another bar": Way(audit(decision(bar="critical", failing=[]))),
    "findings that somebody accepted": Way(audit(decision(accepted={"count_recovery": "the board"}))),
    "findings made harmless": Way(audit(harmless)),
    "findings left out": Way(audit(lambda a: {**a, "findings": [], "galleries": [], "figures": []})),
    "another controller in audit.json alone": Way(
        audit(lambda a: {**a, "system": {**a["system"], "controller": "somebody else"}}), ALL, UNDRAWN
    ),
    "no limits": Way(audit(lambda a: {**a, "limits": []}), ALL, UNDRAWN),
    "another accuracy": Way(audit(lambda a: {**a, "summary_metrics": {"accuracy_final": 0.99}})),
    "no images": Way(audit(lambda a: {**a, "galleries": []}), ALL, UNDRAWN),
    "no curves": Way(audit(lambda a: {**a, "figures": []}), ALL, UNDRAWN),
    "a bound in audit.json alone": Way(audit(lambda a: {**a, "bounds": []})),
    "other hardware in audit.json alone": Way(
        audit(lambda a: {**a, "reproduction": {**a["reproduction"], "hardware": {"processor": "another"}}}),
        ALL,
        UNDRAWN,
    ),
    "another commit in audit.json alone": Way(
        audit(lambda a: {**a, "reproduction": {**a["reproduction"], "commit": "0" * 40}}), ALL, UNDRAWN
    ),
    "another start in audit.json alone": Way(
        audit(lambda a: {**a, "reproduction": {**a["reproduction"], "started": "2020-01-01T00:00:00+00:00"}}),
        ALL,
        UNDRAWN,
    ),
    "a policy fixed long ago in audit.json alone": Way(
        audit(lambda a: {**a, "policy": {**a["policy"], "fixed": "2020-01-01T00:00:00+00:00"}}), ALL, UNDRAWN
    ),
    "values of evidence": Way(evidence(COUNTS, each({"value": 0.0, "interval": [0.0, 0.1]})), UNSEEN, TAKEN),
    "values of evidence by a little": Way(
        evidence(
            MEMBERSHIP,
            each(
                lambda e: {
                    "value": e["value"] * 0.5,
                    "interval": e["interval"] and [i / 2 for i in e["interval"]],
                }
            ),
        ),
        UNSEEN,
        TAKEN,
    ),
    "intervals": Way(evidence(MEMBERSHIP, each({"interval": [0.0, 1.0]})), UNSEEN, TAKEN),
    "trials": Way(evidence(COUNTS, each(lambda e: {"trials": 10 * e["trials"]})), UNSEEN, TAKEN),
    "baselines": Way(
        evidence(
            COUNTS, each(lambda e: {"baselines": [{**b, "value": 1.0, "interval": None} for b in e["baselines"]]})
        ),
        UNSEEN,
        TAKEN,
    ),
    "planted leaks": Way(evidence(MEMBERSHIP, each(NOTHING, control="positive")), UNSEEN, TAKEN),
    "data nobody trained on": Way(evidence(MEMBERSHIP, each(NOTHING, control="negative")), UNSEEN, TAKEN),
    "how many looks": Way(evidence(COUNTS, each(lambda e: {"looks": 1000})), UNSEEN, TAKEN),
    "an attack that does not apply": Way(
        evidence(COUNTS, lambda e: {**e, "status": "not_applicable", "reason": "no counts", "evidence": []}),
        UNSEEN,
        TAKEN,
    ),
    "an attack that failed": Way(
        evidence(COUNTS, lambda e: {**e, "status": "failed", "reason": "x", "evidence": []}), UNSEEN, TAKEN
    ),
    "curves of evidence": Way(evidence(MEMBERSHIP, lambda e: {**e, "curves": []}), UNSEEN, TAKEN),
    "grey images": Way(evidence(RIDGE, grey), ALL, TAKEN),
    "no images of evidence": Way(evidence(RIDGE, lambda e: {**e, "galleries": []}), UNSEEN, TAKEN),
    "what an attack read": Way(evidence(COUNTS, lambda e: {**e, "read": []})),
    "a noise audit": Way(evidence("evidence/noise_audits.json", lambda a: [], "account")),
    "bounds": Way(
        evidence("evidence/budgets.json", lambda b: [{**x, "epsilon_upper": 0.1} for x in b], "account")
    ),
    "an issue of the ledger": Way(
        evidence(
            "evidence/ledger.json",
            lambda v: {**v, "issues": [{"check": "x", "what": "y", "times": 1}]},
            "account",
        )
    ),
    "evidence and hardware of another machine": Way(other_machine, UNSEEN, TAKEN),
    "only an attack that finds little": Way(
        other_attacks, (CHECK, VERIFY, REPLAY), " questions answered", resets=True
    ),
    "settings that no attack had": Way(weaker_settings, UNSEEN, TAKEN, resets=True),
    "another released model": Way(other_model, UNSEEN, STATED + "messages, models, accuracies"),
    "the last round left out": Way(last_round_gone),
    "a policy of the owner's own": Way(own_policy, UNSEEN, "the owner's own", resets=True),
    "another report": Way(swapped("report.html"), ALL, UNDRAWN),
    "another report, and no word of reports": Way(swapped("report.html", linked=False)),
    "another report as JSON": Way(swapped("report.json"), ALL, UNDRAWN),
    "a report that nobody asked for": Way(swapped("report.pdf", b"%PDF-1.7 Ready to deploy")),
    "a report by another name": Way(
        added("final.pdf"),
        (CHECK, VERIFY, REPLAY),
        "no phase wrote these, and nothing here is about them: final.pdf",
    ),
    "a report in a folder of its own, behind others": Way(
        many_strangers, (CHECK, VERIFY, REPLAY), "b.txt, c.txt, d.txt, e.txt and 1 more"
    ),
    "a policy fixed long ago": Way(chain(dated), (CHECK, VERIFY, REPLAY), STATED + "policy fixed at 2020-01-01"),
    "another commit": Way(
        chain(lambda c: [link["aside"].update(commit="0" * 40) for link in c["links"].values()]),  # type: ignore[arg-type,return-value]
        (CHECK, VERIFY, REPLAY),
        STATED,
    ),
    "other hardware": Way(
        lambda folder: (
            edit(folder / "environment.json", lambda e: {**e, "hardware": {"processor": "another"}}),
            conclude(folder),
        ),
        (CHECK, VERIFY, REPLAY),
        STATED,
    ),
    "another start": Way(
        lambda folder: (
            edit(
                folder / "phases.json",
                lambda r: {**r, "simulate": {**r["simulate"], "started": "2020-01-01T00:00:00+00:00"}},
            ),
            conclude(folder),
        ),
        (CHECK, VERIFY, REPLAY),
        STATED,
    ),
    "a key twice in audit.json": Way(twice("audit.json", "score", "title", '"Ready"')),
    "a key twice in evidence": Way(twice(COUNTS, "attack", "status", '"failed"')),
    "a key twice in chain.json": Way(twice("chain.json", "", "links", "{}")),
    "a key twice in phases.json": Way(twice("phases.json", "", "score", "null")),
    "a key twice in the ledger": Way(twice("ledger.jsonl", "simulate", "round", "0")),
    "a key twice in the manifest": Way(twice("artifacts/manifest.jsonl", "simulate", "round", "0")),
}


def main() -> None:
    """Print which command refuses which way: `python -m tests.audit.attestation.forger [WORD IN ITS NAME]`."""
    from tests.audit.attestation import foreign_ways as foreign
    from tests.audit.attestation import ways_below as further
    from tests.audit.attestation.odd_ways import ODD

    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    tables = (
        (WAYS | further.FURTHER | ODD | foreign.FOREIGN, make_run),
        (further.OF_CELLS | foreign.FOREIGN_CELLS, further.make_cells),
        (further.OF_ABSENCE, further.make_absence),
        (further.RECORDED | foreign.FOREIGN_RECORDED, further.make_recorded),
    )
    for ways, make in tables:
        if chosen := {name: way for name, way in ways.items() if wanted in name}:
            print_table(chosen, make)


def print_table(ways: Mapping[str, Way], make: Callable[[Path], Path]) -> None:
    """One line a way, one column a command: refused, or its exit code."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        original, key = make(root / "made"), make_key(root)
        shutil.copytree(original, root / "sealed")
        seal(root / "sealed", key)
        refused = dict.fromkeys(COMMANDS, 0)
        print(f"{'':<46}" + "".join(f"{c:>10}" for c in COMMANDS))
        for way, what in ways.items():
            row = f"{way:<46}"
            for command in COMMANDS:
                folder = root / "run-of-way"
                shutil.copytree(root / "sealed" if command == KEY else original, folder)
                with chdir(root):
                    what.forge(folder)
                    done = review(command, folder, key)
                code = done.exit_code
                refused[command] += code == 2
                is_stated = command == KEY or what.says in done.stdout
                row += f"{'refused' if code == 2 else code if is_stated else f'{code} unsaid':>10}"
                shutil.rmtree(folder)
            print(row, flush=True)
        print(f"{f'refused, of {len(ways)}':<46}" + "".join(f"{n:>10}" for n in refused.values()))


if __name__ == "__main__":
    main()
