"""Condensed refinement: a decoder that turns a condensed image back into an image.

The server condenses a few auxiliary images itself, with the public algorithm and a network of the audited
architecture (Zhao, Mopuri, Bilen, arXiv:2006.05929), learns from them what condensation does to an image
(attacks/condensed/_model.py), and trains the UpCNN (arXiv:1506.02753, eq. 2) or the conditional autoencoder
(arXiv:1312.6114, eq. 10) to undo it on auxiliary images.

A decoder trained on others' images draws what is usual, and so loses the one image: on Fashion-MNIST at
n = 1 it gained 0.07 of SSIM and 1.7 dB, and its rank-1 was 53 % where the condensed image has 99 %. Therefore

    refined = d + W (s - d),    d: what the decoder draws, s: the condensed image,

where W, ring by ring of spatial frequency, is the share of s - d that auxiliary images show to be the
image and not noise. Whether this says more than the condensed image itself is measured in the same
trials (`*_over_condensed`); the other baselines are condensed_recovery's.

Changed: the decoder sees images, not features. Left out: groups of several images; the model is that
of n = 1, and larger n are read with it.

Claim: as condensed_recovery's, with images refined, and `read`, float32 [k, C, H, W]: the condensed images.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, Examples, Extractor, Knowledge, Truth
from fedaudit.attacks.condensed._images import (
    collect_condensed_images,
    in_our_words,
    match_brightness,
    standardise,
)
from fedaudit.attacks.condensed._model import CondensationModel, filter_frequencies, share
from fedaudit.attacks.condensed.condensed_recovery import CondensedRecovery
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.audit_net import audit_net
from fedaudit.attacks.evaluation.image_evidence import judge_images
from fedaudit.attacks.evaluation.image_trials import PrototypeBucket
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask
from fedaudit.attacks.evidence import Evidence, ImageGallery
from fedaudit.attacks.modality import images
from fedaudit.attacks.modality.images import to_rows
from fedaudit.attacks.prototypes.upcnn import UpCNN
from fedaudit.attacks.prototypes.vae import VAE
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import ThreatModel

Floats = NDArray[np.floating[Any]]
TESTED = 0.15  # share of the auxiliary images that W is learned from


class CondensedRefinement(CondensedRecovery):
    card = replace(
        CondensedRecovery.card,
        title="Images refined from condensed images",
        source="arXiv:1506.02753, eq. 2; arXiv:1312.6114, eq. 10, on condensed images",
        threat=ThreatModel(
            position=CondensedRecovery.card.threat.position, knows=frozenset({"architecture", "auxiliary_data"})
        ),
        does_not_show="what a decoder trained on thousands of condensations, or of groups, would find",
        effort=Effort(seconds=8.0, grows=("pixels",), settings=("condensed",)),
    )

    @settings
    class Config(CondensedRecovery.Config):
        decoder: Literal["upcnn", "vae"] = Field(
            default="upcnn", description="the network that learns to undo condensation"
        )
        condensed: int = Field(
            default=48, ge=4, description="auxiliary images that the adversary condenses, half a second each"
        )
        images: int = Field(default=7000, ge=20, description="auxiliary images to learn from, at most")
        epochs: AtLeastOne = Field(default=4, description="passes over the auxiliary images, at most")
        least_steps: AtLeastZero = Field(
            default=300, description="steps that may be taken even where few images make an epoch short"
        )
        width: int = Field(
            default=256,
            ge=32,
            multiple_of=32,
            description="width of the decoder's hidden layers, a multiple of 32",
        )
        batch: AtLeastOne = Field(default=128, description="images in a batch of the decoder's training")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found = collect_condensed_images(view)
        order = rng.permutation(len(knowledge.granted_auxiliary))
        model = self._learn_model(knowledge, order[: self.config.condensed], rng)
        chosen = knowledge.granted_auxiliary.x[order[: self.config.images]]
        tested, used = np.split(chosen, [max(1, round(TESTED * len(chosen)))])
        imitated = model.imitate(tested, rng)
        sent = standardise(found["images"]).astype(np.float32)
        decoded = self._decode(np.concatenate([imitated, sent]), used, model, knowledge, rng)
        read = match_brightness(np.concatenate([imitated, sent]), chosen)
        split = len(tested)
        worth = np.clip(share(tested - decoded[:split], read[:split] - decoded[:split]), 0, 1)
        refined = decoded[split:] + filter_frequencies(read[split:] - decoded[split:], worth)
        return {
            **found,
            **list_senders(view, Kind.CONDENSED_IMAGES),
            "images": np.clip(refined, 0, 1).astype(np.float32),
            "read": read[split:],
            "n": np.full(len(found["label"]), -1),
            "extractor": np.full(len(found["label"]), "pixels"),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found = self._trials(claim, truth, rng).buckets
        evidence = judge_images(found, rng)
        for b in found:
            evidence += _compare_with_condensed_image(b, claim, truth, len(found), rng)
        return in_our_words(evidence)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if knowledge.condenser is None:
            return "no condensation is known that the adversary could repeat on images of its own"
        return super().not_applicable(view, knowledge)

    def _learn_model(
        self, knowledge: Knowledge, rows: NDArray[np.int64], rng: np.random.Generator
    ) -> CondensationModel:
        aux = knowledge.auxiliary
        assert aux is not None and knowledge.condenser is not None
        alone = [Examples(x=aux.x[i : i + 1], y=aux.y[i : i + 1]) for i in rows]
        made = knowledge.condenser(alone, seed=int(rng.integers(2**62)))
        came = np.isfinite(made).all(axis=(1, 2, 3))
        if not came.any():
            raise UserError(
                "the protections let no condensed image of a single image through",
                hint="nothing is wrong: there is nothing to learn from",
            )
        return CondensationModel(aux.x[rows][came], made[came], int(rng.integers(2**62)))

    def _decode(
        self,
        inputs: Floats,
        images: Floats,
        model: CondensationModel,
        knowledge: Knowledge,
        rng: np.random.Generator,
    ) -> Floats:
        """What the decoder makes of standardised inputs [k, C, H, W]; [k, C, H, W]."""
        nothing = np.zeros(len(inputs), np.int64)
        alone = Examples(x=images, y=np.zeros(len(images), np.int64))
        known = replace(knowledge, auxiliary=alone)
        condensing = cast(Extractor, model)  # has features, which is all that is wanted of it
        task = InversionTask(extractor=condensing, features=to_rows(inputs), labels=nothing)
        (decoded,) = _inversion(self.config).invert([task], condensing, known, rng)
        return decoded

    def _gallery(self, b: PrototypeBucket, claim: Claim) -> ImageGallery:
        plain = super()._gallery(b, claim)
        rows = dict(plain.rows)
        picked = np.unique(np.linspace(0, len(b) - 1, self.config.show).round().astype(int))
        read = claim["read"][[b.trials[i].row for i in picked]]
        rows["refined"] = rows.pop("condensed")
        order = ("a real image of that class", "condensed", "refined", "nearest real image", "class mean")
        return replace(
            plain,
            title=plain.title.replace("Condensed", "Refined condensed"),
            caption="Leakage is what the refined image shares with a real image and the class mean does not.",
            rows={name: (rows | {"condensed": read})[name] for name in order},
        )


def _inversion(config: CondensedRefinement.Config) -> UpCNN | VAE:
    kind = UpCNN if config.decoder == "upcnn" else VAE
    return kind(
        kind.Config(epochs=config.epochs, least_steps=config.least_steps, width=config.width, batch=config.batch)
    )


def _compare_with_condensed_image(
    b: PrototypeBucket, claim: Claim, truth: Truth, looks: int, rng: np.random.Generator
) -> list[Evidence]:
    """What refining adds to the condensed image as it came, trial by trial."""
    net, judge = audit_net(truth), b.judge(looks)
    read = claim["read"][[t.row for t in b.trials]]
    clipped = np.clip(read, 0, 1)
    gains = {
        "rank1": b.rank(b.claimed).rank1 - b.rank(read).rank1,
        "ssim": images.ssim(b.claimed, b.targets) - images.ssim(clipped, b.targets),
        "audit_net_distance": net.distance(b.claimed, b.targets) - net.distance(clipped, b.targets),
    }
    note = "less that of the condensed image itself, in the same trials"
    return [
        judge.judge_values(f"{name}_over_condensed", gain, {}, rng, groups=b.clients, note=note)
        for name, gain in gains.items()
    ]
