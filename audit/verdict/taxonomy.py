"""What published catalogues call a finding: one table, editions pinned, because ids move between editions.

NIST AI 100-2 E2025 (one name can have several ids, so the id is always given); MITRE ATLAS 5.6.0, which has no
technique that names federated learning, so its ids are the nearest, never more; OWASP Machine Learning Security
Top 10 of 2023; EDPB Opinion 28/2024, whose tests of anonymity are named in words; laws and guides by article.
Below it: what the aims of attacks are, and what they are about.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from fedaudit.fl.artifact import FROM_CLIENTS, Channel
from fedaudit.fl.kinds import UPDATES, Kind, Need
from fedaudit.fl.threats.threat import Aim
from fedaudit.reports.record import Taxon
from fedaudit.reports.result import Finding

EDITIONS = {
    "NIST AI 100-2": "E2025",
    "MITRE ATLAS": "5.6.0",
    "OWASP ML Top 10": "2023",
    "EDPB Opinion": "28/2024",
    "AI Act": "(EU) 2024/1689",
    "GDPR": "(EU) 2016/679",
    "NIST SP 800-226": "2025",
    "WP29 Opinion": "05/2014",
}
NEAREST = {"MITRE ATLAS"}  # no exact id there

Row = Mapping[str, tuple[str, ...]]
_POISONED: Row = {"AI Act": ("Art. 15(4)", "Art. 15(5)")}
ROWS: dict[str, Row] = {
    "reconstruction": {
        "NIST AI 100-2": ("NISTAML.032",),
        "MITRE ATLAS": ("AML.T0035", "AML.T0024.001"),
        "OWASP ML Top 10": ("ML03:2023",),
        "EDPB Opinion": ("extraction: reconstruction, model inversion",),
        "GDPR": ("Recital 26",),
        "AI Act": ("Art. 15(5)",),
    },
    "membership": {
        "NIST AI 100-2": ("NISTAML.033",),
        "MITRE ATLAS": ("AML.T0024.000",),
        "OWASP ML Top 10": ("ML04:2023",),
        "EDPB Opinion": ("extraction or queries: membership inference",),
    },
    "attribute": {
        "NIST AI 100-2": ("NISTAML.034",),
        "MITRE ATLAS": ("AML.T0024.000", "AML.T0035"),
        "EDPB Opinion": ("attribute inference",),
        "GDPR": ("Art. 9",),
    },
    "differencing": {
        "NIST AI 100-2": ("NISTAML.032", "NISTAML.033"),
        "MITRE ATLAS": ("AML.T0035",),
        "OWASP ML Top 10": ("ML03:2023", "ML04:2023"),
        "EDPB Opinion": ("means reasonably likely to be used by another person",),
    },
    "linkage": {
        "MITRE ATLAS": ("AML.T0024.000",),
        "OWASP ML Top 10": ("ML04:2023",),
        "WP29 Opinion": ("linkability",),
    },
    "regurgitation": {
        "NIST AI 100-2": ("NISTAML.038", "NISTAML.037"),
        "MITRE ATLAS": ("AML.T0024.001",),
        "OWASP ML Top 10": ("ML03:2023",),
        "EDPB Opinion": ("regurgitation",),
    },
    "disclosure": {"EDPB Opinion": ("extraction: direct",), "GDPR": ("Recital 26", "Art. 5(1)(c)")},
    "dp": {
        "EDPB Opinion": ("methodological choices: documentation of privacy-preserving techniques",),
        "NIST SP 800-226": ("evaluating guarantees: unit, epsilon, delta, implementation hazards",),
    },
    "availability poisoning": {
        "NIST AI 100-2": ("NISTAML.011",),
        "MITRE ATLAS": ("AML.T0018.000", "AML.T0020", "AML.T0031"),
        "OWASP ML Top 10": ("ML10:2023",),
        **_POISONED,
    },
    "label poisoning": {
        "NIST AI 100-2": ("NISTAML.013",),
        "MITRE ATLAS": ("AML.T0020", "AML.T0031"),
        "OWASP ML Top 10": ("ML02:2023",),
        **_POISONED,
    },
    "count inflation": {
        "NIST AI 100-2": ("NISTAML.011",),
        "MITRE ATLAS": ("AML.T0018.000", "AML.T0031"),
        "OWASP ML Top 10": ("ML08:2023",),
        **_POISONED,
    },
    "backdoor": {
        "NIST AI 100-2": ("NISTAML.023", "NISTAML.026"),
        "MITRE ATLAS": ("AML.T0018.000", "AML.T0043.004"),
        "OWASP ML Top 10": ("ML10:2023", "ML02:2023"),
        "AI Act": ("Art. 15(5)",),
    },
    "targeted poisoning": {
        "NIST AI 100-2": ("NISTAML.024", "NISTAML.026"),
        "MITRE ATLAS": ("AML.T0018.000",),
        "OWASP ML Top 10": ("ML10:2023",),
        "AI Act": ("Art. 15(4)",),
    },
    "robustness": {"AI Act": ("Art. 15(4)",)},
}

# By aim; plugins by name that the catalogues call by another name than others of their aim
SORTS: Mapping[Aim, str] = {
    Aim.EXFILTRATION: "reconstruction",
    Aim.MEMBERSHIP: "membership",
    Aim.ATTRIBUTE: "attribute",
    Aim.INVERSION: "reconstruction",
    Aim.RECONSTRUCTION: "reconstruction",
    Aim.REGURGITATION: "regurgitation",
    Aim.LINKAGE: "linkage",
    Aim.AVAILABILITY: "availability poisoning",
    Aim.TARGETED: "targeted poisoning",
    Aim.BACKDOOR: "backdoor",
    Aim.INTEGRITY: "count inflation",
    Aim.DROPOUT: "robustness",
}
EXCEPTIONS = {
    **dict.fromkeys(("prototype_difference", "prototype_collusion", "sum_difference"), "differencing"),
    **dict.fromkeys(("label_flip", "condensed_poison"), "label poisoning"),
    "free_rider": "availability poisoning",
}
SOURCES = {"disclosure": "disclosure", "accountant": "dp", "lint": "dp", "robustness": "robustness"}


def taxa(sort: str) -> list[Taxon]:
    """The row of a sort of finding."""
    return [
        Taxon(catalogue=name, edition=EDITIONS[name], ids=list(ids), nearest=name in NEAREST)
        for name, ids in ROWS[sort].items()
    ]


def sort_of(plugin: str, aim: Aim) -> str:
    """The sort of an attack or adversary."""
    return EXCEPTIONS.get(plugin) or SORTS[aim]


def place_finding(finding: Finding) -> list[Taxon]:
    """What a finding is called that is not an attack's, by where it comes from."""
    return finding.taxonomy or taxa(SOURCES[finding.source])


def in_words(row: list[Taxon]) -> str:
    """ "NIST AI 100-2 E2025 NISTAML.011; MITRE ATLAS 5.6.0, nearest AML.T0020"."""
    return "; ".join(
        f"{t.catalogue} {t.edition}{', nearest' if t.nearest else ''} {', '.join(t.ids)}" for t in row
    )


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
_COLUMNS = frozenset({Kind.FEATURE_STATS})
_OUTPUTS = frozenset({Kind.PUBLIC_LOGITS, Kind.SERVER_LOGITS})
_STATES = frozenset({Kind.GLOBAL_MODEL, Kind.RELAY_MODEL, Kind.CONTROL_GLOBAL, Kind.AGGREGATE})
_ANY = (Aim.EXFILTRATION, Aim.MEMBERSHIP, Aim.ATTRIBUTE)

FAMILIES = (  # the first that holds
    Family("control plane: made of nobody's examples", lambda k: k.control_plane, ()),
    Family("clients' examples as they are", lambda k: k is Kind.SEED_SAMPLES, (Aim.EXFILTRATION,), _ANY[1:]),
    Family("how fast a client works", _PACE.__contains__, (Aim.LINKAGE,)),
    Family("how well examples fit a model", _FIT.__contains__, _ANY[1:], (Aim.EXFILTRATION,)),
    Family(
        "how many examples, and of which classes: it says so of nobody in particular",
        lambda k: bool(k.counted) or k in _CLASSES | _PLANS,
        (Aim.ATTRIBUTE,),
        (Aim.EXFILTRATION,),
    ),
    Family("what columns of rows are like: least and greatest are somebody's", _COLUMNS.__contains__, _ANY),
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
    kind: Kind, channels: Collection[Channel], gives: Collection[Need] = ()
) -> Iterator[tuple[Aim, bool]]:
    """Aims on a kind that is read on these channels, and whether a verdict may wait for each.

    Records can be hidden only in what clients make. A model of language writes texts, so it may write again
    what it was trained on, as a generator of images may.
    """
    family = find_family(kind, channels)
    aims = family.aims
    if "next tokens" in gives and kind in _STATES | _CHANGES:
        aims = (*aims, Aim.REGURGITATION)
    for aim in (*aims, *family.besides):
        if aim is not Aim.EXFILTRATION or FROM_CLIENTS & set(channels):
            yield aim, aim in aims
