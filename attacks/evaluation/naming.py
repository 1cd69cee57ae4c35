"""Who is named by a reconstruction: one rule for every attack that claims images, or features of images.

A message with members S is held against a gallery: S, held-out images of the same classes, the mean of the
auxiliary images of each class and, where S has more than one image, the mean of S. A person is named if its image
is nearer to the reconstruction than all else. Members as near as each other share one hit; who is only as near as
something else is not named. So one reconstruction names one person at most, and the mean of a group names nobody.

Held-out people are named by the same rule, in the same galleries: that is how often luck names somebody.

With the mean of S in the gallery, a reconstruction that leans towards one member without being nearer to it than
to the mean names nobody. For messages of several people it is therefore also asked whether any member comes
before as many non-members more often than it does for the mean of S itself
(trials.Reconstruction.lean_to_member).
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples

Floats = NDArray[np.floating[Any]]
HELD_OUT = "as many held-out people, named by the same images"
Values = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class NamingGallery:
    """What a reconstruction is held against; the last dimensions of all four are those of one image."""

    members: Floats  # [n, ...]
    held_out: Floats  # [m, ...] of the same classes, which nobody trained on
    class_means: Floats  # [c, ...] of the auxiliary images
    member_means: Floats  # [k, ...] of all members, and of those of each class; none of a single image

    def replace_members(self) -> "NamingGallery":
        """The same with the last held-out image as the only member: what luck names."""
        last, none = self.held_out[-1:], self.member_means[:0]
        return replace(self, members=last, held_out=self.held_out[:-1], member_means=none)


@dataclass(frozen=True, kw_only=True)
class Named:
    """How much each reconstruction names each person: 1, 1/k of k that are equally near, or 0."""

    members: Values  # [r, n]
    held_out: Values  # [r, m]
    apart: Values  # [r] squared distance of the nearest member over that of all else: 0 is its image, 1 a tie

    @property
    def hits(self) -> Values:
        """[r] whether a member is named."""
        return np.asarray(self.members.sum(axis=1))

    @property
    def luck(self) -> Values:
        """[r] how often one of as many held-out people is named: what luck names where nothing is known."""
        ratio = self.members.shape[1] / max(1, self.held_out.shape[1])
        return np.asarray(np.minimum(self.held_out.sum(axis=1) * ratio, 1.0))


def build_gallery(
    members: Examples, held_out: Floats, class_means: Floats, look: Callable[[Floats], Floats]
) -> NamingGallery:
    """The gallery of one message; images [n, C, H, W] are compared as `look` shows them."""
    means = average_members(members)
    return NamingGallery(
        members=look(members.x),
        held_out=look(held_out),
        class_means=look(class_means) if len(class_means) else class_means,
        member_means=look(means) if len(means) else means,
    )


def average_members(members: Examples) -> Floats:
    """The mean of all members and of those of each class, [k, C, H, W]; none of images that are all the same."""
    groups = [members.x, *(members.of_class(int(c)) for c in np.unique(members.y))]
    if len(groups) == 2:
        groups = groups[:1]  # of a single class
    means = [x.mean(axis=0, dtype=np.float64) for x in groups if (x != x[:1]).any()]
    return np.stack(means) if means else np.zeros((0, *members.x.shape[1:]))


def name_people(claimed: Floats, gallery: NamingGallery) -> Named:
    """Whom each of the reconstructions [r, ...] names.

    A reconstruction with entries that are no numbers names nobody.
    """
    means = np.concatenate([gallery.class_means, gallery.member_means])
    parts = (gallery.members, gallery.held_out, means)
    return name_nearest(*(np.stack([_squared_distances(x, some) for x in claimed]) for some in parts))


def name_nearest(members: Values, held_out: Values, means: Values) -> Named:
    """Whom each of r claims names; distances of members [r, n], held-out people [r, m] and means [r, k]."""
    apart = (members, held_out, means)
    nearest = np.stack([d.min(axis=1, initial=np.inf) for d in apart])  # [3, r]
    shares = []
    for i in (0, 1):
        is_first = nearest[i] < np.delete(nearest, i, axis=0).min(axis=0)
        tied = (apart[i] == nearest[i][:, None]) & is_first[:, None]
        shares.append(tied / np.maximum(tied.sum(axis=1, keepdims=True), 1))
    others = nearest[1:].min(axis=0)
    apart = np.divide(nearest[0], others, out=np.ones(len(others)), where=np.isfinite(nearest[0]) & (others > 0))
    return Named(members=shares[0], held_out=shares[1], apart=apart)


def _squared_distances(x: Floats, others: Floats) -> Values:
    """[m], by differences: a matrix product would not find equal images equally near."""
    gaps = (np.asarray(others, np.float64) - np.asarray(x, np.float64)).reshape(len(others), x.size)
    found = np.einsum("ij,ij->i", gaps, gaps)
    return np.asarray(np.where(np.isnan(found), np.inf, found))
