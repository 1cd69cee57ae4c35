"""Does a member of its family beat the attacker who chooses among them: python -m benchmarks.strength.family.

Random pairs of a rule and a partition, with paired seeds: each attack meets the same clients, model and batches.
The attacker is named beforehand: adaptive, or adaptive_backdoor for a backdoor that is to succeed. Each pair
and seed leaves two files below --out, one of the members and one of the attacker, and what is there is not run
again: the same command goes on where it was stopped. Members 15 points milder than the attacker with the first
two seeds do not meet the other three. What an attack costs is counted from the same clients sending the honest
mean, which does nothing, in the round in which it costs most. Prints a line a pair, with the member that did most
harm; exits with 1 where one did more than three points more, or where a backdoor cost more accuracy than it may
by over two standard errors.
"""

import argparse
import dataclasses
import json
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.poisoning.adaptive import FAMILY, write_whole
from fedaudit.audit.cli.show import print_table
from fedaudit.audit.settings import catalog
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.partition import OwnedLabels
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import initialise, state_of
from fedaudit.fl.models.mlp import MLP
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.wire.wire import Wire

Settings = Mapping[str, Any]
Scores = tuple[float, ...]  # accuracy after every round, and a backdoor's success after the last

SEED, SEEDS = 32, (1, 2, 3, 4, 5)
CLIENTS, MALICIOUS, ROUNDS = 10, 2, 5
IMAGES, ALL = 500, 1437  # of digits; on the few of two clients a loss of two points of accuracy is not seen
MOST = 0.03  # that a member may do more
FIRST, HOPELESS = 2, 0.15  # after so many seeds members that do so much less harm are out
LOSS = 0.02  # of accuracy, within which a backdoor's success counts
RULES: tuple[Any, ...] = (
    *(
        "mean",
        "median",
        "trimmed_mean",
        "krum",
        "multi_krum",
        "geometric_median",
        "centered_clipping",
        "norm_bound",
    ),
    *("dnc", "mda", "monna", "mean_around_median", "caf", "sign_guard", "fl_detector", "robust_learning_rate"),
    *("clipped_clustering", "deep_sight", "crfl", "flame", "foolsgold", "sign_majority", "capped_mean"),
    *({"name": "nnm", "rule": r} for r in ("trimmed_mean", "krum")),
    *({"name": "bucketing", "rule": r} for r in ("median", "krum")),
)
PARTITIONS: tuple[Any, ...] = (
    "iid",
    {"name": "n_class_exhaustive", "classes_per_client": 2},
    {"name": "dirichlet", "alpha": 0.3},
    {"name": "dirichlet", "alpha": 1.0},
)
IDLE: Settings = {"name": "alie", "z": 0.0}  # the honest mean
HEADER = (
    *("draw", "rule", "partition", "idle", "attacker", "worst member", "more harm (standard error)"),
    *("attacker costs", "member costs", "member", ""),
)


@dataclass(frozen=True)
class Contest:
    """An attacker who chooses, and what it chooses from."""

    attacker: Settings
    family: tuple[Settings, ...]
    draws: int
    place: int  # of its harm among the scores, from the end
    sign: int  # 1 where more of that is more harm
    loss: float = 1.0  # of accuracy in any round, within which harm counts
    images: int = IMAGES

    def compute_excess(self, means: Mapping[str, Scores], member: str) -> float:
        """How much more harm it did than the attacker; -1 where it lost more accuracy than both may."""
        idle, own, found = means[name(IDLE)], means[name(self.attacker)], means[member]
        if measure_loss(idle, found) > max(self.loss, measure_loss(idle, own)):
            return -1.0
        return self.sign * (found[self.place] - own[self.place])


CONTESTS: dict[str, Contest] = {
    "accuracy": Contest(
        attacker={"name": "adaptive"}, family=tuple(map(write_whole, FAMILY)), draws=60, place=-2, sign=-1
    ),
    "backdoor": Contest(
        attacker={"name": "adaptive_backdoor", "loss": LOSS},
        family=(
            *({"name": "backdoor", "scale": s} for s in (0.5, 1.0, 2.0, 5.0, 10.0, 20.0)),
            *({"name": "model_replacement", "constrain": c} for c in (False, True)),
            *({"name": n} for n in ("neurotoxin", "alternating_minimisation", "three_d_fed")),
        ),
        draws=20,
        place=-1,
        sign=1,
        loss=LOSS,
        images=ALL,
    ),
}


def draw_pairs() -> list[tuple[Settings, Settings]]:
    """All rules by all partitions, in a random order that stays."""
    pairs = [(write_whole(r), write_whole(p)) for r in RULES for p in PARTITIONS]
    return random.Random(SEED).sample(pairs, len(pairs))


@cache
def load_digits(images: int) -> Data:
    """So many training images, the first, and all that are tested on."""
    data: Data = catalog.load("datasets", "digits")().load()
    return dataclasses.replace(data, train=Arrays(x=data.train.x[:images], y=data.train.y[:images]))


def build(shelf: str, settings: Settings) -> Any:
    """A plugin; a rule that assumes a number of malicious clients is told the true one."""
    cls = catalog.load(shelf, settings["name"])
    assumed = {"f": MALICIOUS} if any(f.name == "f" for f in dataclasses.fields(cls.Config)) else {}
    return configure(cls, assumed | {k: v for k, v in settings.items() if k != "name"}, shelf)


def measure(pair: tuple[Settings, Settings], seed: int, attack: Settings, images: int = IMAGES) -> Scores:
    """What becomes of the model where the last clients carry out an attack, round by round."""
    data, streams = load_digits(images), Streams(seed)
    parts = build("partitions", pair[1]).split(OwnedLabels(data.train.y, 10), CLIENTS, streams.numpy("partition"))
    bad = range(CLIENTS - MALICIOUS, CLIENTS)
    cls = catalog.load("adversaries", attack["name"])
    own = {k: v for k, v in attack.items() if k != "name"}
    compromise = Compromise(configure(cls, {"clients": tuple(bad)} | own, "adversary"), frozenset(bad))
    method = FedAvg(FedAvg.Config(rounds=ROUNDS, local_epochs=1, batch_size=50, lr=0.5, weighting="uniform"))
    holdings = Holdings(data, parts, streams)
    make = partial(MLP, data.shape, 10, MLP.Config(hidden=(64,)))
    with workers.start(0, partial(build_site, method, holdings, make, "cpu", None, compromise)) as pool:
        federation = Federation(
            holdings=holdings,
            initial=state_of(initialise(make, streams)),
            availability=catalog.load("availability", "full")(),
            wire=Wire(method.card, streams),
            workers=pool,
            aggregator=build("aggregators", pair[0]),
            compromise=compromise,
        )
        method.run(federation)
    rounds = federation.history
    return (*(float(r["accuracy"]) for r in rounds), float(rounds[-1].get("asr", 0.0)))


def measure_loss(idle: Scores, other: Scores) -> float:
    """Accuracy in the round in which most of it is lost."""
    return max(a - b for a, b in zip(idle[:-1], other[:-1], strict=True))


def name(settings: Settings) -> str:
    """As a row says it: min_max direction=sd."""
    return " ".join([settings["name"], *(f"{k}={v}" for k, v in settings.items() if k != "name")])


def read_or_measure(
    file: Path, attacks: Sequence[Settings], pair: tuple[Settings, Settings], seed: int, images: int
) -> dict[str, Scores]:
    """By attack; those that the file lacks are run."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if missing := [a for a in attacks if name(a) not in known]:
        known |= {name(a): measure(pair, seed, a, images) for a in missing}
        durable.write(file, json.dumps(known, indent=1).encode())
    return {name(a): tuple(known[name(a)]) for a in attacks}


@dataclass(frozen=True)
class Result:
    """One pair: means over its seeds."""

    means: Mapping[str, Scores]  # by attack
    worst: str  # of the members
    excess: float  # of its harm over the attacker's
    error: float  # standard error of that over the seeds
    beyond: float  # of the round it is most in: the attacker's loss over what it may be, less two standard errors

    @property
    def verdict(self) -> str:
        """Empty where the attacker keeps what it promises."""
        return "BEATEN" * (self.excess > MOST) or "COSTLY" * (self.beyond > 0)


def compare(aim: str, number: int, out: Path, seeds: Sequence[int] = SEEDS) -> Result:
    """The attacker beside its family on the pair of that number."""
    contest, pair = CONTESTS[aim], draw_pairs()[number]
    family, found = contest.family, list[dict[str, Scores]]()
    for seed in seeds:
        whose = {"family": family, "attacker": (IDLE, contest.attacker)}
        files = {w: out / aim / f"{number:02}-{seed}-{w}.json" for w in whose}
        members, chosen = (read_or_measure(files[w], whose[w], pair, seed, contest.images) for w in whose)
        found.append(members | chosen)
        if len(found) == FIRST:
            means = average(found)
            excess = {name(m): contest.compute_excess(means, name(m)) for m in family}
            least = min(-HOPELESS, max(excess.values()))
            family = tuple(m for m in family if excess[name(m)] >= least)
    means = average(found)
    worst = max(map(name, family), key=lambda m: contest.compute_excess(means, m))
    gaps = [f[worst][contest.place] - f[name(contest.attacker)][contest.place] for f in found]
    losses = np.array([np.subtract(f[name(IDLE)], f[name(contest.attacker)])[:-1] for f in found])
    beyond = max(float(np.mean(x)) - 2 * compute_error(x) - contest.loss for x in losses.T)
    return Result(means, worst, contest.compute_excess(means, worst), compute_error(gaps), beyond)


def compute_error(values: Sequence[float] | NDArray[np.float64]) -> float:
    """The standard error of their mean."""
    return float(np.std(values, ddof=1) / np.sqrt(np.size(values)))


def average(found: Sequence[Mapping[str, Scores]]) -> dict[str, Scores]:
    """Means over seeds, of the attacks that all of them met."""
    return {a: tuple(np.mean([f[a] for f in found], axis=0).tolist()) for a in found[-1]}


def write_row(number: int, pair: tuple[Settings, Settings], contest: Contest, r: Result) -> tuple[str, ...]:
    """As HEADER says, in points."""
    scores = [r.means[a] for a in (name(IDLE), name(contest.attacker), r.worst)]
    shown = [f"{100 * s[contest.place]:.1f}" for s in scores]
    losses = [f"{100 * measure_loss(scores[0], s):.1f}" for s in scores[1:]]
    excess = f"{100 * r.excess:+.1f} ({100 * r.error:.1f})" if r.excess > -1 else "none is allowed"
    return (str(number), *map(name, pair), *shown, excess, *losses, r.worst, r.verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--aim", choices=list(CONTESTS), default="accuracy", help="what the attacker is after")
    parser.add_argument("--pairs", type=int, nargs="+", help="some of them; 0 to 59, or 19 for a backdoor")
    parser.add_argument(
        "--out", type=Path, default=Path("runs/family"), help="folder of the results; runs/family"
    )
    given = parser.parse_args()
    contest, rows = CONTESTS[given.aim], []
    with workers.one_thread():
        for number in given.pairs or range(contest.draws):
            pair = draw_pairs()[number]
            rows.append(write_row(number, pair, contest, compare(given.aim, number, given.out)))
            print("\t".join(rows[-1]), file=sys.stderr, flush=True)
    print_table(HEADER, rows)
    beaten, costly = (sum(row[-1] == word for row in rows) for word in ("BEATEN", "COSTLY"))
    print(f"{beaten} of {len(rows)} attackers are beaten by over {100 * MOST:.0f} points, {costly} cost too much")
    raise SystemExit(beaten + costly > 0)


if __name__ == "__main__":
    main()
