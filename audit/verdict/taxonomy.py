"""What published catalogues call a finding: one table, editions pinned, because ids move between editions.

NIST AI 100-2 E2025 (one name can have several ids, so the id is always given); MITRE ATLAS 5.6.0, which has no
technique that names federated learning, so its ids are the nearest, never more; OWASP Machine Learning Security
Top 10 of 2023; EDPB Opinion 28/2024, whose tests of anonymity are named in words; laws and guides by article.
"""

from collections.abc import Mapping

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
