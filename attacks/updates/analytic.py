"""Analytic recovery: what entered the first fully connected layer, by one division, then its image.

For a layer z = W h + b and one example, dW_r = (dz_r) h and db_r = dz_r, so h = dW_r / db_r for any row
that moved: exact, without optimisation or data (Phong et al., IEEE TIFS 2018, sec. 3; Geiping et al.,
arXiv:2003.14053, prop. 3.1). Here h = dW' db / |db|^2 over all rows, which is the same and loses least
to rounding. Of several examples, or steps, it is a weighted mean of their inputs; a single image is
claimed of every update. Where the layer's input is the image, that is all; else the image is fitted
to it through the layers before, smoothed a little (Mahendran, Vedaldi, arXiv:1412.0035).

Claim, besides that of UpdateInversion: inputs, objects [k], each float64 [D], and extractors, objects
[k]: the models, to compare with what truly entered the layer.
"""

import copy
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Claim, Effort, Knowledge, Truth
from fedaudit.attacks.evaluation.decoder import find_device, tensor
from fedaudit.attacks.evaluation.gradients import Imitation, Update, labels
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.ranking import Present, find_present
from fedaudit.attacks.evaluation.searches import Measure
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evaluation.trials import average_classes
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.evaluation.update_search import Drawn, UpdateSearch, UpdateSearching
from fedaudit.attacks.evidence import Baseline, Evidence, is_replay
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.attacks.updates.inverting_gradients import roughness
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings

if TYPE_CHECKING:
    from torch import Tensor, nn

Floats = NDArray[np.floating[Any]]
EXACT = 0.1  # relative distance of an input from an image's own, up to which it stands there


class LayerInversion(UpdateSearching["LayerSearch"]):
    """Base class of attacks that learn what entered the first dense layer, and show the image that it was."""

    @settings
    class Config(UpdateSearching.Config):
        iterations: AtLeastZero = Field(default=400, description="steps that fit the image")
        lr: Amount = Field(default=0.05, description="step size on the image")
        smoothness: Amount = Field(default=0.002, description="weight of the total variation")

    def read(self, search: "LayerSearch", copy: Any) -> "list[Tensor]":
        target = search.wanted.to(find_device(copy))
        return [target.float(), (target.square().sum() + 1e-24).float()]

    def imitate(self, search: "LayerSearch", stackable: bool) -> Any:
        return super().imitate(search, False).module

    def list_measures(self, search: "LayerSearch", copy: "nn.Module") -> list[Measure]:

        def measure(x: "Tensor", target: "Tensor", size: "Tensor") -> "Tensor":
            gap = (entering(copy, x)[1][0] - target).square().sum() / size
            loss: Tensor = gap + self.config.smoothness * roughness(x)
            return loss

        return [] if search.is_solved else [measure]

    def descend(
        self, variables: "Sequence[Tensor]", measures: Sequence[Measure], stacked: bool
    ) -> "list[Tensor]":
        import torch

        c, [x] = self.config, variables
        if not measures:
            return [x]
        optimiser = eager(torch.optim.Adam)([x.requires_grad_(True)], lr=c.lr)
        for _ in range(c.iterations):
            (x.grad,) = torch.autograd.grad(measures[0](x).sum(), [x])
            optimiser.step()
            with torch.no_grad():
                x.clamp_(0, 1)
        return [x.detach()]

    def pick(self, drawn: Sequence[Drawn]) -> tuple[Floats, NDArray[np.int64]]:
        """All of them."""
        return np.concatenate([d.images for d in drawn]), np.concatenate([d.labels for d in drawn])

    def finish(self, search: "LayerSearch", found: "Sequence[Tensor]") -> Drawn:
        return Drawn(0.0, found[0].numpy(), search.labels)


@dataclass(frozen=True, kw_only=True)
class LayerSearch(UpdateSearch):
    """For the image [1, C, H, W] whose input to the first dense layer of a model is `wanted` [D], float64."""

    wanted: "Tensor"
    is_solved: bool  # where it starts

    @property
    def kind(self) -> Hashable:
        return id(self.update.start), self.is_solved


def draw_layers(
    copy: Imitation, wanted: Sequence[NDArray[np.float64]], knowledge: Knowledge, y: NDArray[np.int64]
) -> list[LayerSearch]:
    """For what entered the layer, of images with labels y [b]; grey images where there are more labels."""
    import torch

    made = partial(LayerSearch, update=copy.update, knowledge=knowledge)
    drawn: list[LayerSearch] = []
    for i, label in enumerate(y):
        one = wanted[i] if i < len(wanted) else np.zeros(0)
        start, is_solved = find_start(copy.module, one, knowledge.shape)
        labels = np.array([label])
        drawn.append(made(start=[start], labels=labels, wanted=torch.from_numpy(one), is_solved=is_solved))
    return drawn


def find_start(model: "nn.Module", wanted: NDArray[np.float64], shape: tuple[int, ...]) -> "tuple[Tensor, bool]":
    """[1, C, H, W] on the processor; True where no search is for it.

    Of nothing it is grey, and where pixels enter the layer one by one it is the image.
    """
    import torch

    grey = torch.full((1, *shape), 0.5)
    if not len(wanted):
        return grey, True
    place = find_device(model)
    flat = (torch.full((1, *shape), v, device=place) for v in (0.0, 1.0, 0.25))
    low, high, middle = (entering(model, x)[1][0].double() for x in flat)
    straight = low.numel() == int(np.prod(shape)) and bool(((high - low).abs() > 1e-9).all())
    if straight and torch.allclose(middle, 0.75 * low + 0.25 * high, atol=1e-6):
        target = torch.from_numpy(wanted).to(place)
        return ((target - low) / (high - low)).reshape(1, *shape).cpu(), True
    return grey, False


class Analytic(LayerInversion):
    card = replace(
        CARD,
        title="Analytic input of the first dense layer",
        source="Phong et al., IEEE TIFS 2018, sec. 3; arXiv:2003.14053, prop. 3.1",
        learns="what entered a client's first dense layer, exactly, and from it the image",
        does_not_show="the single images behind an update of many: only a mean of what they made",
        effort=Effort(seconds=26, grows=("convolutions", "updates")),
    )

    @settings
    class Config(LayerInversion.Config):
        per_size: AtLeastOne = Field(
            default=200, description="replayed updates of one image and number of steps to attack, at most"
        )
        recorded: AtLeastZero = Field(default=1000, description="uploads to attack that crossed the wire")
        most: AtLeastOne = Field(
            default=1, description="images to claim of a replayed update, at most; a division gives one input"
        )
        most_recorded: AtLeastOne = Field(
            default=1, description="images to claim of an update that crossed the wire, at most"
        )

    def applies(self, update: Update) -> bool:
        return update.examples == 1 or update.origin == "recorded"

    def make_claim(self, chosen: Sequence[Update], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        claim = super().make_claim(chosen, knowledge, rng)
        made = {u.artifact: u for u in chosen}
        inputs, models = (np.empty(len(claim["artifact"]), object) for _ in range(2))
        for i, artifact in enumerate(claim["artifact"]):
            update = made[str(artifact)]
            inputs[i] = layer_input(Imitation(update, knowledge), knowledge.shape)
            models[i] = knowledge.granted_architecture(update.start)
        return {**claim, "inputs": inputs, "extractors": models}

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[LayerSearch]:
        known = labels(update, knowledge, 1)
        y = rng.integers(knowledge.classes, size=1) if known is None else known
        imitation = Imitation(update, knowledge)
        wanted = layer_input(imitation, knowledge.shape)
        return draw_layers(imitation, () if wanted is None else [wanted], knowledge, y)

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        """The images, how far the recovered inputs are from the true ones, and whether any is a member's own."""
        found = [*super().measure(claim, truth, rng), *input_errors(claim, truth, rng)]
        return [*found, *inputs_present(claim, truth, rng)]

    def choose_remedy(self, claim: Claim, truth: Truth, people: Sequence[PeopleCount]) -> str:
        """Besides the steps: whether the layer that gives the images away reads their pixels."""
        said = super().choose_remedy(claim, truth, people)
        sent = np.flatnonzero(claim["origin"] == "recorded")
        if len(sent) and "inputs" in claim and claim["inputs"][sent[0]] is not None:
            shape = truth.auxiliary.x.shape[1:]
            image = np.linspace(0, 1, math.prod(shape), dtype=np.float32).reshape(1, *shape)
            if claim["inputs"][sent[0]].size == image[0].size and np.allclose(
                np.corrcoef(_select_entering(claim, int(sent[0]), image)[0], image.ravel())[0, 1], 1
            ):
                said += "; the first dense layer reads raw pixels: reduce the image before it (a convolution)"
        return said

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if reason := super().not_applicable(view, knowledge):
            return reason
        first = self.find_first(view, knowledge)
        assert first is not None, "applies, by the reason above"
        if layer_input(Imitation(first, knowledge), knowledge.shape) is None:
            return "no dense layer with a bias is in the uploads, so there is nothing to divide"
        return ""


def entering(model: "nn.Module", x: "Tensor") -> "tuple[str, Tensor]":
    """Name of the first dense layer that images [B, C, H, W] reach, and its input [B, D].

    ("", empty) where there is none, or where it is applied to more than one vector of an image.
    """
    from torch import nn

    caught: list[tuple[str, Tensor]] = []
    hooks = [
        m.register_forward_pre_hook(lambda _, args, name=name: caught.append((name, args[0])))
        for name, m in model.named_modules()
        if isinstance(m, nn.Linear)
    ]
    try:
        model(x)
    finally:
        for hook in hooks:
            hook.remove()
    return caught[0] if caught and caught[0][1].dim() == 2 else ("", x.new_zeros(0))


class Dense(NamedTuple):
    """A dense layer with a bias: weight [O, D] and bias [O], of its gradient and as it was sent out."""

    gradient: tuple[NDArray[np.float64], NDArray[np.float64]]
    start: tuple[NDArray[np.float64], NDArray[np.float64]]


def layer_input(imitation: Imitation, shape: tuple[int, ...]) -> NDArray[np.float64] | None:
    """[D] what entered the first dense layer; None where its gradient, or its bias's, is not there."""
    found = read_layer(imitation, shape)
    if found is None:
        return None
    weight, bias = found.gradient
    size = float(bias @ bias)
    return weight.T @ bias / size if size > 0 else None


def read_layer(imitation: Imitation, shape: tuple[int, ...]) -> Dense | None:
    """The first dense layer that images reach; None where its weight or its bias was not sent."""
    import torch

    with torch.no_grad():
        name, _ = entering(imitation.module, torch.zeros((1, *shape), device=imitation.device))
    update = imitation.update
    keys = [imitation.keys.get(f"{name}.{part}", "") for part in ("weight", "bias")]
    if not all(k in update.gradient for k in keys):
        return None

    def read(arrays: Mapping[str, NDArray[Any]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        weight, bias = (np.asarray(arrays[k], np.float64) for k in keys)
        return weight, bias

    return Dense(read(update.gradient), read(update.start))


def input_errors(claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
    """Relative error of the inputs of updates that one image made, by number of steps."""
    rows: dict[tuple[str, int], list[tuple[int, Floats, int]]] = {}
    for i, artifact in enumerate(claim["artifact"]):
        own = [truth.members(str(artifact), c) for c in range(int(claim["classes"]))]
        if sum(map(len, own)) == 1 and claim["inputs"][i] is not None:
            label = next(c for c, x in enumerate(own) if len(x))
            key = str(claim["origin"][i]), int(claim["steps"][i])
            rows.setdefault(key, []).append((i, own[label], label))
    found = []
    for (origin, steps), some in sorted(rows.items()):
        true = [_select_entering(claim, i, x)[0] for i, x, _ in some]
        aux = truth.auxiliary
        guesses = {"recovered": [claim["inputs"][i] for i, _, _ in some]}
        if len(aux):
            guesses["input of the class mean"] = [
                _select_entering(claim, i, average_classes(np.array([c]), aux))[0] for i, _, c in some
            ]
        if len(some) > 1:  # of the next update; one of them may be of the same client
            guesses["update of other images"] = [
                claim["inputs"][some[(j + 1) % len(some)][0]] for j in range(len(some))
            ]
        errors = {
            name: np.array([np.linalg.norm(g - t) / np.linalg.norm(t) for g, t in zip(guess, true, strict=True)])
            for name, guess in guesses.items()
        }
        own_errors, senders = errors.pop("recovered"), np.array([int(claim["sender"][i]) for i, _, _ in some])
        judge = Judge(
            control="positive" if is_replay(origin) else "none",
            condition={"n": 1.0, "steps": float(steps), "origin": origin},
        )
        found.append(
            judge.state(
                "layer_input_relative_error",
                float(own_errors.mean()),
                len(some),
                judge.bound_mean(own_errors, rng, groups=senders),
                [
                    Baseline(name=n, value=float(e.mean()), interval=judge.bound_mean(e, rng, groups=senders))
                    for n, e in errors.items()
                ],
                "of what entered the first dense layer",
            )
        )
    return found


def inputs_present(claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:  # noqa: ARG001
    """Of how many updates a member's input to the layer stands there, all but exactly (evaluation/ranking.py)."""
    found: dict[str, list[Present]] = {}
    for i, artifact in enumerate(claim["artifact"]):
        own = [truth.members(str(artifact), c) for c in range(int(claim["classes"]))]
        classes = [c for c, x in enumerate(own) if len(x)]
        origin = str(claim["origin"][i])
        if not classes or claim["inputs"][i] is None or (origin != "recorded" and sum(map(len, own)) > 1):
            continue
        client, behind = int(claim["sender"][i]), np.concatenate([own[c] for c in classes])
        unseen = truth.unseen(truth.find_contributors(str(artifact)) if client == SEVERAL else [client]).images
        marks = set(fingerprints(behind))
        others = unseen.x[np.isin(unseen.y, classes)]
        others = others[[m not in marks for m in fingerprints(others)]]
        if not len(others):
            continue
        near = [_nearest(claim, i, x) for x in (behind, others)]
        found.setdefault(origin, []).append(find_present(near[0], near[1], EXACT))
    return [
        Judge(
            control="none" if origin == "recorded" else "positive",
            looks=len(found),
            condition={"origin": origin},
            note="updates in which what one image makes of the first dense layer's input stands by itself",
        ).judge_present(
            some,
            groups=INDEPENDENT,  # each update is asked for itself: one client may do what no other does
        )
        for origin, some in sorted(found.items())
    ]


def _nearest(claim: Claim, row: int, images: Floats) -> float:
    """How far the recovered input is from that of the nearest image, as a share of the latter's length."""
    alone = _alone(claim["extractors"][row].module(), images)
    least = np.inf
    for true in (_select_entering(claim, row, images), *([] if alone is None else [alone])):
        apart = np.linalg.norm(true - claim["inputs"][row], axis=1)
        least = min(least, float((apart / np.maximum(np.linalg.norm(true, axis=1), 1e-12)).min()))
    return least


def _alone(model: "nn.Module", images: Floats) -> NDArray[np.float64] | None:
    """[n, D] that enter the layer when each image is a batch of its own in training; None where that is no other.

    Layers that normalise by the batch then do so by the image.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    if not any(isinstance(m, _BatchNorm) for m in model.modules()):
        return None
    own, found = copy.deepcopy(model), []
    for m in own.modules():
        if isinstance(m, _BatchNorm):
            m.train()
    with torch.no_grad():
        for x in tensor(images, find_device(own)):
            try:
                found.append(entering(own, x[None])[1][0].double().cpu().numpy())
            except (ValueError, UserError):  # one number a channel has no spread
                return None
    return np.stack(found)


def _select_entering(claim: Claim, row: int, images: Floats) -> NDArray[np.float64]:
    """[n, D] that enter the layer when the model of that row is shown images [n, C, H, W]."""
    import torch

    with torch.no_grad():
        model = claim["extractors"][row].module()
        return entering(model, tensor(images, find_device(model)))[1].double().cpu().numpy()
