"""Prototype collusion: clients take their own share out of a global prototype, and one client's is left.

The server averages the prototypes of a class by the clients' examples n_k, and sends the mean to everybody:

    (sum of n_k) p_global - sum over colluders of n_k p_k = n_v p_v,

so where all clients of a class but one collude, they hold what that one sent to the server alone. (Two queries
that differ in one member: Denning, Denning, Schwartz. The Tracker. ACM TODS 4(1), 1979.) No look at the
victim's upload is needed, and so secure aggregation does not help. The number of examples of all clients
together must be known; without it only the direction from p_global to p_v is. Rounding grows by
(sum of n_k) / n_v. A class that one client holds alone needs no collusion: p_global is its prototype, which
every client reads (0 colluders).

Every client of a class is the victim once, and the others collude; a trial reads nothing of what its victim
sent but the number of examples, which the threat model grants.

Claim: feature float64 [k, D], shared [k, D]: the global prototype, mean [k, D]: the colluders', decoy [k, D]: one
colluder's own; own, rest [k]: examples of the colluders and of the victim; colluders, victim, label [k];
artifact [k]: the name of the victim's upload.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sources import sent_with
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne, ProperShare
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]
GLOBAL, MEAN = "the global prototype itself", "the colluders' mean"
NAMES = ("feature", "shared", "mean", "decoy", "own", "rest", "colluders", "victim", "label", "artifact")


@dataclass(frozen=True, kw_only=True)
class _Share:
    """What one client put into the prototype of a class."""

    artifact: Artifact
    count: float
    feature: NDArray[np.float64]  # [D]


class _Trial(NamedTuple):
    """A victim, and who takes its own share out of the global prototype."""

    shared: NDArray[np.float64]  # the global prototype, [D]
    label: int
    coalition: list[_Share]  # empty where nobody else holds the class
    victim: _Share
    other: NDArray[np.float64]  # the global prototype of another class, [D]; inf where there is none


class PrototypeCollusion(Attack):
    card = Card(
        title="A client's prototype from the global one, by collusion",
        source="tracker attack: Denning, Denning, Schwartz, ACM TODS 4(1), 1979, on weighted means",
        aim=Aim.RECONSTRUCTION,
        needs=("groups",),
        threat=ThreatModel(position=Position.COLLUDING_CLIENTS, knows=frozenset({"label_counts"})),
        requires=(Kind.GLOBAL_PROTOTYPES, Kind.LOCAL_PROTOTYPES),
        also_reads=(Kind.PROTO_COUNTS,),
        aids=(Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS),
        rounds="all",
        learns="the prototype that a client sent to the server alone",
        does_not_show="what that prototype says of images (read the attacks on prototypes), nor what is "
        "learned of classes that more clients hold",
        control="",  # planted in measure()
        remedy="release a class only where more clients hold it than could collude, and clip and noise "
        "prototypes; secure aggregation does not help, for the mean is what is attacked",
        uncounted="it recovers what a client sent for a class, and does not say whose examples are behind it",
        effort=Effort(seconds=0.2, grows=("clients",)),
    )

    @settings
    class Config:
        colluders: AtLeastOne = Field(default=2, description="clients that work together, at most")
        exact: ProperShare = Field(
            default=0.01, description="relative error below which a prototype counts as recovered"
        )
        max_trials: AtLeastOne = Field(default=2000, description="victims tried, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        trials = self._trials(view)
        chosen = np.sort(rng.permutation(len(trials))[: self.config.max_trials])
        found: dict[str, list[Any]] = {name: [] for name in NAMES}
        for shared, label, coalition, victim, other in (trials[i] for i in chosen):
            own = sum(s.count for s in coalition)
            mean = sum((s.count * s.feature for s in coalition), np.zeros(len(shared))) / max(own, 1)
            row = (
                recover_prototype(shared, mean, own, victim.count),
                shared,
                mean,
                coalition[0].feature if coalition else other,
                own,
                victim.count,
                len(coalition),
                victim.artifact.sender.index,
                label,
                victim.artifact.id,
            )
            for name, value in zip(NAMES, row, strict=True):
                found[name].append(value)
        return {name: np.array(values) for name, values in found.items()}

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        true = np.stack(
            [
                _read_prototype(truth, str(a), int(c))
                for a, c in zip(claim["artifact"], claim["label"], strict=True)
            ]
        )
        total = (claim["own"] + claim["rest"])[:, None]
        pooled = (claim["own"][:, None] * claim["mean"] + claim["rest"][:, None] * true) / total
        planted = [
            recover_prototype(
                p, m, float(o), float(r)
            )  # a mean of the coalition and the victim, as it would be sent
            for p, m, o, r in zip(
                pooled.astype(np.float32), claim["mean"], claim["own"], claim["rest"], strict=True
            )
        ]
        errors = {n: _error(claim[n], true) for n in ("feature", "shared", "mean")}
        for name in ("shared", "mean"):  # of a class with one holder the global prototype is the attack
            errors[name][claim["colluders"] == 0] = np.inf
        sizes = np.unique(claim["colluders"])
        found = []
        for k in sizes:
            rows = claim["colluders"] == k
            here = {n: e[rows] for n, e in errors.items()}
            found += self._measure_recorded(here, claim["victim"][rows], int(k), len(sizes))
        blind = {n: errors[n] for n in ("shared", "mean")}
        found.append(
            self._hits(
                {"feature": _error(np.stack(planted), true), **blind},
                claim["victim"],
                Judge(control="positive"),
                note="a mean of the colluders and the victim alone",
            )
        )
        found.append(
            self._hits(
                {"feature": _error(claim["feature"], claim["decoy"])},
                claim["victim"],
                Judge(control="negative"),
                note="a colluder's own prototype, or one of another class, in the place of the victim's",
            )
        )
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not any(a.kind == Kind.LOCAL_PROTOTYPES for a in view):
            return "no client's own prototypes were recorded, so nothing can be taken out of the global ones"
        if not any(a.kind == Kind.PROTO_COUNTS for a in view):
            return "how many examples stand behind each prototype is not known, so no share can be taken out"
        if not self._trials(view):
            return (
                f"no class was held by at most {self.config.colluders + 1} clients of a round whose global "
                "prototypes were recorded in the next one"
            )
        return ""

    def _trials(self, view: Sequence[Artifact]) -> list[_Trial]:
        """One for every victim: who else holds its class colludes."""
        view = index(view)
        shares: dict[tuple[int, int], list[_Share]] = {}
        for a in view.select(kind=Kind.LOCAL_PROTOTYPES, origin="recorded"):
            counts = sent_with(a, Kind.PROTO_COUNTS, view)
            if counts is None:
                continue
            known = dict(zip(counts.payload["classes"].tolist(), counts.payload["counts"].tolist(), strict=True))
            for c, feature in zip(a.payload["classes"].tolist(), a.payload["features"], strict=True):
                if known.get(c, 0) > 0 and np.isfinite(feature).all():
                    share = _Share(artifact=a, count=known[c], feature=np.asarray(feature, np.float64))
                    shares.setdefault((a.round, c), []).append(share)
        trials = []
        for a in {a.round: a for a in view.select(kind=Kind.GLOBAL_PROTOTYPES)}.values():
            for c, feature in zip(a.payload["classes"].tolist(), a.payload["features"], strict=True):
                holders = shares.get((a.round - 1, c), [])  # what a round pools, the next one sends
                if 1 <= len(holders) <= self.config.colluders + 1:
                    shared = np.asarray(feature, np.float64)
                    others = a.payload["features"][np.asarray(a.payload["classes"]) != c]
                    other = np.asarray(others[0], np.float64) if len(others) else np.full(len(shared), np.inf)
                    trials += [
                        _Trial(shared, int(c), [h for h in holders if h is not v], v, other) for v in holders
                    ]
        return trials

    def _measure_recorded(
        self, errors: dict[str, Floats], victims: NDArray[np.int64], colluders: int, looks: int
    ) -> list[Evidence]:
        judge = Judge(looks=looks, condition={"colluders": colluders})
        beside = {GLOBAL: errors["shared"], MEAN: errors["mean"]}
        relative = judge.state(
            "prototype_relative_error",
            float(np.median(errors["feature"])),
            len(victims),
            None,
            [
                Baseline(name=name, value=float(np.median(e)))
                for name, e in beside.items()
                if np.isfinite(np.median(e))
            ],
            "median; distance to the prototype the victim sent, by its length",
        )
        return [self._hits(errors, victims, judge), relative]

    def _hits(
        self, errors: dict[str, Floats], victims: NDArray[np.int64], judge: Judge, note: str = ""
    ) -> Evidence:
        """The share of prototypes that are recovered; the trials about one victim depend on each other."""
        hits = {name: e < self.config.exact for name, e in errors.items()}
        blind = {name: hits[key] for key, name in (("shared", GLOBAL), ("mean", MEAN)) if key in hits}
        return judge.judge_hits(
            "prototype_recovered",
            hits["feature"],
            blind,
            groups=victims,
            baselines=[] if blind else [Baseline(name="no such prototype", value=0.0)],
            note=note or f"within {self.config.exact:.0%} of the prototype the victim sent",
        )


def recover_prototype(shared: Floats, mean: Floats, own: float, rest: float) -> NDArray[np.float64]:
    """The prototype [D] of `rest` examples, from one over all and the colluders' mean over `own`."""
    whole = (own + rest) * np.asarray(shared, np.float64)
    return np.asarray((whole - own * np.asarray(mean, np.float64)) / rest)


def _read_prototype(truth: Truth, artifact: str, label: int) -> NDArray[np.float64]:
    payload = truth.read_upload(artifact)
    (row,) = np.flatnonzero(payload["classes"] == label)
    return np.asarray(payload["features"][row], np.float64)


def _error(claimed: Floats, true: Floats) -> NDArray[np.float64]:
    """Relative distance, row by row."""
    scale = np.maximum(np.linalg.norm(true, axis=1), 1e-12)
    return np.asarray(np.linalg.norm(claimed - true, axis=1) / scale)
