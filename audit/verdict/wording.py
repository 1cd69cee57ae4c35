"""Numbers into sentences: what was done, what came out, compared with what."""

from attacks.evidence import Evidence
from attacks.measure import named
from reports import format as fmt
from reports.result import Outcome


def sentence(evidence: Evidence) -> str:
    """One evidence: value, interval, trials, and the best blind adversary beside it."""
    text = f"{fmt.sentence_case(named(evidence.measure).words)} {fmt.quantity(evidence.value, evidence.unit)}"
    if evidence.interval:
        low, high = (fmt.quantity(v, evidence.unit) for v in evidence.interval)
        text += f" (interval {low} to {high}, {evidence.trials} trials)"
    else:
        text += f" ({evidence.trials} trials)"
    if where := evidence.place:
        text += f" for {where}"
    if evidence.baselines:
        pick = max if evidence.higher_is_worse else min
        best = pick(evidence.baselines, key=lambda b: b.value)
        text += f"; the best blind adversary got {fmt.quantity(best.value, evidence.unit)} ({best.name})"
    return text


def title(outcome: Outcome, attack: str, learns: str) -> str:
    """The finding's headline, as a sentence."""
    return {
        Outcome.DEMONSTRATED: f"{attack}: the adversary learns {learns}",
        Outcome.NOT_DEMONSTRATED: f"{attack}: no leak was demonstrated",
        Outcome.INCONCLUSIVE: f"{attack}: the attack could not tell",
        Outcome.NOT_APPLICABLE: f"{attack}: does not apply to this run",
        Outcome.FAILED: f"{attack}: the attack failed to run",
    }[outcome]
