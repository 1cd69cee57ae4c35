"""Is anybody exposed? The share of messages for which any of the n members comes first.

A message that is one image's own, of n that stand behind it, exposes that one; a random member of the n is it
once in n, and any average over members hides it. So the best of all members competes with the best of as many
non-members of the class. Nothing learned: each is first as often as its side has candidates, which is the chance
given here. With n the best of both sides grow alike, so a mean of many exposes nobody for being one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation import images
from fedaudit.attacks.evaluation.distances import distances
from fedaudit.attacks.evidence import Baseline, Evidence

Floats = NDArray[np.floating[Any]]
MEASURE = "any_member_first"
BEST_OF = 50  # images of each kind that the best-of-n comparison looks through, the nearest ones


@dataclass(frozen=True)
class First:
    """One message: whether a member came first (ties in part), and how often one does by chance."""

    hit: float
    chance: float


def first(members: Floats, others: Floats) -> First:
    """Of the scores of all members [n] and of non-members [m], of which as many as n are used; higher is nearer.

    Non-members come in random order.
    """
    few = others[: len(members)]
    best = max(members.max(), few.max(initial=-np.inf))
    own, tied = int((members == best).sum()), int((few == best).sum())
    return First(own / (own + tied), len(members) / (len(members) + len(few)))


def gap(claimed: Floats, members: Floats, others: Floats) -> float:
    """Best SSIM over n members [n, C, H, W] minus best over n of the others, of any claimed image [k, C, H, W].

    The best of n grows with n by chance, so a best-of-n without its second term shows leakage in every message
    of many. Of many, the BEST_OF nearest of either kind are looked through.
    """
    n = min(len(members), len(others))
    found = []
    for some in (members, others[:n]):
        best = []
        for x in claimed:
            near = some[np.argsort(distances(x[None], some)[0], kind="stable")[:BEST_OF]]
            best.append(images.ssim(np.broadcast_to(x, near.shape), near).max())
        found.append(max(best))
    return float(found[0] - found[1])


def evidence(found: Sequence[First], blind: Sequence[First], blind_name: str, like: Evidence) -> list[Evidence]:
    """The share of messages, under the condition, control and corrections of `like`; nothing without messages."""
    if not found:
        return []
    alpha = stats.corrected(1 - like.confidence, like.looks)
    hits, wrong = (np.array([f.hit for f in some]) for some in (found, blind))
    baselines = [Baseline(name="chance", value=float(np.mean([f.chance for f in found])))]
    if len(wrong):
        bounds = stats.clopper_pearson(wrong.sum(), len(wrong), alpha)
        baselines.append(Baseline(name=blind_name, value=float(wrong.mean()), interval=bounds))
    return [
        Evidence(
            measure=MEASURE,
            value=float(hits.mean()),
            unit="fraction",
            trials=len(hits),
            interval=stats.clopper_pearson(hits.sum(), len(hits), alpha),
            baselines=tuple(baselines),
            confidence=like.confidence,
            looks=like.looks,
            control=like.control,
            condition=like.condition,
            note="messages for which one of the members is ahead of as many non-members",
        )
    ]
