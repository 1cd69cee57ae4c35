"""Trials of images claimed from prototypes: each beside what a baseline would claim.

One trial is one claimed image, one random member of the class behind the prototype, and a gallery
of non-members of that class. The wrong prototype of the same class is the baseline that counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Examples, Truth
from fedaudit.attacks.evaluation.counting import list_latest
from fedaudit.attacks.evaluation.ranking import Ranks
from fedaudit.attacks.evaluation.trials import (
    LEAST,
    Bucket,
    Look,
    Pools,
    Reconstruction,
    average_classes,
    collect_places,
    describe_place,
    find_members,
    find_place,
    guess_from_auxiliary,
    hash_images,
    keep_pixels,
)
from fedaudit.attacks.modality.images import fingerprints

Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

WRONG_SAME = "wrong prototype, same class"
WRONG_ANY = "wrong prototype, other class"


@dataclass(frozen=True, kw_only=True, eq=False)
class PrototypeBucket(Bucket[Reconstruction]):
    """One image is claimed in every trial, so all of a bucket are a stack [k, C, H, W]."""

    extractors: NDArray[Any]  # where the weights came from, [k]
    constants: Mapping[str, Floats] = field(default_factory=dict)  # images that baselines always claim
    truth: Truth
    rng: np.random.Generator
    same: Indices = field(init=False)  # for each trial another of the class, -1 where there is none
    other: Indices = field(init=False)  # for each trial another of another class

    def __post_init__(self) -> None:
        object.__setattr__(self, "same", self._find_partners(is_same_class=True))
        object.__setattr__(self, "other", self._find_partners(is_same_class=False))

    @property
    def size(self) -> int:
        """Images of a gallery."""
        return len(self.trials[0].decoys)

    @cached_property
    def claimed(self) -> Floats:
        return np.concatenate([t.claimed for t in self.trials])

    @cached_property
    def targets(self) -> Floats:
        return np.concatenate([t.targets for t in self.trials])

    @cached_property
    def labels(self) -> Indices:
        return np.concatenate([t.labels for t in self.trials])

    @cached_property
    def blind(self) -> Mapping[str, tuple[Indices, Floats]]:
        """Name of a baseline -> the trials it takes part in and the images it claims."""
        everyone, guesses = (
            np.arange(len(self)),
            guess_from_auxiliary(self.labels, self.truth.auxiliary, self.rng),
        )
        guesses = dict(guesses) | {n: np.stack([x] * len(self)) for n, x in self.constants.items()}
        guesses |= {n: np.concatenate([t.blind[n] for t in self.trials]) for n in self.trials[0].blind}
        result = {name: (everyone, x) for name, x in guesses.items()}
        for name, partner in ((WRONG_SAME, self.same), (WRONG_ANY, self.other)):
            have = np.flatnonzero(partner >= 0)
            if len(have):
                result[name] = (have, self.claimed[partner[have]])
        return result

    def rank(self, claimed: Floats, which: Indices | None = None) -> Ranks:
        """Ranks of the member when these images (`claimed`) are named in the trials `which` (all)."""
        chosen = self.trials if which is None else [self.trials[i] for i in which]
        return _join([t.rank(x[None]) for t, x in zip(chosen, claimed, strict=True)])

    def rank_non_members(self) -> Ranks:
        """Ranks when an image that was never trained on takes the member's place."""
        return _join([t.rank_non_members(t.claimed) for t in self.trials])

    def average_members(self) -> Floats:
        return np.stack([t.members.x.mean(axis=0) for t in self.trials])

    def name(self, claimed: Floats, which: Indices) -> NDArray[np.float64]:
        """[len(which)] whether these images name a member in the trials `which`."""
        pairs = zip(claimed, which, strict=True)
        return np.array([self.trials[i].name(x[None]).hits[0] for x, i in pairs])

    def _find_partners(self, is_same_class: bool) -> Indices:
        """For each trial another whose prototype does not contain its member, -1 where none does."""
        partner = np.full(len(self), -1)
        for i, t in enumerate(self.trials):
            (wanted,) = fingerprints(t.targets)
            for j in self.rng.permutation(len(self)):
                other = self.trials[j]
                if (other.labels[0] == t.labels[0]) == is_same_class and wanted not in other.image_hashes:
                    partner[i] = j
                    break
        return partner


class ImageTrials:
    """The trials of a claim: `every` one, of which people are counted, and `buckets` of each sender's latest.

    Blind adversaries besides those of all claims: `constants` always claim one image, and `columns` name the
    claim's own images that are theirs.

    Claims about classes without enough non-members for a gallery of three are left out.
    """

    def __init__(
        self,
        claim: Claim,
        truth: Truth,
        gallery: int,
        rng: np.random.Generator,
        look: Look = keep_pixels,
        constants: Mapping[str, Floats] = MappingProxyType({}),
        columns: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        pools = Pools(truth)
        rows = range(len(claim["artifact"]))
        made = (_make_trial(claim, row, truth, pools, gallery, rng, look, columns) for row in rows)
        self.every = [t for t in made if t is not None]
        latest = set(list_latest(claim).tolist())
        judged = [t for t in self.every if t.row in latest]
        # One gallery size for all, so that chance is one number; one non-member stays for the control
        size = min((len(t.decoys) for t in judged), default=gallery)
        places = collect_places([replace(t, decoys=t.decoys[:size]) for t in judged], find_place)
        # by origin and number of samples, smallest first
        self.buckets = [_make_bucket(claim, places[where], truth, rng, constants) for where in sorted(places)]


def _make_bucket(
    claim: Claim,
    trials: Sequence[Reconstruction],
    truth: Truth,
    rng: np.random.Generator,
    constants: Mapping[str, Floats],
) -> PrototypeBucket:
    condition, control = describe_place(trials)
    return PrototypeBucket(
        trials=trials,
        condition=condition,
        control=control,
        extractors=claim["extractor"][[t.row for t in trials]],
        constants=constants,
        truth=truth,
        rng=rng,
    )


def _make_trial(
    claim: Claim,
    row: int,
    truth: Truth,
    pools: Pools,
    gallery: int,
    rng: np.random.Generator,
    look: Look,
    columns: Mapping[str, str],
) -> Reconstruction | None:
    """None where the images behind it are unknown, or too few non-members exist."""
    label = int(claim["label"][row])
    artifact = str(claim["artifact"][row])
    members = find_members(truth, artifact, [label])
    if members is None:
        return None
    hashes, n = hash_images(members.x), len(members)
    pool = pools.without(label, hashes, artifact)
    if len(pool) < LEAST:
        return None
    member = int(rng.integers(n))
    non_members = pool.shuffle(rng)[: max(gallery, n)]
    return Reconstruction(
        row=row,
        artifact=artifact,
        origin=str(claim["origin"][row]),
        client=int(claim["sender"][row]),
        n=n,
        image_hashes=hashes,
        claimed=claim["images"][row : row + 1],
        targets=members.x[member : member + 1],
        labels=members.y[member : member + 1],
        members=members,
        others=Examples(x=non_members[:n], y=np.full(len(non_members[:n]), label)),
        decoys=non_members[:gallery, None],
        held_out=non_members,
        class_means=average_classes(members.y, truth.auxiliary),
        blind={name: claim[column][row : row + 1] for name, column in columns.items()},
        look=look,
    )


def _join(ranks: list[Ranks]) -> Ranks:
    return Ranks(
        rank=np.concatenate([r.rank for r in ranks]),
        rank1=np.concatenate([r.rank1 for r in ranks]),
        rank5=np.concatenate([r.rank5 for r in ranks]),
    )
