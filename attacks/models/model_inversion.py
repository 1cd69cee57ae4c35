"""Model inversion: images of each class, from how a released model moved from the one before it.

Fredrikson, Jha, Ristenpart. Model Inversion Attacks that Exploit Confidence Information. CCS 2015, search for an
image of each class that the model is sure of. What a model was taught is told better by its weights: where
training moved them from w0 to w1 by gradients of its examples, w0 - w1 is about a weighted sum of these (Loo,
Hasani, Lechner, Rus. Understanding Reconstruction Attacks with the Neural Tangent Kernel and Dataset
Distillation. ICLR 2024, arXiv:2302.01428; Haim et al., NeurIPS 2022, arXiv:2206.07758). So

    (x, a) = argmin 1 - cos(sum over classes c of a_c gradient(x_c, c) at (w0 + w1) / 2, w0 - w1)

with one image x_c a class, from the mean of the auxiliary images of it, and weights a >= 0 that sum to 1, by
Adam. Changed from Loo et al.: the loss is cross-entropy, one image a class is sought for many, images start from
the class mean and stay in [0, 1], and gradients are taken half way, so that neither end decides. Of a class of
many people it finds their mean, which names nobody.

Each recorded global model is held against the one before it, which a reader has who was there, or who knows what
training began with. The images are those that explain all of these changes best, each alike.

The planted leak (audit/controls/released.py) is a model that was taught one person of each class.

Claim: images float32 [k, C, H, W], label, n (-1: not known), round and sender [k] (-1: the server), and as text
artifact, origin and extractor (what was compared) [k]; senders [0]: nobody sends what is released.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import count_claimed
from fedaudit.attacks.evaluation.gradients import Imitation, Stackable, Update, cosine_distance
from fedaudit.attacks.evaluation.image_evidence import call_prototypes, judge_images
from fedaudit.attacks.evaluation.image_trials import ImageTrials, PrototypeBucket
from fedaudit.attacks.evaluation.searches import Measure, Search, Searching
from fedaudit.attacks.evaluation.sources import NO_AUXILIARY, pair_models
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evaluation.targets import GLOBAL, Target, targets
from fedaudit.attacks.evaluation.trials import CLASS_MEAN
from fedaudit.attacks.evidence import Evidence, ImageGallery
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.floating[Any]]


class ModelInversion(Searching["_Search", NDArray[np.float32]], Attack):
    card = Card(
        title="Images of each class from a released model",
        source="arXiv:2302.01428, eq. 4; Fredrikson et al., CCS 2015",
        aim=Aim.INVERSION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture", "auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(*UPDATES, Kind.NORMALIZED_DELTA, Kind.NUM_STEPS),
        aids=(*UPDATES, Kind.NORMALIZED_DELTA, Kind.NUM_STEPS),
        control="released",
        rounds="all",
        learns="an image of a person who is nearly alone in a class, by whoever has two versions of a model",
        does_not_show="people of classes of many, of whom it finds the mean; what several images a class, or a "
        "generator of such images, would find",
        remedy="train with dp_sgd or central_dp for a stated epsilon; release no version of a model that was "
        "taught a few examples",
        effort=Effort(seconds=6, grows=("network", "rounds"), examples=10, settings=("iterations",)),
    )

    @settings
    class Config:
        iterations: AtLeastOne = Field(default=100, description="steps of Adam on the images of a model")
        lr: Amount = Field(default=0.05, description="step size on images in [0, 1], and on their weights")
        gallery: int = Field(default=100, ge=3, description="images among which the members are looked for")
        show: AtLeastOne = Field(default=8, description="images in a row of the report's figures")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        changes = _list_changes(view, knowledge, rng)
        auxiliary = knowledge.granted_auxiliary
        labels = np.unique(auxiliary.y)
        means = np.stack([auxiliary.of_class(c).mean(axis=0) for c in labels.tolist()])
        images = self.search(self._draw(changes, labels, means, knowledge), knowledge.device)

        def repeat(values: Sequence[Any]) -> NDArray[Any]:
            return np.repeat(np.array(values), len(labels))

        return {
            "images": np.clip(np.nan_to_num(np.concatenate(images)), 0, 1).astype(np.float32),
            "label": np.tile(labels, len(changes)),
            "n": np.full(len(labels) * len(changes), -1),
            "sender": repeat([steps[-1].sender for steps in changes]),
            "round": repeat([steps[-1].round for steps in changes]),
            "artifact": repeat([steps[-1].artifact for steps in changes]),
            "origin": repeat([steps[-1].origin for steps in changes]),
            "extractor": repeat(["two models"] * len(changes)),
            "senders": np.zeros(0, np.int64),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        found = judge_images(self._trials(claim, truth, rng).buckets, rng)
        return [call_prototypes(e, "model") for e in found]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return count_claimed(claim, truth, self._trials(claim, truth, rng).every)

    def galleries(self, claim: Claim, truth: Truth) -> list[ImageGallery]:
        found = self._trials(claim, truth).buckets
        own, planted = ([b for b in found if (b.origin == "recorded") == is_own] for is_own in (True, False))
        return [self._gallery(b) for b in (*own[:1], *planted[:1])]

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if len(knowledge.shape) != 3:
            return "the clients' examples are no images, and this attack searches for pixels"
        if not len(knowledge.auxiliary or ()):
            return NO_AUXILIARY
        return "" if pair_models(view) else "no global model was recorded together with one before it"

    @cached_property
    def _trials(self) -> BuiltOnce[ImageTrials]:
        gallery = self.config.gallery
        return BuiltOnce(lambda claim, truth, rng: ImageTrials(claim, truth, gallery, rng))

    def _draw(
        self, changes: Sequence[Sequence[Target]], labels: NDArray[np.int64], means: Floats, knowledge: Knowledge
    ) -> "Iterator[_Search]":
        import torch

        for steps in changes:
            start = [torch.from_numpy(means.astype(np.float32)), torch.zeros(len(labels))]
            yield _Search(start=start, steps=steps, labels=labels, knowledge=knowledge)

    def imitate(self, search: "_Search", stackable: bool) -> Imitation:
        return (Stackable if stackable else Imitation)(_describe_step(search.steps[0]), search.knowledge)

    def read(self, search: "_Search", copy: Imitation) -> "list[Tensor]":
        """[C, classes] of which class each image is; of each model how it changed, and its weights.

        These are [S, ...] of all models, or one after the other, as each lies in memory.
        """
        import torch

        y = torch.nn.functional.one_hot(torch.from_numpy(search.labels), search.knowledge.classes).float()
        models = [Imitation(_describe_step(t), search.knowledge) for t in search.steps]
        each = [[*m.target, *m.state.values()] for m in models]
        if isinstance(copy, Stackable):
            return [y.to(copy.device), *(torch.stack(of) for of in zip(*each, strict=True))]
        return [y.to(copy.device), *chain.from_iterable(each)]

    def list_measures(self, search: "_Search", copy: Imitation) -> list[Measure]:
        import torch
        from torch.func import vmap

        end, names = len(copy.names), [*copy.state]

        def measure(x: "Tensor", weight: "Tensor", of_class: "Tensor", *given: "Tensor") -> "Tensor":
            """How far the images' gradients are from the changes, in the mean of all models."""
            share = torch.softmax(weight, dim=0)[:, None]
            wanted = len(search.labels) * share * of_class

            def compare(*one: "Tensor") -> "Tensor":
                found = copy.gradient(x, wanted, dict(zip(names, one[end:], strict=True)))
                return cosine_distance(found, one[:end])

            if isinstance(copy, Stackable):
                each = vmap(compare)(*given)
            else:
                many = end + len(names)
                each = torch.stack([compare(*given[i : i + many]) for i in range(0, len(given), many)])
            apart: Tensor = each.mean()
            return apart

        return [measure]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        import torch

        x, weight = (v.requires_grad_(True) for v in variables)
        optimiser = eager(torch.optim.Adam)([x, weight], lr=self.config.lr)
        for _ in range(self.config.iterations):
            x.grad, weight.grad = torch.autograd.grad(measures[0](x, weight).sum(), [x, weight])
            optimiser.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        return [x.detach()]

    def finish(self, search: "_Search", found: "Sequence[Tensor]") -> NDArray[np.float32]:
        return np.asarray(found[0].numpy(), np.float32)

    def _gallery(self, b: PrototypeBucket) -> ImageGallery:
        some = np.unique(np.linspace(0, len(b) - 1, self.config.show).round().astype(int))
        n = [b.trials[i].n for i in some]
        return ImageGallery(
            title=f"Images of each class from two models, {b.origin}",
            caption="One image a class, from how the model moved. Leakage is what it shares with one person and "
            "the class mean does not: of a class of many it is about their mean.",
            rows={
                "a member of that class": b.targets[some],
                "inverted": b.claimed[some],
                "class mean": b.blind[CLASS_MEAN][1][some],
            },
            columns=tuple(f"class {b.labels[i]}, n = {k}" for i, k in zip(some, n, strict=True)),
        )


@dataclass(frozen=True, kw_only=True)
class _Search(Search):
    """For an image of each class that explains how a model moved in each of these steps."""

    steps: Sequence[Target]
    labels: NDArray[np.int64]  # [C]
    knowledge: Knowledge

    @property
    def kind(self) -> Hashable:
        return len(self.steps), tuple((k, np.shape(v)) for k, v in self.steps[0].weights.items())


def _list_changes(view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> list[list[Target]]:
    """Models with those before them: all recorded ones, then each that a client made of a few people."""
    planted = [a for a in view if a.origin != "recorded" or a.kind == Kind.GLOBAL_MODEL]
    replays = [t for t in targets(planted, rng, 0, knowledge.training) if t.start]
    return [[_compare(before, after) for before, after in pair_models(view)], *([t] for t in replays)]


def _compare(before: Artifact, after: Artifact) -> Target:
    return Target(
        artifact=after.id,
        origin=after.origin,
        kind=after.kind,
        model=GLOBAL,
        sender=SEVERAL,
        weights=after.payload,
        start=before.payload,
        round=after.round,
    )


def _describe_step(t: Target) -> Update:
    """All that lies between two models as one step of gradient descent that started half way."""
    trained = {k: -moved for k, moved in t.change().items() if k in t.weights}
    half = {k: np.asarray(t.weights[k] + v / 2, t.start[k].dtype) for k, v in trained.items()}
    return Update(
        artifact=t.artifact,
        kind=t.kind,
        origin=t.origin,
        client=t.sender,
        round=t.round,
        batch=1,
        examples=1,
        steps=1,
        rate=1.0,
        start={**t.start, **t.weights, **half},
        gradient=trained,
    )
