"""Feature-space hijack: a server of split learning trains clients' layers for itself, until it can read them.

Pasquini, Ateniese, Bernaschi. Unleashing the Tiger: Inference Attacks on Split Learning. CCS 2021,
arXiv:2012.02670, sec. 3. The server has images of its own, a pilot f~ that encodes them, its decoder g and a
critic D. With x' its own images and z what a client sends, it minimises

    |g(f~(x')) - x'|^2          over f~ and g
    D(z) - D(f~(x')) + penalty  over D,    a client is sent  d/dz of  -mean D(z)

so clients' layers are trained until their features are distributed as the pilot's, and g(z) reads them. Labels
and the task play no part: what clients are sent does not depend on them, which they can notice (SplitGuard,
Gradients Scrutinizer: attacks/evaluation/split_detectors.py).

Changed from the authors' code (pasquini-dario/SplitNN_FSHA, bd895c5): the pilot learns before the first batch and
stays as it is; the client's optimiser is the victim's own; the penalty's norm is over a whole activation, where
that code sums over height and width alone, and its weight is 10, where it has 500; features come of ReLU as
clients' do. The server's part of the model is trained beside it as if nothing were wrong.

attacks/batches/hijacked_images.py is the other half.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fedaudit.attacks.poisoning._pilot import Pilot, Stepper, build_critic, build_pilot, penalise_slope
from fedaudit.fl.data.scale import denormalise
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Positive
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import KEPT, Adversary, Card, Client, Reply
from fedaudit.fl.threats.threat import Aim, Conduct, Position, ThreatModel


class FeatureHijack(Adversary):
    card = Card(
        title="Feature-space hijack",
        source="arXiv:2012.02670, sec. 3",
        does="trains clients' layers to send what the server can read images from; the task is not learnt",
        remedy="let clients test the gradients that they receive with batches of false labels; clip and noise "
        "activations",
        threat=ThreatModel(position=Position.SERVER, conduct=Conduct.MALICIOUS),
        aim=Aim.INVERSION,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Adversary.Config):
        first: Annotated[AtLeastZero, Field(description="the round from which the server hijacks")] = 0
        pilot_steps: Annotated[AtLeastOne, Field(description="steps of the pilot before the first batch")] = 800
        critic_steps: Annotated[AtLeastOne, Field(description="steps of the critic for each batch")] = 2
        rate: Annotated[Positive, Field(description="step size of Adam, for the pilot and the critic")] = 1e-3
        penalty: Annotated[Positive, Field(description="weight of the critic's slope")] = 10.0
        factor: Annotated[
            Positive, Field(description="how many times the critic's gradient a client is sent")
        ] = 1.0
        batch: Annotated[AtLeastOne, Field(description="images of the server's own in a step")] = 64

    def answer(self, server: Client, reply: Reply) -> Reply:
        if server.round < self.config.first:
            return reply
        assert server.read_public is not None, "a worker has the server's images"
        own = denormalise(server.read_public(0), server)
        z, streams = server.x.detach(), server.streams
        kept = {k.removeprefix(KEPT): v for k, v in server.start.items() if k.startswith(KEPT)}
        done = int(kept.pop("done", torch.zeros(())))
        pilot = self._load_pilot(kept, own, z, streams)
        critic = build_critic(z.shape[1:], streams).to(z.device)
        stepper = Stepper(critic, self.config.rate)
        if own_weights := _pick(kept, "critic/"):
            stepper.load(own_weights)
        rng = streams.torch("hijack", done)
        for _ in range(self.config.critic_steps):
            drawn = own[torch.randint(len(own), (len(z),), generator=rng)]
            with torch.no_grad():
                true = pilot.encoder(drawn)
            stepper.optimiser.zero_grad()
            loss = critic(z).mean() - critic(true).mean()
            loss = loss + self.config.penalty * penalise_slope(critic, true, z, rng)
            torch.autograd.backward(loss)
            stepper.optimiser.step()
        asked = z.requires_grad_()
        [gradient] = torch.autograd.grad(-self.config.factor * critic(asked).mean(), [asked])
        state = {f"{KEPT}critic/{k}": v.cpu() for k, v in stepper.save().items()}
        state |= {f"{KEPT}pilot/{k}": v.cpu() for k, v in pilot.encoder.state_dict().items()}
        state[f"{KEPT}done"] = torch.tensor(done + 1)
        weights = reply.message[Kind.GLOBAL_MODEL] | state
        sent = {"gradient": gradient.cpu().contiguous()}
        return replace(reply, message=reply.message | {Kind.GLOBAL_MODEL: weights, Kind.SMASHED_GRADIENT: sent})

    def read_answered(self, activations: Tensor, own: Tensor, streams: Streams) -> Tensor:
        pilot = self._fit_pilot(own, activations, streams)
        with torch.no_grad():
            return torch.cat([pilot.decoder(part) for part in torch.split(activations, 500)])

    def _load_pilot(self, kept: dict[str, Tensor], own: Tensor, z: Tensor, streams: Streams) -> Pilot:
        weights = _pick(kept, "pilot/")
        if not weights:
            return self._fit_pilot(own, z, streams)
        pilot = build_pilot(own.shape[1:], z.shape[1:], bool((z >= 0).all()), streams)
        pilot.encoder.load_state_dict(weights)
        pilot.encoder.to(z.device)
        return pilot

    def _fit_pilot(self, own: Tensor, z: Tensor, streams: Streams) -> Pilot:
        """The pilot for such activations, with its decoder: of the server's images and the run's seed alone."""
        if not len(own) or own.dim() != 4:
            raise UserError(
                f"{self.card.title} learns from images of the server's own, and it has none",
                hint="set federation.holdout.server, for instance to 0.2, with a data set of images",
                key="federation.holdout.server",
            )
        pilot = build_pilot(own.shape[1:], z.shape[1:], bool((z >= 0).all()), streams)
        pilot.encoder.to(own.device)
        pilot.decoder.to(own.device)
        c = self.config
        pilot.fit(own, c.pilot_steps, c.batch, c.rate, streams.torch("pilot"))
        return pilot


def _pick(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in state.items() if k.startswith(prefix)}
