"""FedGKT: clients train a small network, the server a large one on the features of all their examples.

He, Annavaram, Avestimehr. Group Knowledge Transfer: Federated Learning of Large CNNs at the Edge. NeurIPS 2020.
arXiv:2007.14513, Algorithm 1. With z the logits of one side and z' those of the other, in every round

    client    minimises  CE(z, y) + alpha KL(z, z'),  then sends features, logits and labels of *all* its examples
    server    minimises  KL(z, z') + alpha CE(z, y)  on these features, then sends back its logits on each example

    KL(z, z') = T^2 sum_c p_c (ln p_c - ln softmax(z / T)_c),    p = softmax(z' / T) + 1e-7

In the first round clients have no logits of the server's and minimise CE. There is no global model: `accuracy`
is that of the clients' small networks, which are the federation's model; its features are what enters its last
layer. The server's network has one hidden layer on top of them.

T, alpha, the 1e-7, the server's optimiser and its batches of one client after the other in order are those of the
code of FedML. That code switches the server's distillation off by default (`server_distillation: false`). Changed
from it: logits are matched by example and not by batch, which shuffling breaks; features of test examples do not
cross; no part starts pretrained. A client that was not heard gets the logits that it got before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, linear, log_softmax, relu

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.families.own_models import OwnModels
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig
from fedaudit.fl.model import State
from fedaudit.fl.runtime.eager import eager
from fedaudit.fl.runtime.ranges import Amount, AtLeastOne, AtLeastZero, BelowOne, Positive
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.training.local import Constants, Handle
from fedaudit.fl.wire.protection import Message, Payload

LEAST = 1e-7  # added to the teacher's outputs, as in the public code


class FedGKT(OwnModels):
    card = Card(
        title="FedGKT",
        needs="classes",
        source="arXiv:2007.14513, Alg. 1",
        text="Clients train small networks and send what these make of each example; the server trains a large "
        "one on that, and both learn from each other's outputs.",
        downlink=(Kind.SERVER_LOGITS,),
        uplink=(Kind.FEATURES,),
        release=(),
    )

    @settings
    class Config(LocalConfig):
        temperature: Positive = Field(default=3.0, description="T: temperature of what is learnt from outputs")
        alpha: Amount = Field(
            default=1.0, description="weight of the server's outputs at clients, and of labels at the server"
        )
        server_distillation: bool = Field(
            default=True,
            description="whether the server learns from clients' outputs too, as in the paper; the public code "
            "does not by default",
        )
        server_hidden: AtLeastOne = Field(default=64, description="units of the server's hidden layer")
        server_epochs: AtLeastZero = Field(default=3, description="passes of the server over a round's features")
        server_batch: AtLeastOne = Field(default=64, description="examples in a batch of the server's training")
        server_lr: Amount = Field(default=0.1, description="step size of the server's SGD in round 0")
        server_momentum: BelowOne = Field(default=0.9, description="Nesterov momentum of the server's SGD")
        server_decay: Amount = Field(default=5e-4, description="L2 penalty of the server's SGD")

    # Server ------------------------------------------------------------------------------

    def start(self, federation: Federation) -> Tree:
        initial = federation.initial
        width = next(initial[k].shape[1] for k in self.head if initial[k].dim() == 2)
        server = _start_network(
            (width, self.config.server_hidden, self.classes), federation.streams.torch("fedgkt")
        )
        return {"server": server, "logits": {}}

    def broadcast(self, state: Tree) -> Message:
        return {}

    def send_to(self, state: Tree, client: int) -> Message:
        logits = state["logits"].get(str(client))
        return {} if logits is None else {Kind.SERVER_LOGITS: {"logits": logits}}

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        sent = {str(d.client): d.message[Kind.FEATURES] for d in deliveries}
        server = self._train_network(state["server"], list(sent.values()), round)
        with torch.no_grad():
            logits = {k: run_network(server, p["features"]) for k, p in sent.items()}
        return {"server": server, "logits": state["logits"] | logits}

    def _train_network(self, start: State, sent: Sequence[Payload], round: int) -> State:
        """The server's network after training on what clients sent, one client after the other."""
        config = self.config
        weights = {k: v.clone().requires_grad_() for k, v in start.items()}
        optimiser = eager(torch.optim.SGD)(
            list(weights.values()),
            lr=config.server_lr * config.lr_decay**round,
            momentum=config.server_momentum,
            weight_decay=config.server_decay,
            nesterov=config.server_momentum > 0,
        )
        for _ in range(config.server_epochs):
            for payload in sent:
                rows = torch.arange(len(payload["labels"]))
                for batch in torch.split(rows, config.server_batch):
                    z, y = run_network(weights, payload["features"][batch]), payload["labels"][batch]
                    loss = cross_entropy(z, y)
                    if config.server_distillation:
                        taught = distillation_loss(z, payload["logits"][batch], config.temperature)
                        loss = taught + config.alpha * loss
                    for w, g in zip(
                        weights.values(), torch.autograd.grad(loss, list(weights.values())), strict=True
                    ):
                        w.grad = g
                    optimiser.step()
        return {k: v.detach() for k, v in weights.items()}

    # Client ------------------------------------------------------------------------------

    def train(self, client: Client) -> Reply:
        places = torch.arange(len(client.y), device=client.y.device)
        trained = replace(client, y=places).train(self, self.compute_constants(client))
        state = trained.state
        features, logits = (client.run(part, state).float().cpu() for part in ("features", "forward"))
        sent = {"features": features, "labels": client.y.cpu(), "logits": logits}
        return Reply(
            message={Kind.FEATURES: sent},
            examples=len(client.y),
            memory={"own": state},
            stats={"train_loss": trained.loss, "steps": float(trained.steps)},
        )

    def compute_constants(self, client: Client) -> Constants:
        """Labels, and the server's logits where there are some, of each example by its place."""
        return {"labels": client.y, **client.message.get(Kind.SERVER_LOGITS, {})}

    def loss(self, net: Handle, x: Tensor, y: Tensor, const: Constants) -> Tensor:
        """`y` are places of examples."""
        z, own = net(x), const["labels"][y]
        if "logits" not in const:
            return cross_entropy(z, own)
        taught = distillation_loss(z, const["logits"][y], self.config.temperature)
        loss: Tensor = cross_entropy(z, own) + self.config.alpha * taught
        return loss


def distillation_loss(logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """KL_T of the module's docstring, mean over a batch; both [b, C]."""
    p = (teacher / temperature).softmax(1) + LEAST
    each = (p * (p.log() - log_softmax(logits / temperature, 1))).sum(1)
    loss: Tensor = temperature**2 * each.mean()
    return loss


def run_network(weights: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """The server's network: features [n, D] to logits [n, C]."""
    hidden = relu(linear(features, weights["hidden.weight"], weights["hidden.bias"]))
    return linear(hidden, weights["head.weight"], weights["head.bias"])


def _start_network(sizes: tuple[int, int, int], rng: torch.Generator) -> State:
    """Weights and biases uniform in +-1 / sqrt(inputs), as torch draws them."""
    found: State = {}
    for name, inputs, outputs in (("hidden", sizes[0], sizes[1]), ("head", sizes[1], sizes[2])):
        reach = inputs**-0.5
        found[f"{name}.weight"] = torch.empty(outputs, inputs).uniform_(-reach, reach, generator=rng)
        found[f"{name}.bias"] = torch.empty(outputs).uniform_(-reach, reach, generator=rng)
    return found
