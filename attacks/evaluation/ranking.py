"""Who comes first: a claim beside the truth and a gallery of others, ties shared out the same way everywhere.

Re-identification: a gallery holds one true image and G - 1 that were never trained on, all of one class, so
knowing the class is worth nothing and chance is exactly 1/G. The distance is the squared pixel error. Known as
image identifiability precision where the gallery is the whole data set (Yin et al., CVPR 2021, arXiv:2104.07586,
sec. 4.1); a fixed G makes classes and data sets comparable. Several images are claimed in no order, so they are
matched to the true ones by least squared error (Hungarian method) before anything is measured. To choose the
best of many matchings favours the attack, so their gallery consists of whole sets, each matched in the same way;
chance is 1/G again.

Is anybody exposed? A message that is one image's own, of n that stand behind it, exposes that one; a random
member of the n is it once in n, and any average over members hides it. So the best of all members competes with
the best of as many non-members of the class. Nothing learned: each is first as often as its side has candidates.
With n the best of both sides grow alike, so a mean of many exposes nobody for being one.

Does one image stand in a message as it is? Asked of each message alone: one client may do what no other does. A
mean of many images is far from each of them, and no nearer to a member than to a non-member: an image is present
where it is many times nearer than the nearest of the other side.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedaudit.attacks.modality.images import to_rows

Floats = NDArray[np.floating[Any]]
Values = NDArray[np.float64]
TIMES = 10.0  # times as near as the nearest image of the other side: present


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """What each claim scores, [k] each; ties are shared out as a coin would."""

    rank: Values  # expected rank of the true one, 1 is nearest
    rank1: Values  # probability that it is nearest
    rank5: Values  # probability that it is among the nearest five


def rank_among(true: ArrayLike, others: ArrayLike) -> Ranks:
    """Of the distances of the true one [k] and of G - 1 others [G - 1, k]; one that is no number ranks last."""
    own, rest = np.asarray(true, np.float64), np.asarray(others, np.float64)
    before = np.where(np.isnan(own), len(rest), (rest < own).sum(axis=0)).astype(np.float64)
    tied = (rest == own).sum(axis=0).astype(np.float64)
    return Ranks(
        rank=1 + before + tied / 2,
        rank1=np.clip((1 - before) / (tied + 1), 0, 1),
        rank5=np.clip((5 - before) / (tied + 1), 0, 1),
    )


def rank_images(claimed: Floats, true: Floats, galleries: Iterable[Floats]) -> Ranks:
    """claimed and true [k, C, H, W]; k galleries [G - 1, C, H, W] without the true image."""
    pairs = [
        (_squared_errors(x, own[None])[0], _squared_errors(x, others))
        for x, own, others in zip(claimed, true, galleries, strict=True)
    ]
    return rank_among([own for own, _ in pairs], np.stack([others for _, others in pairs], axis=1))


def rank_sets(claimed: Floats, true: Floats, gallery: Floats) -> Ranks:
    """Of true images [B, C, H, W], matched with as many claimed; a gallery of sets [G - 1, B, C, H, W]."""
    if len(true) == 1:
        return rank_images(claimed, true, [gallery[:, 0]])
    return rank_among(match_images(claimed, true)[1], np.stack([match_images(claimed, d)[1] for d in gallery]))


def match_images(claimed: Floats, true: Floats) -> tuple[NDArray[np.int64], Values]:
    """Which claimed image each true one is given, [B], and their mean squared errors, [B]."""
    from scipy.optimize import linear_sum_assignment

    gaps = np.asarray(true, np.float64)[:, None] - np.asarray(claimed, np.float64)[None]
    errors = (gaps**2).reshape(len(true), len(claimed), -1).mean(axis=2)
    rows, columns = linear_sum_assignment(errors)
    return columns, errors[rows, columns]


@dataclass(frozen=True)
class First:
    """One message: whether a member came first (ties in part), and how often one does by chance."""

    hit: float
    chance: float


def compare_best(members: Floats, others: Floats) -> First:
    """Of the scores of all members [n] and of non-members [m], of which as many as n are used; higher is nearer.

    Non-members come in random order.
    """
    few = others[: len(members)]
    return compare_by_class(members, few, np.zeros(len(members), np.int64), np.zeros(len(few), np.int64))


def compare_by_class(
    members: Floats, others: Floats, member_classes: NDArray[np.int64], other_classes: NDArray[np.int64]
) -> First:
    """Of the scores of all members [n] and of non-members [m] of several classes; higher is nearer.

    By chance a member is first as often as there are members among the candidates of the first one's class. Of
    candidates that tie each is the first in part, member or not.
    """
    best = max(members.max(), others.max(initial=-np.inf))
    own, tied = members == best, others == best
    firsts = np.concatenate([member_classes[own], other_classes[tied]])
    chances = [
        (member_classes == label).sum() / ((member_classes == label).sum() + (other_classes == label).sum())
        for label in firsts
    ]
    return First(float(own.sum() / len(firsts)), float(np.mean(chances)))


class Present(NamedTuple):
    """Whether a member stands there, and whether a non-member does."""

    member: bool
    stranger: bool


def find_present(member: float, stranger: float, most: float = np.inf) -> Present:
    """Of how far the nearest member and the nearest non-member are; nothing further than `most` stands there."""
    return Present(member < min(most, stranger / TIMES), stranger < min(most, member / TIMES))


def _squared_errors(x: Floats, others: Floats) -> Values:
    gaps = others.astype(np.float64) - x
    return np.asarray(to_rows(gaps**2).sum(axis=1))
