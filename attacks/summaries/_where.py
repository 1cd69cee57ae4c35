"""Where in a message an image stands, and what that says of its cause: a remedy names the cause that is seen.

Honest clients send images too: a row of a dense layer that reads raw pixels changes by the one image of a batch
that reached it. That is told from an image that a client's code wrote into something else.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from fedaudit.fl.kinds import Kind

OF_IMAGES = frozenset(
    {Kind.CONDENSED_IMAGES, Kind.MASHED_BATCH, Kind.SEED_SAMPLES, Kind.PROXIES, Kind.LOCAL_PROTOTYPES}
)


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One array of a message, where its numbers stand among all of the client's."""

    kind: Kind
    name: str
    shape: tuple[int, ...]
    begin: int
    end: int
    is_change: bool = False  # what an array that was sent changed by, which stands before it
    is_summed: bool = False  # opened from a sum

    @property
    def crossed(self) -> Kind:
        """The kind of the message."""
        return Kind.AGGREGATE if self.is_summed else self.kind

    def is_row(self, first: int, length: int) -> bool:
        """Whether so many numbers from `first` on are one row of a matrix."""
        return len(self.shape) == 2 and self.shape[1] == length and (first - self.begin) % length == 0


@dataclass(frozen=True)
class Place:
    """What the numbers of an image belong to; no segment where it is not written in plain values of one array."""

    segment: Segment | None = None
    is_row: bool = False


def find_place(segments: Sequence[Segment], first: int, length: int) -> Place:
    """The place of `length` numbers from the one numbered `first` on."""
    for s in segments:
        if s.begin <= first and first + length <= s.end:
            return Place(s, s.is_row(first, length))
    return Place()


def choose_remedy(places: Collection[Place], otherwise: str) -> str:
    """What to do about images at these places; `otherwise` where they stand in what no image belongs in."""
    if not places or not all(p.segment and (p.is_row or p.segment.kind in OF_IMAGES) for p in places):
        return otherwise
    rows = sorted({p.segment.name for p in places if p.segment and p.segment.kind not in OF_IMAGES})
    kinds = sorted({p.segment.kind.value for p in places if p.segment and p.segment.kind in OF_IMAGES})
    said = []
    if rows:
        said.append(
            "aggregate updates securely, or clip and noise them with a stated epsilon; a dense layer "
            f"({', '.join(rows)}) reads raw pixels, and a row of it repeats the one image of a batch that "
            "reached it: reduce the image before that layer (a convolution, pooling)"
        )
    if kinds:
        said.append(f"send no {', '.join(kinds)} of a single image: average more, and add calibrated noise")
    return "; ".join(said)
