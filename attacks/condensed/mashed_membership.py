"""Mashed membership: was this example in one of the averages that a client sent?

FedMix (arXiv:2107.00233, sec. 3) argues that means of M examples hide each of them. The score is Pearson's
largest correlation of the candidate with a mean of that client whose labels contain the candidate's: with
M = 1 that mean is the candidate, with many it is mostly the others. Members are compared with as many
non-members of the same classes. The baseline has another client's means. Examples that a client sends by
themselves (seed_samples), with noise or without, are means of one.

The planted leak is what the same clients would have sent with groups of one: their examples. To be counted,
people are planted through clients' own code besides (audit/controls/averages.py). How clients normalise
does not matter, since correlation is by channel. `n` in the evidence is M.

Claim: a rule, since any image can be queried. images [k, D] standardised means, shares [k, classes],
sender, artifact, origin, single (whether it is an example by itself) [k].
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.condensed._images import standardise
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.flagging import ScoredPeople, count_flagged
from fedaudit.attacks.evaluation.matching import score_client
from fedaudit.attacks.evidence import REPLAYED, Evidence, Series
from fedaudit.attacks.modality.images import ImagePool, fingerprints, to_rows
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Means:
    """What one client sent, or what the auditor says it did."""

    images: Floats  # [k, D] standardised
    shares: Floats  # [k, classes]

    def score(self, images: Floats, label: int) -> Floats:
        """[m] largest correlation of images [m, D] with a mean that has some of the class, or any."""
        fits = self.shares[:, label] > 0
        some = self.images[fits] if fits.any() else self.images
        return np.asarray((images @ some.T).max(axis=1) / images.shape[1])

    def score_images(self, images: Examples) -> Floats:
        """[m] the same of images as they are."""
        flat, scores = _flat(images.x), np.zeros(len(images))
        for label in np.unique(images.y):
            rows = images.y == label
            scores[rows] = self.score(flat[rows], int(label))
        return scores


@dataclass(frozen=True)
class _Case:
    """A client's class: as many members as non-members, [m, D]."""

    client: int
    label: int
    members: Floats
    non_members: Floats


class MashedMembership(Attack):
    card = Card(
        title="Membership from examples or their averages",
        source="nearest mean; means as in arXiv:2107.00233",
        aim=Aim.MEMBERSHIP,
        threat=ThreatModel(position=Position.SERVER),
        requires=(),
        also_reads=(Kind.MASHED_BATCH, Kind.SEED_SAMPLES),
        rounds="all",  # means are sent once, before the rounds
        learns="whether a given image was in a client's training data",
        does_not_show="what somebody finds who takes the averages apart, or who knows the other examples "
        "of a group",
        control="averages",
        remedy="average larger groups, and add calibrated noise to the averages",
        effort=Effort(seconds=0.2, grows=("pixels",)),
    )

    @settings
    class Config:
        members: int = Field(
            default=100,
            ge=2,
            description="members of a class of a client that are scored, at most, and as many non-members",
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent = _readable(view)
        rows = [len(a.payload["labels"]) for a in sent]
        return {
            "images": np.concatenate([_flat(np.asarray(a.payload["images"])) for a in sent]),
            "shares": np.concatenate([_shares(a, knowledge.classes) for a in sent]),
            "sender": np.repeat([a.sender.index for a in sent], rows),
            "artifact": np.repeat([a.id for a in sent], rows),
            "origin": np.repeat([a.origin for a in sent], rows),
            "single": np.repeat([a.kind == Kind.SEED_SAMPLES for a in sent], rows),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        is_single = claim["single"][claim["origin"] == "recorded"]
        cases, sent = self._cases(claim, truth, rng), _collect_means(claim)
        if not cases:
            return []
        clients = sorted(sent)
        others = {k: sent[clients[i - 1]] for i, k in enumerate(clients)} if len(sent) > 1 else {}
        null = {"another client's means": _scores(cases, others)} if others else {}
        size = 1.0
        if not is_single.all():
            size = float(np.median([len(truth.client_examples(k)) / len(sent[k].images) for k in clients]))
        condition: Mapping[str, float | str] = {"n": round(float(size)), "origin": "recorded"}
        note = f"{len(is_single)} means"
        found = membership.evidence(_scores(cases, sent), null, note=note, condition=condition)
        found += membership.evidence(
            _scores(cases, _plant_people(clients, truth, claim["shares"].shape[1])),
            null,
            control="positive",
            condition={"n": 1, "origin": "planted"},
            note="groups of one: the examples themselves",
        )
        halves = [_Case(c.client, c.label, *membership.halves(c.non_members, rng)) for c in cases]
        found += membership.evidence(
            _scores(halves, sent),
            {},
            control="negative",
            note="images that were never trained on in the place of members",
        )[:1]
        return found

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Of everybody whose client sent means, or examples; single people are planted through its code."""
        found = list[PeopleCount]()
        for kind, of_kind in ((Kind.MASHED_BATCH, ~claim["single"]), (Kind.SEED_SAMPLES, claim["single"])):
            part = {name: values[of_kind] for name, values in claim.items()}
            sent = _collect_means(part)
            recorded = [score_client(k, truth, rng, means.score_images) for k, means in sent.items()]
            found += count_flagged(recorded, _score_planted_people(part, truth), sent, truth, kind)
        return found

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        cases = self._cases(claim, truth, np.random.default_rng(0))
        return [membership.curve("means as sent", _scores(cases, _collect_means(claim)))] if cases else []

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return "" if _readable(view) else "no images, nor means of them, came from a client"

    def _cases(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[_Case]:
        found, pools = [], {}
        for client in _collect_means(claim):
            own = truth.client_examples(client)
            for label in map(int, np.unique(own.y)):
                if label not in pools:
                    pools[label] = ImagePool(truth.reference.of_class(label))
                members = own.of_class(label)
                non_members = pools[label].without(fingerprints(members))
                size = min(len(members), len(non_members), self.config.members)
                if size >= 2:
                    chosen = [x[rng.permutation(len(x))[:size]] for x in (members, non_members)]
                    found.append(_Case(client, label, *map(_flat, chosen)))
        return found


def _readable(view: Sequence[Artifact]) -> list[Artifact]:
    """Means of images that came from one client, and single ones."""
    return [
        a
        for a in view
        if a.kind in (Kind.MASHED_BATCH, Kind.SEED_SAMPLES)
        and a.sender.index is not None
        and np.asarray(a.payload["images"]).ndim == 4
    ]


def _shares(artifact: Artifact, classes: int) -> Floats:
    """[m, classes] shares of each class in each mean; of an example by itself, its class."""
    labels = np.asarray(artifact.payload["labels"])
    return np.eye(classes)[labels] if artifact.kind == Kind.SEED_SAMPLES else labels.astype(np.float64)


def _flat(images: Floats) -> Floats:
    return to_rows(standardise(images))


def _collect_means(claim: Claim) -> dict[int, Means]:
    recorded = claim["origin"] == "recorded"
    clients = np.unique(claim["sender"][recorded]).tolist()
    return {k: _take(claim, recorded & (claim["sender"] == k)) for k in clients}


def _take(claim: Claim, rows: NDArray[np.bool_]) -> Means:
    return Means(claim["images"][rows], claim["shares"][rows])


def _score_planted_people(claim: Claim, truth: Truth) -> list[ScoredPeople]:
    """Single people whose image a client sent alone, beside others of the class."""
    planted, is_planted = list[ScoredPeople](), claim["origin"] == REPLAYED
    for artifact in dict.fromkeys(claim["artifact"][is_planted].tolist()):
        rows = claim["artifact"] == artifact
        client, means = int(claim["sender"][rows][0]), _take(claim, rows)
        own = [truth.members(artifact, k) for k in range(claim["shares"].shape[1])]
        label = max(range(len(own)), key=lambda k: len(own[k]))
        members = own[label]
        others = ImagePool(truth.unseen([client]).images.of_class(label)).without(fingerprints(members))
        planted.append(
            ScoredPeople(
                client=client,
                rows=range(len(members)),
                scores=means.score(_flat(members), label),
                held_out=range(len(others)),
                held_out_scores=means.score(_flat(others), label),
            )
        )
    return planted


def _plant_people(clients: Sequence[int], truth: Truth, classes: int) -> dict[int, Means]:
    own = {k: truth.client_examples(k) for k in clients}
    return {k: Means(_flat(o.x), np.eye(classes)[o.y]) for k, o in own.items()}


def _scores(cases: Sequence[_Case], means: Mapping[int, Means]) -> membership.Scores:
    """Every case scored with the means of its client; a case is a group."""
    members = [means[c.client].score(c.members, c.label) for c in cases]
    others = [means[c.client].score(c.non_members, c.label) for c in cases]
    names = np.arange(len(cases))
    return membership.Scores(
        members=np.concatenate(members),
        others=np.concatenate(others),
        member_groups=np.repeat(names, [len(m) for m in members]),
        other_groups=np.repeat(names, [len(o) for o in others]),
    )
