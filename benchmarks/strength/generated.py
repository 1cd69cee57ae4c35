"""M13 and M14: condensed images of so many images, and critics of generators trained on so many."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.strength.bench import FRAME, attack, case, pick, tried
from benchmarks.strength.figure import Figure, Piece, of
from fedaudit.attacks.condensed._images import REAL_START
from fedaudit.attacks.evaluation import membership
from fedaudit.attacks.generators._controls import controls, match_planted_pair
from fedaudit.attacks.generators.critic_score import standardise_scores
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.observer.generators import known_generators
from fedaudit.audit.observer.truth import images
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.overrides import overridden
from fedaudit.fl.families.visit_noise import NoiseConfig, line_of, protect
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE
from fedaudit.fl.recording.noise import NoiseSource

CONDENSED = {
    "federation": {
        "clients": 50,
        "partition": {"name": "dirichlet", "alpha": 0.05, "min_examples": 10},
        "availability": {"name": "uniform", "count": 6},
        "model": "small_cnn",
        "holdout": {"auxiliary": 0.3333, "reference": 0.3333, "own": 0},
    }
}
TITLES = {"feddc": "FedDC", "feddc_plus": "FedDC+"}
GAN = {"unit": "step", "batch_size": 32, "width": 16, "latent": 64}
GENERATING = {
    "federation": {
        "clients": 10,
        "partition": "iid",
        "model": "lenet_f",
        "holdout": {"auxiliary": 0.3, "reference": 0.1, "own": 0},
    },
    "method": {"name": "gandalf", "rounds": 1, "gan": GAN},
}
NOISE = {1e-5: "GANDALF's noise of 1e-5", 0.1: "noise of .1"}


def condensed(out: Path, variant: str) -> list[Figure]:
    """One client's images condensed anew, from one and from thirty images of a class."""
    method = {"name": "feddc_condense", "rounds": 1, "iterations": 500, "variant": variant}
    where = case(out, variant, {**CONDENSED, "method": method})
    replay = {"sizes": [1, 30], "clients": 6, "groups": 12}
    found = tried(where, attack("condensed_recovery", show_sizes=[]), replay).evidence
    auc = pick(tried(where, attack("condensed_membership"), replay).evidence, "auc", n=30)
    flagged, title = pick(found, "copies_flagged", origin=REAL_START), TITLES[variant]
    return [
        of(
            pick(found, "nearest_correlation", n=1),
            "M13",
            f"{title}, n = 1: correlation with the image",
            least=0.85,
        ),
        of(pick(found, "rank1", n=1), "M13", f"{title}, n = 1: rank-1 of 100", least=0.8),
        of(auc, "M13", f"{title}, n = 30: AUC", least=0.45, most=0.57),
        of(flagged, "M13", f"{title} started from real images: taken for copies", least=0.9),
    ]


def critic(out: Path, members: int) -> list[Figure]:  # noqa: ARG001
    """LOGAN on a critic of so many images after 2,000 steps of the generator, and with GANDALF's noise on it."""
    where = SimulatedCase(overridden({}, merge(FRAME, GENERATING), where="critic").require_simulated())
    known, auxiliary = (
        known_generators(where.training, where.device, where.data),
        images(where.data, where.examples.auxiliary),
    )
    assert known is not None, "the method has generators"
    own = controls(known, auxiliary, members, 2000)
    weights = {k: torch.from_numpy(np.array(v)) for k, v in own.planted.critic.items()}
    sides = match_planted_pair(own.images())

    def auc(scale: float) -> Figure:
        source = NoiseSource(where.streams.noise("strength", "noise"))
        noise = NoiseConfig(scale=scale)
        handed = protect(Kind.GAN_D, weights, {}, noise, source, line_of(Kind.GAN_D, 0, 0, noise, EVERYONE))
        critic = partial(known.scores, {k: v.numpy() for k, v in handed.items()})
        found = membership.evidence(standardise_scores([(critic, sides)]), {}, condition={"n": members})
        area = next(e for e in found if e.measure == "auc")
        return of(area, "M14", f"LOGAN, critic of {members} images: AUC", least=0.75 if members < 1000 else None)

    plain = auc(0.0)
    if members >= 1000:
        return [replace(plain, most=0.6)]
    little, much = (auc(scale) for scale in NOISE)
    apart = abs(little.value - plain.value)
    return [
        plain,
        Figure(row="M14", what=f"change by {NOISE[1e-5]}", value=apart, most=0.01),
        replace(much, what=f"AUC with {NOISE[0.1]}", least=None, most=0.62),
    ]


PIECES = (
    Piece("feddc", ("M13",), partial(condensed, variant="feddc")),
    Piece("feddc-plus", ("M13",), partial(condensed, variant="feddc_plus")),
    Piece("critic-80", ("M14",), partial(critic, members=80)),
    Piece("critic-1000", ("M14",), partial(critic, members=1000)),
)
