"""Evidence on images claimed from prototypes: identity first, likeness second, each with baselines.

How many reconstructions name a person is the headline (evaluation/naming.py); rank-1 of a random member says how
much of the group's mean is seen, and SSIM rises with n while identity vanishes. Every interval is corrected for
the number of buckets that are compared.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation.audit_net import audit_net
from fedaudit.attacks.evaluation.image_trials import WRONG_SAME, PrototypeBucket
from fedaudit.attacks.evaluation.judging import Judge, group_trials
from fedaudit.attacks.evaluation.naming import HELD_OUT
from fedaudit.attacks.evaluation.trials import CLASS_MEAN, count_looks
from fedaudit.attacks.evidence import Baseline, Evidence
from fedaudit.attacks.modality import images

Values = NDArray[np.float64]
Indices = NDArray[np.int64]
# Beside the attack, those that claim nothing of their own. A random image of the class names its share of
# members and as many held-out people, which HELD_OUT says of the attack's own images.
NAMERS = (CLASS_MEAN, WRONG_SAME)


def judge_images(buckets: Sequence[PrototypeBucket], rng: np.random.Generator) -> list[Evidence]:
    """All evidence of all buckets, and one negative control over all trials."""
    if not buckets:
        return []
    result = [e for b in buckets for e in _judge_bucket(b, count_looks(buckets), rng)]
    trials = [t for b in buckets for t in b.trials]
    hits = np.array([t.name_non_member(t.claimed) for t in trials])
    silent = Judge(control="negative", note="an image that was never trained on in the place of the members")
    chance = float(np.mean([1 / len(t.held_out) for t in trials]))
    clients = np.array([t.client for t in trials])
    return [*result, silent.judge_hits("named", hits, groups=clients, chance=chance)]


def call_prototypes(e: Evidence, thing: str) -> Evidence:
    """Evidence of trials that are written for prototypes, in the words of what stands in their place."""
    baselines = tuple(replace(b, name=b.name.replace("prototype", thing)) for b in e.baselines)
    return replace(e, baselines=baselines, note=e.note.replace("prototype", thing))


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
    named = {"": np.array([t.named.hits[0] for t in b.trials])}
    namers = {*NAMERS, *b.trials[0].blind}
    named |= {name: b.name(x, which) for name, (which, x) in blind.items() if name in namers}
    named[HELD_OUT] = np.array([t.named.luck[0] for t in b.trials])
    rank1 = {name: r.rank1 for name, r in ranks.items()}
    rank5 = {name: r.rank5 for name, r in ranks.items()}
    decibel = {name: images.psnr(x, b.targets[w]) for name, (w, x) in pairs.items()}
    to_mean = {name: images.ssim(x, means[w]) for name, (w, x) in pairs.items()}
    net = audit_net(b.truth)
    distance = {n: net.distance(x, b.targets[w]) for n, (w, x) in pairs.items()}
    consistent = {n: (net.classes(x) == b.labels[w]).astype(float) for n, (w, x) in pairs.items()}
    skill = f"the audit net is right on {net.accuracy:.0%} of non-members"
    control = rank1[WRONG_SAME] if WRONG_SAME in rank1 else b.rank_non_members().rank1
    groups = {name: b.clients[which] for name, (which, _) in pairs.items()}

    galleries = f"galleries of {b.size} images of one class"

    def hits(measure: str, values: dict[str, Values], chance: float | None, note: str = galleries) -> Evidence:
        others = {name: v for name, v in values.items() if name}
        return judge.judge_hits(measure, values[""], others, groups=groups, chance=chance, note=note)

    def mean(
        measure: str,
        values: dict[str, Values],
        bounds: stats.Interval | None = None,
        note: str = "",
        of: stats.Groups = b.clients,
    ) -> Evidence:
        others = {name: v for name, v in values.items() if name}
        return judge.judge_values(measure, values[""], others, rng, groups=of, bounds=bounds, note=note)

    single = all(t.n == 1 for t in b.trials)
    beside = "the class mean" if single else "the class mean and the members' own mean"
    found = [
        hits("named", named, None, f"reconstructions nearer to one member than to all non-members, {beside}"),
        hits("rank1", rank1, 1 / b.size),
        _judge_residual_risk(
            judge,
            rank1[""],
            control,
            (b.clients, groups.get(WRONG_SAME, b.clients)),
            "the wrong prototype" if WRONG_SAME in blind else "a non-member",
        ),
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
    if not single:
        found.append(
            judge.judge_leaning(np.array([t.lean_to_member(t.claimed) for t in b.trials]), rng, groups=b.clients)
        )
    if WRONG_SAME in blind:
        which, _ = blind[WRONG_SAME]
        gain = likeness[""][which] - likeness[WRONG_SAME]
        note = "SSIM minus that of the wrong prototype, in the same trials"
        found.append(mean("ssim_gain", {"": gain}, (-2, 2), note, b.clients[which]))
    return found


def _judge_residual_risk(
    judge: Judge, hits: Values, control: Values, clients: tuple[Indices, Indices], whose: str
) -> Evidence:
    """Rank-1 beyond that of the control; `clients` of the trials of both."""
    found = stats.residual_risk(
        hits, control, groups=(group_trials(clients[0]), group_trials(clients[1])), alpha=judge.alpha
    )
    return judge.state(
        "residual_risk",
        found.value if found else 0.0,
        len(hits),
        found.interval if found else None,
        [Baseline(name="none beyond the control", value=0.0)],
        f"rank-1 beyond that of {whose}",
    )
