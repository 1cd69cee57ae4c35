"""Does one image stand in a message as it is? Asked of each message alone: one client may do what no other does.

What an attack takes out of a message is held against what every member would have left there, and every
non-member. A mean of many images is far from each of them, and no nearer to a member than to a non-member: an
image is present where it is many times nearer than the nearest of the other side.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from fedaudit.attacks.evaluation.hits import hits_evidence
from fedaudit.attacks.evidence import Baseline, Evidence

MEASURE = "image_present"
APART = 10.0  # times as near as the nearest image of the other side


class Present(NamedTuple):
    """Whether a member stands there, and whether a non-member does."""

    member: bool
    stranger: bool


def present(member: float, stranger: float, most: float = np.inf) -> Present:
    """Of how far the nearest member and the nearest non-member are; nothing further than `most` stands there."""
    return Present(member < min(most, stranger / APART), stranger < min(most, member / APART))


def evidence(
    found: Sequence[Present],
    note: str,
    *,
    control: Literal["none", "positive", "negative"] = "none",
    looks: int = 1,
    condition: Mapping[str, int | float | str] | None = None,
) -> Evidence:
    """The share of messages in which a member stands, beside that in which an image of nobody's does."""
    blind = Baseline(name="an image of nobody's", value=float(np.mean([f.stranger for f in found])))
    hits = sum(f.member for f in found)
    return hits_evidence(
        MEASURE, hits, len(found), [blind], control=control, looks=looks, condition=condition, note=note
    )
