"""Trials and buckets: what is claimed of one message, who is truly behind it, which trials are judged together.

A trial is one message that something is claimed of: a prototype, an update, a model. Behind it stand `n`
examples of one or more clients; who sent it is its client, for the trials of one client depend on each other. A
bucket holds the trials of one place: of one origin, with about as many examples behind each. Recorded messages
and those that the auditor replayed are never judged together.

A reconstruction is a trial in which images are claimed. Whom they name is the rule of naming.py; besides, as many
members are looked for, each in a gallery of non-members of its class. Blind adversaries claim in the same trials:
the class mean of the auxiliary images, a random one of them, and what the same attack made of a message that the
member is not behind. The last of these is the one that counts: an attack that does as well with it has recovered
the class and nothing of the client.
"""

import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Truth
from fedaudit.attacks.evaluation.judging import Condition, Control, Judge
from fedaudit.attacks.evaluation.naming import Named, NamingGallery, average_members, build_gallery, name_people
from fedaudit.attacks.evaluation.ranking import First, Ranks, compare_by_class, rank_sets
from fedaudit.attacks.evidence import REPLAYED, UNPROTECTED, WHOLE
from fedaudit.attacks.modality.images import ImagePool, distances, fingerprints

Floats = NDArray[np.floating[Any]]
Look = Callable[[Floats], Floats]  # what images are compared by in a gallery

RANGES = ((1, 1), (2, 2), (3, 5), (6, 20), (21, 100), (101, 10**9))  # examples behind a message
LEAST = 3  # images of a gallery
CLASS_MEAN = "class mean of auxiliary data"
RANDOM = "random auxiliary image of the class"


def keep_pixels(images: Floats) -> Floats:
    """As they are: the distance is the squared pixel error."""
    return images


@dataclass(frozen=True, kw_only=True, eq=False)
class Trial:
    """One message that something is claimed of."""

    row: int  # the first of the claim that is about it
    origin: str
    client: int  # who sent it; -1: the server
    n: int  # examples behind it
    image_hashes: frozenset[bytes]  # of all of them

    def is_apart(self, other: "Trial") -> bool:
        """Whether no example is behind both."""
        return not self.image_hashes & other.image_hashes


T = TypeVar("T", bound=Trial)
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, eq=False)
class Bucket(Generic[T]):
    """Trials that are judged together."""

    trials: Sequence[T]
    condition: Condition  # in the order in which it is written
    control: Control = "none"  # "positive": the auditor's own messages, of which an attack has to find something
    note: str = ""

    def __len__(self) -> int:
        return len(self.trials)

    @property
    def clients(self) -> NDArray[np.int64]:
        """Of each trial, [k]: the trials of one depend on each other."""
        return np.array([t.client for t in self.trials], np.int64)

    @property
    def origin(self) -> str:
        return str(self.condition["origin"])

    @property
    def samples(self) -> float:
        """Examples behind a message, for the place of its evidence; 0 where places do not differ by them."""
        return float(self.condition.get("n", 0))

    def judge(self, looks: int, note: str = "") -> Judge:
        """Who writes this bucket's evidence."""
        return Judge(looks=looks, control=self.control, condition=self.condition, note=note or self.note)


@dataclass(frozen=True, kw_only=True, eq=False)
class Reconstruction(Trial):
    """A message of which images are claimed, and as many members, all [B, C, H, W]."""

    artifact: str
    claimed: Floats
    targets: Floats  # the members that are looked for
    labels: NDArray[np.int64]  # of the targets
    members: Examples  # all images behind it
    others: Examples  # of each class as many non-members, where there are
    decoys: Floats  # [G, B, C, H, W] of non-members: a gallery, and at the end one set for the control
    held_out: Floats  # [m, C, H, W] of the members' classes
    class_means: Floats  # [c, C, H, W] of auxiliary images
    blind: Mapping[str, Floats] = field(default_factory=dict)  # what each baseline claims, [B, C, H, W]
    look: Look = keep_pixels

    def rank(self, claimed: Floats) -> Ranks:
        """Of the targets, when these images are claimed."""
        return self._rank(claimed, self.targets)

    def rank_non_members(self, claimed: Floats) -> Ranks:
        """Of images that were never trained on in the place of the targets."""
        return self._rank(claimed, self.decoys[-1])

    @cached_property
    def gallery(self) -> NamingGallery:
        """What says whom a claimed image names."""
        return build_gallery(self.members, self.held_out, self.class_means, self.look)

    @cached_property
    def named(self) -> Named:
        """Whom what is claimed names."""
        return self.name(self.claimed)

    def name(self, claimed: Floats) -> Named:
        """Whom each of these images names."""
        return name_people(self.look(claimed), self.gallery)

    def name_non_member(self, claimed: Floats) -> float:
        """The share of these images that name somebody who is not in the message and takes the members' place."""
        return float(name_people(self.look(claimed), self.gallery.replace_members()).hits.mean())

    def lean_to_member(self, claimed: Floats) -> float:
        """Whether a member is first, less whether one is for the members' own mean; 0 of a single image."""
        means = average_members(self.members)
        return self.compare_nearest(claimed).hit - self.compare_nearest(means).hit if len(means) else 0.0

    def compare_nearest(self, claimed: Floats) -> First:
        """Whether the image nearest to a claimed one is a member; by chance as often as its class has members."""
        seen, sides = self.look(claimed), (self.members, self.others)
        near = [distances(seen, self.look(some.x)).min(axis=0) for some in sides]
        return compare_by_class(-near[0], -near[1], self.members.y, self.others.y)

    def _rank(self, claimed: Floats, true: Floats) -> Ranks:
        gallery = self.decoys[:-1]
        some = self.look(gallery.reshape(-1, *gallery.shape[2:])).reshape(gallery.shape)
        return rank_sets(self.look(claimed), self.look(true), some)


@dataclass(frozen=True, eq=False)
class NonMembers:
    """Of one class; the first `own` were held out of the same clients' data."""

    images: Floats
    own: int = 0

    def __len__(self) -> int:
        return len(self.images)

    def shuffle(self, rng: np.random.Generator) -> Floats:
        """In an order of chance, the clients' own first: only they tell style from having been trained on."""
        order = rng.permutation(len(self))
        return self.images[order[np.argsort(order >= self.own, kind="stable")]]


class Pools:
    """Non-members by class, to draw galleries from: the reference, and what clients held out themselves."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._pools: dict[int, ImagePool] = {}

    def without(self, label: int, image_hashes: Iterable[bytes], artifact: str = "") -> NonMembers:
        """Those of a class that are no copies of these; with a message, its clients' own come first."""
        people = self._truth.people(artifact, label) if artifact else {}
        clients = [k for k, rows in people.items() if k >= 0 and len(rows)]  # nobody holds the auditor's own
        if label not in self._pools:
            self._pools[label] = ImagePool(self._truth.reference.of_class(label))
        rest, unseen = self._pools[label].without(image_hashes), self._truth.unseen(clients).images
        if unseen is self._truth.reference:
            return NonMembers(rest)
        own = ImagePool(unseen.of_class(label)).without(image_hashes)
        return NonMembers(np.concatenate([own, rest]), len(own))


def find_members(truth: Truth, artifact: str, labels: Iterable[int]) -> Examples | None:
    """All images of these classes behind a message, class by class; None where they are not known."""
    known = {c: x for c in labels if len(x := truth.members(artifact, c))}
    if not known:
        return None
    return Examples(
        x=np.concatenate(list(known.values())), y=np.repeat(list(known), [len(x) for x in known.values()])
    )


def hash_images(images: Floats) -> frozenset[bytes]:
    return frozenset(fingerprints(images))


def size_range(origin: str, n: int) -> int:
    """Replayed messages have sizes of the auditor's choice, recorded ones are put into ranges."""
    if origin.startswith(REPLAYED) and origin != WHOLE:
        return n
    return next(low for low, high in RANGES if low <= n <= high)


def median_size(sizes: Iterable[int]) -> float:
    """A number that there is."""
    return float(statistics.median_high(sizes))


def find_place(trial: Trial) -> tuple[str, int]:
    """Where trials about single classes are judged: origin and number of examples."""
    return trial.origin, size_range(trial.origin, trial.n)


def collect_places(trials: Iterable[T | None], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Trials that there are by place, in the order in which they come."""
    places: dict[Key, list[T]] = {}
    for trial in trials:
        if trial is not None:
            places.setdefault(key(trial), []).append(trial)
    return places


def describe_place(trials: Sequence[Trial]) -> tuple[Condition, Control]:
    """Of trials about single classes; a replayed message of one image is a leak that an attack has to find."""
    origin, n = trials[0].origin, median_size(t.n for t in trials)
    return {"n": n, "origin": origin}, "positive" if origin in (REPLAYED, UNPROTECTED) and n == 1 else "none"


def count_looks(buckets: Sequence[Bucket[Any]]) -> int:
    """Comparisons made: what is only compared with a recorded message, or never graded, is no look."""
    return sum(b.origin not in (WHOLE, UNPROTECTED) for b in buckets)


def guess_from_auxiliary(
    labels: NDArray[np.int64], auxiliary: Examples, rng: np.random.Generator
) -> Mapping[str, Floats]:
    """What adversaries claim that know only the classes [k]: name -> images [k, C, H, W]."""
    known = _find_known_images(labels, auxiliary)
    means = {c: x.mean(axis=0) for c, x in known.items()}
    return {
        CLASS_MEAN: np.stack([means[c] for c in labels.tolist()]),
        RANDOM: np.stack([known[c][rng.integers(len(known[c]))] for c in labels.tolist()]),
    }


def average_classes(labels: NDArray[np.int64], auxiliary: Examples) -> Floats:
    """[c, C, H, W] the mean auxiliary image of each of these classes, in order; none without such images."""
    if not len(auxiliary):
        return np.zeros((0, *auxiliary.x.shape[1:]))
    return np.stack([x.mean(axis=0) for x in _find_known_images(labels, auxiliary).values()])


def _find_known_images(labels: NDArray[np.int64], auxiliary: Examples) -> dict[int, Floats]:
    """Auxiliary images of each of these classes; all of them for a class that has none."""
    known = {int(c): auxiliary.of_class(int(c)) for c in np.unique(labels)}
    return {c: x if len(x) else auxiliary.x for c, x in known.items()}
