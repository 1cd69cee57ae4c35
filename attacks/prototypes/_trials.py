"""Trials of images claimed from prototypes: each beside what a blind adversary would claim.

One trial is one claimed image, one random member of the class behind the prototype, and a gallery
of non-members of that class. The blind adversaries claim in the same trials: the class mean of
the auxiliary images, a random one of them, and what the same attack made of another prototype (of
the same class, or of any). The wrong prototype of the same class is the one that counts: an attack
that does as well with it has recovered the class and nothing of the client.

Trials with about as many samples behind the prototype are judged together, recorded and replayed
ones apart.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Claim, Truth
from fedaudit.attacks.evaluation.anyone import BEST_OF, First, first, gap
from fedaudit.attacks.evaluation.distances import distances
from fedaudit.attacks.evaluation.reidentification import Pool, Ranks, fingerprints, ranks
from fedaudit.attacks.evidence import WHOLE

Floats = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

RANGES = ((1, 1), (2, 2), (3, 5), (6, 20), (21, 100), (101, 10**9))  # samples behind a prototype

CLASS_MEAN = "class mean of auxiliary data"
RANDOM = "random auxiliary image of the class"
WRONG_SAME = "wrong prototype, same class"
WRONG_ANY = "wrong prototype, other class"

Look = Callable[[Floats], Floats]  # what images are compared by in a gallery


def pixels(claimed: Floats) -> Floats:
    """As they are: the distance is the mean squared pixel error."""
    return claimed


@dataclass(frozen=True, kw_only=True)
class Trial:
    row: int  # of the claim
    label: int
    members: Floats  # [n, C, H, W]
    marks: frozenset[bytes]  # fingerprints of the members
    member: int  # the one that is looked for
    non_members: Floats  # [m, C, H, W] of the class, at random; the gallery is cut from its start

    @property
    def target(self) -> Floats:
        found: Floats = self.members[self.member]
        return found


class Bucket:
    """Trials that are judged together."""

    def __init__(
        self,
        origin: str,
        trials: list[Trial],
        claim: Claim,
        truth: Truth,
        size: int,
        rng: np.random.Generator,
        look: Look = pixels,
    ) -> None:
        self.origin, self.trials, self.size, self._look = origin, trials, size, look
        rows = np.array([t.row for t in trials])
        self.claimed: Floats = claim["images"][rows]
        self.extractors = claim["extractor"][rows]
        self.targets = np.stack([t.target for t in trials])
        self.labels = np.array([t.label for t in trials])
        self.truth, self._rng = truth, rng
        self.same = self._partners(same_class=True)
        self.any = self._partners(same_class=False)

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def samples(self) -> float:
        """Median number of samples behind the prototypes, a number that there is."""
        return float(statistics.median_high(len(t.members) for t in self.trials))

    @property
    def planted(self) -> bool:
        """A replayed prototype of one image: a leak that an attack has to find."""
        return self.origin == "replayed" and self.samples == 1

    @cached_property
    def blind(self) -> Mapping[str, tuple[Indices, Floats]]:
        """Name of a blind adversary -> the trials it takes part in and the images it claims."""
        everyone = np.arange(len(self))
        aux = self.truth.auxiliary
        known = {t.label: aux.of_class(t.label) for t in self.trials}
        known = {c: x if len(x) else aux.x for c, x in known.items()}
        mean = {c: x.mean(axis=0) for c, x in known.items()}
        means = [mean[t.label] for t in self.trials]
        drawn = [known[t.label][self._rng.integers(len(known[t.label]))] for t in self.trials]
        found = {CLASS_MEAN: (everyone, np.stack(means)), RANDOM: (everyone, np.stack(drawn))}
        for name, partner in ((WRONG_SAME, self.same), (WRONG_ANY, self.any)):
            have = np.flatnonzero(partner >= 0)
            if len(have):
                found[name] = (have, self.claimed[partner[have]])
        return found

    def ranks(self, claimed: Floats, which: Indices | None = None) -> Ranks:
        """Ranks of the member when these images (`claimed`) are named in the trials `which` (all)."""
        chosen = np.arange(len(self)) if which is None else which
        galleries = (self._look(self.trials[i].non_members[: self.size - 1]) for i in chosen)
        return ranks(self._look(claimed), self._look(self.targets[chosen]), galleries)

    def ranks_of_non_members(self) -> Ranks:
        """Ranks when an image that was never trained on takes the member's place."""
        held_out = np.stack([t.non_members[self.size - 1] for t in self.trials])
        galleries = (self._look(t.non_members[: self.size - 1]) for t in self.trials)
        return ranks(self._look(self.claimed), self._look(held_out), galleries)

    def member_means(self) -> Floats:
        return np.stack([t.members.mean(axis=0) for t in self.trials])

    def firsts(self) -> tuple[list[First], list[First]]:
        """For each trial whether any member is first; and for another prototype that none of them is in."""
        own = [self._first(x, t) for x, t in zip(self.claimed, self.trials, strict=True)]
        blind = []
        for i, t in enumerate(self.trials):
            apart = [j for j, o in enumerate(self.trials) if o.label == t.label and not o.marks & t.marks]
            if apart:
                blind.append(self._first(self.claimed[apart[i % len(apart)]], t))
        return own, blind

    def _first(self, claimed: Floats, t: Trial) -> First:
        x = self._look(claimed[None])
        apart = [-distances(x, self._look(some))[0] for some in (t.members, t.non_members)]
        return first(*apart)

    def best_of_n_gap(self, claimed: Floats, which: Indices) -> NDArray[np.float64]:
        """Best SSIM over n members minus best SSIM over n non-members, [len(which)]."""
        some = ((x, self.trials[i]) for x, i in zip(claimed, which, strict=True))
        return np.array([gap(x[None], t.members, t.non_members) for x, t in some])

    def _partners(self, same_class: bool) -> Indices:
        """For each trial another whose prototype does not contain its member, -1 where none does."""
        partner = np.full(len(self), -1)
        wanted = [fingerprints(t.target[None])[0] for t in self.trials]
        for i, t in enumerate(self.trials):
            for j in self._rng.permutation(len(self)):
                other = self.trials[j]
                fits = (other.label == t.label) == same_class
                if fits and wanted[i] not in other.marks:
                    partner[i] = j
                    break
        return partner


def buckets(
    claim: Claim, truth: Truth, gallery: int, rng: np.random.Generator, look: Look = pixels
) -> list[Bucket]:
    """Trials of a claim by origin and number of samples, smallest first.

    Claims about classes without enough non-members for a gallery of three are left out.
    """
    reference = truth.reference
    pools = {int(c): Pool(reference.of_class(int(c))) for c in np.unique(claim["label"])}
    trials: dict[tuple[str, int], list[Trial]] = {}
    for row, (artifact, label) in enumerate(zip(claim["artifact"], claim["label"], strict=True)):
        members = truth.members(str(artifact), int(label))
        if len(members) == 0:
            continue
        marks = frozenset(fingerprints(members))
        non_members = pools[int(label)].without(marks)
        if len(non_members) < 3:
            continue
        trial = Trial(
            row=row,
            label=int(label),
            members=members,
            marks=marks,
            member=int(rng.integers(len(members))),
            non_members=non_members[rng.permutation(len(non_members))[: max(gallery, BEST_OF, len(members)) + 1]],
        )
        origin = str(claim["origin"][row])
        trials.setdefault((origin, group(origin, len(members))), []).append(trial)
    # One gallery size for all, so that chance is one number; one non-member stays for the control
    size = min([gallery, *(len(t.non_members) for group in trials.values() for t in group)])
    return [
        Bucket(origin, group, claim, truth, size, rng, look)
        for (origin, _), group in sorted(trials.items(), key=lambda item: item[0])
    ]


def group(origin: str, n: int) -> int:
    """Replayed prototypes have sizes of the auditor's choice, recorded ones are put into ranges."""
    if origin.startswith("replayed") and origin != WHOLE:
        return n
    return next(low for low, high in RANGES if low <= n <= high)
