"""Methods whose clients send other things under the name of prototypes than means of features."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.training.local import Trained


class Sender(ReBaFL):
    """As ReBaFL; what each image adds and what is made of a class's rows [n, D] are the subclass's."""

    @settings
    class Config(ReBaFL.Config):
        mu: float = 0.0  # odd prototypes are sent and not trained with

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent = reply.message[Kind.LOCAL_PROTOTYPES]
        rows = self.features(client, trained)
        made = [self.made(rows[client.y == c], client) for c in sent["classes"]]
        reply.message[Kind.LOCAL_PROTOTYPES] = sent | {"features": torch.stack(made).float()}
        return reply

    def features(self, client: Client, trained: Trained) -> Tensor:
        return client.run("features", trained.state).double()

    def made(self, rows: Tensor, client: Client) -> Tensor:
        return rows.mean(0)


class Noise(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return torch.randn(rows.shape[1], generator=client.generator("noise"))


class Normalised(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return normalize(rows.mean(0), dim=0)


class Scaled(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return -7.3 * rows.mean(0)


class OwnScale(Sender):
    """Each client's own constant, of which the server knows nothing."""

    def made(self, rows: Tensor, client: Client) -> Tensor:
        return (3.0 + 2.0 * client.index) * rows.mean(0)


class Summed(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return rows.sum(0)


class Standardised(Sender):
    """Each number without the mean over all of the client's images, in units of its deviation."""

    def features(self, client: Client, trained: Trained) -> Tensor:
        rows = super().features(client, trained)
        return (rows - rows.mean(0)) / (rows.std(0) + 0.1)


class Squared(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return rows.square().mean(0)


class Permuted(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        order = torch.Generator().manual_seed(11)
        return rows.mean(0)[torch.randperm(rows.shape[1], generator=order)]


class Turned(Sender):
    """A rotation that the client draws and nobody else knows."""

    def made(self, rows: Tensor, client: Client) -> Tensor:
        drawn = torch.randn(rows.shape[1], rows.shape[1], generator=client.generator("turn"), dtype=torch.float64)
        rotation: Tensor = torch.linalg.qr(drawn)[0]
        return rows.mean(0) @ rotation


class Shifted(Sender):
    """A constant that the client draws and nobody else knows, of the same size as the means."""

    def made(self, rows: Tensor, client: Client) -> Tensor:
        drawn = torch.Generator().manual_seed(client.generator("shift").initial_seed())
        return rows.mean(0) + 2 * torch.randn(rows.shape[1], generator=drawn, dtype=torch.float64)


class Log(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return rows.mean(0).log1p()


class Maximum(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return rows.amax(0)


class Projected(Sender):
    """More numbers than the network has features."""

    def features(self, client: Client, trained: Trained) -> Tensor:
        rows = super().features(client, trained)
        drawn = torch.Generator().manual_seed(5)
        matrix = torch.randn(rows.shape[1], rows.shape[1] + 10, generator=drawn, dtype=torch.float64)
        return torch.tanh(rows @ matrix / 8)


class First(Sender):
    def made(self, rows: Tensor, client: Client) -> Tensor:
        return rows[0]


class OtherLayer(Sender):
    """The first hidden layer's output, of the same width."""

    def features(self, client: Client, trained: Trained) -> Tensor:
        caught: list[Tensor] = []
        layer = next(m for m in client.net.modules() if isinstance(m, torch.nn.Linear))
        hook = layer.register_forward_hook(lambda _, __, out: caught.append(out))
        client.run("features", trained.state)
        hook.remove()
        return torch.cat(caught).double()
