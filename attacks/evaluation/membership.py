"""Evidence from membership scores: true positives at few false ones, with the AUC beside it.

Carlini, Chien, Nasr, Song, Terzis, Tramer. Membership Inference Attacks From First Principles.
IEEE S&P 2022. arXiv:2112.03570, sec. IV: an average over all examples hides the few that are exposed.
A rate that needs more negatives than there are is not given at all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.ranking import First
from fedaudit.attacks.evaluation.trials import Bucket, Trial
from fedaudit.attacks.evidence import Baseline, Evidence, Series

LOW_RATES = (0.01, 0.001)


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of members and of non-members, higher for members, [m] and [o].

    Scores of one group (one prototype, one client) depend on each other; intervals allow for that.
    `alone`: of so few prototypes or clients that intervals are about these ones, and each image is a group.
    """

    members: NDArray[np.floating[Any]]
    others: NDArray[np.floating[Any]]
    member_groups: NDArray[np.int64]
    other_groups: NDArray[np.int64]
    alone: bool = False

    @property
    def groups(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.member_groups, self.other_groups


def score_clusters(
    members: Sequence[NDArray[Any]],
    others: Sequence[NDArray[Any]],
    images: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    names: Sequence[int] | None = None,
) -> Scores:
    """Scores of several models, prototypes or generators, of each its members and its non-members.

    Each is a group from 3 on. Below, nothing can be said of others like them; then an image is, which `images`
    tells apart where one has several scores. `names` keep groups apart where scores are pooled later.
    """
    none, each = np.zeros(0), [*(range(len(members)) if names is None else names)]
    both = np.concatenate([none, *members]), np.concatenate([none, *others])
    few = sum(len(m) > 0 for m in members) < stats.FEW_GROUPS
    if not few:
        labels = -1 - np.array(each, np.int64)  # apart from images
        images = np.repeat(labels, [len(x) for x in members]), np.repeat(labels, [len(x) for x in others])
    elif images is None:
        images = np.arange(len(both[0])), np.arange(len(both[0]), len(both[0]) + len(both[1]))
    return Scores(members=both[0], others=both[1], member_groups=images[0], other_groups=images[1], alone=few)


def halves(of: NDArray[Any], rng: np.random.Generator) -> tuple[NDArray[Any], NDArray[Any]]:
    """Non-members in two random halves, some in the place of members: for a negative control.

    To be drawn anew for each group: halves that groups share differ by their images, the same way in all of them,
    which no spread between groups shows. Equally many: groups of unlike level, pooled, would be told apart by
    which half has the odd one.
    """
    order, half = rng.permutation(len(of)), len(of) // 2
    return of[order[:half]], of[order[half : 2 * half]]


def evidence(
    scores: Scores,
    blind: Mapping[str, Scores],
    *,
    looks: int = 1,
    note: str = "",
    condition: Mapping[str, float | str] | None = None,
    control: Literal["none", "positive", "negative"] = "none",
    others: str = "non-members",
) -> list[Evidence]:
    """AUC, and the true-positive rate at 1 % and 0.1 % where there are negatives enough; [] without both kinds.

    `blind` holds the scores of adversaries that cannot know, by name; chance is added. `others` says
    what the negatives are.
    """
    if not len(scores.members) or not len(scores.others):
        return []
    remarks = note, "of others than these it says nothing" * scores.alone
    judge = Judge(looks=looks, control=control, condition=condition or {}, note="; ".join(filter(None, remarks)))

    def say(measure: str, found: stats.Estimate, chance: float, blind: list[Baseline], remark: str) -> Evidence:
        baselines = [Baseline(name="chance", value=chance), *blind]
        return judge.state(measure, found.value, len(scores.members), found.interval, baselines, remark)

    negatives = len(scores.others)
    areas = {
        k: stats.auc(s.members, s.others, alpha=judge.alpha, groups=s.groups)
        for k, s in {"": scores, **blind}.items()
    }
    found = [say("auc", areas.pop(""), 0.5, _baselines(areas), f"{negatives} {others}")]
    groups = len(np.unique(scores.other_groups))
    for rate in LOW_RATES:
        rates = {
            k: stats.tpr_at_fpr(s.members, s.others, rate, alpha=judge.alpha, groups=s.groups)
            for k, s in {"": scores, **blind}.items()
        }
        own = rates.pop("")
        if own is not None:
            few = "fewer than ten false positives behind it" if rate * negatives < 10 else ""
            needed = stats.count_needed_negatives(rate, judge.alpha, groups)
            if needed is None:
                few = f"negatives in less than {stats.FEW_GROUPS} groups say nothing of others"
            elif negatives < needed:
                few = f"no attack could show more than chance with {negatives:,} negatives, {needed:,} would do"
            found.append(say(f"tpr_at_fpr_{rate}", own, rate, _baselines(rates), few))
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class Query(Trial):
    """A model or prototype that is queried about candidates: its members, and non-members of the same classes."""

    against: str  # what the non-members are


class Sides(NamedTuple):
    """What a query says of its members [m] and of its non-members [o], higher for members."""

    row: int  # of the query
    members: NDArray[Any]
    others: NDArray[Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class QueryBucket(Bucket[Query]):
    """A bucket of queries with what they were answered."""

    scores: Scores
    silent: Scores  # half of the non-members in the place of members
    blind: Mapping[str, Scores]  # empty where no other model can be queried
    against: str = "non-members"  # what they are compared with, in words
    firsts: Sequence[First] = field(default_factory=list)  # of each query, whether any member scores highest
    blind_firsts: Sequence[First] = field(default_factory=list)
    first_clients: Sequence[int] = ()  # of whom each of `firsts` is
    blind_clients: Sequence[int] = ()


def name_non_members(queries: Sequence[Query]) -> str:
    """What the members of these are compared with."""
    return " or ".join(sorted({q.against for q in queries}))


def gather(answers: Sequence[Sides], images: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None) -> Scores:
    """Answers of several queries; `images` as in `clustered`."""
    return score_clusters(
        [a.members for a in answers], [a.others for a in answers], images, [a.row for a in answers]
    )


def judge_buckets(
    buckets: Sequence[QueryBucket], looks: int, silent: Sequence[Scores], blind: str = ""
) -> list[Evidence]:
    """Evidence of all buckets, and a negative control of `silent` ones; `blind` names who else came first."""
    found: list[Evidence] = []
    for b in buckets:
        found += evidence(
            b.scores,
            b.blind,
            looks=looks,
            note=b.note,
            condition=b.condition,
            control=b.control,
            others=b.against,
        )
        groups = {"": b.first_clients, blind: b.blind_clients}
        found += b.judge(looks).judge_firsts(b.firsts, b.blind_firsts, blind, groups=groups)
    if silent:
        note = "examples that were never trained on in the place of members"
        found += evidence(pool_scores(silent), {}, control="negative", note=note)[:1]
    return found


def curve(name: str, scores: Scores, *, blind: bool = False) -> Series:
    """The ROC curve at a hundred false-positive rates, as dense on a logarithmic axis as the data."""
    roc = stats.roc(scores.members, scores.others)
    x = np.unique(np.r_[0.0, np.geomspace(1 / max(2, len(scores.others)), 1, 100)])
    y = roc.tpr[np.searchsorted(roc.fpr, x + 1e-12, side="right") - 1]
    return Series(name=name, x=tuple(x.tolist()), y=tuple(y.tolist()), blind=blind)


def pool_scores(scores: Sequence[Scores]) -> Scores:
    """Samples of several buckets as one; groups stay apart."""
    return Scores(
        members=np.concatenate([s.members for s in scores]),
        others=np.concatenate([s.others for s in scores]),
        member_groups=np.concatenate([s.member_groups for s in scores]),
        other_groups=np.concatenate([s.other_groups for s in scores]),
        alone=any(s.alone for s in scores),
    )


def _baselines(found: Mapping[str, stats.Estimate | None]) -> list[Baseline]:
    return [Baseline(name=name, value=e.value, interval=e.interval) for name, e in found.items() if e is not None]
