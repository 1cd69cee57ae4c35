"""M9 to M11: members behind prototypes and behind updates of the same run, and features out of two prototypes."""

from pathlib import Path

import numpy as np

from benchmarks.strength.bench import attack, blind, case, pick, tried, unplanted
from benchmarks.strength.figure import Figure, Piece, of
from benchmarks.strength.inversions import FEDERATION, NAME
from fedaudit.attacks.attack import Attack, Claim, Floats
from fedaudit.attacks.evaluation.tracing import OTHER
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.prototypes.prototype_difference import PrototypeDifference
from fedaudit.attacks.prototypes.prototype_membership import PrototypeMembership

ASKED = {5: 0.92, 20: 0.84, 100: 0.69, 500: 0.57}  # AUC at n


class Cosine(PrototypeMembership):
    """What most papers try: how far the candidate's features point the way the prototype does."""

    def score(self, claim: Claim, row: int, features: Floats) -> Floats:
        p = claim["prototype"][row]
        return np.asarray(features @ p / (np.linalg.norm(features, axis=1) * np.linalg.norm(p) + 1e-24))


def membership(out: Path) -> list[Figure]:
    """By the likelihood ratio and, beside it, by cosine."""
    where, replay = case(out, NAME, FEDERATION), {"sizes": list(ASKED), "clients": 10, "groups": 40}
    found = tried(where, PrototypeMembership(), replay)
    by_ratio, by_cosine = found.evidence, found.measured(Cosine())
    figures = []
    for n, least in ASKED.items():
        auc = pick(by_ratio, "auc", n=n)
        other, cosine = blind(auc, OTHER), pick(by_cosine, "auc", n=n)
        figures += [
            of(auc, "M9", f"likelihood ratio, n = {n}: AUC", least=least),
            Figure(row="M9", what="by another prototype of the class", value=other, least=0.47, most=0.53),
            of(cosine, "M9", f"cosine, n = {n}: AUC", most=0.56 if n >= 20 else None),
        ]
    return figures


def updates(out: Path) -> list[Figure]:
    """What clients sent in the last round: their prototypes of 500 images, and their models."""
    where, nothing = case(out, NAME, FEDERATION), {"clients": 0}
    tool: Attack = PrototypeMembership()
    auc = _sent(tried(where, tool, nothing, card=unplanted(tool)).evidence)
    figures = [of(auc, "M10", "likelihood ratio on prototypes as sent, n = 500: AUC", least=0.57)]
    tool = attack("loss_threshold")
    auc = _sent(tried(where, tool, nothing, card=unplanted(tool)).evidence, model="update")
    figures.append(of(auc, "M10", "loss of an uploaded model, n = 1,000: AUC", most=0.54))
    return figures


def _sent(found: list[Evidence], **condition: str) -> Evidence:
    return pick(found, "auc", origin="recorded", **condition)


def difference(out: Path) -> list[Figure]:
    """Single precision, as messages are."""
    tool = PrototypeDifference(PrototypeDifference.Config(grows=True))
    found = tried(
        case(out, NAME, FEDERATION), tool, {"sizes": [10, 100, 499], "clients": 2, "groups": 40}
    ).evidence
    return [
        of(pick(found, "feature_relative_error", n=n), "M11", f"difference at n = {n}: relative error", most=1e-3)
        for n in (10, 100, 499)
    ]


PIECES = (
    Piece("membership", ("M9",), membership),
    Piece("updates", ("M10",), updates),
    Piece("difference", ("M11",), difference),
)
