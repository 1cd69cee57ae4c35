"""Evidence on images claimed from prototypes: identity first, likeness second, each with baselines.

Re-identification rank-1 is the headline: its chance is known exactly, and SSIM rises with n while
identity vanishes. Every interval is corrected for the number of buckets that are compared.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation import images
from fedaudit.attacks.evaluation.audit_net import audit_net
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.trials import count_looks
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.prototypes._trials import WRONG_SAME, PrototypeBucket

Values = NDArray[np.float64]


def judge_images(buckets: Sequence[PrototypeBucket], rng: np.random.Generator) -> list[Evidence]:
    """All evidence of all buckets, and one negative control over all trials."""
    if not buckets:
        return []
    result = [e for b in buckets for e in _judge_bucket(b, count_looks(buckets), rng)]
    hits = np.concatenate([b.rank_non_members().rank1 for b in buckets])
    silent = Judge(control="negative", note="an image that was never trained on in the place of the member")
    return [*result, silent.judge_hits("rank1", hits, {}, chance=1 / buckets[0].size)]


def _judge_bucket(b: PrototypeBucket, looks: int, rng: np.random.Generator) -> list[Evidence]:
    fallback = int((b.extractors == "global model").sum())
    note = f"{fallback} of {len(b)} attacked with the global model, which hides a leak" if fallback else ""
    judge = b.judge(looks, note)
    means = b.average_members()
    everyone = np.arange(len(b))
    blind = b.blind
    pairs = {"": (everyone, b.claimed), **blind}
    ranks = {name: b.rank(x, which) for name, (which, x) in pairs.items()}
    likeness = {n: images.ssim(x, b.targets[w]) for n, (w, x) in pairs.items()}
    rank1 = {name: r.rank1 for name, r in ranks.items()}
    rank5 = {name: r.rank5 for name, r in ranks.items()}
    decibel = {name: images.psnr(x, b.targets[w]) for name, (w, x) in pairs.items()}
    to_mean = {name: images.ssim(x, means[w]) for name, (w, x) in pairs.items()}
    net = audit_net(b.truth)
    distance = {n: net.distance(x, b.targets[w]) for n, (w, x) in pairs.items()}
    consistent = {n: (net.classes(x) == b.labels[w]).astype(float) for n, (w, x) in pairs.items()}
    skill = f"the audit net is right on {net.accuracy:.0%} of non-members"
    control = rank1[WRONG_SAME] if WRONG_SAME in rank1 else b.rank_non_members().rank1

    def hits(measure: str, values: dict[str, Values], chance: float) -> Evidence:
        others = {name: v for name, v in values.items() if name}
        galleries = f"galleries of {b.size} images of one class"
        return judge.judge_hits(measure, values[""], others, chance=chance, note=galleries)

    def mean(
        measure: str, values: dict[str, Values], bounds: stats.Interval | None = None, note: str = ""
    ) -> Evidence:
        others = {name: v for name, v in values.items() if name}
        return judge.judge_values(measure, values[""], others, rng, bounds=bounds, note=note)

    found = [
        hits("rank1", rank1, 1 / b.size),
        _judge_residual_risk(
            judge, rank1[""], control, "the wrong prototype" if WRONG_SAME in blind else "a non-member"
        ),
        *judge.judge_firsts(*b.compare_nearest(), WRONG_SAME),
        hits("rank5", rank5, min(5 / b.size, 1)),
        judge.state(
            "median_rank",
            float(np.median(ranks[""].rank)),
            len(b),
            None,
            [
                Baseline(name="chance", value=(b.size + 1) / 2),
                *(Baseline(name=n, value=float(np.median(r.rank))) for n, r in ranks.items() if n),
            ],
        ),
        mean("ssim", likeness, (-1, 1)),
        mean("psnr", decibel),
        mean("ssim_member_mean", to_mean, (-1, 1)),
        mean("audit_net_distance", distance, note=f"in features of an independent classifier; {skill}"),
        mean("class_consistency", consistent, (0, 1), note=skill),
    ]
    if WRONG_SAME in blind:
        which, wrong = blind[WRONG_SAME]
        gain = likeness[""][which] - likeness[WRONG_SAME]
        gaps = {"": b.compare_best_of_n(b.claimed, everyone), WRONG_SAME: b.compare_best_of_n(wrong, which)}
        best = "best SSIM over the members minus best SSIM over as many non-members"
        found += [
            mean("ssim_gain", {"": gain}, (-2, 2), "SSIM minus that of the wrong prototype, in the same trials"),
            mean("best_of_n_gap", gaps, (-2, 2), best),
        ]
    return found


def _judge_residual_risk(judge: Judge, hits: Values, control: Values, whose: str) -> Evidence:
    """Rank-1 beyond that of the control."""
    found = stats.residual_risk(hits.sum(), len(hits), control.sum(), len(control), judge.alpha)
    return judge.state(
        "residual_risk",
        found.value if found else 0.0,
        len(hits),
        found.interval if found else None,
        [Baseline(name="none beyond the control", value=0.0)],
        f"rank-1 beyond that of {whose}",
    )
