"""Prototypes before and after poisoning: where forged prototypes moved the shared ones, in two dimensions.

The plane is that of the two largest principal components of both sets together.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.robustness.outcome import Outcome
from fedaudit.audit.robustness.plan import CONTROLS, Place, title
from fedaudit.audit.settings import catalog
from fedaudit.fl.kinds import Kind
from fedaudit.reports.robustness import MovedPrototypes

Points = NDArray[np.float64]


def moved(outcomes: Mapping[Place, Outcome]) -> list[MovedPrototypes]:
    """For every attack that forges prototypes, by most malicious clients, of the first seed."""
    clean = {(p.setting, p.rule.name, p.seed): run for p, run in outcomes.items() if not p.adversary}
    places: dict[tuple[str, str, str], Place] = {}
    for place in outcomes:
        if place.adversary in ("", *CONTROLS) or place.bisected or not _forges(place):
            continue
        known = places.setdefault((place.setting, place.rule.name, place.adversary), place)
        if place.malicious > known.malicious:
            places[place.setting, place.rule.name, place.adversary] = place
    found = []
    for place in places.values():
        before = clean.get((place.setting, place.rule.name, place.seed))
        if before is None or not (common := before.prototypes.keys() & outcomes[place].prototypes.keys()):
            continue
        run = outcomes[place]
        classes = sorted(common)
        old, new, kept = plane(
            np.stack([before.prototypes[c] for c in classes]), np.stack([run.prototypes[c] for c in classes])
        )
        found.append(
            MovedPrototypes(
                title=f"{place.setting}, rule {place.rule.name}: {title(place.changes['adversary'])}, "
                f"{place.malicious} malicious",
                classes=[run.case.data.classes[c] for c in classes],
                before=[(float(x), float(y)) for x, y in old],
                after=[(float(x), float(y)) for x, y in new],
                kept=kept,
            )
        )
    return found


def plane(before: Points, after: Points) -> tuple[Points, Points, float]:
    """[c, D] twice to [c, 2] twice, and the share of their variance that the plane holds."""
    both = np.concatenate([before, after]).astype(np.float64)
    both -= both.mean(axis=0)
    _, sizes, axes = np.linalg.svd(both, full_matrices=False)
    flat = np.zeros((len(both), 2))
    flat[:, : min(2, len(axes))] = both @ axes[:2].T
    signs = np.sign(flat[np.abs(flat).argmax(axis=0), [0, 1]])  # of an axis, which the decomposition leaves open
    flat *= np.where(signs == 0, 1, signs)
    total = float((sizes**2).sum())
    return flat[: len(before)], flat[len(before) :], float((sizes[:2] ** 2).sum()) / total if total else 1.0


def _forges(place: Place) -> bool:
    card = catalog.load("adversaries", str(place.changes["adversary"]["name"])).card
    return Kind.LOCAL_PROTOTYPES in card.kinds
