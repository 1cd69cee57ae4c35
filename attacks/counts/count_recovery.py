"""Count recovery: how many examples of each class a client owns, read from the counts it sends.

ReBaFL (proto_counts), Seol & Kim (class_volume) and GANDALF (noised_label_dist) send class counts
beside their updates, to weigh clients. Little has to be inferred: the attack writes down what the
message says, rounds what noise made fractional, takes what is not listed as 0, and

* averages noised counts over the rounds it saw, which divides the noise by the root of their number;
* takes the least of the class volumes, since oversampling only adds, and less in every round, and what
  the total, which is sent as well, leaves for the classes that were raised;
* counts the labels that come with features of every example (FedGKT), which is an identity;
* multiplies a noised distribution by the number of examples sent with it.

What is left of a count after Gaussian noise is the number of whole numbers in its interval, with the
deviation that was published or that the rounds show. It is measured like any inference attack, because
"the server needs it" does not make it less of a disclosure. A class with five examples or fewer is one
whose prototype or condensed image shows a single image.

Claim: counts int64 [k, C], read float64 [k, C] (before rounding), deviation float64 [k] of read (NaN:
not known), client [k], and as text kind and artifact (the newest) [k].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index, message_of
from fedaudit.attacks.evaluation.assertions import OF_COUNTS, by_client, format_counts
from fedaudit.attacks.evaluation.count_evidence import (
    Condition,
    Counts,
    blind_counts,
    count_error,
    exact_match,
    measure_interchange,
    measure_revelations,
    overlap_evidence,
    possible_values,
)
from fedaudit.attacks.evaluation.counting import count_labels
from fedaudit.attacks.evaluation.groups import COUNTED, choose_remedy, count_each_kind
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sums import SEVERAL, number_of
from fedaudit.attacks.evidence import Assertion, Evidence
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact, Channel, Party, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
_WITH_TOTAL = (Kind.CLASS_VOLUME, Kind.NOISED_LABEL_DIST)  # read with the number of examples sent beside
LISTED = 20  # small cells that a note names, at most


class CountRecovery(Attack):
    card = Card(
        title="Class counts read from messages",
        source="the counts of ReBaFL (Alg. 1), Seol & Kim (Alg. 2) and GANDALF (Alg. 1), as sent",
        aim=Aim.ATTRIBUTE,
        needs=("groups",),
        threat=ThreatModel(position=Position.SERVER),
        requires=(),
        also_reads=(
            Kind.PROTO_COUNTS,
            Kind.LABEL_COUNTS,
            Kind.CLASS_VOLUME,
            Kind.NOISED_LABEL_DIST,
            Kind.FEATURES,
            Kind.NUM_EXAMPLES,
            Kind.AGGREGATE,
        ),
        aids=(Kind.NUM_EXAMPLES,),
        rounds="all",
        learns="how many examples of each class a client owns",
        does_not_show="which examples those are, nor whether a client reported its counts truthfully",
        control="",  # planted in measure()
        remedy="send no counts, aggregate them securely, or release them with calibrated noise",
        effort=Effort(seconds=0.2, grows=("clients",)),
    )

    @settings
    class Config:
        kinds: tuple[
            Literal["proto_counts", "label_counts", "class_volume", "noised_label_dist", "features"], ...
        ] = Field(
            default=("proto_counts", "label_counts", "class_volume", "noised_label_dist", "features"),
            min_length=1,
            description="messages that counts are read from",
        )
        small: AtLeastOne = Field(default=5, description="a class with this many examples or fewer is listed")
        noise_std: Amount = Field(
            default=0.0,
            description="standard deviation of the noise on each number sent, unless a protection publishes "
            "its own",
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        view = index(view)
        heard: dict[tuple[str, int, str], list[_Heard]] = {}  # kind, client, and a sum: each is of others
        latest: dict[tuple[str, int, str], str] = {}
        for a in sorted(self._counts(view), key=lambda a: a.round):
            total = _total(a, view) if a.kind in _WITH_TOTAL else 0.0
            said = _Heard(counts=decode(a, knowledge.classes), total=total)
            whose = a.kind.value, number_of(a.sender), a.id if a.sender.index is None else ""
            heard.setdefault(whose, []).append(said)
            latest[whose] = a.id
        read, noise = [], []
        for (kind, _, _), rounds in heard.items():
            found, scale = _combine_messages(rounds, kind)
            read.append(found)
            published = knowledge.training.get(f"noise_std.{kind}", self.config.noise_std)
            noise.append(_deviation(rounds, kind, published * scale))
        return {
            "counts": np.maximum(np.rint(read), 0).astype(np.int64),
            "read": np.stack(read),
            "deviation": np.array(noise),
            "client": np.array([client for _, client, _ in heard]),
            "kind": np.array([kind for kind, _, _ in heard]),
            "artifact": np.array(list(latest.values())),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        return by_client(claim["client"], claim["counts"], lambda n: format_counts(n, classes), OF_COUNTS)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found: list[Evidence] = []
        for kind in np.unique(claim["kind"]):
            rows = claim["kind"] == kind
            senders = claim["client"][rows].tolist(), claim["artifact"][rows].tolist()
            true = count_labels(truth, *senders, claim["counts"].shape[1])
            found += self._evidence(claim, rows, true, str(kind), truth, rng)
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of each kind: whoever stands in a small group of which the size is told, and whose counts are known."""
        return count_each_kind(claim, claim["counts"], COUNTED, truth)

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        return choose_remedy(claim["kind"].tolist(), self.card.remedy)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not self._counts(view):
            return f"no client sends {' or '.join(self.config.kinds)} that the server could read"
        return ""

    def _counts(self, view: Sequence[Artifact]) -> list[Artifact]:
        view = index(view)
        found = [
            a
            for a in view
            if a.kind.value in self.config.kinds
            and a.sender.role == Role.CLIENT
            and a.origin == "recorded"
            and (a.kind != Kind.NOISED_LABEL_DIST or _total(a, view) > 0)
        ]
        newest = max((a.round for a in found if a.sender.index is None), default=0)
        return [a for a in found if a.sender.index is not None or a.round == newest]  # sums are of much the same

    def _evidence(
        self,
        claim: Claim,
        rows: NDArray[np.bool_],
        true: Counts,
        kind: str,
        truth: Truth,
        rng: np.random.Generator,
    ) -> list[Evidence]:
        claimed, clients = claim["counts"][rows], claim["client"][rows]
        prior = np.bincount(truth.auxiliary.y, minlength=true.shape[1]).astype(np.float64)
        blind = blind_counts(true, prior)
        here: Condition = {"kind": kind}
        result = self._small(claimed, true, clients, here)
        alone = clients != SEVERAL  # how many all clients hold together is a fact about none of them
        if alone.any():
            whole = {name: guess[alone] for name, guess in blind.items()}
            read, deviation = claim["read"][rows][alone], claim["deviation"][rows][alone]
            result += self._judge_clients(claimed[alone], true[alone], whole, clients[alone], read, here, rng)
            known = np.isfinite(deviation) & (deviation > 0)
            if known.any():
                result.append(possible_values(read[known], deviation[known], true[alone][known], here, rng))
        return [*result, *_controls(claimed, true, blind, kind)]

    def _judge_clients(
        self,
        claimed: Counts,
        true: Counts,
        blind: Mapping[str, Counts],
        clients: NDArray[np.int64],
        read: NDArray[np.float64],
        here: Condition,
        rng: np.random.Generator,
    ) -> list[Evidence]:
        """How well counts of single clients are known, and what they give away of people."""
        return [
            exact_match(claimed, true, blind, here, groups=clients),
            overlap_evidence(claimed, true, blind, here, rng, groups=clients),
            *measure_revelations(claimed, true, blind, self.config.small, here),
            count_error("count_abs_error", read, true, blind, here, rng, "mean over classes, before rounding"),
            count_error(
                "count_abs_error_rounded",
                claimed,
                true,
                blind,
                here,
                rng,
                "mean over classes, as whole numbers >= 0",
            ),
        ]

    def _small(
        self, claimed: Counts, true: Counts, clients: NDArray[np.int64], here: Condition
    ) -> list[Evidence]:
        """How many classes of a few examples are named as such; nothing where no client has one."""
        few = (true > 0) & (true <= self.config.small)
        if not few.any():
            return []

        def names_class(guess: Counts) -> NDArray[np.bool_]:
            return np.asarray(few & (guess > 0) & (guess <= self.config.small))

        whose = ["all clients together" if k == SEVERAL else f"client {k}" for k in clients.tolist()]
        listed = [f"{whose[k]} class {c}: {claimed[k, c]}" for k, c in np.argwhere(names_class(claimed))]
        more = f" and {len(listed) - LISTED} more" if len(listed) > LISTED else ""
        hits = names_class(claimed)[few]
        return [
            Judge(
                condition=here,
                note=f"classes with {self.config.small} examples or fewer: " + ", ".join(listed[:LISTED]) + more,
            ).judge_hits(
                "small_cells_found",
                hits,
                groups=np.repeat(clients, few.sum(axis=1)),
                baselines=[measure_interchange(lambda guess: names_class(guess)[few], claimed)],
            )
        ]


def decode(artifact: Artifact, classes: int) -> NDArray[np.float64]:
    """Counts of all classes, [C], as the message states them; what it does not list is 0.

    A message with a row for each example counts by its labels; those of no class are left out.
    """
    if artifact.kind == Kind.FEATURES:
        labels = np.asarray(artifact.payload["labels"], np.int64)
        known = labels[(labels >= 0) & (labels < classes)]
        return np.bincount(known, minlength=classes).astype(np.float64)
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


@dataclass(frozen=True, kw_only=True)
class _Heard:
    """One message of counts."""

    counts: Values  # [C], as sent
    total: float  # examples that its sender has, by the same message; 0: it says none, or nobody needs it


def _total(artifact: Artifact, view: Sequence[Artifact]) -> float:
    said = index(view).find_first(kind=Kind.NUM_EXAMPLES, message=message_of(artifact))
    return 0.0 if said is None else float(said.payload["count"])


def _combine_messages(rounds: Sequence[_Heard], kind: str) -> tuple[Values, float]:
    """One reading of several messages, oldest first, and what the numbers sent were multiplied by."""
    if kind == Kind.CLASS_VOLUME:
        return _volume(np.min([r.counts for r in rounds], axis=0), rounds[0].total), 1.0
    if kind == Kind.NOISED_LABEL_DIST:  # later ones with another total count generated images
        total = rounds[0].total
        return np.mean([r.counts for r in rounds if r.total == total], axis=0) * total, total
    noised = any((r.counts != np.rint(r.counts)).any() for r in rounds)
    return np.mean([r.counts for r in rounds], axis=0) if noised else rounds[-1].counts, 1.0


def _volume(volume: Values, total: float) -> Values:
    """Counts before oversampling, [C]: small classes were raised to one number, and the total is known.

    What the larger classes leave of the total is divided evenly among those that were raised.
    """
    if not total or not volume.any() or volume.sum() <= total:
        return volume
    raised = volume == volume[volume > 0].min()
    left = total - volume[~raised].sum()
    possible = raised.sum() <= left <= volume[raised].sum()
    return np.where(raised, left / raised.sum(), volume) if possible else volume


def _deviation(rounds: Sequence[_Heard], kind: str, published: float) -> float:
    """Of the mean over rounds: as published, or as three rounds or more show; NaN where unknown."""
    if published > 0:
        return float(published / np.sqrt(len(rounds)))
    if len(rounds) < 3 or kind not in (Kind.PROTO_COUNTS, Kind.LABEL_COUNTS):
        return np.nan  # the others change from round to round without noise
    spreads = np.var([r.counts for r in rounds], axis=0, ddof=1)
    varied = spreads[spreads > 0]  # classes that are not listed have no noise
    return float(np.sqrt(varied.mean() / len(rounds))) if len(varied) else np.nan


def _controls(claimed: Counts, true: Counts, blind: Mapping[str, Counts], kind: str) -> list[Evidence]:
    """Planted: the true counts in clear, read back. Negative: claims against another client's counts."""
    classes, here = true.shape[1], {"kind": kind}
    planted = np.stack([decode(_in_clear(row, kind), classes) for row in true]).astype(np.int64)
    found = [
        exact_match(
            planted,
            true,
            blind,
            here,
            "positive",
            groups=INDEPENDENT,  # a client each
            note="true counts sent in clear",
        )
    ]
    different = (true[:, None] != true).any(axis=2)  # [k, k]
    have = np.flatnonzero(different.any(axis=1))
    if len(have):
        other = true[different[have].argmax(axis=1)]
        nothing = {"counts of nobody": np.full_like(other, -1)}
        found.append(
            exact_match(
                claimed[have],
                other,
                nothing,
                here,
                "negative",
                groups=INDEPENDENT,  # a client each
                note="claims against the counts of another client",
            )
        )
    return found


def _in_clear(counts: Counts, kind: str) -> Artifact:
    """The message that an unprotected client with these counts would send."""
    owned = np.flatnonzero(counts)
    payload = {"counts": counts}
    if kind == Kind.PROTO_COUNTS:
        payload = {"classes": owned, "counts": counts[owned]}
    if kind == Kind.FEATURES:
        payload = {"labels": np.repeat(np.arange(len(counts)), counts)}
    return Artifact(
        id="planted",
        kind=Kind(kind),
        channel=Channel.UPLINK,
        round=0,
        sender=Party.client(0),
        seen_by=(),
        payload=payload,
        origin="replayed",
    )
