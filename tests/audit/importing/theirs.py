"""A federation that ran in Flower 1.42 (examples/flower/), recorded there; and ways to change the record.

What the clients held is not stored beside the record: the images are scikit-learn's, and the example's own code
deals them out again.
"""

import hashlib
import json
import runpy
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load, save

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.inbox import InboxLimits
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.recording.recorder import MANIFEST
from fedaudit.fl.runtime.yaml import read_yaml
from fedaudit.reports.imported import CheckedStatement, ImportRecord

FLOWER = Path(__file__).parent / "flower"
EXAMPLE = Path(__file__).parents[3] / "examples/flower"
DIGITS = runpy.run_path(str(EXAMPLE / "digits_app" / "data.py"))
# The nodes of the record, by the part of the digits that each held
NODES = (
    "7742972173290885033",
    "1188085038079045194",
    "12480869197300465147",
    "17793996101196497886",
    "9434534281259608725",
    "88032075818893844",
    "17898140193225550806",
    "18092634523683217536",
)
_FOLDERS = tempfile.TemporaryDirectory(prefix="fedaudit-truth-")  # removed when the tests end
METHOD = read_yaml(EXAMPLE / "subject.yaml")["method"]  # stated where clients are played, which takes seconds
ATTACKS = {"attacks": ["label_counts_from_update"], "report": ["json", "html"], "workers": 0}


def write_truth(name: str, examples: dict[str, Any]) -> Path:
    """Write what each node held, and the auditor's own examples, to a folder."""
    folder = Path(_FOLDERS.name) / name / "truth"
    folder.mkdir(parents=True)
    for node, (x, y) in examples.items():
        np.savez(folder / f"{node}.npz", x=x, y=y)
    return folder


def flower_truth() -> Path:
    parts, own = DIGITS["split"]()
    return write_truth("flower", {node: parts[k] for k, node in enumerate(NODES)} | {"own": own})


TRUTH = flower_truth()


def config(**changes: Any) -> Config:
    """What the operator states, with some of it changed."""
    subject = read_yaml(EXAMPLE / "subject.yaml") | {"method": None} | changes
    return validate(Config, ATTACKS | {"subject": subject}, "test")


def brought(
    folder: Path,
    truth: Path | None = TRUTH,
    inbox: Path = FLOWER / "inbox",
    limits: InboxLimits | None = None,
    **changes: Any,
) -> tuple[RunDir, Config, ImportRecord]:
    run, stated = RunDir.create(folder / "run"), config(**changes)
    sources = ImportSources(inbox=inbox, subject=EXAMPLE / "subject.yaml", truth=truth)
    found = bring(run.path, stated.set_origin(Origin(trust=True)), sources, lambda *_: None, limits=limits)
    return run, stated, found


def check(found: ImportRecord, id: str) -> CheckedStatement:
    return next(c for c in found.checks if c.id == id)


def nodes() -> list[str]:
    lines = map(json.loads, (FLOWER / "inbox" / MANIFEST).read_text().splitlines())
    return [x["node"] for x in lines if "party" in x]


def changed(folder: Path, change: Callable[[dict[str, Any], dict[str, np.ndarray]], None]) -> Path:
    """A copy of the inbox, each message changed as `change(line, arrays)` does, with hashes that fit."""
    inbox = folder / "changed"
    shutil.copytree(FLOWER / "inbox", inbox)
    lines = []
    for line in map(json.loads, (inbox / MANIFEST).read_text().splitlines()):
        if "message" in line:
            path = inbox / f"{line['message']}.safetensors"
            arrays = load(path.read_bytes())
            change(line, arrays)
            path.write_bytes(save(arrays))
            line["sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(json.dumps(line))
    (inbox / MANIFEST).write_text("\n".join(lines) + "\n")
    return inbox


def written(folder: Path, **changes: Any) -> Path:
    """subject.yaml in a folder of its own, with the network beside it."""
    path = folder / "subject.yaml"
    path.write_text(yaml.safe_dump(read_yaml(EXAMPLE / "subject.yaml") | changes))
    shutil.copy(EXAMPLE / "net.py", folder / "net.py")
    return path
