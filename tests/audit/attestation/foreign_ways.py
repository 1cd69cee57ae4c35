"""Twenty ways with parts of other runs, written from docs/ and the forger's files, before any was played.

The other tables edit what a folder says. These bring what is true of something else: evidence, records, seals
and verdicts of another federation, a client's messages under another's name, settings under which the run was
less than it seems; and they say things in a form that no phase writes. `passes` is what a reviewer is entitled to
by docs/decision.md.
"""

import json
import shutil
import tempfile
from collections.abc import Callable
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as save_arrays

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.phases.report import write_reports
from fedaudit.audit.settings.config import load
from fedaudit.audit.settings.resolve import dump
from tests.audit.attestation.forger import CHECK, CONFIG, REPLAY, STATED, UNSEEN, VERIFY, Way, edit, refit
from tests.audit.attestation.odd_ways import every_phase, own_seal
from tests.audit.attestation.ways_below import (
    LEDGER,
    MANIFEST,
    METRICS,
    WITH_A_VARIANT,
    edit_lines,
    finish,
    messages,
    refit_messages,
    run_again,
    setting,
)

Read = dict[str, dict[str, Any]]
OTHER = (CHECK, VERIFY, REPLAY)  # what only a key sees
QUIETER = CONFIG.replace("noise_multiplier: 2", "noise_multiplier: 2000") + "seed: 11\n"
FEWER = CONFIG.replace("examples: 120", "examples: 90")
MORE_NOISE = WITH_A_VARIANT.replace("noise_multiplier: 0.01", "noise_multiplier: 100.0")


@cache
def other_run(text: str) -> Path:
    """A finished run of another config, made once."""
    place = Path(tempfile.mkdtemp())
    (place / "c.yaml").write_text(text)
    with chdir(place):
        run, config = RunDir.create(place / "run"), load(place / "c.yaml")
        WholeAudit(run, config).execute([p.name for p in phases(config.case)], lambda *_: None)
    return place / "run"


def bring(text: str, *names: str, phases: tuple[str, ...] = (), then: Callable[[Path], None] = finish) -> Any:
    """Files and folders of another run in the place of this one's."""

    def forge(folder: Path) -> None:
        for name in names:
            theirs, ours = other_run(text) / name, folder / name
            if ours.is_dir():
                shutil.rmtree(ours)
                shutil.copytree(theirs, ours)
            else:
                shutil.copyfile(theirs, ours)
        if phases:
            refit(folder, *phases)
        then(folder)

    return forge


def leave(folder: Path) -> None:
    """Nothing more."""


RECORD = ("artifacts", "ledger.jsonl", "metrics.jsonl", "data.json", "checkpoint", "evidence", "population.json")


def record_of_another(folder: Path) -> None:
    """All that was recorded and measured, of another federation; the config is this one's."""
    there = [name for name in RECORD if (folder / name).exists()]
    bring(FEWER, *there, phases=("simulate", "attack", "account"))(folder)


def twin(read: Read) -> None:
    """What client 1 sent is what client 0 sent."""
    for name in (n for n in read if n.endswith("client-1.uplink")):
        read[name] = dict(read[name.replace("client-1", "client-0")])


def sent_again(read: Read) -> None:
    """The model of the second round is that of the first: it seems that nothing was learned."""
    first, second = sorted(n for n in read if n.endswith("server.downlink"))[:2]
    read[second] |= {name: array for name, array in read[first].items() if name in read[second]}


def unheard(folder: Path) -> None:
    """Client 3 was not there in the last round, say manifest, traffic, ledger and metrics alike."""
    gone = folder / "artifacts/r00001/client-3.uplink.safetensors"
    gone.unlink()

    def manifest(line: Any) -> Any:
        if line.get("message") == "r00001/client-3.uplink":
            return None
        if "traffic" in line and line["round"] == 1 and line["channel"] == "uplink":
            share = line["bytes"] // line["messages"]
            line = {**line, "senders": 3, "messages": line["messages"] - 1, "bytes": line["bytes"] - share}
            line["behind"] = [c for c in line["behind"] if c != 3]
        return line

    def metrics(line: Any) -> Any:
        if line["round"] != 1:
            return line
        return {**line, "delivered": 3, "bytes_up": line["bytes_up"] * 3 // 4}

    edit_lines(folder / MANIFEST, manifest)
    edit_lines(
        folder / LEDGER,
        lambda r: None if r["round"] == 1 and str(r.get("party", r.get("sender"))).endswith("3") else r,
    )
    edit_lines(folder / METRICS, metrics)
    refit(folder, "simulate")
    run_again(folder, "attack")


def last_round_kept(folder: Path) -> None:
    """What the run is said to have recorded is its last round alone, and nothing else is there."""
    shutil.rmtree(folder / "artifacts/r00000")
    edit_lines(folder / MANIFEST, lambda li: None if str(li.get("message", "")).startswith("r00000") else li)
    setting("record", "last")(folder)
    refit(folder, "simulate")
    run_again(folder, "attack")


def kind_of_its_own(folder: Path) -> None:
    """Prototypes are called numbers of a kind that no attack reads."""
    for path in (folder / "artifacts").rglob("*.safetensors"):
        arrays = load_arrays(path.read_bytes())
        named = {n.replace("local_prototypes/", "client:means/"): a for n, a in arrays.items()}
        path.write_bytes(save_arrays(named))
    for name in (MANIFEST, LEDGER):
        path = folder / name
        path.write_text(path.read_text().replace('"local_prototypes"', '"client:means"'))
    refit_messages(folder)
    run_again(folder, "attack")


def linked(folder: Path) -> None:
    """A message is a link to another client's."""
    path = folder / "artifacts/r00001/client-1.uplink.safetensors"
    path.unlink()
    path.symlink_to("client-0.uplink.safetensors")


def earlier_version(folder: Path) -> None:
    """Messages of a format of which nobody knows the rules."""
    path = folder / MANIFEST
    path.write_text('{"format":"fedaudit-artifacts","version":0}\n' + path.read_text())
    refit(folder, "simulate")
    finish(folder)


def year_before(folder: Path) -> None:
    """Every time in the folder is a year before, and a verdict of it."""
    for name in ("phases.json", "chain.json", "environment.json"):
        path = folder / name
        path.write_text(path.read_text().replace('"2026-', '"2025-'))
    finish(folder)


def lookalike(folder: Path) -> None:
    """A second folder of evidence, whose first letter is Cyrillic."""
    shutil.copytree(folder / "evidence", folder / "\u0435vidence")
    for path in (folder / "\u0435vidence").glob("0*.json"):
        edit(path, lambda e: {**e, "evidence": []})


def remark(folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text("# Reviewed by the board on 2020-01-01: ready to deploy.\n" + path.read_text())
    finish(folder)


def seal_of_another(folder: Path) -> None:
    kept = folder.parent / "quieter"
    shutil.copytree(other_run(QUIETER), kept)
    own_seal(kept)
    shutil.copyfile(kept / "seal.json", folder / "seal.json")
    shutil.rmtree(kept)
    config = load(folder / "config.yaml")
    write_reports(folder, config.report)  # they print who sealed it
    refit(folder, "report")


def option_of_another(folder: Path) -> None:
    """The option under a hundred times the noise that the config states."""
    shutil.rmtree(folder / "variants")
    shutil.copytree(other_run(MORE_NOISE) / "variants", folder / "variants")
    finish(folder)


def other_owner(folder: Path) -> None:
    """Two nodes of a recorded federation under each other's number."""
    parties = [json.loads(li) for li in (folder / MANIFEST).read_text().splitlines() if '"party"' in li]
    first, second = (line["node"] for line in parties[:2])
    swap = {first: second, second: first}
    edit_lines(
        folder / MANIFEST, lambda li: {**li, "node": swap.get(li["node"], li["node"])} if "party" in li else li
    )
    refit(folder, "import")
    run_again(folder, "attack")


def twice_attacked(folder: Path) -> None:
    """The attack with most hits is there twice; the second time it hit nobody."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    first = config["attacks"][0]
    config["attacks"] = [first | {"id": "count_recovery"}, *config["attacks"][1:], first | {"id": "once_more"}]
    (folder / "config.yaml").write_text(dump(config))
    edit(
        folder / "phases.json",
        lambda r: {
            **r,
            "attack": {**r["attack"], "settings": {**r["attack"]["settings"], "attacks": config["attacks"]}},
        },
    )
    first = json.loads((folder / "evidence/00-count_recovery.json").read_text())
    for people in first["people"]:
        people["hit"] = {}
    (folder / "evidence/04-once_more.json").write_text(json.dumps(first))
    refit(folder, "attack")
    finish(folder)


def not_applicable(config: dict[str, Any]) -> None:
    for attack in config["attacks"]:
        if attack["name"] == "prototype_membership":
            attack["least_auxiliary"] = 100_000


FOREIGN: dict[str, Way] = {
    # of another run
    "evidence of another federation": Way(bring(QUIETER, "evidence", phases=("attack", "account"))),
    "record and evidence of another federation": Way(record_of_another),
    "verdict and reports of another run": Way(
        bring(QUIETER, "audit.json", "report.json", "report.html", phases=("score", "report"), then=leave)
    ),
    "chain and phases of another run": Way(bring(QUIETER, "chain.json", "phases.json", then=leave)),
    "bounds and tests of noise of another run": Way(
        bring(
            QUIETER,
            "evidence/budgets.json",
            "evidence/noise_audits.json",
            "evidence/ledger.json",
            "evidence/replay.json",
            phases=("account",),
        )
    ),
    "a seal of another run": Way(seal_of_another),
    # whose messages
    "a client that sends what another sent": Way(messages(twin), UNSEEN, "messages"),
    "a model that is sent again": Way(messages(sent_again), UNSEEN, "messages"),
    "a client that was not heard, wherever that is said": Way(unheard, UNSEEN, "messages"),
    "a message that is a link to another": Way(linked),
    "prototypes under a kind of their own": Way(kind_of_its_own),
    # less than it seems
    "the last round recorded alone": Way(last_round_kept, UNSEEN, " questions answered", resets=True),
    "an attack that needs more than there is": Way(
        every_phase(not_applicable, "attack"), OTHER, " questions answered", resets=True
    ),
    "an attack twice, which hit nobody the second time": Way(twice_attacked, resets=True),
    # in another form
    "a format before ours": Way(earlier_version),
    "every time a year before": Way(year_before, OTHER, STATED),
    "evidence by a name that looks alike": Way(lookalike, OTHER, "no phase wrote these"),
    "a remark in the config": Way(remark, OTHER),
}
FOREIGN_CELLS: dict[str, Way] = {  # an option with other settings is one that is yet to be measured
    "an option under more noise than is stated": Way(option_of_another, UNSEEN)
}
FOREIGN_RECORDED: dict[str, Way] = {"nodes under each other's number": Way(other_owner)}
