"""Rare class: does a client own any example of a class? Queried as a membership question about clients.

For every client and class a score says how much the row of that class in the last layer moved, beside
the other rows of the upload and beside the same row of the other clients (who serve as the reference,
as in Zhu et al., FedMIA, CVPR 2025, arXiv:2402.06289). Two scores, because the loss decides which one
works: the row's sum, which goes up under a plain softmax, and the row's length, where the loss leaves
missing classes alone. Clients that own the class are compared with those that own none of it, by how
many examples they own: few are harder to see.

The planted leak is one step on one image, for some images of each client. The negative control
shuffles, class by class, which client owns it.

Claim: client [k], score [k, R, C] in the order of RULES, model [k]; extractors [models], objects;
rare [1].
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.evaluation.assertions import by_client
from fedaudit.attacks.evaluation.membership import Scores, curve
from fedaudit.attacks.evaluation.trials import RANGES
from fedaudit.attacks.evidence import Assertion, Evidence, Series
from fedaudit.attacks.prototypes._weights import SAID_WITH
from fedaudit.attacks.updates._head import UPLOADS, head_non_members, head_updates, one_step, starting_models
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Values = NDArray[np.float64]
RULES = ("row sums", "row norms")
PLANTED = 10  # images of each client
PRIOR = "how frequent the class is in auxiliary data"


class RareClass(Attack):
    card = Card(
        title="Presence of a class at a client",
        source="arXiv:2001.02610, sec. 3.1; arXiv:2402.06289 (other clients as reference)",
        aim=Aim.ATTRIBUTE,
        modality=frozenset({"image", "text"}),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(*UPLOADS, Kind.NUM_EXAMPLES),
        aids=(Kind.GLOBAL_MODEL, *SAID_WITH, Kind.NUM_EXAMPLES),
        learns="whether a client owns any example of a class",
        does_not_show="which examples those are, nor how many",
        control="",  # planted in measure()
        remedy="aggregate updates securely, keep the last layer private or frozen, or noise updates with a "
        "stated epsilon",
        uncounted="it ranks clients by how likely they hold a class, and states of no client that it does",
        effort=Effort(seconds=0.1, grows=("network", "clients")),
    )

    @settings
    class Config:
        label: int = Field(
            default=-1,
            ge=-1,
            description="the class that is queried by itself; -1 is the one with the fewest auxiliary images",
        )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        updates = head_updates(view, knowledge)
        extractors, model = starting_models(updates, knowledge)
        aux = knowledge.auxiliary
        frequency = np.bincount(() if aux is None else aux.y, minlength=knowledge.classes)
        rare = int(frequency.argmin()) if self.config.label < 0 else self.config.label
        if rare >= knowledge.classes:
            raise UserError(
                f"rare_class.label is {rare}, the model has {knowledge.classes} classes",
                hint="classes are counted from 0",
            )
        score = np.stack([_relative(u.rows, u.norms) for u in updates])
        return {
            "client": np.array([u.client for u in updates]),
            "score": score - np.median(score, axis=0),
            "model": model,
            "extractors": extractors,
            "rare": np.array([rare]),
        }

    def assertions(self, claim: Claim, classes: Sequence[str]) -> list[Assertion]:
        """A rank by row sums, for the class that is queried by itself: the score has no threshold."""
        rare = int(claim["rare"][0])
        rank = (-claim["score"][:, 0, rare]).argsort().argsort() + 1

        def describe(place: int) -> str:
            return f"number {place} of {len(rank)} in how likely it owns any example of {classes[rare]}"

        return by_client(
            claim["client"], rank.tolist(), describe, f"whether it owns an example of {classes[rare]}"
        )

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        counts = np.stack([truth.label_counts(int(k)) for k in claim["client"]])
        prior = np.bincount(truth.auxiliary.y, minlength=counts.shape[1]).astype(np.float64)
        blind = np.tile(prior, (len(counts), 1))
        ranges = [r for r in RANGES if _within(counts, r).any()]
        if not ranges or (counts > 0).all():
            return []  # no client lacks a class: there is nothing to tell apart
        rare = int(claim["rare"][0])
        single = np.arange(counts.shape[1]) == rare
        apart = 0 < int((counts[:, rare] > 0).sum()) < len(counts)
        looks = len(ranges) + apart
        shuffled = rng.permuted(counts > 0, axis=0)
        planted, own = self._score_planted_steps(claim, truth, rng)
        found: list[Evidence] = []
        for r, rule in enumerate(RULES):
            score, here = claim["score"][:, r], {"rule": rule}
            tell = partial(membership.evidence, others="clients and classes without examples")
            say = partial(tell, looks=looks * len(RULES))
            for wanted in ranges:
                these = _within(counts, wanted)
                found += say(
                    _scores(score, these, counts == 0),
                    {PRIOR: _scores(blind, these, counts == 0)},
                    condition={"examples": _range(wanted), **here},
                )
            if apart:
                queried = _scores(score, (counts > 0) & single, (counts == 0) & single)
                found += say(queried, {}, condition={"class": f"{rare}", **here})
            found += tell(
                _scores(score, shuffled, ~shuffled),
                {},
                condition=here,
                looks=len(RULES),
                control="negative",
                note="owners shuffled among clients",
            )[:1]
            found += tell(
                _scores(planted[:, r], own, ~own),
                {},
                condition=here,
                looks=len(RULES),
                control="positive",
                note="one step on one image",
            )[:1]
        return found

    def curves(self, claim: Claim, truth: Truth) -> list[Series]:
        counts = np.stack([truth.label_counts(int(k)) for k in claim["client"]])
        if (counts > 0).all():
            return []
        return [
            curve(rule, _scores(claim["score"][:, r], counts > 0, counts == 0)) for r, rule in enumerate(RULES)
        ]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        return head_non_members(view, knowledge)

    def _score_planted_steps(
        self, claim: Claim, truth: Truth, rng: np.random.Generator
    ) -> tuple[Values, NDArray[np.bool_]]:
        """Scores [j, R, C] of one step on single images of each client, and their classes [j, C]."""
        scores, own = [], []
        for k, m in zip(claim["client"], claim["model"], strict=True):
            images = truth.client_images(int(k))
            for i in rng.permutation(len(images))[:PLANTED]:
                label = int(images.y[i])
                _, rows, norms = one_step(claim["extractors"][m], images.x[i : i + 1], label)
                scores.append(_relative(rows, norms))
                own.append(np.arange(len(rows)) == label)
        return np.stack(scores), np.stack(own)


def _relative(*changes: Values) -> Values:
    """Changes of one upload beside its largest, so that clients of any size compare; [R, C]."""
    return np.stack([c / max(float(np.abs(c).max()), 1e-30) for c in changes])


def _within(counts: NDArray[np.int64], wanted: tuple[int, int]) -> NDArray[np.bool_]:
    return np.asarray((counts >= wanted[0]) & (counts <= wanted[1]))


def _scores(score: Values, members: NDArray[np.bool_], others: NDArray[np.bool_]) -> Scores:
    return Scores(
        members=score[members],
        others=score[others],
        member_groups=np.nonzero(members)[0],
        other_groups=np.nonzero(others)[0],
    )


def _range(wanted: tuple[int, int]) -> str:
    low, high = wanted
    return f"{low}" if low == high else f"{low} to {high}" if high < 10**6 else f"{low} or more"
