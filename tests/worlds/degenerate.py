"""Degenerate worlds: nothing, one, equal, empty, undefined. The truths were written before any was run.

Of each holds: no ready, bounded, holds or verified that its truth denies, and no accusation; what was not tried
is open. Those that ran elsewhere and were recorded stand in degenerate_records.py.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from sklearn.datasets import load_digits

from fedaudit import UserError
from fedaudit.attacks.models.output_scores import LossThreshold
from fedaudit.fl.data.partition import Index, OwnedLabels, Partition
from fedaudit.fl.runtime.settings import settings
from tests.worlds.degenerate_records import RECORDED
from tests.worlds.world import READY, TELLS_NOT, Bring, Truth, World, either, refused, runs, simulated

HERE = "tests.worlds.degenerate"


class Sizes(Partition):
    """Each client holds so many examples, whichever they are."""

    title, source = "So many each", ""

    @settings
    class Config:
        sizes: list[int] = Field(default_factory=lambda: [1], description="of each client")

    def split(self, labels: OwnedLabels, clients: int, rng: np.random.Generator) -> list[Index]:
        ends = np.cumsum(self.config.sizes)
        return np.split(rng.permutation(len(labels.y))[: ends[-1]].astype(np.int64), ends[:-1])

    def describe(self) -> str:
        return f"clients hold {self.config.sizes} examples"


class Fails(LossThreshold):
    """An attack of somebody's own that cannot do what it should."""

    def run(self, *given: Any) -> Any:
        raise UserError("the table of this attack has no row for this network", hint="bring a table that has one")


# ---- What is brought

FEW = ["example_numbers", "label_counts_from_update", "loss_threshold", "hidden_images", "analytic"]


def audit(
    data: Callable[[], tuple[Any, Any]] | None = None,
    federation: Mapping[str, Any] | None = None,
    method: Mapping[str, Any] | None = None,
    attacks: Any = FEW,
    **config: Any,
) -> Bring:
    """Three clients with a small network, who all answer in two rounds, and a few attacks; or what is said."""
    who = {"dataset": "digits", "clients": 3, "model": {"name": "mlp", "hidden": [8]}, "availability": "full"}
    how = {"name": "fedavg", "rounds": 2, "local_epochs": 1, "batch_size": 20, "lr": 0.1}
    every = {"record": "all", "attacks": attacks}
    limit = {} if data else {"limit": 500}
    given = {"federation": who | limit | dict(federation or {}), "method": how | dict(method or {})}
    return simulated(data, **given, **(every | config))


def sized(*sizes: int, **more: Any) -> dict[str, Any]:
    """A federation of clients with so many examples each."""
    return {"clients": len(sizes), "partition": {"name": f"{HERE}:Sizes", "sizes": list(sizes)}, **more}


def digits(count: int = 400) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images [N, 1, 8, 8] from 0 to 1, and the digits on them."""
    found = load_digits()
    return (found.images[:count, None] / 16).astype(np.float32), found.target[:count].astype(np.int64)


def images(change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[], tuple[Any, Any]]:
    return lambda: (change(digits()[0].copy()), digits()[1])


def labels(change: Callable[[NDArray[Any]], NDArray[Any]]) -> Callable[[], tuple[Any, Any]]:
    return lambda: (digits()[0], change(digits()[1].copy()))


def blank_one(x: NDArray[Any]) -> NDArray[Any]:
    x[0] = 0
    return x


def one_pixel() -> tuple[Any, Any]:
    """Images of one pixel, no two alike."""
    return np.random.default_rng(4).random((400, 1, 1, 1), np.float32), digits()[1]


def without_class_5() -> tuple[Any, Any]:
    """Nobody who is trained on is of class 5; of those who are tested some are."""
    x, y = digits()
    order = np.argsort(y == 5, kind="stable")
    return x[order], y[order]


# ---- What would be wrong

# Of few attacks: most of the panel was left out, so nothing that it bounds is bounded
UNTRIED = (
    READY,
    "clear exact_record.*",
    "clear reconstruction.*",
    "clear membership.server",
    "clear attribute.server",
    "bounded membership.server",
    "bounded reconstruction.*",
)
# Nobody can be told from anybody: whoever is said to be hit was not
NOBODY = tuple(
    f"{word} {of}"
    for word, of in [
        ("exposed", "exact_record.*"),
        ("exposed", "reconstruction.*"),
        ("exposed", "membership.*"),
        ("exposed", "diffuse_membership.*"),
        ("hit", "loss_threshold"),
        ("hit", "hidden_images"),
        ("hit", "analytic"),
    ]
)
FEW_PEOPLE = ("example", "people", "image")
ALIKE = ("no training examples", "members too", "equal", "alike", "same", "left", "twice", "blank")


def few(*false: str, says: tuple[str, ...] = ()) -> Truth:
    """It runs, and leaves open what few attacks leave open."""
    return runs(false=(*UNTRIED, *false), says=says)


SIMULATED: dict[str, World] = {
    # The other clients are nobody: no other client learns anything
    "one client": World(audit(federation={"clients": 1}), few("exposed *.client", "hit linkage*")),
    "one client, every attack": World(
        audit(federation={"clients": 1}, attacks="auto"), runs(false=(READY, "exposed *.client"))
    ),
    "all but one empty": World(audit(federation=sized(200, 0, 0, 0)), few()),
    "all but one empty, every attack": World(
        audit(federation=sized(200, 0, 0, 0), attacks="auto"), runs(false=(READY,))
    ),
    "Dirichlet that leaves most empty": World(
        audit(federation={"clients": 12, "partition": {"name": "dirichlet", "alpha": 0.001}}), few()
    ),
    # One step on one image: the change of the first layer is the image
    "two clients of one example": World(
        audit(federation=sized(1, 1)), either(*FEW_PEOPLE, false=(*UNTRIED, "clear *.server"))
    ),
    "two clients of one example, every attack": World(
        audit(federation=sized(1, 1), attacks="auto"),
        either(*FEW_PEOPLE, false=(READY, "clear reconstruction.server")),
    ),
    # What class somebody is of can be told without a message
    "one class": World(
        audit(labels(lambda y: 0 * y), attacks="auto"),
        either(
            "one class", "label", "classes", false=(READY, "exposed attribute.*", "hit label_counts_from_update")
        ),
    ),
    "every client another single class": World(
        audit(federation={"clients": 10, "partition": {"name": "n_class_extreme", "classes_per_client": 1}}),
        few("clear client_fact.server"),
    ),
    "labels that are no numbers": World(
        audit(labels(lambda y: y + np.float32("nan"))), refused("label", "y_train", "NaN", "number")
    ),
    # Nothing is learnt where no step is taken; the numbers of examples are sent
    "a model that never changes": World(audit(method={"lr": 1e-30}), few(*NOBODY)),
    "one blank image": World(audit(images(blank_one)), few("exposed exact_record.*", "hit hidden_images")),
    "all images blank": World(
        audit(images(np.zeros_like), attacks="auto"), either(*ALIKE, false=(READY, *NOBODY))
    ),
    "all images equal": World(
        audit(images(lambda x: x[:1].repeat(len(x), 0)), attacks="auto"), either(*ALIKE, false=(READY, *NOBODY))
    ),
    "every image twice": World(
        audit(lambda: tuple(np.concatenate([a[:200]] * 2) for a in digits())),  # type: ignore[arg-type, return-value]
        either(*ALIKE, false=UNTRIED),
    ),
    # Where no client answered in any round, the word is "cannot tell"
    "nobody answers": World(
        audit(federation={"availability": {"name": "bernoulli", "p": 0.0}, "empty_round": "skip"}),
        either("answer", "p:", ".p", false=(READY, "clear *", "exposed *", "hit *"), says=TELLS_NOT),
    ),
    "every reply is lost": World(
        audit(federation={"failures": {"reply_loss": 1.0}, "empty_round": "skip"}),
        either("reply_loss", "answer", "lost", false=(READY, "clear *", "exposed *", "hit *"), says=TELLS_NOT),
    ),
    "one round": World(audit(method={"rounds": 1}, attacks="auto"), runs(false=(READY,))),
    "no round": World(
        audit(method={"rounds": 0}), either("rounds", false=(READY, "clear *", "exposed *", "hit *"))
    ),
    # There is an upper limit only of an attack on every round
    "rounds of which one was recorded": World(
        audit(method={"rounds": 3}, record=[1], attacks="auto", budget=0.3),
        runs(
            false=(READY, "bounded membership.server", "bounded exact_record.server", "bounded membership.public")
        ),
    ),
    "messages of which none was recorded": World(
        audit(record=[]), either("kinds", "record", false=(*UNTRIED, "clear *", "exposed *", "hit *"))
    ),
    "held-out people: none": World(
        audit(federation={"holdout": {"auxiliary": 0.2, "reference": 0.0}}),
        either("reference", "held", false=UNTRIED),
    ),
    "people of the attacker's own: none": World(
        audit(federation={"holdout": {"auxiliary": 0.0, "reference": 0.2}}), either("auxiliary", false=UNTRIED)
    ),
    "everybody is held out": World(
        audit(federation={"holdout": {"auxiliary": 0.5, "reference": 0.5}}),
        either("holdout", "auxiliary", "left", "reference", false=(READY, "clear *", "exposed *", "hit *")),
    ),
    "attacks that all fail": World(
        audit(attacks=[f"{HERE}:Fails"]),
        runs(false=(READY, "clear *", "bounded *", "exposed *", "hit *"), says=TELLS_NOT),
    ),
    "no attack": World(audit(attacks=[]), few("exposed *", "clear *", says=TELLS_NOT)),
    "a budget of a third of a second": World(
        audit(attacks="auto", budget=0.005),
        few(says=("open exact_record.server", "open reconstruction.server", "open membership.server")),
    ),
    "a class without rows": World(audit(without_class_5), either("class 5", "y_test", false=UNTRIED)),
    # A pixel of one image stands in every message
    "one feature": World(
        audit(one_pixel, attacks="auto"),
        either(
            "shape", "pixel", "image", "feature", false=(READY, "exposed exact_record.*", "hit hidden_images")
        ),
    ),
    "one client of many beside nine of ten": World(audit(federation=sized(300, *[10] * 9)), few()),
    "batches larger than any client": World(audit(method={"batch_size": 100_000}), few()),
    # Nothing of theirs crossed, and no attack looked at it
    "a protection that sends nothing": World(
        audit(
            method={"name": "fedproto"},
            attacks="auto",
            protections=[{"name": "prototype_threshold", "least": 100_000}],
        ),
        either("prototype", "least", false=(READY, "exposed *", "hit *")),
    ),
    "prototypes of which none is sent": World(
        audit(
            method={"name": "rebafl"},
            attacks="auto",
            protections=[{"name": "prototype_threshold", "least": 100_000}],
        ),
        runs(false=(READY, "hit prototype_membership", "hit lookup", "hit count_recovery", "hit class_list")),
    ),
    "clients that share no example": World(
        audit(federation=sized(1, 2, 2, 2), method={"name": "data_sharing"}, attacks="auto"), runs(false=(READY,))
    ),
    "counts that are sent before any model": World(
        audit(method={"name": "astraea"}, attacks="auto"), runs(false=(READY,))
    ),
    "a method whose models are withheld": World(
        audit(protections=[{"name": "withhold", "kinds": ["local_model"]}]), refused("local_model", "withhold")
    ),
    "all participants are malicious": World(
        audit(adversary={"name": "sign_flip", "clients": 3}),
        either("clients", "honest", "malicious", false=UNTRIED),
    ),
    "a matrix in which all are malicious": World(
        audit(matrix={"adversaries": ["sign_flip"], "aggregators": ["median"], "malicious": [3]}),
        either("malicious", "clients", false=UNTRIED),
    ),
    "a matrix of one client": World(
        audit(federation={"clients": 1}, matrix={"adversaries": ["sign_flip"], "malicious": [1]}),
        either("malicious", "clients", "matrix", false=UNTRIED),
    ),
    "absence of the only client": World(
        audit(federation={"clients": 1}, matrix={"availabilities": [{"name": "bernoulli", "p": 0.5}]}),
        either("matrix", "client", false=UNTRIED),
    ),
    "options of one client": World(
        audit(federation={"clients": 1}, variants="auto"), few("exposed *.client", "hit linkage*")
    ),
    "one test image": World(audit(federation={"limit": [None, 1]}), few()),
    # The sum of one upload is that upload
    "secure sums of one client": World(
        audit(federation={"clients": 1}, protections=["secure_aggregation"], attacks="auto"),
        either("secure", "sum", "one client", "clients", false=(READY,)),
    ),
    "secure sums of one client that holds anything": World(
        audit(federation=sized(100, 0, 0), protections=["secure_aggregation"], attacks="auto"),
        either("secure", "sum", "one client", "clients", false=(READY, "clear membership.server")),
    ),
    "noise for nobody": World(
        audit(
            federation={"failures": {"reply_loss": 1.0}, "empty_round": "skip"},
            protections=[{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1.0}],
        ),
        either("reply_loss", "lost", false=(READY, "clear *", "exposed *", "hit *"), says=TELLS_NOT),
    ),
    "the noise of one client": World(
        audit(
            federation={"clients": 1},
            method={"weighting": "uniform"},
            protections=[{"name": "central_dp", "noise_multiplier": 1.0}],
            attacks="auto",
        ),
        either("central_dp", "clients", "expected", false=(READY, "refuted *", "hit *", "exposed *.client")),
    ),
    "private steps on one example each": World(
        audit(
            federation=sized(1, 1, 1), protections=[{"name": "dp_sgd", "clip_norm": 1.0, "noise_multiplier": 1.0}]
        ),
        either("dp_sgd", "example", "batch", false=(READY, "refuted *")),
    ),
    # Noise that costs more than any limit says
    "noise of nothing": World(
        audit(protections=[{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 1e-9}]),
        either("noise_multiplier", false=(*UNTRIED, "verified bound of public")),
    ),
}

DEGENERATE: dict[str, World] = {**SIMULATED, **RECORDED}
