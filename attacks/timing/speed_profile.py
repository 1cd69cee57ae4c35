"""Speed profile: how fast each client's device is and how much data it holds, from the server's own clock.

The server sees when an answer comes and how large it is, whatever the method sends. By the simulated clock
(FreezeFL) a client of capability kappa and n examples answers after

    t = (A + B n) / kappa,    A = (MB down + MB up) / bandwidth,  B = seconds of training an example / compute

where A and B follow from the sizes, the published network and what the client trained (how many layers it
froze, how wide its network was). A client that says n gives kappa = (A + B n) / t. One that does not gives both
from two answers with different work: n = (t' A - t A') / (t B' - t' B), by least squares where there are more.
Of a client whose answers are all alike only its speed against the median client's is known. Without any times,
the number of frozen layers orders the devices: whoever froze some was slower than the deadline.

Blind adversaries: the commonest class of devices, and the median client's number of examples. The planted leak
is two exchanges of each client without any jitter, and its note says what jitter leaves of it; the negative
control shuffles the claims over the clients.

Claim, a row a client: client, speed (kappa, or relative), device (place of the class among `tiers`, -1 not
known), size (NaN not known), how (text); tiers [m]; work [2, 2]: A and B of two exchanges that differ.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Timing, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.assertions import by_client
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sources import sent_with
from fedaudit.attacks.evidence import Assertion, Baseline, Evidence
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
SAID = (Kind.FROZEN_COUNT, Kind.WIDTH, Kind.NUM_EXAMPLES, Kind.NUM_STEPS)
MEGABYTE = 2**20
DOSES = (0.05, 0.1, 0.2, 0.5)
TOLD, SOLVED, RATIO, FROZEN = "its number of examples is sent", "two kinds of work", "one kind of work", "layers"


class Exchange(NamedTuple):
    """One exchange of a client."""

    time: float
    exchange: float  # A
    training: float  # B
    examples: float  # NaN: not said


class SpeedProfile(Attack):
    card = Card(
        title="Speed and size of clients from the time they take",
        source="FreezeFL's time model, turned round; arithmetic",
        aim=Aim.LINKAGE,
        needs=(),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        requires=(),
        also_reads=(Kind.TASK_TIME, *SAID),
        aids=(Kind.WIDTH, Kind.NUM_EXAMPLES, Kind.NUM_STEPS),
        rounds="all",
        learns="how fast the device of each client is, and how many examples it holds",
        does_not_show="whose device it is, nor times of a real network: the clock is the simulation's",
        control="",  # planted in measure()
        remedy="have every client answer at the deadline and not before, round times up to a few steps, and "
        "send no numbers of examples",
        uncounted="it says how fast a device is and how much data a client holds, and of no message whose it is",
        effort=Effort(seconds=0.1, grows=("clients",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        timing = knowledge.timing
        heard = {} if timing is None else answers(view, timing)
        rows = {k: profile(found) for k, found in heard.items()}
        ratios = [k for k, (_, _, how) in rows.items() if how == RATIO]
        middle = float(np.median([rows[k][0] for k in ratios])) if ratios else 1.0
        rows |= {k: (rows[k][0] / middle, np.nan, RATIO) for k in ratios}
        rows = rows or frozen_alone(view)
        tiers = np.array([]) if timing is None else np.asarray(timing.tiers, np.float64)
        absolute = [how in (TOLD, SOLVED) and len(tiers) > 0 for _, _, how in rows.values()]
        speeds = np.array([speed for speed, _, _ in rows.values()])
        nearest = np.abs(speeds[:, None] - tiers).argmin(axis=1) if len(tiers) else np.zeros(len(rows), int)
        return {
            "client": np.array(list(rows), np.int64),
            "speed": speeds,
            "device": np.where(absolute, nearest, -1),
            "size": np.array([size for _, size, _ in rows.values()]),
            "how": np.array([how for _, _, how in rows.values()]),
            "tiers": tiers,
            "work": _two([a for found in heard.values() for a in found]),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        """What it says of each device: its speed among those published, or its place among all, and examples."""
        rank = (-claim["speed"]).argsort().argsort() + 1

        def describe(row: tuple[int, float, int]) -> str:
            device, size, place = row
            words = f"number {place} of {len(rank)} in speed"
            if device >= 0:
                words = f"a device of published speed {claim['tiers'][device]:g}"
            return words + (f", about {round(size):,} examples" if np.isfinite(size) else "")

        rows = zip(claim["device"].tolist(), claim["size"].tolist(), rank.tolist(), strict=True)
        return by_client(claim["client"], rows, describe, "how fast its device is, and how many examples it owns")

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        clients, tiers = claim["client"], claim["tiers"]
        speed = np.array([truth.capability(int(k)) for k in clients])
        size = np.array([truth.label_counts(int(k)).sum() for k in clients], np.float64)
        found: list[Evidence] = []
        if len(tiers):
            device = np.abs(speed[:, None] - tiers).argmin(axis=1)
            known = claim["device"] >= 0
            if known.any():
                found.append(_devices(claim["device"][known], device[known], "none", _ways(claim)))
            else:
                found.append(_devices(claim["device"], device, "none", "only the order of the devices is known"))
            found += _sizes(claim["size"], size)
            found += _order(claim["speed"], speed)
            planted, note = _plant_devices(claim["work"], speed, size, tiers, rng)
            found.append(_devices(planted, device, "positive", note))
            shuffled = rng.permutation(planted)
            found.append(_devices(shuffled, device, "negative", "times shuffled over the clients", shuffled))
            return found
        return _order(claim["speed"], speed)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        times = any(a.kind == Kind.TASK_TIME for a in view)
        if times and knowledge.timing is not None:
            return ""
        if len(frozen_alone(view)) < 3:
            return "the federation has no clock, so nobody sees how long a client takes"
        return ""


def answers(view: Sequence[Artifact], timing: Timing) -> dict[int, list[Exchange]]:
    """Every exchange that was timed, by client, in the order of the rounds."""
    view = index(view)
    found: dict[int, list[Exchange]] = {}
    for a in sorted(view.select(kind=Kind.TASK_TIME), key=lambda a: a.round):
        if a.sender.role != Role.CLIENT or a.sender.index is None:
            continue
        said = {kind: b.payload for kind in SAID if (b := sent_with(a, kind, view)) is not None}
        count = said.get(Kind.NUM_EXAMPLES)
        size = float(a.payload["bytes_down"]) + float(a.payload["bytes_up"])
        found.setdefault(a.sender.index, []).append(
            Exchange(
                float(a.payload["time"]),
                size / MEGABYTE / timing.bandwidth,
                timing.cost(said) / timing.compute,
                float("nan") if count is None else float(count["count"]),
            )
        )
    return found


def profile(found: Sequence[Exchange]) -> tuple[float, float, str]:
    """Capability and size (NaN) of a client, and how they are known; relative where its answers are alike."""
    rows = np.array(found)
    time, exchange, training, said = rows.T
    if np.isfinite(said).any():
        heard = np.isfinite(said)
        each = (exchange[heard] + training[heard] * said[heard]) / time[heard]
        return float(np.exp(np.log(each).mean())), float("nan"), TOLD
    matrix = np.stack([time, -training], axis=1)  # kappa t - n B = A
    scaled = matrix / np.abs(matrix).max(axis=0)
    if len(found) > 1 and np.linalg.cond(scaled) < 1e6:
        kappa, size = np.linalg.lstsq(scaled, exchange, rcond=None)[0] / np.abs(matrix).max(axis=0)
        if kappa > 0 and size > 0:
            return float(kappa), float(size), SOLVED
    return float(1 / np.exp(np.log(time).mean())), float("nan"), RATIO


def frozen_alone(view: Sequence[Artifact]) -> dict[int, tuple[float, float, str]]:
    """Clients ordered by how many layers they froze, without any times."""
    counts: dict[int, list[float]] = {}
    for a in view:
        if a.kind == Kind.FROZEN_COUNT and a.sender.index is not None:
            counts.setdefault(a.sender.index, []).append(float(a.payload["count"]))
    return {k: (-float(np.mean(n)), float("nan"), FROZEN) for k, n in sorted(counts.items())}


def _two(found: Sequence[Exchange]) -> Values:
    """A and B of two exchanges of different work; half the training where all are alike."""
    if not found:
        return np.array([[1.0, 1.0], [1.0, 0.5]])
    rows = np.array([(a.exchange, a.training) for a in found])
    most = rows[np.lexsort((rows[:, 0], rows[:, 1]))[-1]]
    least = rows[np.lexsort((rows[:, 0], rows[:, 1]))[0]]
    apart = not np.isclose(most[0] * least[1], most[1] * least[0])
    return np.stack([most, least if apart else most * (1.0, 0.5)])


def _plant_devices(
    work: Values, speed: Values, size: Values, tiers: Values, rng: np.random.Generator
) -> tuple[NDArray[np.int64], str]:
    """Devices found from two exchanges of each client without jitter, and what jitter leaves of it in words."""

    def devices(jitter: float) -> tuple[NDArray[np.int64], Values]:
        times = (work[:, :1] + work[:, 1:] * size) / speed * rng.lognormal(0, jitter, (2, len(speed)))
        both = [
            profile([Exchange(t, a, b, float("nan")) for t, (a, b) in zip(ts, work, strict=True)])
            for ts in times.T
        ]
        kappa, sizes = np.array([p[0] for p in both]), np.array([p[1] for p in both])
        return np.abs(kappa[:, None] - tiers).argmin(axis=1), np.abs(sizes - size) / size

    exact, error = devices(0.0)
    true = np.abs(speed[:, None] - tiers).argmin(axis=1)
    doses = ", ".join(f"{(devices(j)[0] == true).mean():.0%} at {j:g}" for j in DOSES)
    largest = float(np.nanmax(error, initial=0.0))
    return exact, (
        f"two exchanges of different work, times exact: sizes to {largest:.0e} of themselves; with jitter "
        f"devices known are {doses}"
    )


def _devices(
    said: NDArray[np.int64], true: NDArray[np.int64], control: Any, note: str, shuffled: Any = None
) -> Evidence:
    n = len(true)
    shares = np.bincount(true, minlength=int(max(true.max(), said.max())) + 1) / n
    blind = Baseline(name="the commonest class of devices", value=float(shares.max()))
    if shuffled is not None:
        of = np.bincount(shuffled[shuffled >= 0], minlength=len(shares)) / n
        blind = Baseline(name="chance", value=float((shares * of).sum()))
    return Judge(control=control, note=note).judge_hits(
        "device_class",
        said == true,
        groups=INDEPENDENT,  # a client each
        baselines=[blind],
    )


def _sizes(said: Values, true: Values) -> list[Evidence]:
    """Numbers of examples that nobody sent."""
    known = np.isfinite(said)
    if not known.any():
        return []
    n, hits = int(known.sum()), np.rint(said[known]) == true[known]
    blind = Baseline(name="the median client", value=float((true[known] == np.median(true)).mean()))
    error = np.abs(said[known] - true[known]) / true[known]
    guess = np.abs(np.median(true) - true[known]) / true[known]
    return [
        Judge(
            note=f"numbers of examples that were not sent, of {n} clients whose answers differed in work"
        ).judge_hits(
            "size_known",
            hits,
            groups=INDEPENDENT,  # a client each
            baselines=[blind],
        ),
        Judge(note="median over the clients").state(
            "size_relative_error",
            float(np.median(error)),
            n,
            None,
            [Baseline(name="the median client", value=float(np.median(guess)))],
        ),
    ]


def _order(said: Values, true: Values) -> list[Evidence]:
    """Spearman's correlation of speeds, with Fisher's interval."""
    if len(true) < 4 or len(set(said)) < 2 or len(set(true)) < 2:
        return []
    from scipy.stats import spearmanr

    rho = float(np.clip(spearmanr(said, true).statistic, -1, 1))
    half = 1.96 * 1.03 / np.sqrt(len(true) - 3)
    z = np.arctanh(np.clip(rho, -1 + 1e-12, 1 - 1e-12))
    return [
        Judge(note="Spearman correlation with the true speed").state(
            "speed_rank",
            rho,
            len(true),
            (float(np.tanh(z - half)), float(np.tanh(z + half))),
            [Baseline(name="no order", value=0.0)],
        )
    ]


def _ways(claim: Mapping[str, Any]) -> str:
    ways, counts = np.unique(claim["how"], return_counts=True)
    return "known of " + ", ".join(f"{n} clients by: {way}" for way, n in zip(ways, counts, strict=True))
