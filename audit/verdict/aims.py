"""What is asked of an artifact, by what kind of message it is: the one table of aims, with reasons.

It is read from the kinds' own rows (fl/kinds.py) and names no attack, so that a question stands in the report
whether or not anybody has an attack on it. A kind that stands in no family is asked everything.
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import UPDATES, Kind, Modality
from fedaudit.fl.threats.threat import Aim


class Family(NamedTuple):
    """Kinds of which the same is asked."""

    words: str  # what they are, or why they tell nothing
    holds: Callable[[Kind], bool]
    aims: tuple[Aim, ...]  # a verdict waits for these, as far as the policy requires them
    besides: tuple[Aim, ...] = ()  # asked as well


_PACE = frozenset({Kind.TASK_TIME, Kind.STALENESS, Kind.FROZEN_COUNT})
_FIT = frozenset({Kind.LOCAL_LOSS, Kind.CLUSTER_ID})
_CLASSES = frozenset({Kind.NUM_STEPS, Kind.NOISED_LABEL_DIST, Kind.CLASS_VOLUME, Kind.CONDENSED_LABELS})
_PLANS = frozenset({Kind.GROUP_MAP, Kind.ALLOCATION, Kind.OVERSAMPLE_DECAY})
_GENERATORS = frozenset({Kind.GAN_G, Kind.GAN_D})
_BATCHES = frozenset({Kind.SMASHED, Kind.SMASHED_GRADIENT})
_SETS = frozenset({Kind.CONDENSED_IMAGES, Kind.MASHED_BATCH})
_CHANGES = frozenset({*UPDATES, Kind.NORMALIZED_DELTA, Kind.GRADIENT, Kind.CONTROL_DELTA})
_MEANS = frozenset(
    {
        *(Kind.LOCAL_PROTOTYPES, Kind.GLOBAL_PROTOTYPES, Kind.PROXIES),
        *(Kind.MEAN_LOGIT_TABLE, Kind.GLOBAL_LOGIT_TABLE),
    }
)
_OUTPUTS = frozenset({Kind.PUBLIC_LOGITS, Kind.SERVER_LOGITS})
_STATES = frozenset({Kind.GLOBAL_MODEL, Kind.RELAY_MODEL, Kind.CONTROL_GLOBAL, Kind.AGGREGATE})
_ANY = (Aim.EXFILTRATION, Aim.MEMBERSHIP, Aim.ATTRIBUTE)

FAMILIES = (  # the first that holds
    Family("control plane: made of nobody's examples", lambda k: k.control_plane, ()),
    Family("clients' examples as they are", lambda k: k.raw, (Aim.EXFILTRATION,), _ANY[1:]),
    Family("how fast a client works", _PACE.__contains__, (Aim.LINKAGE,)),
    Family("how well examples fit a model", _FIT.__contains__, _ANY[1:], (Aim.EXFILTRATION,)),
    Family(
        "how many examples, and of which classes: it says so of nobody in particular",
        lambda k: bool(k.counted) or k in _CLASSES | _PLANS,
        (Aim.ATTRIBUTE,),
        (Aim.EXFILTRATION,),
    ),
    Family("a generator or its critic", _GENERATORS.__contains__, (*_ANY, Aim.REGURGITATION)),
    Family(
        "what a layer of the network makes of each example",
        _BATCHES.__contains__,
        (Aim.EXFILTRATION, Aim.ATTRIBUTE, Aim.INVERSION),
        (Aim.MEMBERSHIP,),
    ),
    Family("synthetic or mixed examples", _SETS.__contains__, (*_ANY, Aim.RECONSTRUCTION)),
    Family("what training changed", _CHANGES.__contains__, (*_ANY, Aim.RECONSTRUCTION)),
    Family("how steep a loss is", lambda k: k is Kind.FISHER, (*_ANY, Aim.RECONSTRUCTION)),
    Family("a model's outputs, example by example", _OUTPUTS.__contains__, _ANY),
    Family("what a model makes of each example", lambda k: k is Kind.FEATURES, (*_ANY, Aim.INVERSION)),
    Family("means over a class", _MEANS.__contains__, (*_ANY, Aim.INVERSION), (Aim.RECONSTRUCTION, Aim.LINKAGE)),
    Family("a model, or a sum of uploads", _STATES.__contains__, (*_ANY, Aim.INVERSION)),
    Family(
        "a kind that fedaudit does not know",
        lambda k: True,
        (*_ANY, Aim.RECONSTRUCTION),
        (Aim.INVERSION, Aim.REGURGITATION, Aim.LINKAGE),
    ),
)


def find_family(kind: Kind, channels: Collection[Channel] = ()) -> Family:
    """The family of a kind that is read on these channels; no name says what clients' code puts into one."""
    if kind.control_plane and FROM_CLIENTS & set(channels):
        return FAMILIES[-1]
    return next(family for family in FAMILIES if family.holds(kind))


def list_aims(
    kind: Kind, channels: Collection[Channel], modality: Modality = "image"
) -> Iterator[tuple[Aim, bool]]:
    """Aims on a kind that is read on these channels, and whether a verdict may wait for each.

    Records can be hidden only in what clients make. A model of language writes texts, so it may write again
    what it was trained on, as a generator of images may.
    """
    family = find_family(kind, channels)
    aims = family.aims
    if modality == "language" and kind in _STATES | _CHANGES:
        aims = (*aims, Aim.REGURGITATION)
    for aim in (*aims, *family.besides):
        if aim is not Aim.EXFILTRATION or FROM_CLIENTS & set(channels):
            yield aim, aim in aims
