"""Evidence on images claimed from prototypes: identity first, likeness second, each with baselines.

Re-identification rank-1 is the headline: its chance is known exactly, and SSIM rises with n while
identity vanishes. Every interval is corrected for the number of buckets that are compared.
"""

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation import anyone, images
from fedaudit.attacks.evaluation.audit_net import audit_net
from fedaudit.attacks.evaluation.reidentification import Ranks
from fedaudit.attacks.evidence import WHOLE, Baseline, Evidence
from fedaudit.attacks.prototypes._trials import WRONG_SAME, Bucket

CONFIDENCE = 0.95
CONTROL_CONFIDENCE = 0.99  # an audit has many negative controls, and one that fires spoils a result
Values = NDArray[np.float64]


def evidence(found: list[Bucket], rng: np.random.Generator) -> list[Evidence]:
    """All evidence of all buckets, and one negative control over all trials."""
    looks = sum(b.origin != WHOLE for b in found)  # what is only compared is no look
    alpha = stats.corrected(1 - CONFIDENCE, looks)
    result = [e for bucket in found for e in _Judge(bucket, looks, alpha, rng).evidence()]
    return [*result, _negative(found)] if found else []


class _Judge:
    """Writes the evidence of one bucket."""

    def __init__(self, bucket: Bucket, looks: int, alpha: float, rng: np.random.Generator) -> None:
        self.bucket, self.looks, self.alpha, self.rng = bucket, looks, alpha, rng

    def evidence(self) -> list[Evidence]:
        b = self.bucket
        means = b.member_means()
        everyone = np.arange(len(b))
        pairs = {"": (everyone, b.claimed), **b.blind}
        ranks = {name: b.ranks(x, which) for name, (which, x) in pairs.items()}
        likeness = {n: images.ssim(x, b.targets[w]) for n, (w, x) in pairs.items()}
        rank1 = {name: r.rank1 for name, r in ranks.items()}
        rank5 = {name: r.rank5 for name, r in ranks.items()}
        decibel = {name: images.psnr(x, b.targets[w]) for name, (w, x) in pairs.items()}
        to_mean = {name: images.ssim(x, means[w]) for name, (w, x) in pairs.items()}
        net = audit_net(b.truth)
        apart = {n: net.distance(x, b.targets[w]) for n, (w, x) in pairs.items()}
        named = {n: (net.classes(x) == b.labels[w]).astype(float) for n, (w, x) in pairs.items()}
        skill = f"the audit net is right on {net.accuracy:.0%} of non-members"
        control = rank1[WRONG_SAME] if WRONG_SAME in rank1 else b.ranks_of_non_members().rank1
        found = [
            self._proportion("rank1", rank1, 1 / b.size),
            self._residual_risk(rank1[""], control),
            *self._anyone(),
            self._proportion("rank5", rank5, min(5 / b.size, 1)),
            self._median_rank(ranks),
            self._mean("ssim", "index", likeness, (-1, 1)),
            self._mean("psnr", "dB", decibel),
            self._mean("ssim_member_mean", "index", to_mean, (-1, 1)),
            self._mean(
                "audit_net_distance",
                "index",
                apart,
                higher_is_worse=False,
                note=f"in features of an independent classifier; {skill}",
            ),
            self._mean("class_consistency", "fraction", named, (0, 1), note=skill),
        ]
        if WRONG_SAME in b.blind:
            which, wrong = b.blind[WRONG_SAME]
            gain = likeness[""][which] - likeness[WRONG_SAME]
            gaps = {"": b.best_of_n_gap(b.claimed, everyone), WRONG_SAME: b.best_of_n_gap(wrong, which)}
            found += [
                self._mean(
                    "ssim_gain",
                    "index",
                    {"": gain},
                    (-2, 2),
                    note="SSIM minus that of the wrong prototype, in the same trials",
                ),
                self._mean(
                    "best_of_n_gap",
                    "index",
                    gaps,
                    (-2, 2),
                    note="best SSIM over the members minus best SSIM over as many non-members",
                ),
            ]
        return found

    def _anyone(self) -> list[Evidence]:
        own, blind = self.bucket.firsts()
        like = self._say(anyone.MEASURE, 0.0, "fraction", None, ())
        return anyone.evidence(own, blind, WRONG_SAME, like)

    def _median_rank(self, ranks: dict[str, Ranks]) -> Evidence:
        medians = {name: float(np.median(r.rank)) for name, r in ranks.items()}
        baselines = [Baseline(name="chance", value=(self.bucket.size + 1) / 2)]
        baselines += [Baseline(name=name, value=m) for name, m in medians.items() if name]
        return self._say("median_rank", medians[""], "rank", None, tuple(baselines), higher_is_worse=False)

    def _proportion(self, measure: str, hits: dict[str, Values], chance: float) -> Evidence:
        """Clopper-Pearson, since Wilson is too narrow at a chance of 1 %."""
        baselines = [Baseline(name="chance", value=chance)]
        for name, h in hits.items():
            if name:
                bounds = stats.clopper_pearson(h.sum(), len(h), self.alpha)
                baselines.append(Baseline(name=name, value=float(h.mean()), interval=bounds))
        own = hits[""]
        return self._say(
            measure,
            float(own.mean()),
            "fraction",
            stats.clopper_pearson(own.sum(), len(own), self.alpha),
            tuple(baselines),
            note=f"galleries of {self.bucket.size} images of one class",
        )

    def _mean(
        self,
        measure: str,
        unit: str,
        values: dict[str, Values],
        bounds: stats.Interval | None = None,
        note: str = "",
        higher_is_worse: bool = True,
    ) -> Evidence:
        own = values[""]
        return self._say(
            measure,
            float(own.mean()),
            unit,
            stats.mean_interval(own, self.rng, alpha=self.alpha, bounds=bounds),
            tuple(Baseline(name=n, value=float(v.mean())) for n, v in values.items() if n),
            note=note,
            trials=len(own),
            higher_is_worse=higher_is_worse,
        )

    def _residual_risk(self, main: Values, control: Values) -> Evidence:
        found = stats.residual_risk(main.sum(), len(main), control.sum(), len(control), self.alpha)
        blind = "the wrong prototype" if WRONG_SAME in self.bucket.blind else "a non-member"
        return self._say(
            "residual_risk",
            found.value if found else 0.0,
            "fraction",
            found.interval if found else None,
            (Baseline(name="none beyond the control", value=0.0),),
            note=f"rank-1 beyond that of {blind}",
        )

    def _say(
        self,
        measure: str,
        value: float,
        unit: str,
        interval: stats.Interval | None,
        baselines: tuple[Baseline, ...],
        *,
        higher_is_worse: bool = True,
        note: str = "",
        trials: int | None = None,
    ) -> Evidence:
        b = self.bucket
        fallback = int((b.extractors == "global model").sum())
        if fallback:
            note += f"; {fallback} of {len(b)} attacked with the global model, which hides a leak"
        return Evidence(
            measure=measure,
            value=value,
            unit=unit,
            trials=trials or len(b),
            interval=interval,
            baselines=baselines,
            confidence=CONFIDENCE,
            looks=self.looks,
            control="positive" if b.planted else "none",
            condition={"n": b.samples, "origin": b.origin},
            higher_is_worse=higher_is_worse,
            note=note.lstrip("; "),
        )


def _negative(found: list[Bucket]) -> Evidence:
    hits = np.concatenate([b.ranks_of_non_members().rank1 for b in found])
    return Evidence(
        measure="rank1",
        value=float(hits.mean()),
        unit="fraction",
        trials=len(hits),
        interval=stats.clopper_pearson(hits.sum(), len(hits), 1 - CONTROL_CONFIDENCE),
        baselines=(Baseline(name="chance", value=1 / found[0].size),),
        confidence=CONTROL_CONFIDENCE,
        control="negative",
        note="an image that was never trained on in the place of the member",
    )
