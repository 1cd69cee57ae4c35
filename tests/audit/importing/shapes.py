"""The seven shapes of FLamby, as small federations of invented examples: python -m tests.audit.importing.shapes

Axes of examples and labels are those of Ogier du Terrail et al., NeurIPS 2022 Datasets, arXiv:2210.04620, most
of them shorter; the numbers are drawn, and so are the labels, by one of them. Each is trained here, imported as
if it had run elsewhere, and attacked as one model. The command prints a table of all seven, with seconds.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fedaudit as fa
from fedaudit.audit.case.networks import build, build_foreign
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.model import Net, initialise, state_of
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.task import load_task
from fedaudit.reports.result import AuditResult
from tests.audit.importing.inboxes import record_truth, write_message, write_truth

CLIENTS = 3
ATTACKS = ("loss_threshold", "played_message")


class Bags(nn.Module):
    """[b, rows, F] -> [b, classes], by attention over rows as DeepMIL (Ilse, Tomczak, Welling, ICML 2018)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.hidden, self.weight = nn.Linear(shape[-1], 8), nn.Linear(8, 1)
        self.head = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.hidden(x))
        out: Tensor = self.head((self.weight(h).softmax(1) * h).sum(1))
        return out


@dataclass(frozen=True)
class Shape:
    """A federation's examples, [N, *shape], and what its network gives."""

    theirs: tuple[int, ...]
    shape: tuple[int, ...]
    task: str
    names: tuple[str, ...]
    model: Mapping[str, Any]
    layout: str | None = None

    def draw(self, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Examples and labels, which the first numbers of an example say, but for noise."""
        x = rng.normal(size=(n, *self.shape)).astype(np.float32)
        number = x.reshape(n, -1)[:, 0] + rng.normal(size=n) / 3
        if len(self.shape) == 3:
            x = 1 / (1 + np.exp(-x))
        if self.task == "segment":
            return x, np.digitize(x[:, 0], np.linspace(0.5, 1.5, len(self.names) - 1)).astype(np.int64)
        if self.task == "survival":
            times = np.exp(-number) * rng.exponential(1, n)
            return x, np.stack([times, rng.random(n) < 0.7], 1).astype(np.float32)
        if self.task == "several":
            return x, np.stack([number > c for c in range(len(self.names))], 1).astype(np.int64)
        cuts = np.linspace(-1.2, 1.2, len(self.names) + 1)[1:-1]
        return x, number.astype(np.float32) if self.task == "regression" else np.digitize(number, cuts)

    def build(self) -> Net:
        cls, settings = catalog.load("models", self.model["name"]), {**self.model}
        del settings["name"]
        width, task = len(self.names) or 1, load_task(self.task)()
        if not issubclass(cls, Net):
            return build_foreign(cls, self.shape, width, task)
        return build(cls, self.shape, width, cls.Config(**settings), task)


BAGS, MASKS = "tests.audit.importing.shapes", {"name": "fcn", "hidden": [4]}
SHAPES = {
    "Camelyon16": Shape(
        (10_000, 2048), (12, 8), "classify", ("normal", "tumour"), {"name": f"{BAGS}:Bags"}, "bags"
    ),
    "LIDC-IDRI": Shape((1, 128, 128, 128), (1, 8, 8, 8), "segment", ("background", "nodule"), MASKS),
    "IXI": Shape((1, 48, 60, 48), (1, 6, 8, 6), "segment", ("background", "brain"), MASKS),
    "TCGA-BRCA": Shape((39,), (39,), "survival", (), {"name": "logreg"}),
    "KiTS2019": Shape((1, 64, 192, 192), (1, 4, 8, 8), "segment", ("background", "kidney", "tumour"), MASKS),
    "ISIC2019": Shape((3, 200, 200), (3, 16, 16), "classify", tuple("abcdefgh"), {"name": "small_cnn"}),
    "Heart-Disease": Shape((13,), (13,), "classify", ("no", "yes"), {"name": "logreg"}),
}


def simulate(shape: Shape, each: int, folder: Path) -> fa.Audit:
    """Trained here and audited, from one file of arrays."""
    rng, file = np.random.default_rng(1), folder / "arrays.npz"
    (x, y), (own, labels) = (shape.draw(n * each, rng) for n in (CLIENTS, 2))
    names = {"classes": np.array(shape.names)} if shape.names and shape.task != "classify" else {}
    np.savez(file, x_train=x, y_train=y, x_test=own, y_test=labels, **names)
    dataset = {"name": "npz", "path": str(file), "task": shape.task, "layout": shape.layout}
    federation = {"dataset": dataset, "clients": CLIENTS, "partition": "iid", "model": dict(shape.model)}
    settings = {
        "title": "A federation of invented examples",
        "federation": federation | {"holdout": {"auxiliary": 0.25, "reference": 0.25}},
        "method": {"name": "fedavg", "rounds": 2, "local_epochs": 2, "batch_size": 10, "lr": 0.1},
        "record": "all",
        "attacks": list(ATTACKS),
        "report": ["json"],
        "workers": 0,
    }
    return fa.run(settings, out=folder / "simulated", trust_plugins=True)


def write(shape: Shape, each: int, folder: Path) -> dict[str, Any]:
    """Two rounds of FedAvg elsewhere, what its clients hold, and what its operator states."""
    rng = np.random.default_rng(2)
    parts, own = [shape.draw(each + k, rng) for k in range(CLIENTS)], shape.draw(2 * each, rng)  # numbers differ
    net, order = initialise(shape.build, Streams(0)), torch.Generator().manual_seed(3)
    for t in range(2):
        start, uploads = state_of(net), []
        write_message(
            folder / "inbox", f"{t}/down", t, "downlink", "server", ["client"], sent("global_model", start)
        )
        for k, (x, y) in enumerate(parts):
            net.load_state_dict(start)
            optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
            for batch in [b for _ in range(3) for b in torch.randperm(len(y), generator=order).split(10)]:
                optimiser.zero_grad()
                torch.autograd.backward(net.loss(torch.from_numpy(x)[batch], torch.from_numpy(y)[batch]))
                optimiser.step()
            uploads.append(state_of(net))
            kinds = sent("local_model", uploads[-1]) | {"num_examples": {"count": np.int64(len(y))}}
            write_message(folder / "inbox", f"{t}/{k}", t, "uplink", f"client/{k}", ["server"], kinds)
        weights = torch.tensor([len(y) for _, y in parts], dtype=torch.float32)
        mean = {
            n: torch.tensordot(weights / weights.sum(), torch.stack([u[n] for u in uploads]), 1) for n in start
        }
        net.load_state_dict(mean)
    record_truth(folder, parts, own)
    others = {f"client-{k}": shape.draw(each, rng) for k in range(CLIENTS)}
    write_truth(folder / "heldout", others)
    (folder / "heldout" / "truth").rename(folder / "truth" / "heldout")
    return {
        "title": "A federation of invented examples",
        "examples": {"shape": list(shape.shape), "classes": list(shape.names), "task": shape.task},
        "model": dict(shape.model),
        "method": {"name": "fedavg", "rounds": 2, "local_epochs": 3, "batch_size": 10, "lr": 0.1},
    }


def sent(kind: str, state: Any) -> dict[str, Any]:
    return {kind: {n: v.numpy() for n, v in state.items()}}


def bring_in(folder: Path, subject: Any, attacks: Sequence[str]) -> tuple[RunDir, Config, Any]:
    settings = {"attacks": list(attacks), "report": ["json"], "workers": 0}
    config = validate(Config, settings | {"subject": subject}, "test")
    run, config = RunDir.create(folder / "run"), config.set_origin(Origin(trust=True))
    sources = ImportSources(inbox=folder / "inbox", subject=folder / "x", truth=folder / "truth")
    return run, config, bring(run.path, config, sources, lambda *_: None)


def attack(shape: Shape, each: int) -> fa.AttackResult:
    """A model of theirs, handed over with examples that it was trained on and others."""
    rng, net = np.random.default_rng(3), initialise(shape.build, Streams(0))
    (x, y), others = (shape.draw(each, rng) for _ in range(2))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(20):
        optimiser.zero_grad()
        torch.autograd.backward(net.loss(torch.from_numpy(x), torch.from_numpy(y)))
        optimiser.step()
    return fa.attack("loss_threshold", model=net, members=(x, y), nonmembers=others, task=shape.task)


def answer(result: AuditResult) -> str:
    """How membership and exact records stand, by whom."""
    asked = {q.id: q for q in result.questions}
    return ", ".join(f"{asked[i].state} ({asked[i].hits} of {asked[i].tested})" for i in ASKED if i in asked)


ASKED = ("membership.server", "exact_record.server")


def take_all(name: str, each: int, folder: Path) -> str:
    """A line of the table: answers, and seconds of the three."""
    shape, told = SHAPES[name], list[str]()

    def timed(work: Callable[[], str]) -> None:
        began = time.perf_counter()
        told.append(f"{work()}, {time.perf_counter() - began:.0f} s")

    def imported() -> str:
        run, config, found = bring_in(folder, write(shape, each, folder), ATTACKS)
        wrong = [c.title for c in found.checks if c.status == "contradicted"]
        execute(run, config, ["attack", "account", "score"], lambda *_: None, skip_finished=False)
        return f"{len(wrong)} contradicted, " + answer(read_result(run.path))

    timed(lambda: answer(simulate(shape, each, folder).result))
    timed(imported)
    timed(lambda: f"AUC {attack(shape, each).evidence[0].value:.2f}")
    return f"| {name} | {list(shape.theirs)} | {list(shape.shape)} | {' | '.join(told)} |"


if __name__ == "__main__":
    for name in sys.argv[1:] or SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            print(take_all(name, 40, Path(folder)), flush=True)
