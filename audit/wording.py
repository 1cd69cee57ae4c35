"""Numbers into sentences: what was done, what came out, compared with what."""

from reports.result import Evidence, Outcome

MEASURES = {
    "rank1": "re-identification rank-1",
    "rank5": "re-identification rank-5",
    "median_rank": "median re-identification rank",
    "ssim": "structural similarity (SSIM)",
    "ssim_member_mean": "SSIM to the mean of the members",
    "psnr": "PSNR",
    "auc": "membership AUC",
    "count_exact_match": "clients whose class counts were recovered exactly",
    "residual_risk": "residual risk",
}


def measure_name(measure: str) -> str:
    """A measure in words."""
    if measure.startswith("tpr_at_fpr_"):
        return f"true-positive rate at {float(measure.removeprefix('tpr_at_fpr_')):.1%} false positives"
    return MEASURES.get(measure, measure.replace("_", " "))


def number(value: float, unit: str) -> str:
    if unit == "fraction":
        return f"{value:.1%}"
    if unit == "dB":
        return f"{value:.1f} dB"
    return f"{value:.3g}"


def condition(evidence: Evidence) -> str:
    """ "at n = 5" and the like; empty without conditions."""
    parts = [
        f"{k} = {v:g}" if isinstance(v, int | float) else str(v)
        for k, v in evidence.condition.items()
    ]
    return ", ".join(parts)


def sentence(evidence: Evidence) -> str:
    """One evidence: value, interval, trials, and the best blind adversary beside it."""
    text = f"{measure_name(evidence.measure)} {number(evidence.value, evidence.unit)}"
    if evidence.interval:
        low, high = (number(v, evidence.unit) for v in evidence.interval)
        text += f" (interval {low} to {high}, {evidence.trials} trials)"
    else:
        text += f" ({evidence.trials} trials)"
    if where := condition(evidence):
        text += f" for {where}"
    if evidence.baselines:
        pick = max if evidence.higher_is_worse else min
        best = pick(evidence.baselines, key=lambda b: b.value)
        text += f"; the best blind adversary got {number(best.value, evidence.unit)} ({best.name})"
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
