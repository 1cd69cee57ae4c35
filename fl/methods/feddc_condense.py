"""FedDC and FedDC+: clients send a condensed image of each class; the server fine-tunes on them.

FedDC (dataset condensation), Algorithm 1 (no public identifier at hand; unrelated to the FedDC of 2022
that corrects local drift). Each client trains as in FedAvg and besides condenses its classes
(fl/families/condensation.py); the server averages and then trains the average on the union of the condensed
images that arrived in this round. ft_epochs = 0 or ft_lr = 0 is FedAvg, bit for bit.
`variant: feddc_plus` optimises the images with momentum 0.9 and weight decay 4e-5.

Where the text is silent or unusable: averages and the union run over the clients heard;
one cosine an output unit as in the code of dataset condensation (`match: layer` is the printed form);
images start from noise. Clients' data are static and condensation ignores the model, so a client
condenses once and sends the same images every time (`recondense: every_round` is the printed form).

Public code under this paper's name starts the images from real ones and switches condensation off, so
that clients upload training images. `init: real` does that; for studies of attacks only, it has to be
requested with `unsafe_allow_real_init: true`.
"""

from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.condensation import ClassBatch, Condensing, condense
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, RoundMethod
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle, Trained, TrainingHooks
from fedaudit.fl.wire.protection import Payload


class FedDCCondense(RoundMethod):
    card = Card(
        title="FedDC",
        needs="classes",
        source="FedDC (dataset condensation), Alg. 1",
        text="FedAvg whose clients also send one synthetic image for each of their classes; the "
        "server trains the averaged model on all of them, which evens out the classes.",
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.CONDENSED_IMAGES, Kind.CONDENSED_LABELS),
    )

    @settings
    class Config(LocalConfig):
        local_epochs: AtLeastZero = Field(default=1, description="E: passes of a client over its data in a round")
        batch_size: AtLeastOne = Field(
            default=32, description="B: examples in a batch of local training; from the authors' logs"
        )
        weight_decay: Amount = Field(
            default=1e-3, description="L2 penalty of local training; from the authors' logs"
        )
        variant: Literal["feddc", "feddc_plus"] = Field(
            default="feddc", description="feddc_plus optimises the images with momentum 0.9 and weight decay 4e-5"
        )
        iterations: AtLeastZero = Field(
            default=500, description="iterations of condensation; 0 sends the images as initialised"
        )
        image_lr: Amount = Field(default=3.0, description="step size on the condensed images")
        image_clip: Amount = Field(
            default=0.25,
            description="nu: largest norm of the images' gradient, hinted at in the authors' code; 0 means "
            "no clipping",
        )
        images_per_class: AtLeastOne = Field(default=1, description="condensed images of each class of a client")
        real_batch: AtLeastOne = Field(
            default=50, description="real images of a class in an iteration, drawn without replacement"
        )
        match: Literal["dc_rows", "layer"] = Field(
            default="dc_rows",
            description="how gradients are compared: one cosine for each output unit, or for each layer as "
            "printed",
        )
        init: Literal["noise", "real"] = Field(
            default="noise", description="what condensed images start from; real ones need unsafe_allow_real_init"
        )
        unsafe_allow_real_init: bool = Field(
            default=False, description="permits init: real, which uploads images close to training images"
        )
        recondense: Literal["cache", "every_round"] = Field(
            default="cache", description="whether a client condenses once or, as printed, in every round"
        )
        balance: Literal["none", "reweight"] = Field(
            default="none", description="with reweight each class weighs the same in the server's training"
        )
        ft_epochs: AtLeastZero = Field(
            default=10, description="passes of the server over the condensed images in a round; 0 is FedAvg"
        )
        ft_lr: Amount = Field(default=0.01, description="step size of the server's training; 0 is FedAvg")
        ft_batch: AtLeastOne = Field(
            default=64, description="condensed images in a batch of the server's training"
        )
        ft_weight_decay: Amount = Field(default=1e-3, description="weight decay of the server's training")
        ft_full_batch: bool = Field(
            default=False,
            description="whether the server steps on all condensed images at once, which is the printed update",
        )

        def __post_init__(self) -> None:
            if self.init == "real" and not self.unsafe_allow_real_init:
                raise UserError(
                    "feddc_condense.init: real uploads images that start as training images",
                    hint="use init: noise; to study what real ones leak, unsafe_allow_real_init: true",
                )

    # Client ------------------------------------------------------------------------------

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        condensed = client.memory.get("condensed") or self.condense(client)
        message = reply.message | {
            Kind.CONDENSED_IMAGES: {"images": condensed["images"]},
            Kind.CONDENSED_LABELS: {"labels": condensed["labels"]},
        }
        cache = self.config.recondense == "cache"
        return Reply(
            message=message,
            examples=reply.examples,
            stats=reply.stats,
            memory={"condensed": condensed} if cache else None,
        )

    def condense(self, client: Client) -> Payload:
        """ "images" [m, C, H, W] in normalised input space and "labels" [m], class by class."""
        if client.x.dim() != 4 or not client.x.is_floating_point():
            raise UserError(
                f"feddc_condense takes images; one example here has shape {list(client.x.shape[1:])}",
                hint="choose a data set of images: `fedaudit tools list datasets`",
            )
        settings = condensing(self.config)
        # Images made again, because the first ones were lost on the way, are the same images
        cached = self.config.recondense == "cache"
        rng = client.streams.torch("condensation", client.index) if cached else client.generator("condensation")
        owned = client.counts.nonzero().flatten().tolist()
        cells = [ClassBatch(client.x[client.y == c], c) for c in owned]
        images = condense(client.net, cells, settings, rng)
        labels = torch.tensor(owned).repeat_interleave(images.shape[1])
        return {"images": images.flatten(0, 1).cpu(), "labels": labels}

    # Server ------------------------------------------------------------------------------

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        mean, images, labels = deliveries.average(), [], []
        for delivery in deliveries:
            weight = delivery.weight(self.config.weighting)
            mean.add(delivery.client, delivery.message[Kind.LOCAL_MODEL], weight, state["model"])
            images.append(delivery.message[Kind.CONDENSED_IMAGES]["images"])
            labels.append(delivery.message[Kind.CONDENSED_LABELS]["labels"])
        return state | {"model": mean.value(), "union": (torch.cat(images), torch.cat(labels))}

    def round(self, t: int, state: Tree, memory: dict[int, Tree], federation: Federation) -> Tree:
        """As ever; then the server trains the average where clients train."""
        after = super().round(t, state, memory, federation)
        union = after.pop("union", None)
        if union is None or not (self.config.ft_epochs and self.config.ft_lr):
            return after
        [reply] = federation.workers.map("work_on_examples", [("fine_tune", t, after["model"], *union)])
        return after | {"model": reply.message[Kind.GLOBAL_MODEL]}

    def fine_tune(self, server: Client) -> Reply:
        """The average, trained on the condensed images of this round."""
        training = CondensedTraining(self.config, len(server.y))
        const: Constants = {}
        if self.config.balance == "reweight":
            const = {"weight": 1 / server.counts.clamp(min=1).float()}
        trained = server.train(training, const, stream="fine_tune")
        return Reply(message={Kind.GLOBAL_MODEL: trained.state}, examples=len(server.y))


class CondensedTraining(TrainingHooks):
    """The server's training on condensed images, for the shared loop; all layers are trained."""

    def __init__(self, config: FedDCCondense.Config, examples: int) -> None:
        self.config: Any = LocalConfig(
            local_epochs=config.ft_epochs,
            lr=config.ft_lr,
            weight_decay=config.ft_weight_decay,
            batch_size=max(1, examples) if config.ft_full_batch else config.ft_batch,
        )

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        return cross_entropy(net(x), y, weight=const.get("weight"))


def condensing(config: FedDCCondense.Config) -> Condensing:
    """The settings of condensation that a configuration stands for; the auditor's replays use them too."""
    plus = config.variant == "feddc_plus"
    return Condensing(
        iterations=config.iterations,
        image_lr=config.image_lr,
        image_clip=config.image_clip,
        image_momentum=0.9 if plus else 0.0,
        image_weight_decay=4e-5 if plus else 0.0,
        images_per_class=config.images_per_class,
        real_batch=config.real_batch,
        match=config.match,
        init=config.init,
    )
