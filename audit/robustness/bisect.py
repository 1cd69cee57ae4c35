"""Bisection: further numbers of malicious clients to try, until it is known how few of them break each rule.

Only the attack that hurt a rule most at the largest number tried is run, up to the largest minority. A rule that
breaks at some number is taken to break at every larger one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedaudit.audit.robustness.advice import KEPT
from fedaudit.audit.robustness.plan import CONTROLS, Place, fit, places
from fedaudit.audit.settings.config import Config
from fedaudit.reports.robustness import MatrixCell


def further(config: Config, cells: Sequence[MatrixCell], ran: Mapping[str, object]) -> list[Place]:
    """Runs still to make, by folder none that ran; nothing where every rule's least number is known."""
    matrix, found = config.matrix, dict[str, Place]()
    assert matrix is not None
    for setting, family in dict.fromkeys((c.setting, c.family) for c in cells):
        own = [c for c in cells if (c.setting, c.family) == (setting, family)]
        most = max(c.malicious for c in own)
        worst = min(
            (c for c in own if c.malicious == most), key=lambda c: c.accuracy / max(c.clean, 1e-12)
        ).adversary
        broken = {c.malicious: c.accuracy < KEPT * c.clean for c in own if c.adversary == worst}
        number = next_number(broken, (config.federation.clients - 1) // 2)
        if not number:
            continue
        spec = next(s for s in matrix.adversaries if fit(s) == worst)
        alone = matrix.model_copy(update={"malicious": (number,), "adversaries": (spec,)})
        for place in places(config.model_copy(update={"matrix": alone})):
            wanted = (place.setting, place.rule.family) == (setting, family)
            if wanted and place.adversary not in CONTROLS and place.folder not in ran:
                found[place.folder] = replace(place, bisected=True)
    return list(found.values())


def next_number(broken: Mapping[int, bool], largest: int) -> int | None:
    """Which number to try next, of known answers; None where the least that breaks it is known, or none does."""
    low = max((m for m, yes in broken.items() if not yes), default=0)
    high = min((m for m, yes in broken.items() if yes), default=largest + 1)
    if high > largest:
        return largest if low < largest else None
    return (low + high) // 2 if high - low > 1 else None
