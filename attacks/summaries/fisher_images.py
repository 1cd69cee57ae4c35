"""Images from Fisher diagonals: single training images that stand in single units of the first layer.

The gradient by weight W_ji of a linear layer is g_j x_i and that by bias b_j is g_j, so of unit j

    F_W[j, i] / F_b[j] = mean g_j^2 x_i^2 / mean g_j^2,

the mean of squared inputs, weighted by squared gradients. Of one example that is its x^2 exactly, whatever the
network above: an identity (attacks/summaries/_fisher.py). Over all units nothing of single examples is left
once a client has some; but a rectified unit that fires for one example alone, or an example whose gradient is
far larger than the others', has a quotient of its own. So each unit is asked by itself.

An image of a client stands in its diagonal where the quotient of some unit is ten times nearer to it than any
quotient is to the nearest of as many images of nobody's. Planted is the diagonal of one held-out image at each
client's own model; the negative control has half of the others in the place of members. Networks whose first
layer is no linear one of pixels are not read.

Claim: units [k] objects, float64 [H, D] quotients; client [k], artifact [k] as text; readers [k], objects: from
images to squared inputs of the first layer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Attack, Card, Claim, Effort, Examples, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.counting import CountedPeople
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.ranking import TIMES, Present, find_present
from fedaudit.attacks.evaluation.sources import sent_with
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.people import PeopleCount
from fedaudit.attacks.stats import INDEPENDENT
from fedaudit.fl.artifact import Artifact, Role
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim, Harm, Position, ThreatModel

Values = NDArray[np.float64]


class FisherImages(Attack):
    card = Card(
        title="Images from Fisher diagonals",
        needs=("numbers", "classes"),
        source="quotients of what FedCurv sends (arXiv:1910.07796), unit by unit of the first layer",
        aim=Aim.RECONSTRUCTION,
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"architecture"})),
        requires=(Kind.FISHER,),
        also_reads=(Kind.LOCAL_MODEL,),
        aids=(Kind.LOCAL_MODEL,),
        learns="training images, pixel by pixel, that stand in single units of a client's diagonal",
        does_not_show="what stands in convolutions, nor which of a client's images a unit shows next time",
        control="",  # planted in measure()
        remedy="aggregate Fisher diagonals securely, or noise them with a stated epsilon; squared gradients of "
        "batches hide single images in part",
        effort=Effort(seconds=0.5, grows=("clients", "pixels")),
    )

    @settings
    class Config:
        members: AtLeastOne = Field(default=200, description="images of a client that are looked for, at most")

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        sent = _readable(view, knowledge)
        units, readers = np.empty(len(sent), object), np.empty(len(sent), object)
        for row, (a, model, name) in enumerate(sent):
            units[row] = _divide(a.payload[f"u/{name}.weight"], a.payload[f"u/{name}.bias"])
            readers[row] = _Reader(model, name, knowledge)
        return {
            "units": units,
            "readers": readers,
            "client": np.array([a.sender.index for a, _, _ in sent]),
            "artifact": np.array([a.id for a, _, _ in sent]),
        }

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        real, planted, silent = list[Present](), list[Present](), list[Present]()
        rows = zip(claim["units"], claim["readers"], claim["client"].tolist(), strict=True)
        for units, reader, client in rows:
            own, others = truth.client_examples(client), truth.unseen([client]).images
            own = own.only(rng.permutation(len(own))[: min(self.config.members, len(others) // 2)])
            others = others.only(rng.permutation(len(others))[: 2 * len(own)])
            first, second = others.only(np.arange(len(own))), others.only(np.arange(len(own), len(others)))
            mine, nobodys, more = (reader.distance(units, some) for some in (own, first, second))
            real.append(find_present(mine, nobodys))
            silent.append(find_present(more, nobodys))
            one = first.only(np.arange(1))
            of_one = reader.plant(one)
            planted.append(find_present(reader.distance(of_one, one), reader.distance(of_one, second)))
        alone = "the diagonal of one held-out image at each client's model, which is its square by algebra"
        return [
            Judge(note="clients of whom an image stands in a unit").judge_present(real, groups=INDEPENDENT),
            Judge(control="positive", note=alone).judge_present(planted, groups=INDEPENDENT),
            Judge(control="negative", note="half of the non-members for members").judge_present(
                silent, groups=INDEPENDENT
            ),
        ]

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        """Who stands in a unit: whose image is ten times nearer to it than that of any held-out person."""
        found = CountedPeople("recovered: stands in a unit, and nobody else's image does", Harm.RECONSTRUCTION)
        rows = zip(claim["units"], claim["readers"], claim["client"].tolist(), strict=True)
        for units, reader, client in rows:
            own, unseen = truth.client_examples(client), truth.unseen([client]).images
            others = unseen.only(np.isin(unseen.y, own.y))
            if len(others) < 2:
                found.hold(client, truth.client_rows(client))
                continue
            near, beside = (reader.measure_distances(units, some) for some in (own, others))
            lowest, second = np.sort(beside)[:2]
            found.test(client, truth.client_rows(client), truth.client_rows(client)[near < lowest / TIMES])
            rest = np.where(beside == lowest, second, lowest)  # of each, the nearest of the others
            for mark, is_lucky in zip(fingerprints(others.x), (beside < rest / TIMES).tolist(), strict=True):
                found.luck(float(is_lucky), 1, person=mark, clients=[client])
        return found.people(truth)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not _readable(view, knowledge):
            return "no client sends a Fisher diagonal of a first layer that is linear in pixels, with its model"
        return ""


class _Reader:
    """A client's model, as far as its first layer."""

    def __init__(self, weights: Mapping[str, NDArray[Any]], name: str, knowledge: Knowledge) -> None:
        self._module = knowledge.granted_architecture(weights).module()
        self._layer = next(m for n, m in self._module.named_modules() if n == name or n.endswith(f".{name}"))

    def square_inputs(self, images: Examples) -> Values:
        """[N, D] squared inputs of the first layer."""
        import torch

        caught: list[Any] = []
        hook = self._layer.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
        device = self._layer.weight.device
        try:
            with torch.no_grad():
                self._module(torch.from_numpy(np.ascontiguousarray(images.x)).to(device))
        finally:
            hook.remove()
        return np.asarray(caught[-1].double().cpu().numpy() ** 2)

    def measure_distances(self, units: Values, images: Examples) -> Values:
        """How near any quotient [H, D] is to each image [n]: the least mean squared error; else infinite."""
        if not len(units) or not len(images):
            return np.full(len(images), np.inf)
        square = self.square_inputs(images)
        each = (units**2).sum(1)[:, None] - 2 * units @ square.T + (square**2).sum(1)
        nearest = units[each.argmin(axis=0)]  # once more, where rounding does not cancel
        return np.asarray(((nearest - square) ** 2).mean(axis=1))

    def distance(self, units: Values, images: Examples) -> float:
        """How near any quotient is to any image; infinite without any."""
        return float(self.measure_distances(units, images).min(initial=np.inf))

    def plant(self, image: Examples) -> Values:
        """Quotients [H, D] of a client that holds this one image."""
        import torch

        device = self._layer.weight.device
        x = torch.from_numpy(np.ascontiguousarray(image.x)).to(device)
        y = torch.from_numpy(image.y).to(device)
        with torch.enable_grad():
            params = [self._layer.weight, self._layer.bias]
            wanted = [p.requires_grad for p in params]
            for p in params:
                p.requires_grad_(True)
            loss = torch.nn.functional.cross_entropy(self._module(x), y)
            weight, bias = torch.autograd.grad(loss, params)
            for p, before in zip(params, wanted, strict=True):
                p.requires_grad_(before)
        return _divide(weight.double().cpu().numpy() ** 2, bias.double().cpu().numpy() ** 2)


def _divide(weight: NDArray[Any], bias: NDArray[Any]) -> Values:
    """F_W / F_b of the units that a gradient reached, [H, D]."""
    reached = np.asarray(bias) > 0
    return np.asarray(weight, np.float64)[reached] / np.asarray(bias, np.float64)[reached][:, None]


def _readable(
    view: Sequence[Artifact], knowledge: Knowledge
) -> list[tuple[Artifact, Mapping[str, NDArray[Any]], str]]:
    """Diagonals of clients, with the model that came with each and the name of its first layer."""
    view, found = index(view), []
    for a in view.select(kind=Kind.FISHER, origin="recorded"):
        model = sent_with(a, Kind.LOCAL_MODEL, view)
        if a.sender.role != Role.CLIENT or a.sender.index is None or model is None:
            continue
        name = _find_first_layer(a.payload, model.payload, knowledge)
        if name:
            found.append((a, model.payload, name))
    return found


def _find_first_layer(
    fisher: Mapping[str, NDArray[Any]], weights: Mapping[str, NDArray[Any]], knowledge: Knowledge
) -> str:
    """The name of the layer that reads the pixels, weight [H, D] and bias [H]; "" where it is another."""
    if knowledge.architecture is None:
        return ""
    inside = next((n for n, _ in knowledge.architecture(weights).module().named_parameters()), "")
    first = next((n for n in weights if inside == n or inside.endswith(f".{n}")), "").removesuffix(".weight")
    weight, bias = fisher.get(f"u/{first}.weight"), fisher.get(f"u/{first}.bias")
    pixels = int(np.prod(knowledge.shape))
    if weight is None or bias is None or np.shape(weight) != (np.size(bias), pixels):
        return ""
    return first if np.isfinite(weight).all() and np.isfinite(bias).all() else ""
