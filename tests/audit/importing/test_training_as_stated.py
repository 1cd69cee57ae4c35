"""Training as stated and labels: honest federations are not accused, and one false statement is named."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy
import torch
import yaml
from safetensors.numpy import save_file
from torch import Tensor, nn

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.replay import LEVEL, Way, _compare
from fedaudit.audit.phases.import_inbox import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.families.adapters import LoRALinear, attach
from fedaudit.reports.imported import CheckedStatement, ImportRecord
from tests.attacks.world import digits
from tests.audit.importing import nets
from tests.audit.importing.inboxes import Examples, FedAdam, average, federate, record, record_truth, start
from tests.audit.importing.theirs import check

TIMES = 60  # federations of each sort that are counted
CLASSES = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]
ADAPTERS = {"rank": 4, "alpha": 8.0, "targets": ["hidden"], "in_full": ["head"]}
OPTIMISERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], float, dict[str, Any]]] = {
    "sgd": (torch.optim.SGD, 0.1, {}),
    "momentum": (partial(torch.optim.SGD, momentum=0.9), 0.02, {"momentum": 0.9}),
    "adam": (torch.optim.Adam, 0.003, {"optimiser": "adam"}),
    "adamw": (partial(torch.optim.AdamW, weight_decay=0.01), 0.003, {"optimiser": "adamw", "weight_decay": 0.01}),
}


class Federation(NamedTuple):
    """What trained, and what is stated of it."""

    parts: list[Examples]  # as they are stated
    subject: dict[str, Any]
    base: Path | None = None

    def take_in(self, folder: Path) -> ImportRecord:
        record_truth(folder, self.parts, self.parts[0])
        named = yaml.safe_load(write_first_subject(folder / "inbox", folder / "truth"))
        named["examples"] |= {"classes": CLASSES, "shape": [1, 8, 8]} | self.subject.get("examples", {})
        stated = named | {"clients": len(self.parts)} | self.subject | {"examples": named["examples"]}
        settings = {"case": "recorded", "subject": stated, "attacks": [], "report": ["json"], "workers": 0}
        config = validate(Config, settings, "test").set_origin(Origin(trust=True))
        inbox, here = folder / "inbox", Path(__file__).parent
        sources = ImportSources(inbox=inbox, subject=here / "x", truth=folder / "truth", base=self.base)
        return bring(RunDir.create(folder / "run").path, config, sources, lambda *_: None)


def deal(seed: int, clients: int = 5, shift: float = 1.0) -> list[Examples]:
    """Digits to sites of 20 to 110 examples, each with a scanner of its own: x ** gamma."""
    rng = np.random.default_rng([3, seed])
    x, y = digits()
    order, parts = rng.permutation(len(y)), []
    for size in rng.integers(20, 111, clients):
        rows, order = order[:size], order[size:]
        parts.append((x[rows] ** np.float32(np.exp(shift * rng.normal(0, 0.5))), y[rows]))
    return parts


def run_federation(folder: Path, seed: int, **changed: Any) -> Federation:
    """A federation of two rounds; what is stated of it is true."""
    parts, kind = deal(seed), [*OPTIMISERS][seed % 4]
    optimiser, lr, settings = OPTIMISERS[kind]
    make = (nets.Normed, nets.Mlp)[seed // 4 % 2]
    given = {"epochs": 2, "lr": lr, "optimiser": optimiser, "serve": (FedAdam(), average)[seed // 8 % 2]}
    rounds, final = federate(make, parts, rounds=2, **given | changed)
    record(folder, rounds, final)
    method = {"name": "fedavg", "rounds": 2, "local_epochs": 2, "batch_size": 10, "lr": lr} | settings
    subject = {"model": f"nets:{make.__name__}", "method": method, "aggregation": "other"}
    return Federation(parts, subject)


def make_adapted(dropout: float) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = attach(nets.Mlp(), 4, 8.0, ["hidden"], ["head"])  # type: ignore[type-var]
    for layer in (m for m in net.modules() if isinstance(m, LoRALinear)):
        layer.lora_A.register_forward_pre_hook(partial(drop, dropout))
    return net


def drop(share: float, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return nn.functional.dropout(inputs[0], share, module.training)


def run_adapters(folder: Path, seed: int, dropout: float, lr: float = 0.2) -> Federation:
    """A federation of adapters, whose dropout nothing states."""
    parts = deal(seed)
    rounds, final = federate(partial(make_adapted, dropout), parts, rounds=2, epochs=2, lr=lr)
    record(
        folder,
        rounds,
        final,
        up=lambda _, u: {"adapter": u.state, "num_examples": {"count": np.int64(u.examples)}},
    )
    base = {n: np.array(v) for n, v in start(nets.Mlp).items()}
    save_file(base, folder / "base.safetensors")
    method = {"name": "fedlora", "rounds": 2, "local_epochs": 2, "batch_size": 10, "lr": lr}
    stated = {"model": "nets:Mlp", "method": method, "adapters": ADAPTERS, "base": "hospital/mlp"}
    return Federation(parts, stated, folder / "base.safetensors")


def state_method(federation: Federation, **changes: Any) -> Federation:
    return federation._replace(subject=federation.subject | {"method": federation.subject["method"] | changes})


def state_labels(federation: Federation, order: list[int]) -> Federation:
    return federation._replace(parts=[(x, np.array(order)[y]) for x, y in federation.parts])


def state_other_optimiser(federation: Federation) -> Federation:
    is_sgd = federation.subject["method"].get("optimiser", "sgd") == "sgd"
    other = {"optimiser": "adam", "lr": 0.003, "momentum": 0.0} if is_sgd else {"optimiser": "sgd", "lr": 0.1}
    return state_method(federation, **other)


def state_other_model(federation: Federation) -> Federation:
    name = federation.subject["model"].removeprefix("nets:")
    return federation._replace(subject=federation.subject | {"model": f"nets:{name}Tanh"})


FALSE: dict[str, Callable[[Federation], Federation]] = {
    "a rate of 1e-7": lambda f: state_method(f, lr=1e-7),
    "half the rate": lambda f: state_method(f, lr=f.subject["method"]["lr"] / 2),
    "1.5 times the rate": lambda f: state_method(f, lr=f.subject["method"]["lr"] * 1.5),
    "another optimiser": state_other_optimiser,
    "three epochs for two": lambda f: state_method(f, local_epochs=3),
    "two classes exchanged": lambda f: state_labels(f, [0, 1, 2, 8, 4, 5, 6, 7, 3, 9]),
    "all classes moved by one": lambda f: state_labels(f, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]),
    "another normalisation": lambda f: f._replace(
        subject=f.subject | {"examples": {"mean": [0.5], "std": [0.5]}}
    ),
    "another activation": state_other_model,
}


def judge(found: ImportRecord) -> dict[str, CheckedStatement]:
    return {id: check(found, id) for id in ("training", "fit")}


def count(states: list[bool]) -> str:
    low, high = scipy.stats.binomtest(sum(states), len(states)).proportion_ci(0.95, "exact")
    return f"{sum(states)} of {len(states)} ({low:.1%} to {high:.1%})"
