"""Gallery: test images without and with a backdoor's trigger, and what the attacked model makes of both."""

from collections.abc import Mapping

import numpy as np

from fedaudit.attacks.poisoning._backdoors import Backdoors
from fedaudit.audit.case.png import png
from fedaudit.audit.robustness.outcome import Outcome
from fedaudit.audit.robustness.plan import CONTROLS, Place, title
from fedaudit.reports.robustness import Triggered

IMAGES = 8


def triggered(outcomes: Mapping[Place, Outcome]) -> list[Triggered]:
    """For every backdoor under the mean, by most malicious clients, of the first seed."""
    places: dict[tuple[str, str], Place] = {}
    for place, run in outcomes.items():
        tried = place.adversary not in ("", *CONTROLS) and isinstance(run.case.compromise.adversary, Backdoors)
        key = place.setting, place.adversary
        if tried and place.rule.name == "mean" and place.malicious > getattr(places.get(key), "malicious", 0):
            places[key] = place
    return [_of(place, outcomes[place]) for place in places.values()]


def _of(place: Place, run: Outcome) -> Triggered:
    adversary = run.case.compromise.adversary
    assert isinstance(adversary, Backdoors)
    data, target = run.case.data, int(adversary.config.target)
    picked = np.flatnonzero(run.labels != target)[:IMAGES]
    stamped = run.images(adversary)[picked]
    plain, taken = run.answers[picked], run.triggered(adversary)[picked]
    hits = int((taken == target).sum())
    return Triggered(
        title=f"{place.setting}, rule mean: {title(place.changes['adversary'])}, {place.malicious} malicious",
        caption=f"The first {len(picked)} test images of other classes; above each what the model answers to it "
        "and, after the arrow, to the same image with the trigger. "
        f"{hits} of them become {data.classes[target]}.",
        columns=[f"{data.classes[a]} \u2192 {data.classes[b]}" for a, b in zip(plain, taken, strict=True)],
        rows={"test image": [png(x) for x in data.test.x[picked]], "with the trigger": [png(x) for x in stamped]},
    )
