"""Federations elsewhere whose networks give a number, findings, a risk, masks, or a class of a bag, imported.

The shapes are those of FLamby's data sets (Ogier du Terrail et al., NeurIPS 2022 Datasets, arXiv:2210.04620):
tables, survival, 3-D masks, bags of features.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.models.fcn import FCN
from fedaudit.fl.models.mlp import MLP
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.task import load_task
from tests.audit.importing.inboxes import record_truth, write_message

CLIENTS, EACH = 3, 40
SHAPES = {  # of an example, and names of what the network gives
    "regression": ((6,), ()),
    "several": ((6,), ("anaemia", "fever")),
    "survival": ((6,), ()),
    "segment": ((1, 4, 4, 4), ("background", "lesion")),
    "classify": ((5, 6), ("benign", "malignant")),  # bags of five rows of features
}


def make_labels(task: str, x: np.ndarray, rng: np.random.Generator) -> Any:
    number = x.reshape(len(x), -1)[:, 0] + rng.normal(size=len(x)) / 3
    if task == "segment":
        return (x[:, 0] > 0).astype(np.int64)
    if task == "survival":
        times = np.exp(-number) * rng.exponential(1, len(x))
        return np.stack([times, rng.random(len(x)) < 0.7], 1).astype(np.float32)
    if task == "several":
        return np.stack([number > 0, number > 1], 1).astype(np.int64)
    return (number > 0).astype(np.int64) if task == "classify" else number.astype(np.float32)


def build(task: str) -> Net:
    shape, names = SHAPES[task]
    cls: Any = FCN if task == "segment" else MLP
    net: Net = cls(shape, len(names) or 1, cls.Config(hidden=(16,)))
    net.task = load_task(task)()
    return net


def write(folder: Path, task: str) -> dict[str, Any]:
    """Two rounds of FedAvg, what its clients hold, and what its operator states."""
    (shape, names), rng = SHAPES[task], np.random.default_rng(2)
    x = rng.normal(size=((CLIENTS + 2) * EACH, *shape)).astype(np.float32)
    y = make_labels(task, x, rng)
    parts = [(x[i * EACH : (i + 1) * EACH], y[i * EACH : (i + 1) * EACH]) for i in range(CLIENTS)]
    net, order = initialise(lambda: build(task), Streams(0)), torch.Generator().manual_seed(3)
    for t in range(2):
        start = state_of(net)
        write_message(
            folder / "inbox", f"{t}/down", t, "downlink", "server", ["client"], sent("global_model", start)
        )
        uploads = []
        for k, (own, labels) in enumerate(parts):
            net.load_state_dict(start)
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            for batch in [b for _ in range(3) for b in torch.randperm(EACH, generator=order).split(10)]:
                optimiser.zero_grad()
                torch.autograd.backward(net.loss(torch.from_numpy(own)[batch], torch.from_numpy(labels)[batch]))
                optimiser.step()
            uploads.append(state_of(net))
            kinds = sent("local_model", uploads[-1]) | {"num_examples": {"count": np.int64(EACH)}}
            write_message(folder / "inbox", f"{t}/{k}", t, "uplink", f"client/{k}", ["server"], kinds)
        net.load_state_dict({n: torch.stack([u[n] for u in uploads]).mean(0) for n in start})
    record_truth(folder, parts, (x[CLIENTS * EACH :], y[CLIENTS * EACH :]))
    examples = {"shape": list(shape), "classes": list(names), "task": task}
    training = {"name": "fedavg", "rounds": 2, "local_epochs": 3, "batch_size": 10, "lr": 0.1}
    model = {"name": "fcn" if task == "segment" else "mlp", "hidden": [16]}
    return {"title": f"A federation of {task}", "examples": examples, "model": model, "method": training}


def sent(kind: str, state: Any) -> dict[str, Any]:
    return {kind: {n: v.numpy() for n, v in state.items()}}


def bring_in(folder: Path, subject: Any, attacks: list[str]) -> tuple[RunDir, Config, Any]:
    settings = {"attacks": attacks, "report": ["json"], "workers": 0}
    config = validate(Config, settings | {"subject": subject}, "test")
    run = RunDir.create(folder / "run")
    sources = ImportSources(inbox=folder / "inbox", subject=folder / "x", truth=folder / "truth")
    return run, config, bring(run.path, config.set_origin(Origin(trust=True)), sources, lambda *_: None)


@pytest.mark.parametrize("task", SHAPES)
def test_what_another_task_trained_is_imported_and_membership_is_asked(task: str, tmp_path: Path) -> None:
    run, config, found = bring_in(tmp_path, write(tmp_path, task), ["loss_threshold"])
    assert [c.text for c in found.checks if c.status == "contradicted"] == []
    execute(run, config, ["attack"], lambda *_: None, skip_finished=False)
    [file] = [json.loads(p.read_text()) for p in run.evidence.glob("0*.json")]
    assert file["status"] == "ran", file["reason"]
    areas = {e["control"]: e["value"] for e in file["evidence"] if e["measure"] == "auc"}
    assert {"none", "negative"} <= areas.keys()


@pytest.mark.parametrize(
    ("task", "labels", "says"),
    [
        ("classify", "regression", "real numbers .* and the subject states classes"),
        ("regression", "classify", r"y is int64 \[40\], expected floating-point numbers"),
        ("survival", "regression", r"expected floating-point numbers \[40, 2\], times and events"),
        ("several", "classify", r"expected 0 or 1, \[40, findings\]"),
    ],
)
def test_truth_whose_labels_are_of_another_task_is_refused(
    task: str, labels: str, says: str, tmp_path: Path
) -> None:
    subject = write(tmp_path, task)
    rng = np.random.default_rng(0)
    for file in (tmp_path / "truth").glob("*.npz"):
        x = np.load(file)["x"]
        np.savez(file, x=x, y=make_labels(labels, x, rng))
    with pytest.raises(UserError, match=says):
        bring_in(tmp_path, subject, [])


def test_names_are_stated_of_classes_and_findings_and_of_no_number(tmp_path: Path) -> None:
    subject = write(tmp_path, "regression")
    subject["examples"]["classes"] = ["a", "b"]
    with pytest.raises(UserError, match="classes has 2 names, and task regression wants none"):
        bring_in(tmp_path, subject, [])
