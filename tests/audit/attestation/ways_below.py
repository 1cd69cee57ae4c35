"""Further ways to forge, written as a table before any of them was played.

The ways of forger.py edit verdicts, evidence and reports. These edit what lies below: messages, metrics, the
ledger, settings that the config and the ledger state alike, cells and options, a recorded federation; and they
empty or remove what a phase always writes. `passes` is what a reviewer is entitled to, and was written before the
first run: `check` and `verify` may take what was measured from the folder, where they say so; `--replay` names
all of it.
"""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load, save

from fedaudit.audit.case.data_digests import of_data, of_population
from fedaudit.audit.case.run_folder import RunDir, sha256
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.evidence.phase import phases
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import load as load_config
from fedaudit.audit.settings.resolve import dump
from fedaudit.fl.runtime.errors import UserError
from tests.audit.attestation.forger import (
    ALL,
    COUNTS,
    MEMBERSHIP,
    RIDGE,
    STATED,
    TAKEN,
    UNSEEN,
    Way,
    conclude,
    each,
    edit,
    refit,
)
from tests.audit.importing.theirs import brought

METRICS, LEDGER, MANIFEST = "metrics.jsonl", "ledger.jsonl", "artifacts/manifest.jsonl"
CHECKS = "evidence/checks.json"
NOISE, REPLAYED = "evidence/noise_audits.json", "evidence/replay.json"
Change = Callable[[Any], Any]


def lines(name: str, change: Change, phase: str = "simulate") -> Callable[[Path], None]:
    """Every line of a record changed (None: left out), and all that follows from it made anew."""

    def forge(folder: Path) -> None:
        edit_lines(folder / name, change)
        refit(folder, phase)
        run_again(folder)

    return forge


def edit_lines(path: Path, change: Change) -> None:
    made = [change(json.loads(line)) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(li, separators=(",", ":")) + "\n" for li in made if li is not None))


def run_again(folder: Path, *names: str) -> None:
    """Accounts and verdict by our own code, from whatever the folder holds now; a seal is put back."""
    run = RunDir.open(folder)
    seal = (folder / "seal.json").read_bytes() if (folder / "seal.json").exists() else None
    ran = [*names, "account", "matrix", "score", "report"]
    refit(folder, "attack")
    with suppress(UserError):
        execute(run, load_config(folder / "config.yaml"), ran, lambda *_: None, skip_finished=False)
    if seal:
        (folder / "seal.json").write_bytes(seal)


def finish(folder: Path) -> None:
    """A verdict of what the folder holds now; the old one where our own code refuses it."""
    kept = {name: (folder / name).read_bytes() for name in ("chain.json", "phases.json")}
    try:
        conclude(folder)
    except Exception:
        for name, content in kept.items():
            (folder / name).write_bytes(content)
        refit(folder, "score", "report")


def evidence_of(file: str, change: Change, phase: str = "attack") -> Callable[[Path], None]:
    """Other evidence, with a verdict and reports of it where there can be one."""

    def forge(folder: Path) -> None:
        edit(folder / file, change)
        refit(folder, phase)
        finish(folder)

    return forge


def removed(name: str, phase: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        (folder / name).unlink()
        refit(folder, phase)
        finish(folder)

    return forge


def written(name: str, text: str, phase: str) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        (folder / name).write_text(text)
        refit(folder, phase)
        finish(folder)

    return forge


def card(**fields: Any) -> Change:
    return lambda e: {**e, "card": {**e["card"], **fields}}


def setting(path: str, value: Any) -> Callable[[Path], None]:
    """config.yaml and phases.json say another setting than the run was simulated with."""
    *above, last = path.split(".")

    def put(settings: Any) -> Any:
        found = settings
        for key in above:
            found = found[int(key) if key.isdigit() else key]
        found[last] = value
        return settings

    def forge(folder: Path) -> None:
        config = put(yaml.safe_load((folder / "config.yaml").read_text()))
        (folder / "config.yaml").write_text(dump(config))
        edit(
            folder / "phases.json",
            lambda r: {**r, "simulate": {**r["simulate"], "settings": put(r["simulate"]["settings"])}},
        )
        refit(folder, "simulate")

    return forge


def louder(folder: Path) -> None:
    """Ten times the noise in config and ledger alike; the messages have what they had."""
    setting("protections.0.noise_multiplier", 20.0)(folder)
    edit_lines(folder / LEDGER, lambda r: {**r, "noise_std": 10 * r["noise_std"]})
    refit(folder, "simulate")
    run_again(folder)


def state_data(folder: Path) -> None:
    """data.json of what the settings deal out now."""
    case = SimulatedCase(load_config(folder / "config.yaml").require_simulated())
    stated = {"data": of_data(case.data), "population": of_population(case.population)}
    (folder / "data.json").write_text(json.dumps(stated))
    refit(folder, "simulate")


def refit_messages(folder: Path) -> None:
    """Digests of messages as their files now are, in the manifest and in the chain."""

    def digest(line: Any) -> Any:
        if "message" in line:
            line["sha256"] = sha256(folder / f"artifacts/{line['message']}.safetensors")
        return line

    edit_lines(folder / MANIFEST, digest)
    refit(folder, "simulate")


def messages(change: Callable[[dict[str, dict[str, Any]]], None]) -> Callable[[Path], None]:
    """Arrays of recorded messages changed, with digests that fit, and attacks that ran on them."""

    def forge(folder: Path) -> None:
        read = {
            p.relative_to(folder / "artifacts").as_posix().removesuffix(".safetensors"): load(p.read_bytes())
            for p in (folder / "artifacts").rglob("*.safetensors")
        }
        change(read)
        for name, arrays in read.items():
            (folder / f"artifacts/{name}.safetensors").write_bytes(save(arrays))

        refit_messages(folder)
        run_again(folder, "attack")

    return forge


def exchange(read: dict[str, dict[str, Any]]) -> None:
    """What two clients sent in the last round, under each other's name."""
    read["r00001/client-0.uplink"], read["r00001/client-1.uplink"] = (
        read["r00001/client-1.uplink"],
        read["r00001/client-0.uplink"],
    )


def blur(read: dict[str, dict[str, Any]]) -> None:
    """Prototypes under noise that no protection added."""
    rng = np.random.default_rng(1)
    for name in (n for n in read if "uplink" in n):
        found = read[name]["local_prototypes/features"]
        read[name]["local_prototypes/features"] = found + rng.normal(0, 3, found.shape).astype(found.dtype)


def nudge(read: dict[str, dict[str, Any]]) -> None:
    """One number of one message, by less than training on another machine may move it."""
    array = read["r00000/client-2.uplink"]["local_model/head.weight"]
    array.flat[0] *= np.float32(1.001)


def link(**fields: Any) -> Callable[[Path], None]:
    """What chain.json says of the code and the libraries of every phase."""

    def forge(folder: Path) -> None:
        def change(record: Any) -> Any:
            for one in record["links"].values():
                for name, values in fields.items():
                    one[name] |= values
            return record

        edit(folder / "chain.json", change)
        refit(folder, "simulate", "attack", "account")
        finish(folder)

    return forge


def stated(change: Change) -> Callable[[Path], None]:
    def forge(folder: Path) -> None:
        edit(folder / "environment.json", change)
        refit(folder, "simulate")
        finish(folder)

    return forge


def swap_evidence(folder: Path) -> None:
    """What one attack measured, under another's name."""
    one, other = (json.loads((folder / f).read_text()) for f in (COUNTS, MEMBERSHIP))
    edit(folder / COUNTS, lambda e: {**other, "name": one["name"], "card": one["card"]})
    refit(folder, "attack")
    finish(folder)


def clean_part(name: str) -> Callable[[Path], None]:
    """An option, or a cell, that looks harmless; the whole follows from it."""

    def forge(folder: Path) -> None:
        from fedaudit.audit.settings.config import load as read_config

        part = folder / "variants" / name
        edit(part / "evidence/00-label_counts_from_update.json", each({"value": 0.0, "interval": [0.0, 0.05]}))
        refit(part, "attack")
        run = RunDir.open(part)
        execute(run, read_config(part / "config.yaml"), ["score", "report"], lambda *_: None, skip_finished=False)
        finish(folder)

    return forge


def cell_report(folder: Path) -> None:
    """A cell of the matrix that did not do as its evidence says."""
    found = sorted((folder / "matrix").rglob(METRICS))[0]
    edit_lines(found, lambda r: {**r, "accuracy": 0.9})
    refit(found.parent, "simulate")


def half_gone(name: str) -> Callable[[Path], None]:
    """Every second entry of a list of evidence left out."""
    return evidence_of(f"evidence/{name}.json", lambda v: v[::2], "account")


ACCURACY, NO_LEDGER = "accuracies", "does not cover what ran: the ledger is another"
FURTHER: dict[str, Way] = {
    # metrics, which nobody sent
    "accuracy in metrics": Way(lines(METRICS, lambda r: {**r, "accuracy": 0.99}), UNSEEN, ACCURACY),
    "accuracy of a class in metrics": Way(
        lines(METRICS, lambda r: {**r, "class_accuracy": [1.0, 1.0]}), UNSEEN, ACCURACY
    ),
    "no accuracy in metrics": Way(lines(METRICS, lambda r: {k: v for k, v in r.items() if k != "accuracy"})),
    "which examples are right": Way(
        lines(METRICS, lambda r: {**r, "correct": "ffffff"} if "correct" in r else r), UNSEEN, ACCURACY
    ),
    "who was heard in metrics": Way(lines(METRICS, lambda r: {**r, "delivered": 3}), UNSEEN, ACCURACY),
    "a loss in metrics": Way(lines(METRICS, lambda r: {**r, "test_loss": 0.1}), UNSEEN, ACCURACY),
    # files and fields that a phase always writes
    "checks emptied": Way(written(CHECKS, '{"results": [], "declared": []}\n', "attack")),
    "checks as an empty object": Way(written(CHECKS, "{}\n", "attack")),
    "checks removed": Way(removed(CHECKS, "attack")),
    "replays emptied": Way(written(REPLAYED, "[]\n", "account")),
    "half of the replays": Way(half_gone("replay")),
    "replays removed": Way(removed(REPLAYED, "account")),
    "tests of noise removed": Way(removed(NOISE, "account")),
    "tests of noise without tests": Way(
        evidence_of(NOISE, lambda a: [{**x, "checks": []} for x in a], "account")
    ),
    "bounds removed": Way(removed("evidence/budgets.json", "account")),
    "evidence emptied": Way(evidence_of(COUNTS, lambda e: {**e, "evidence": []})),
    "people emptied": Way(evidence_of(COUNTS, lambda e: {**e, "people": []}), UNSEEN, TAKEN),
    "fields left out of evidence": Way(
        evidence_of(RIDGE, lambda e: {k: v for k, v in e.items() if k not in ("people", "galleries")})
    ),
    "data.json removed": Way(removed("data.json", "simulate")),
    "metrics emptied": Way(written(METRICS, "", "simulate")),
    # what an attack is
    "another aim of an attack": Way(evidence_of(COUNTS, card(aim="membership"))),
    "another title of an attack": Way(evidence_of(COUNTS, card(title="Nothing that anybody reads")), ALL, TAKEN),
    "another adversary of an attack": Way(
        evidence_of(
            COUNTS,
            lambda e: {**e, "card": {**e["card"], "threat": {**e["card"]["threat"], "position": "public"}}},
        )
    ),
    "another observer": Way(evidence_of(COUNTS, lambda e: {**e, "observer": "public"}), UNSEEN, TAKEN),
    "rounds that no attack read": Way(
        evidence_of(COUNTS, lambda e: {**e, "rounds": {k: [0, 1, 2, 3] for k in e["rounds"]}})
    ),
    "evidence of another attack": Way(swap_evidence, UNSEEN, TAKEN),
    "measurements called planted": Way(evidence_of(COUNTS, each({"control": "positive"})), UNSEEN, TAKEN),
    "less is worse": Way(evidence_of(COUNTS, each({"higher_is_worse": False}))),
    "another remedy": Way(evidence_of(COUNTS, lambda e: {**e, "remedy": "none is needed"}), ALL, TAKEN),
    "passed tests of noise": Way(
        evidence_of(
            NOISE,
            lambda a: [{**x, "checks": [{**c, "text": c["text"][:9]} for c in x["checks"]]} for x in a],
            "account",
        ),
        ALL,
        TAKEN,
    ),
    "a verified replay": Way(
        evidence_of(
            "evidence/replay.json",
            lambda b: [{**x, "status": "verified", "reason": "no counterexample", "pairs": 40} for x in b],
            "account",
        ),
        UNSEEN,
        TAKEN,
    ),
    # settings, ledger, messages
    "ten times the noise, in config and ledger": Way(louder, UNSEEN, "noise", resets=True),
    "no release in clear in the ledger": Way(
        lines(LEDGER, lambda r: None if r["mechanism"] == "none" else r), UNSEEN, NO_LEDGER
    ),
    "a smaller sensitivity in the ledger": Way(
        lines(LEDGER, lambda r: {**r, "sensitivity": r["sensitivity"] and r["sensitivity"] / 10}),
        UNSEEN,
        NO_LEDGER,
    ),
    "uploads that nobody saw": Way(
        lines(MANIFEST, lambda r: {**r, "seen_by": []} if r.get("channel") == "uplink" else r), UNSEEN, "messages"
    ),
    "uploads made of nobody": Way(
        lines(
            MANIFEST,
            lambda r: (
                {**r, "behind": {k: [] for k in r["behind"]}}
                if r.get("channel") == "uplink" and "message" in r
                else r
            ),
        ),
        UNSEEN,
        "messages",
    ),
    "another seed": Way(
        lambda folder: (setting("seed", 8)(folder), state_data(folder), run_again(folder, "attack")),
        UNSEEN,
        "messages",
        resets=True,
    ),
    "another number of epochs": Way(
        lambda folder: (setting("method.local_epochs", 2)(folder), run_again(folder)),
        UNSEEN,
        "messages",
        resets=True,
    ),
    "uploads under each other's name": Way(messages(exchange), UNSEEN, "messages"),
    "prototypes under noise that nobody added": Way(messages(blur), UNSEEN, "messages"),
    "one number of one message": Way(messages(nudge), UNSEEN, "messages"),
    "other data": Way(
        lambda folder: (
            edit(folder / "data.json", lambda d: {**d, "data": "0" * 64}),
            refit(folder, "simulate"),
            finish(folder),
        )
    ),
    # what nobody but the owner can say
    "other libraries in the chain": Way(link(versions={"torch": "9.9"}), ("check", "verify", "replay"), STATED),
    "other code in the chain": Way(link(packages={"fl": "0" * 64}), ("check", "verify", "replay"), STATED),
    "other libraries": Way(
        stated(lambda e: {**e, "versions": {**e["versions"], "torch": "9.9"}}),
        ("check", "verify", "replay"),
        STATED,
    ),
    "no libraries": Way(stated(lambda e: {**e, "versions": {}})),
}
WITH_A_VARIANT = """
federation: {dataset: digits, limit: [160, 40], clients: 4, availability: full, model: logreg}
method: {name: fedavg, rounds: 1, local_epochs: 1}
workers: 0
attacks: [label_counts_from_update]
noise_audit: false
report: [json]
variants: [{name: noisy, protections: [{name: dp_gaussian, clip_norm: 1.0, noise_multiplier: 0.01}]}]
"""
CELLS = f"""{WITH_A_VARIANT}matrix: {{adversaries: [sign_flip], aggregators: [median], malicious: [1]}}
"""
ABSENT = WITH_A_VARIANT.partition("variants")[0] + "matrix: {availabilities: [bernoulli]}\n"
OF_CELLS: dict[str, Way] = {
    "a matrix in which nothing is lost": Way(
        evidence_of(
            "evidence/matrix.json",
            lambda m: {**m, "cells": [{**c, "accuracy": 0.9} if "accuracy" in c else c for c in m["cells"]]},
            "matrix",
        ),
        UNSEEN,
        TAKEN,
    ),
    "a matrix without cells": Way(evidence_of("evidence/matrix.json", lambda m: {**m, "cells": []}, "matrix")),
    "no matrix": Way(removed("evidence/matrix.json", "matrix")),
    "an option that leaks nothing": Way(clean_part("noisy"), UNSEEN, TAKEN),
    "an option that is gone": Way(
        lambda folder: (shutil.rmtree(folder / "variants"), finish(folder)), UNSEEN, ""
    ),
    "metrics of a cell": Way(cell_report, UNSEEN, ""),
}
OF_ABSENCE: dict[str, Way] = {"no absence": Way(removed("evidence/absence.json", "matrix"))}
RECORDED: dict[str, Way] = {
    "what the import found": Way(
        lambda folder: (
            edit(
                folder / "import.json", lambda i: {**i, "checks": [{**c, "status": "holds"} for c in i["checks"]]}
            ),
            refit(folder, "import"),
            finish(folder),
        ),
        UNSEEN,
        TAKEN,
    ),
    "checks of the import emptied": Way(
        lambda folder: (
            edit(folder / "import.json", lambda i: {**i, "checks": []}),
            refit(folder, "import"),
            finish(folder),
        )
    ),
    "what was heard in a recorded round": Way(
        lambda folder: (
            edit_lines(folder / METRICS, lambda r: {**r, "accuracy": 0.9}),
            refit(folder, "import"),
            finish(folder),
        )
    ),
    "truth of a recorded federation": Way(
        lambda folder: (
            edit(folder / "data.json", lambda d: {**d, "data": "0" * 64}),
            refit(folder, "import"),
            finish(folder),
        )
    ),
}


def make_absence(folder: Path) -> Path:
    """A finished run with clients that do not answer."""
    return make_cells(folder, ABSENT)


def make_cells(folder: Path, text: str = CELLS) -> Path:
    """A finished run with an option and a matrix."""
    folder.mkdir()
    (folder / "c.yaml").write_text(text)
    config = load_config(folder / "c.yaml")
    run = RunDir.create(folder / "run")
    WholeAudit(run, config).execute([p.name for p in phases(config.case)], lambda *_: None)
    return run.path


def make_recorded(folder: Path) -> Path:
    """A federation that ran in Flower, taken in and audited."""
    folder.mkdir()
    run, config, _ = brought(folder)
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    return run.path
