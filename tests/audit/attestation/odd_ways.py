"""Twenty ways more, written from docs/ and the forger's own files, before any of them was played.

The ways of forger.py and ways_below.py change what a file says. These say what no file can say: a folder that
contradicts itself, files and fields of phases that never ran, and bytes beside those that a reader looks at.
`passes` is what a reviewer is entitled to: what the folder itself contradicts, `check` refuses.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors import safe_open
from safetensors.numpy import save

from fedaudit.audit.settings.resolve import dump
from tests.audit.attestation.forger import (
    CHECK,
    COUNTS,
    MEMBERSHIP,
    REPLAY,
    UNSEEN,
    VERIFY,
    Way,
    each,
    edit,
    make_key,
    refit,
    seal,
)
from tests.audit.attestation.ways_below import (
    LEDGER,
    MANIFEST,
    NO_LEDGER,
    evidence_of,
    finish,
    lines,
    messages,
    refit_messages,
    run_again,
    written,
)

Settings = dict[str, Any]


def every_phase(change: Callable[[Settings], None], *phases: str) -> Callable[[Path], None]:
    """config.yaml and phases.json say other settings, and the phases ran with them."""

    def forge(folder: Path) -> None:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        change(config)
        (folder / "config.yaml").write_text(dump(config))
        run_again(folder, *phases)

    return forge


def second_seed(folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(path.read_text() + "\nseed: 8\n")


def unlisted_attack(folder: Path) -> None:
    """Evidence of an attack that the config does not name, in which nothing is hit."""
    attack = json.loads((folder / MEMBERSHIP).read_text())
    for people in attack["people"]:
        people["hit"] = {}
    (folder / "evidence/04-loss_threshold.json").write_text(json.dumps({**attack, "name": "loss_threshold"}))
    refit(folder, "attack")
    finish(folder)


def unasked_matrix(folder: Path) -> None:
    """Cells in which no accuracy is lost, of a run that has none."""
    cell = {"aggregator": "median", "adversary": "sign_flip", "malicious": 1, "seed": 7, "accuracy": 0.99}
    (folder / "evidence/matrix.json").write_text(json.dumps({"cells": [cell]}))
    refit(folder, "matrix")
    finish(folder)


def unasked_option(folder: Path) -> None:
    """A harmless twin of the run, as an option that nobody configured."""
    kept = folder.parent / "twin"
    shutil.copytree(folder, kept)
    (folder / "variants").mkdir()
    kept.rename(folder / "variants/safe")
    for file in (folder / "variants/safe/evidence").glob("0*.json"):
        edit(file, each({"value": 0.0, "interval": [0.0, 0.05]}))
    refit(folder / "variants/safe", "attack")
    finish(folder)


def rewrite_messages(make: Callable[[dict[str, Any]], bytes]) -> Callable[[Path], None]:
    """Every message in other bytes, with digests that fit."""

    def forge(folder: Path) -> None:
        for path in (folder / "artifacts").rglob("*.safetensors"):
            with safe_open(path, "numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            path.write_bytes(make(arrays))

        refit_messages(folder)
        run_again(folder)

    return forge


def in_doubles(arrays: dict[str, Any]) -> bytes:
    return save({n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in arrays.items()})


def smuggle(read: dict[str, dict[str, Any]]) -> None:
    """An array that the model does not have, in every upload."""
    for name in (n for n in read if "uplink" in n):
        read[name]["local_model/head.examples"] = np.zeros((4, 16), np.float32)


def own_seal(folder: Path) -> None:
    (folder.parent / "mine").mkdir(exist_ok=True)
    seal(folder, make_key(folder.parent / "mine", "forger"))


def other_checkpoint(folder: Path) -> None:
    path = folder / "checkpoint/state.safetensors"
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)


def empty_export(folder: Path) -> None:
    """An export for a build, asked for like the others, without a result."""
    every_phase(lambda c: c.update(report=["json", "html", "sarif"]))(folder)
    edit(folder / "report.sarif", lambda s: {**s, "runs": [{**r, "results": []} for r in s["runs"]]})
    refit(folder, "report")


ODD: dict[str, Way] = {
    # values that no attack gives
    "a value that is no number": Way(evidence_of(COUNTS, each({"value": float("nan")}))),
    "a value outside of its own interval": Way(evidence_of(COUNTS, each({"value": 0.0, "interval": [0.5, 1.0]}))),
    "clients that hold one person each": Way(
        evidence_of(
            MEMBERSHIP,
            lambda e: {**e, "people": [{**p, "held": dict.fromkeys(p["held"], 1)} for p in e["people"]]},
        )
    ),
    "a seed twice in the config": Way(second_seed, resets=True),
    # what one file says against another
    "traffic of no bytes": Way(lines(MANIFEST, lambda r: {**r, "bytes": 0} if "traffic" in r else r)),
    "no bytes in metrics": Way(lines("metrics.jsonl", lambda r: {**r, "bytes_up": 0, "bytes_down": 0})),
    "ten times the noise, in the ledger alone": Way(
        lines(LEDGER, lambda r: {**r, "noise_std": 10 * r["noise_std"]}), UNSEEN, "the noise that was drawn"
    ),
    "clients that are drawn one time in a hundred": Way(
        lines(LEDGER, lambda r: {**r, "sampling": "poisson", "sample_rate": 0.01, "participation_seen_by": []}),
        UNSEEN,
        NO_LEDGER,
    ),
    "releases that the public does not see": Way(
        lines(LEDGER, lambda r: {**r, "observers": ["server"]}), UNSEEN, NO_LEDGER
    ),
    # files and fields of what never ran
    "an attack that nobody configured": Way(unlisted_attack),
    "a matrix that nobody configured": Way(unasked_matrix),
    "an option that nobody configured": Way(
        unasked_option, UNSEEN, "no phase wrote these, and nothing here is about them: variants"
    ),
    "an import that never was": Way(
        written("import.json", '{"checks": []}\n', "simulate"),
        (CHECK, VERIFY, REPLAY),
        "nothing here is about them: import.json",
    ),
    "an array that the model does not have": Way(messages(smuggle)),
    # bytes beside what is read
    "a note in the head of every message": Way(
        rewrite_messages(lambda arrays: save(arrays, {"audited": "by the board"})), UNSEEN, "messages"
    ),
    "messages in doubles": Way(rewrite_messages(in_doubles)),
    "another checkpoint": Way(other_checkpoint, UNSEEN, "messages, models"),
    "a seal by the forger's own key": Way(own_seal, (CHECK, VERIFY, REPLAY), "seal.json: not checked"),
    "an export without a result": Way(empty_export, (CHECK, VERIFY, REPLAY), "report.sarif", resets=True),
    # the owner's own yardstick
    "a delta at which everybody may be lost": Way(
        every_phase(lambda c: c.update(delta=0.5)), (CHECK, VERIFY, REPLAY), "1 medium", resets=True
    ),
}
