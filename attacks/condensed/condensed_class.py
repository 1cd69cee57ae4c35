"""Condensed class: does a condensed image show what its class looks like?

FedDC says that people cannot tell the class of a condensed image, and takes that for privacy. Labels are
sent with the images, so the class is no secret of the message; what is tested is the statement. The judge
is a classifier of its own architecture, trained on auxiliary images; images get their usual brightness
and contrast first, but are not clipped.

Blind adversaries: the share of the largest class, and the same classifier on images of pure noise. The
negative control is noise in the place of the images; the planted leak is real images of the class.

Claim: guess, of_noise, label, sender [k], artifact, origin [k]; judge [1], the classifier.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.condensed._images import (
    AIDS,
    REAL_START,
    REQUIRES,
    collect_condensed_images,
    match_brightness,
    none_here,
)
from fedaudit.attacks.evaluation.audit_net import audit_net
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY
from fedaudit.attacks.evaluation.trials import median_size, size_range
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, eq=False)
class _OwnImages:
    """The attacker's own images in the place of the auditor's."""

    auxiliary: Examples
    reference: Examples


class CondensedClass(Attack):
    card = Card(
        title="Class recognised in condensed images",
        source="independent classifier, for the visual claim of FedDC",
        aim=Aim.ATTRIBUTE,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=REQUIRES,
        aids=AIDS,
        control="condensed",
        learns="what the class of a condensed image is, without reading its label",
        does_not_show="whether anything of a single image can be seen",
        remedy="do not count on condensed images being unreadable",
        uncounted="the class of an image is sent with it, so that seeing it says nothing new of a person",
        effort=Effort(seconds=2.0, grows=("pixels",)),
    )

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found, aux = collect_condensed_images(view), knowledge.granted_auxiliary
        order = rng.permutation(len(aux))
        test, rest = order[: len(aux) // 10], order[len(aux) // 10 :]
        held = _OwnImages(aux.only(rest), aux.only(test))
        net = audit_net(held)  # type: ignore[arg-type]
        judge = np.empty(1, dtype=object)
        judge[0] = net
        noise = rng.standard_normal(found["images"].shape)
        return {
            **{k: found[k] for k in ("label", "sender", "artifact", "origin")},
            "guess": net.classes(match_brightness(found["images"], aux.x)),
            "of_noise": net.classes(match_brightness(noise, aux.x)),
            "judge": judge,
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        label, hit = claim["label"], claim["guess"] == claim["label"]
        noise, sender = claim["of_noise"] == label, np.asarray(claim["sender"])
        sizes = [len(truth.members(str(a), int(c))) for a, c in zip(claim["artifact"], label, strict=True)]
        keys = [
            (str(o), size_range(str(o), n)) if n else ("", 0) for o, n in zip(claim["origin"], sizes, strict=True)
        ]
        every = sorted({k for k in keys if k[0]})
        found = []
        for key in every:
            rows = np.array([k == key for k in keys])
            n = median_size(np.array(sizes)[rows].tolist())
            found.append(self._evidence(hit[rows], noise[rows], label[rows], sender[rows], key[0], n, len(every)))
        real = truth.reference
        right = claim["judge"][0].classes(real.x[:1000]) == real.y[:1000]
        most = np.bincount(real.y[:1000]).max(initial=0) / max(1, len(right))
        planted = Judge(control="positive", note="real images in the place of condensed ones")
        commonest = [Baseline(name="largest class", value=float(most))]
        found.append(
            planted.judge_hits(
                "class_recognised",
                right,
                groups=stats.INDEPENDENT,  # images of nobody's, each by itself
                baselines=commonest,
            )
        )
        # Its answer to noise is nearly always one class: what counts is how often that class is wanted
        guess = np.bincount(claim["of_noise"]).argmax() if len(label) else 0
        usual = max(float((label == guess).mean()), _largest(label))
        silent = Judge(control="negative", note="noise in the place of condensed images")
        answer = [Baseline(name="the usual answer to noise", value=usual)]
        found.append(silent.judge_hits("class_recognised", noise, groups=sender, baselines=answer))
        return found

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        return none_here(view)

    def _evidence(
        self,
        hit: NDArray[np.bool_],
        noise: NDArray[np.bool_],
        label: NDArray[np.int64],
        sender: NDArray[np.int64],
        origin: str,
        n: float,
        looks: int,
    ) -> Evidence:
        judge = Judge(
            looks=looks,
            control="positive" if origin == REAL_START else "none",
            condition={"n": n, "origin": origin},
        )
        largest = [Baseline(name="largest class", value=_largest(label))]
        return judge.judge_hits(
            "class_recognised", hit, {"the classifier on noise": noise}, groups=sender, baselines=largest
        )


def _largest(label: NDArray[np.int64]) -> float:
    return float(np.bincount(label).max(initial=0) / max(1, len(label)))
