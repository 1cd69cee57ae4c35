"""Images claimed from updates: matched to the members, then judged beside baselines.

An upload is one trial however many images it holds: those of one batch stand and fall together. Of what clients
sent, it is also asked whether it leans towards a member more than the members' own mean does.
Blind adversaries know the classes; the one that counts has the images that the same attack made of another
update, that of another client where there is one.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Claim, Examples, Truth
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.naming import HELD_OUT
from fedaudit.attacks.evaluation.ranking import match_images
from fedaudit.attacks.evaluation.trials import (
    CLASS_MEAN,
    LEAST,
    RANDOM,
    Bucket,
    Pools,
    Reconstruction,
    average_classes,
    collect_places,
    count_looks,
    find_members,
    guess_from_auxiliary,
    hash_images,
    median_size,
)
from fedaudit.attacks.evidence import Evidence, is_replay
from fedaudit.attacks.modality import images

Floats = NDArray[np.floating[Any]]
Values = NDArray[np.float64]

WRONG = "update of other images"
NAMERS = (CLASS_MEAN, WRONG)  # baselines whose images may name somebody


def make_buckets(
    claim: Claim, truth: Truth, gallery: int, rng: np.random.Generator
) -> list[Bucket[Reconstruction]]:
    """The trials of a claim by origin, batch and steps; `claim` as UpdateInversion.run gives it.

    Updates whose classes have too few non-members for a gallery of three are left out.
    """
    pools = Pools(truth)
    rows: dict[str, list[int]] = defaultdict(list)
    for i, artifact in enumerate(claim["artifact"]):
        rows[str(artifact)].append(i)
    every = [_make_trial(artifact, claim, own, truth, pools, gallery, rng) for artifact, own in rows.items()]

    def key(t: Reconstruction) -> tuple[str, int, int]:
        if t.origin == "recorded":
            return t.origin, 0, 0
        return t.origin, int(claim["batch"][t.row]), int(claim["steps"][t.row])

    places = collect_places(every, key)
    return [_make_bucket(claim, places[where], truth, rng) for where in sorted(places)]


def _make_bucket(
    claim: Claim, trials: Sequence[Reconstruction], truth: Truth, rng: np.random.Generator
) -> Bucket[Reconstruction]:
    size = min(len(t.decoys) for t in trials)  # so that chance is one number
    rows, planted = [t.row for t in trials], is_replay(trials[0].origin)
    return Bucket(
        trials=[replace(t, decoys=t.decoys[:size], blind=_guess(t, trials, truth, rng)) for t in trials],
        condition={
            "n": median_size(claim["batch"][rows].tolist()),
            "steps": median_size(claim["steps"][rows].tolist()),
            "origin": trials[0].origin,
        },
        control="positive" if planted else "none",
        note="made by the auditor: what the attack can do"
        if planted
        else f"{len(trials[0].claimed)} images claimed of each update",
    )


def _make_trial(
    artifact: str,
    claim: Claim,
    rows: list[int],
    truth: Truth,
    pools: Pools,
    gallery: int,
    rng: np.random.Generator,
) -> Reconstruction | None:
    """None where the images behind it are unknown, or too few non-members exist."""
    behind = find_members(truth, artifact, range(int(claim["classes"])))
    if behind is None:
        return None
    number = min(len(rows), len(behind))
    chosen = np.sort(rng.choice(len(behind), number, replace=False))
    hashes = hash_images(behind.x)
    label = behind.y[chosen]
    counts = {int(c): int((label == c).sum()) for c in np.unique(label)}
    pool = {c: pools.without(c, hashes, artifact) for c in np.unique(behind.y).tolist()}
    non_members = {c: pool[c] for c in counts}
    size = min(gallery, *(len(non_members[c]) // counts[c] for c in counts))
    if size < LEAST:
        return None
    sets = np.empty((size, number, *behind.x.shape[1:]), behind.x.dtype)
    for c, some in non_members.items():  # no image is in two sets
        drawn = some.shuffle(rng)[: size * counts[c]]
        sets[:, label == c] = drawn.reshape(size, counts[c], *drawn.shape[1:])
    every = {c: some.shuffle(rng) for c, some in pool.items()}
    beside = {c: x[: int((behind.y == c).sum())] for c, x in every.items()}
    return Reconstruction(
        row=rows[0],
        artifact=artifact,
        origin=str(claim["origin"][rows[0]]),
        client=int(claim["sender"][rows[0]]),
        n=len(behind),
        image_hashes=hashes,
        claimed=claim["images"][rows[:number]],
        targets=behind.x[chosen],
        labels=label,
        members=behind,
        others=Examples(
            x=np.concatenate(list(beside.values())), y=np.repeat(list(beside), [len(x) for x in beside.values()])
        ),
        decoys=sets,
        held_out=np.concatenate([x[: max(gallery, len(beside[c]))] for c, x in every.items()]),
        class_means=average_classes(behind.y, truth.auxiliary),
    )


def _guess(
    t: Reconstruction, trials: Sequence[Reconstruction], truth: Truth, rng: np.random.Generator
) -> Mapping[str, Floats]:
    guesses = dict(guess_from_auxiliary(t.labels, truth.auxiliary, rng)) if len(truth.auxiliary) else {}
    others = [o for o in trials if o.is_apart(t) and len(o.claimed) == len(t.claimed)]
    others = [o for o in others if o.client != t.client] or others
    if others:
        guesses[WRONG] = others[rng.integers(len(others))].claimed
    return guesses


def judge_images(buckets: Sequence[Bucket[Reconstruction]], rng: np.random.Generator) -> list[Evidence]:
    """Rank 1, PSNR, SSIM and what SSIM gains over a wrong update, by bucket; and a negative control."""
    result = [e for b in buckets for e in _judge_bucket(b, count_looks(buckets), rng)]
    return [*result, judge_silent(buckets)] if buckets else []


def _judge_bucket(b: Bucket[Reconstruction], looks: int, rng: np.random.Generator) -> list[Evidence]:
    judge, size = b.judge(looks), len(b.trials[0].decoys)
    names = set.intersection(*({*t.blind} for t in b.trials))

    def score(of: Callable[[Reconstruction, Floats], float]) -> tuple[Values, dict[str, Values]]:
        """The attack's score, and those of the baselines in all trials; an update a number."""
        blind = {
            n: np.array([of(t, t.blind[n]) for t in b.trials]) for n in (CLASS_MEAN, RANDOM, WRONG) if n in names
        }
        return np.array([of(t, t.claimed) for t in b.trials]), blind

    def judge_likeness(
        measure: str, alike: Callable[[Floats, Floats], Values], bounds: stats.Interval | None
    ) -> Evidence:
        scores = score(lambda t, x: float(alike(x[match_images(x, t.targets)[0]], t.targets).mean()))
        return judge.judge_values(measure, *scores, rng, groups=b.clients, bounds=bounds, is_blind_bounded=True)

    galleries = f"galleries of {size} sets of images of the same classes"
    blind = {n: np.array([t.name(t.blind[n]).hits.mean() for t in b.trials]) for n in NAMERS if n in names}
    named = np.array([t.named.hits.mean() for t in b.trials])
    blind[HELD_OUT] = np.array([t.named.luck.mean() for t in b.trials])
    note = "images nearer to one member than to all non-members, the means of classes and of the members"
    found = [
        judge.judge_hits("named", named, blind, groups=b.clients, note=note),
        judge.judge_hits("rank1", *score(rank_first), groups=b.clients, chance=1 / size, note=galleries),
        judge_likeness("ssim", images.ssim, (-1, 1)),
        judge_likeness("psnr", images.psnr, None),
    ]
    if b.control == "none" and any(t.n > 1 for t in b.trials):
        found.append(
            judge.judge_leaning(np.array([t.lean_to_member(t.claimed) for t in b.trials]), rng, groups=b.clients)
        )
    return found


def rank_first(t: Reconstruction, claimed: Floats) -> float:
    """Share of the targets nearer to their claimed images than any decoy; ties are shared out."""
    return float(t.rank(claimed).rank1.mean())


def judge_silent(buckets: Sequence[Bucket[Reconstruction]]) -> Evidence:
    """How often an image that nobody trained on is named in the place of the members."""
    trials = [t for b in buckets for t in b.trials]
    hits = [t.name_non_member(t.claimed) for t in trials]
    chance = float(np.mean([1 / len(t.held_out) for t in trials]))
    judge = Judge(control="negative", note="an image that was never trained on in the place of the members")
    clients = np.array([t.client for t in trials])
    return judge.judge_hits("named", np.array(hits), groups=clients, chance=chance)
