"""M1 to M7 and M11: what is redrawn from prototypes of n images, by what the adversary knows and how it fits."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.strength.bench import attack, blind, case, pick, tried
from benchmarks.strength.figure import Figure, Piece, of
from fedaudit.attacks.attack import Attack, Examples, Extractor, Floats, Knowledge
from fedaudit.attacks.evaluation.image_trials import WRONG_SAME
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, Standard
from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.attacks.prototypes.prototype_difference import PrototypeDifference
from fedaudit.attacks.prototypes.upcnn import UpCNN
from fedaudit.attacks.prototypes.vae import VAE
from fedaudit.audit.case.case import Case
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.observer.view import grant_knowledge
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind

FEDERATION = {
    "federation": {
        "clients": 20,
        "partition": {"name": "n_class", "classes_per_client": 2, "examples_per_client": 1000},
        "model": "lenet_f",
        "holdout": {"auxiliary": 0.3333, "reference": 0.3333, "own": 0},
    },
    "method": {"name": "rebafl", "rounds": 10, "local_epochs": 3, "batch_size": 50, "lr": 0.01},
}
NAME = "prototypes"  # of the run folder
DIFFERENCE = "replayed, from a difference"
ALONE = {"sizes": [1], "groups": 100}  # features of single images


def shift_images(images: Examples) -> Examples:
    """Auxiliary data of another distribution: mirrored, one pixel lower, darker and flatter.

    Deterministic, so that the only difference to the same-distribution attacker is the shift.
    """
    x = np.roll(images.x[..., ::-1], 1, axis=-2) * 0.7 + 0.1
    return Examples(x=np.ascontiguousarray(x, dtype=np.float32), y=images.y, labels=images.labels)


class Naive(UpCNN):
    """Keeps beside its own images those of a decoder that takes each client's model for the global one."""

    def invert(
        self, tasks: Sequence[InversionTask], first: Extractor, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[Floats]:
        every = [*tasks, *(replace(t, extractor=first) for t in tasks)]
        found = super().invert(every, first, knowledge, rng)
        self.naive = np.clip(np.concatenate(found[len(tasks) :]), 0, 1).astype(np.float32)
        return found[: len(tasks)]


def upcnn(out: Path) -> list[Figure]:
    """One decoder for M1, M4, M5 and M11."""
    decoder = Naive(Naive.Config(max_clients=4, show_sizes=()))
    replay = {"sizes": [1, 2, 5, 20, 100], "groups": 100}
    found = tried(case(out, NAME, FEDERATION), decoder, replay, more=recovered, clients=4)
    here, naive = found.evidence, found.measured(decoder, images=decoder.naive)
    rank1 = {n: pick(here, "rank1", n=n) for n in (1, 2, 5, 20, 100)}
    ssim = {n: pick(here, "ssim", n=n) for n in (1, 100)}
    wrong = blind(rank1[1], WRONG_SAME)
    difference = pick(here, "rank1", n=1, origin=DIFFERENCE)
    low, high = rank1[100].interval or (0.0, 1.0)
    gap = abs(ssim[100].value - blind(ssim[100], WRONG_SAME))
    figure = partial(Figure, trials=rank1[1].trials)
    return [
        of(rank1[1], "M1", "UpCNN, n = 1: rank-1 of 100", least=0.7),
        of(ssim[1], "M1", "SSIM", least=0.65),
        figure(
            row="M1",
            what="SSIM above the class mean",
            value=ssim[1].value - blind(ssim[1], CLASS_MEAN),
            least=0.2,
        ),
        figure(row="M1", what="rank-1 of the wrong prototype", value=wrong, most=0.04),
        of(rank1[2], "M4", "UpCNN, n = 2: rank-1, below that of n = 1", most=rank1[1].value),
        of(rank1[5], "M4", "n = 5: rank-1"),
        of(rank1[20], "M4", "n = 20: rank-1, below that of n = 2", most=rank1[2].value),
        of(rank1[100], "M4", "n = 100: rank-1"),
        figure(row="M4", what="n = 100: lower end of the interval, chance is .01", value=low, most=0.01),
        figure(row="M4", what="n = 100: upper end", value=high, least=0.01),
        figure(row="M4", what="n = 100: SSIM of right and of wrong prototypes apart", value=gap, most=0.02),
        of(pick(naive, "rank1", n=1), "M5", "UpCNN of the global model as it is: rank-1", most=0.2),
        of(rank1[1], "M5", "fitted to the client's own model", least=0.65),
        of(difference, "M11", "UpCNN of what was recovered at n = 499: rank-1", least=0.7),
        of(pick(here, "ssim", n=1, origin=DIFFERENCE), "M11", "SSIM", least=0.65),
    ]


def ridge(out: Path) -> list[Figure]:
    found = tried(case(out, NAME, FEDERATION), attack("ridge", max_clients=1, show_sizes=()), ALONE, clients=1)
    rank1 = pick(found.evidence, "rank1", n=1)
    return [
        of(rank1, "M3", "ridge, n = 1: rank-1", least=0.55),
        Figure(row="M3", what="seconds for one client's model", value=found.seconds, most=5),
    ]


def auxiliary(out: Path, name: str) -> list[Figure]:
    """UpCNN with images of another law, or without any of the client's classes."""
    change, least = {"shifted": (lambda x, _: shift_images(x), 0.5), "absent": (without_classes, 0.25)}[name]
    what = {"shifted": "shifted auxiliary images", "absent": "auxiliary images of other classes alone"}[name]
    decoder = attack("upcnn", max_clients=1, epochs=5, show_sizes=())
    found = tried(case(out, NAME, FEDERATION), decoder, ALONE, auxiliary=change, clients=1).evidence
    return [
        of(pick(found, "rank1", n=1), "M2", f"UpCNN, {what}, n = 1: rank-1", least=least),
        of(pick(found, "ssim", n=1), "M2", "SSIM"),
    ]


def without_classes(images: Examples, view: Sequence[Artifact]) -> Examples:
    """No image of a class of which there are replayed prototypes."""
    attacked = {int(c) for a in view if a.origin != "recorded" for c in a.payload.get("classes", ())}
    kept = ~np.isin(images.y, sorted(attacked))
    return Examples(x=images.x[kept], y=images.y[kept])


class Mode(VAE):
    """Searches for z, and keeps beside that the images of z = 0."""

    def _matching(self, decoder: Any, extractor: Extractor, scale: Standard, wanted: Any, start: Any) -> Any:
        import torch

        with torch.no_grad():
            self.mode = decoder(torch.cat([wanted, start], 1)).numpy()
        return super()._matching(decoder, extractor, scale, wanted, start)


def vae(out: Path) -> list[Figure]:
    """z = 0 and the latent search of one autoencoder."""
    tool = Mode(Mode.Config(max_clients=1, epochs=5, show_sizes=(), draw="latent"))
    found = tried(case(out, NAME, FEDERATION), tool, ALONE, clients=1)
    mode = pick(found.measured(tool, images=tool.mode), "rank1", n=1)
    return [
        of(mode, "M6", "VAE, z = 0, n = 1: rank-1", least=0.55),
        of(pick(found.evidence, "rank1", n=1), "M6", "VAE, latent search, n = 1: rank-1", least=0.5),
    ]


def grnn(out: Path, n: int) -> list[Figure]:
    """Without auxiliary images; n = 1 must be redrawn, n = 20 must not."""
    tool = attack("grnn", max_clients=1, per_size=16, show_sizes=())
    replay = {"sizes": [n], "groups": 16}
    found = tried(case(out, NAME, FEDERATION), tool, replay, clients=1).evidence
    rank1, ssim = pick(found, "rank1", n=n), pick(found, "ssim", n=n)
    above = ssim.value - blind(ssim, CLASS_MEAN)
    one = Figure(row="M7", what=f"n = {n}: SSIM above the class mean", value=above, trials=ssim.trials)
    if n > 1:
        return [of(rank1, "M7", f"GRNN without auxiliary images, n = {n}: rank-1"), replace(one, most=0.0)]
    return [
        of(rank1, "M7", "GRNN without auxiliary images, n = 1: rank-1", least=0.7),
        of(ssim, "M7", "SSIM"),
        replace(one, least=0.12),
    ]


def recovered(case: Case, recorded: Sequence[Artifact], n: int = 499) -> Replays:
    """Features of single images, out of prototypes of n and of n + 1 images, as prototypes of one image each."""
    pairs = plant("pairs", Lab.from_case(case), recorded, Replay(sizes=(n,), groups=60))
    tool: Attack = PrototypeDifference(PrototypeDifference.Config(grows=True))
    known = grant_knowledge(case, tool.card)
    claim = tool.run([*recorded, *pairs.artifacts], known, case.streams.numpy("attack", "difference"))
    like, made = {a.id: a for a in pairs.artifacts}, Replays()
    for i in np.flatnonzero(claim["origin"] == "replayed"):
        earlier, later = (str(claim[end][i]) for end in ("earlier", "later"))
        joined = np.setdiff1d(pairs.groups[later], pairs.groups[earlier])
        payload = {
            "classes": claim["label"][i : i + 1],
            "features": claim["feature"][i : i + 1].astype(np.float32),
        }
        id = f"replay/difference/{i}"
        made.groups[id] = joined
        made.artifacts.append(
            replace(like[later], id=id, kind=Kind.LOCAL_PROTOTYPES, payload=payload, origin=DIFFERENCE, note={})
        )
    return made


PIECES = (
    Piece("upcnn", ("M1", "M4", "M5", "M11"), upcnn),
    Piece("shifted", ("M2",), partial(auxiliary, name="shifted")),
    Piece("absent", ("M2",), partial(auxiliary, name="absent")),
    Piece("ridge", ("M3",), ridge),
    Piece("vae", ("M6",), vae),
    Piece("grnn", ("M7",), partial(grnn, n=1)),
    Piece("grnn-20", ("M7",), partial(grnn, n=20)),
)
