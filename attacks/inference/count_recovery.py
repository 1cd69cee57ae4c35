"""Count recovery: how many examples of each class a client owns, read from the counts it sends.

ReBaFL (proto_counts) and Seol & Kim (label_counts) send class counts beside their updates, to weigh
clients. Nothing has to be inferred: the attack writes down what the message says, rounds what noise
made fractional, takes what is not listed as 0, and averages over the rounds it saw. It is measured
like any inference attack, because "the server needs it" does not make it less of a disclosure. A
class with five examples or fewer is one whose prototype or condensed image shows a single picture.

Claim: counts int64 [k, C], read float64 [k, C] (before rounding), client [k], kind [k] as text.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attacks import stats
from attacks.attack import (
    Attack,
    Baseline,
    Card,
    Claim,
    Evidence,
    Goal,
    Knowledge,
    Position,
    ThreatModel,
    Truth,
)
from fl.artifact import Artifact, Channel, Kind, Party, Role
from fl.errors import UserError

Counts = NDArray[np.int64]
CONFIDENCE = 0.95
LISTED = 20  # small cells that a note names, at most


class CountRecovery(Attack):
    card = Card(
        title="Class counts read from messages",
        source="the counts of ReBaFL (Alg. 1) and of Seol & Kim (Alg. 2), as sent",
        goal=Goal.INFERENCE,
        threat=ThreatModel(position=Position.SERVER),
        requires=(),
        also_reads=(Kind.PROTO_COUNTS, Kind.LABEL_COUNTS),
        learns="how many examples of each class a client owns",
        does_not_show="which examples those are, nor whether a client reported its counts truthfully",
        remedy="send no counts, aggregate them securely, or release them with calibrated noise",
    )

    @dataclass(frozen=True, kw_only=True)
    class Config:
        kinds: tuple[Literal["proto_counts", "label_counts"], ...] = (
            "proto_counts",
            "label_counts",
        )
        small: int = 5  # a class with this many examples or fewer is listed

        def __post_init__(self) -> None:
            if not self.kinds or self.small < 1:
                raise UserError(
                    f"count_recovery needs kinds and small >= 1, got {self.kinds} and {self.small}",
                    hint="leave them out for the defaults",
                )

    def run(
        self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator
    ) -> Claim:
        heard: dict[tuple[str, int], list[NDArray[np.float64]]] = {}
        for a in self._counts(view):
            assert a.sender.index is not None
            key = (a.kind.value, a.sender.index)
            heard.setdefault(key, []).append(decode(a, knowledge.classes))
        read = np.stack([np.mean(rounds, axis=0) for rounds in heard.values()])
        return {
            "counts": np.maximum(np.rint(read), 0).astype(np.int64),
            "read": read,
            "client": np.array([client for _, client in heard]),
            "kind": np.array([kind for kind, _ in heard]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found: list[Evidence] = []
        for kind in np.unique(claim["kind"]):
            rows = claim["kind"] == kind
            true = np.stack([truth.label_counts(int(c)) for c in claim["client"][rows]])
            found += self._evidence(claim, rows, true, str(kind), truth, rng)
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not self._counts(view):
            return f"no client sends {' or '.join(self.config.kinds)} that the server could read"
        return ""

    def _counts(self, view: Sequence[Artifact]) -> list[Artifact]:
        return [
            a
            for a in view
            if a.kind.value in self.config.kinds
            and a.sender.role == Role.CLIENT
            and a.origin == "recorded"
        ]

    def _evidence(
        self, claim: Claim, rows: NDArray[np.bool_], true: Counts, kind: str, truth: Truth,
        rng: np.random.Generator,
    ) -> list[Evidence]:  # fmt: skip
        claimed, clients = claim["counts"][rows], claim["client"][rows]
        total = true.sum(axis=1)
        # Blind adversaries are told each client's total, which most methods send anyway
        prior = np.bincount(truth.auxiliary.y, minlength=true.shape[1]).astype(np.float64)
        blind = {
            "uniform": spread(total, np.ones(true.shape[1])),
            "global prior": spread(total, prior),
        }
        here: dict[str, float | str] = {"kind": kind}
        error = np.abs(claim["read"][rows] - true).mean(axis=1)  # a client's mean over classes
        small = (true > 0) & (true <= self.config.small)
        found_small = small & (claimed > 0) & (claimed <= self.config.small)
        listed = [
            f"client {clients[k]} class {c}: {claimed[k, c]}" for k, c in np.argwhere(found_small)
        ]
        more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
        result = [
            _exact(claimed, true, blind, here),
            _overlap(claimed, true, blind, here, rng),
            Evidence(
                measure="count_abs_error", value=float(error.mean()), unit="examples",
                trials=len(true), interval=stats.mean_interval(error, rng),
                baselines=tuple(
                    Baseline(name=name, value=float(np.abs(guess - true).mean()))
                    for name, guess in blind.items()
                ),
                condition=here, higher_is_worse=False, note="mean over classes, before rounding",
            ),
        ]  # fmt: skip
        if small.any():
            k, n = int(found_small.sum()), int(small.sum())
            result.append(
                Evidence(
                    measure="small_cells_found", value=k / n, unit="fraction", trials=n,
                    interval=stats.clopper_pearson(k, n), condition=here,
                    note=f"classes with {self.config.small} examples or fewer: "
                    + ", ".join(listed[:LISTED]) + more,
                )
            )  # fmt: skip
        return [*result, *_controls(claimed, true, blind, kind)]


def decode(artifact: Artifact, classes: int) -> NDArray[np.float64]:
    """Counts of all classes, [C], as the message states them; what it does not list is 0."""
    counts = np.asarray(artifact.payload["counts"], np.float64)
    listed = artifact.payload.get("classes", np.arange(len(counts)))
    if np.shape(listed) != counts.shape or not np.isin(listed, np.arange(classes)).all():
        raise UserError(
            f"{artifact.id} holds {counts.size} counts for classes {np.asarray(listed).tolist()}, "
            f"the model has {classes} classes",
            hint="federation.dataset in the config must be the data set that was used",
        )
    found = np.zeros(classes)
    found[np.asarray(listed, np.int64)] = counts
    return found


def spread(totals: Counts, shares: NDArray[np.float64]) -> Counts:
    """Each total split over the classes in proportion, by largest remainders; [k] -> [k, C]."""
    exact = totals[:, None] * shares / shares.sum()
    parts = np.floor(exact).astype(np.int64)
    order = np.argsort(parts - exact, axis=1, kind="stable")  # largest remainder first
    place = np.argsort(order, axis=1)
    return np.asarray(parts + (place < (totals - parts.sum(axis=1))[:, None]))


def overlap(claimed: Counts, true: Counts) -> NDArray[np.float64]:
    """Share of a client's examples that the claim places in the right class, [k]."""
    larger = np.maximum(np.maximum(claimed.sum(axis=1), true.sum(axis=1)), 1)
    return np.asarray(np.minimum(claimed, true).sum(axis=1) / larger)


def _exact(
    claimed: Counts, true: Counts, blind: dict[str, Counts], condition: dict[str, float | str],
    control: Literal["none", "positive", "negative"] = "none",
    note: str = "clients with all classes right",
) -> Evidence:  # fmt: skip
    def hits(guess: Counts) -> int:
        return int((guess == true).all(axis=1).sum())

    n = len(true)
    return Evidence(
        measure="count_exact_match", value=hits(claimed) / n, unit="fraction", trials=n,
        interval=stats.clopper_pearson(hits(claimed), n),
        baselines=tuple(
            Baseline(name=k, value=hits(g) / n, interval=stats.clopper_pearson(hits(g), n))
            for k, g in blind.items()
        ),
        confidence=CONFIDENCE, control=control, condition=condition, note=note,
    )  # fmt: skip


def _controls(claimed: Counts, true: Counts, blind: dict[str, Counts], kind: str) -> list[Evidence]:
    """Planted: the true counts in clear, read back. Negative: claims against another client's counts."""
    classes, here = true.shape[1], {"kind": kind}
    planted = np.stack([decode(_in_clear(row, kind), classes) for row in true]).astype(np.int64)
    found = [_exact(planted, true, blind, {**here}, "positive", "true counts sent in clear")]
    different = (true[:, None] != true).any(axis=2)  # [k, k]
    have = np.flatnonzero(different.any(axis=1))
    if len(have):
        other = true[different[have].argmax(axis=1)]
        nothing = {"counts of nobody": np.full_like(other, -1)}
        found.append(_exact(claimed[have], other, nothing, {**here}, "negative",
                            "claims against the counts of another client"))  # fmt: skip
    return found


def _in_clear(counts: Counts, kind: str) -> Artifact:
    """The message that an unprotected client with these counts would send."""
    owned = np.flatnonzero(counts)
    payload = {"counts": counts} if kind == Kind.LABEL_COUNTS else {
        "classes": owned, "counts": counts[owned],
    }  # fmt: skip
    return Artifact(
        id="planted", kind=Kind(kind), channel=Channel.UPLINK, round=0, sender=Party.client(0),
        seen_by=(), payload=payload, origin="replayed",
    )  # fmt: skip


def _overlap(
    claimed: Counts, true: Counts, blind: dict[str, Counts], condition: dict[str, float | str],
    rng: np.random.Generator,
) -> Evidence:  # fmt: skip
    values: NDArray[Any] = overlap(claimed, true)
    return Evidence(
        measure="count_overlap", value=float(values.mean()), unit="fraction", trials=len(true),
        interval=stats.mean_interval(values, rng, bounds=(0, 1)),
        baselines=tuple(
            Baseline(name=k, value=float(overlap(g, true).mean())) for k, g in blind.items()
        ),
        confidence=CONFIDENCE, condition=condition,
        note="share of a client's examples placed in the right class",
    )  # fmt: skip
