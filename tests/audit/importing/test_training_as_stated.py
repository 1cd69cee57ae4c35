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
from fedaudit.audit.importing.replay import LEVEL, Changes, _compare, _measure
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.fl.families.adapters import LoRALinear, attach
from fedaudit.reports.imported import ImportRecord
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
        settings = {"subject": stated, "attacks": [], "report": ["json"], "workers": 0}
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
    is_mean = seed // 8 % 2 == 1
    given = {"epochs": 2, "lr": lr, "optimiser": optimiser, "serve": average if is_mean else FedAdam()}
    rounds, final = federate(make, parts, rounds=2, **given | changed)
    record(folder, rounds, final)
    method = {"name": "fedavg", "rounds": 2, "local_epochs": 2, "batch_size": 10, "lr": lr} | settings
    subject = {
        "model": f"nets:{make.__name__}",
        "method": method,
        "aggregation": "samples" if is_mean else "other",
    }
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


def states(found: ImportRecord) -> dict[str, str]:
    return {id: check(found, id).status for id in ("training", "fit", "aggregate")}


def count(seen: list[bool]) -> str:
    low, high = scipy.stats.binomtest(sum(seen), len(seen)).proportion_ci(0.95, "exact")
    return f"{sum(seen)} of {len(seen)} ({low:.1%} to {high:.1%})"


def make_plays(seed: int, **longer: float) -> list[list[Changes]]:
    """Changes of 8 uploads, the recorded one first and 4 plays: running statistics of 1,000, weights of one."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(8):
        plays = [{"mean": rng.normal(0, 1000, 16), "w": rng.normal(0, 1, 300)} for _ in range(5)]
        found.append([{n: v * longer.get(n, 1.0) for n, v in plays[0].items()}, *plays[1:]])
    return found


@pytest.mark.parametrize("times", [1e-4, 0.7, 1.5, 1e4])
def test_an_array_is_not_drowned_by_longer_ones(times: float) -> None:
    found = _compare([_measure(one) for one in make_plays(1, w=times)])
    assert found.chance <= LEVEL and found.words.endswith("most of all in w")


def test_of_500_records_that_are_plays_few_are_remarkable() -> None:
    found = [_compare([_measure(one) for one in make_plays(seed)]).chance for seed in range(500)]
    assert sum(p <= LEVEL for p in found) <= 4 and 30 <= sum(p <= 0.1 for p in found) <= 70


def test_plays_that_differ_by_the_order_of_sums_alone_are_one_play() -> None:
    rng = np.random.default_rng(0)
    change, still = rng.normal(0, 1, 100), np.zeros(16)

    def play(error: float) -> Changes:
        return {"w": change + error * rng.normal(size=100), "b": still + 1e-9 * error * rng.normal(size=16)}

    elsewhere = [[play(1e-5), *(play(1e-8) for _ in range(4))] for _ in range(8)]
    assert _compare([_measure(one) for one in elsewhere]).chance > 0.5
    other_rate = [[{n: 1.02 * v for n, v in play(1e-8).items()}, *one[1:]] for one in elsewhere]
    assert _compare([_measure(one) for one in other_rate]).chance <= LEVEL


def test_what_is_not_finite_is_like_nothing() -> None:
    tables = [_measure(one) for one in make_plays(1)]
    assert _compare([None, *tables[1:]]).chance == 0.0


@pytest.mark.parametrize("seed", [1, 2])
def test_a_rate_of_1e_7_is_named_though_running_statistics_move_alike(seed: int, tmp_path: Path) -> None:
    found = FALSE["a rate of 1e-7"](run_federation(tmp_path, seed)).take_in(tmp_path)
    assert states(found)["training"] == "contradicted"


def test_training_holds_where_near_alternatives_would_have_been_noticed_and_names_them(tmp_path: Path) -> None:
    said = check(run_federation(tmp_path, 129).take_in(tmp_path), "training")
    assert said.status == "holds", said.text
    for other in (
        "twice the learning rate",
        "no momentum",
        "another order of classes",
        "values from -1 to 1",
        "dropout of 0.1",
    ):
        assert other in said.text.partition("noticed would have been")[2]


@pytest.mark.parametrize("lr", [1e-9, 0.0])
def test_training_that_changed_nothing_bears_nothing_out(lr: float, tmp_path: Path) -> None:
    federation = run_federation(tmp_path, 4, lr=lr)
    said = check(state_method(federation, lr=lr).take_in(tmp_path), "training")
    assert said.status == "open" and "not noticed: " in said.text, said.text


def test_an_alternative_that_diverges_would_have_been_noticed(tmp_path: Path) -> None:
    said = check(run_adapters(tmp_path, 3, 0.0, lr=0.4).take_in(tmp_path), "training")
    assert said.status != "contradicted" and "twice the learning rate" in said.text, said.text


@pytest.mark.parametrize("dropout", [0.075, 0.3])
def test_dropout_of_adapters_which_nobody_can_state_is_not_held_against_them(
    dropout: float, tmp_path: Path
) -> None:
    found = run_adapters(tmp_path, 3, dropout).take_in(tmp_path)
    assert states(found)["training"] != "contradicted", check(found, "training").text


def test_another_rate_of_adapters_is_named(tmp_path: Path) -> None:
    found = state_method(run_adapters(tmp_path, 3, 0.0), lr=0.1).take_in(tmp_path)
    assert states(found)["training"] == "contradicted", check(found, "training").text


@pytest.mark.parametrize("smallest", [1, 10])
def test_what_a_loader_does_with_the_last_batch_is_not_held_against_anybody(
    smallest: int, tmp_path: Path
) -> None:
    """26: a client of 71 has a batch of one, and running statistics of it; 10: smaller batches are left out."""
    found = run_federation(tmp_path, 26, smallest=smallest).take_in(tmp_path)
    assert states(found)["training"] != "contradicted", check(found, "training").text


@pytest.mark.parametrize(
    ("order", "status"),
    [([0, 1, 2, 8, 4, 5, 6, 7, 3, 9], "open"), ([1, 2, 3, 4, 5, 6, 7, 8, 9, 0], "contradicted")],
)
def test_an_order_of_labels_that_keeps_most_classes_does_not_hold(
    order: list[int], status: str, tmp_path: Path
) -> None:
    for folder, stated, wanted in (("a", list(range(10)), "holds"), ("b", order, status)):
        federation = run_federation(tmp_path / folder, 8)
        del federation.subject["method"]
        said = check(state_labels(federation, stated).take_in(tmp_path / folder), "fit")
        assert said.status == wanted, said.text


@pytest.mark.parametrize("value", [0.0, np.nan, np.inf, -1.0])
def test_a_forged_model_is_no_mean_whatever_the_counts_are(value: float, tmp_path: Path) -> None:
    parts = deal(0)
    rounds, final = federate(nets.Mlp, parts, rounds=2, epochs=1)
    forged = {n: 7 * v for n, v in final.items()}
    counts = {"count": np.float64(value) if value else np.int64(0)}
    record(tmp_path, rounds, forged, up=lambda _, u: {"local_model": u.state, "num_examples": counts})
    found = Federation(parts, {"model": "nets:Mlp"}).take_in(tmp_path)
    assert states(found)["aggregate"] != "holds", check(found, "aggregate").text


@pytest.mark.nightly
def test_of_honest_federations_few_are_accused(tmp_path: Path) -> None:
    """Sites of unlike size and scanner, BatchNorm, four optimisers, FedAdam; and adapters with dropout."""
    accused = []
    for seed in range(TIMES):
        found = states(run_federation(tmp_path / f"a{seed}", seed).take_in(tmp_path / f"a{seed}"))
        accused.append("contradicted" in found.values())
        found = states(run_adapters(tmp_path / f"b{seed}", seed, 0.075).take_in(tmp_path / f"b{seed}"))
        accused.append("contradicted" in found.values())
    print(f"accused: {count(accused)}")
    assert sum(accused) <= 3


@pytest.mark.nightly
@pytest.mark.parametrize("name", FALSE)
def test_one_false_statement_is_named_and_never_holds(name: str, tmp_path: Path) -> None:
    named = []
    for seed in range(12):
        found = states(FALSE[name](run_federation(tmp_path / str(seed), seed)).take_in(tmp_path / str(seed)))
        assert found["training"] != "holds"
        named.append("contradicted" in found.values())
    print(f"{name}: named in {count(named)}")
    assert sum(named) >= 9
