"""Imprint recovery: single images out of the update of many, after the server sent a model that fishes for them.

The other half of attacks/poisoning/imprint.py (Fowl et al., arXiv:2110.13057, sec. 3). Rows of the first dense
layer are sorted by the bias that was sent out; the gradients of two neighbours differ by the images between their
quantiles, and of one image the difference of weights over that of biases is what entered the layer, exactly. As
many images are claimed as the update holds, those of the largest differences. Several local steps blur the bins.

Whether clients could have seen it is said beside every number: attacks/evaluation/tampered.py reads only what a
client receives.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Claim, Knowledge, Truth
from fedaudit.attacks.evaluation.gradients import Imitation, Update, iterate_updates, labels
from fedaudit.attacks.evaluation.tampered import flags
from fedaudit.attacks.evaluation.update_inversion import CARD, UpdateInversion
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.analytic import Analytic, LayerSearch, draw_layers, entering, layer_input
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Conduct, Position, ThreatModel


class ImprintRecovery(Analytic):
    card = replace(
        CARD,
        title="Images imprinted by a malicious server",
        source="arXiv:2110.13057, sec. 3",
        threat=ThreatModel(
            position=Position.SERVER, conduct=Conduct.MALICIOUS, knows=frozenset({"architecture"})
        ),
        learns="single images of a client's batch, because it sent a model made for that",
        does_not_show="what a server finds that hides its tampering from a test of the weights",
        remedy="aggregate securely over many clients, let clients refuse models whose rows are alike, or train "
        "with dp_sgd",
    )

    @settings
    class Config(Analytic.Config):
        most: AtLeastOne = Field(default=8, description="images to claim of a replayed update, at most")
        most_recorded: AtLeastOne = Field(
            default=16, description="images to claim of an update that crossed the wire, at most"
        )

    def applies(self, update: Update) -> bool:
        return bool(flags(update.start))

    def make_claim(self, chosen: Sequence[Update], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        flagged = {u.artifact: flags(u.start) for u in chosen}
        claim = UpdateInversion.make_claim(self, chosen, knowledge, rng)
        return {**claim, "flagged": np.array(["; ".join(flagged[str(a)]) for a in claim["artifact"]])}

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[LayerSearch]:
        known = labels(update, knowledge, number)
        y = rng.integers(knowledge.classes, size=number) if known is None else known
        copy = Imitation(update, knowledge)
        return draw_layers(copy, _bins(copy, number, knowledge.shape), knowledge, y)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        seen = f"a client that looks at the weights sees it: {claim['flagged'][0]}"
        return [
            replace(e, note="; ".join(filter(None, (e.note, seen))))
            for e in UpdateInversion.measure(self, claim, truth, rng)
        ]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := UpdateInversion.not_applicable(self, view, knowledge):
            honest = (
                next(iterate_updates(view, knowledge), None) is not None
                and self.find_first(view, knowledge) is None
            )
            return "the server sent a model as training makes it: nothing was imprinted" if honest else reason
        first = self.find_first(view, knowledge)
        assert first is not None, "applies, by the reason above"
        if layer_input(Imitation(first, knowledge), knowledge.shape) is None:
            return "no dense layer with a bias is in the uploads, so there is nothing to divide"
        return ""


def _bins(copy: Imitation, number: int, shape: tuple[int, ...]) -> list[NDArray[np.float64]]:
    """[D] what entered the layer in each of the fullest bins, `number` at most."""
    import torch

    with torch.no_grad():
        name, _ = entering(copy.module, torch.zeros((1, *shape), device=copy.device))
    keys = [copy.keys[f"{name}.{part}"] for part in ("weight", "bias")]
    weight, bias = (np.asarray(copy.update.gradient[k], np.float64) for k in keys)
    order = np.argsort(np.asarray(copy.update.start[keys[1]]), kind="stable")
    moved = np.diff(weight[order], axis=0, prepend=0.0)
    held = np.diff(bias[order], prepend=0.0)
    fullest = np.argsort(-np.abs(held), kind="stable")[:number]
    return [moved[i] / held[i] for i in fullest if abs(held[i]) > 1e-9 * np.abs(held).max()]
