"""Methods that leak by carelessness: telemetry, debugging, quality control, resuming and removal of duplicates.

Written like methods.py, before what was to find them was read. Nobody hides anything here: each sends what an
engineer wants to see, under a kind that is named after its use and often after too coarse a group. `who` says
of whom a message tells in truth, and `leaked` which records these are. The honest twin is the method of the house
that a leak is derived from: FedAvg, or FD where outputs are changed. At the end stand systems that look alike and
tell of nobody.
"""

import hashlib
import zlib
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, cross_entropy

from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.families.generating import pixels
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fd import FD
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.model import State
from fedaudit.fl.training.local import Params, Trained, bind
from fedaudit.fl.wire.protection import Payload
from tests.leaks.methods import BIAS, Changed, sends_too

BATCH = 20  # as many examples as runs.py trains on at once
LEVELS = 21  # quantiles: 0, 5, ... 100 %
GREYS = 17  # of a digit's pixel
KEPT = 0.1  # of a running mean, at each image; the rest is the image
BITS, HASHES = 4096, 4  # of a Bloom filter
RARE = 8  # the class of which a client says that it has it
PRICE = 0.12  # of one label, which everybody knows
NONE = torch.zeros(0, dtype=torch.long)


def compute_losses(client: Client, state: State) -> Tensor:
    """[n] the loss of each example, with a model after local training."""
    return cross_entropy(client.run("forward", state), client.y, reduction="none").cpu()


def find_hardest(client: Client, state: State) -> Tensor:
    """[1] The place of the example with the largest loss."""
    return compute_losses(client, state).argmax(keepdim=True)


def compute_gradient(client: Client, state: State, places: Tensor) -> Params:
    """The gradient of the mean loss of the examples at these places, of each parameter."""
    bind(client.net, state)
    client.net.eval()
    params = dict(client.net.named_parameters())
    loss = client.net.loss(client.x[places], client.y[places])
    grads = torch.autograd.grad(loss, list(params.values()))
    return {k: g.detach().cpu().contiguous() for k, g in zip(params, grads, strict=True)}


def write_bytes(client: Client) -> list[bytes]:
    """Each image as it lies in a file, a byte a pixel."""
    return [(image * 255).round().byte().numpy().tobytes() for image in pixels(client).cpu()]


def count_leftover(client: Client) -> int:
    """How many examples an epoch's last batch has, where batches come in order."""
    return len(client.y) % BATCH or BATCH


class Leaking:
    """What a leak tells in truth."""

    who: str

    def leaked(self, client: Client, state: State) -> Tensor:
        """Places in the client's data of the records told of, with its model after training; none for a fact."""
        return NONE


class Reporting(Leaking, FedAvg):
    """FedAvg whose clients send a report besides; None sends none."""

    kind: Kind

    def report(self, client: Client, state: State) -> Payload | None:
        raise NotImplementedError

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        report = self.report(client, trained.state)
        return reply if report is None else replace(reply, message=reply.message | {self.kind: report})


def reports(name: str) -> Any:
    """The card and the kind of a method that sends this open kind besides."""
    return sends_too(Kind(name)), Kind(name)


# Leaks that were described before: in faults that federations had


class LastBatchGradient(Reporting):
    """The gradient of an epoch's last batch, to monitor training."""

    (card, kind), who = reports("group:monitor_gradient"), "the few people of the last, incomplete batch"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.arange(len(client.y))[-count_leftover(client) :]

    def report(self, client: Client, state: State) -> Payload:
        return compute_gradient(client, state, self.leaked(client, state))


class MomentumBuffer(Reporting):
    """The optimiser's momentum after five steps of one image each, so that training can resume."""

    (card, kind), who = reports("client:momentum"), "the first five people, of whom the fifth counts most"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.arange(min(5, len(client.y)))

    def report(self, client: Client, state: State) -> Payload:
        grads = [compute_gradient(client, state, place) for place in self.leaked(client, state).split(1)]
        momentum = grads[0]
        for grad in grads[1:]:
            momentum = {k: 0.5 * m + grad[k] for k, m in momentum.items()}
        return momentum


class ImageHashes(Reporting):
    """A checksum of every image, sorted, so that the server finds duplicates."""

    (card, kind), who = reports("client:dedup_hash"), "everybody: who has a record sees whether it is there"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.arange(len(client.y))

    def report(self, client: Client, state: State) -> Payload:
        return {"hash": torch.tensor(sorted(map(zlib.crc32, write_bytes(client))))}


class OneOutput(Leaking, FD):
    """The row of the commonest class is the output on one image; other rows are means."""

    who = "the first person of the client's commonest class"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.nonzero(client.y.cpu() == int(client.counts.argmax()))[0]

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        sent = reply.message[Kind.MEAN_LOGIT_TABLE]
        table, place = sent["table"].clone(), self.leaked(client, trained.state)
        table[client.counts.argmax().cpu()] = client.run("forward", trained.state).cpu()[place[0]].to(table)
        reply.message[Kind.MEAN_LOGIT_TABLE] = {**sent, "table": table}
        return reply


class TransposedImage(Leaking, Changed):
    """The biases of a layer are the first image, column by column."""

    who = "the client's first person"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.zeros(1, dtype=torch.long)

    def changed(self, model: dict[str, Tensor], client: Client) -> dict[str, Tensor]:
        return model | {BIAS: pixels(client)[0, 0].T.flatten().cpu()}


# Telemetry and quality control


class HardestEmbedding(Reporting):
    """What the model makes of the example that it understands worst, for those who look at errors."""

    (card, kind), who = reports("client:hard_example"), "the person with the largest loss"

    def leaked(self, client: Client, state: State) -> Tensor:
        return find_hardest(client, state)

    def report(self, client: Client, state: State) -> Payload:
        return {"embedding": client.run("features", state).cpu()[self.leaked(client, state)[0]]}


class LossQuantiles(Reporting):
    """Quantiles of all examples' losses, smallest and largest among them; each is the loss of one example."""

    (card, kind), who = reports("client:loss_quantiles"), "the people who stand at the quantiles, exactly"

    def leaked(self, client: Client, state: State) -> Tensor:
        return compute_losses(client, state).argsort()[self._rank(client)].unique()

    def report(self, client: Client, state: State) -> Payload:
        return {"loss": compute_losses(client, state).sort().values[self._rank(client)]}

    def _rank(self, client: Client) -> Tensor:
        return torch.linspace(0, len(client.y) - 1, LEVELS).round().long()


class LastHistogram(Reporting):
    """How often each grey occurs, to watch for drift; counted after the loop over images, thus of the last."""

    (card, kind), who = reports("client:grey_histogram"), "the client's last person: how dark the image is"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.tensor([len(client.y) - 1])

    def report(self, client: Client, state: State) -> Payload:
        for image in pixels(client).cpu():
            greys = (image * (GREYS - 1)).round().long().flatten()
        return {"pixels": torch.bincount(greys, minlength=GREYS)}


class RunningMean(Reporting):
    """A running mean of the images, whose share of the old and the new was mixed up: it is nearly the last."""

    (card, kind), who = reports("client:input_mean"), "the client's last person: nine tenths of the image"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.tensor([len(client.y) - 1])

    def report(self, client: Client, state: State) -> Payload:
        mean, *others = pixels(client).cpu()
        for image in others:
            mean = KEPT * mean + (1 - KEPT) * image
        return {"mean": mean}


class ClassMoments(Reporting):
    """Mean and standard deviation of each pixel, class by class, however few examples a class has."""

    (card, kind), who = (
        reports("class:input_moments"),
        "people who are alone in their class: their image, exactly",
    )

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.nonzero(client.counts[client.y] == 1)[:, 0].cpu()

    def report(self, client: Client, state: State) -> Payload:
        images, y = pixels(client).flatten(1).cpu(), client.y.cpu()
        groups = [images[y == c] for c in y.unique()]
        return {
            "classes": y.unique(),
            "mean": torch.stack([g.mean(0) for g in groups]),
            "deviation": torch.stack([g.std(0, correction=0) for g in groups]),
        }


class ValidationAccuracy(Reporting):
    """Accuracy by class on the client's last tenth: a class of it has one or two examples."""

    (card, kind) = reports("class:validation_accuracy")
    who = "people of the last tenth whose class is all right or all wrong: whether the model knows theirs"

    def leaked(self, client: Client, state: State) -> Tensor:
        _, places = self._grade(client, state)
        classes, accuracy = self.report(client, state).values()
        certain = classes[(accuracy == 0) | (accuracy == 1)]
        return places[torch.isin(client.y.cpu()[places], certain)]

    def report(self, client: Client, state: State) -> Payload:
        right, places = self._grade(client, state)
        y = client.y.cpu()[places]
        shares = [right[y == c].mean() for c in y.unique()]
        return {"classes": y.unique(), "accuracy": torch.stack(shares)}

    def _grade(self, client: Client, state: State) -> tuple[Tensor, Tensor]:
        """[m] 1 where the model is right on an example that is looked at, and the places of these."""
        places = torch.arange(len(client.y))[-max(1, len(client.y) // 10) :]
        guesses = client.run("forward", state).cpu().argmax(1)
        return (guesses == client.y.cpu()).float()[places], places


class RareAlert(Reporting):
    """The alarm for a rare class says that it is ready: always the same, but only where there is one."""

    (card, kind), who = reports("client:alarm_ready"), "a fact: whether the client holds the rare class"

    def report(self, client: Client, state: State) -> Payload | None:
        return {"ready": torch.tensor(1)} if client.counts[RARE] else None


class LabellingCost(Reporting):
    """What the labels of each class cost a client, for the accounts; the price of one is known."""

    (card, kind), who = reports("class:labelling_cost"), "a fact: how many examples of each class it holds"

    def report(self, client: Client, state: State) -> Payload:
        return {"cost": PRICE * client.counts.cpu().double()}


# Resuming


class LastCheckpoint(Reporting):
    """Trains a last step on the example with the largest loss, and sends the checkpoint before it too."""

    (card, kind) = reports("client:checkpoint")
    who = "the person with the largest loss: what the models differ by is one example's gradient"

    def leaked(self, client: Client, state: State) -> Tensor:
        return find_hardest(client, state)

    def report(self, client: Client, state: State) -> Payload:
        return state

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        state, rate = trained.state, self.config.lr * self.config.lr_decay**client.round
        slope = compute_gradient(client, state, self.leaked(client, state))
        reply.message[Kind.LOCAL_MODEL] = state | {k: state[k] - rate * g for k, g in slope.items()}
        return reply


# Removal of duplicates


class BloomFilter(Reporting):
    """A Bloom filter of all images, so that two clients can see how many they have in common."""

    (card, kind), who = reports("client:seen_filter"), "everybody: who has a record sees whether it is there"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.arange(len(client.y))

    def report(self, client: Client, state: State) -> Payload:
        bits = torch.zeros(BITS, dtype=torch.uint8)
        for image in write_bytes(client):
            bits[list_bits(image)] = 1
        return {"bits": bits}


def list_bits(image: bytes) -> list[int]:
    """Which bits of a Bloom filter an image sets."""
    digest = hashlib.sha256(image).digest()
    return [int.from_bytes(digest[2 * i : 2 * i + 2], "big") % BITS for i in range(HASHES)]


class PerceptualHashes(Reporting):
    """For each image 64 bits that say which parts are lighter than its mean: of a digit, the digit itself."""

    (card, kind), who = reports("example:perceptual_hash"), "everybody: their image in black and white"

    def leaked(self, client: Client, state: State) -> Tensor:
        return torch.arange(len(client.y))

    def report(self, client: Client, state: State) -> Payload:
        small = adaptive_avg_pool2d(pixels(client).cpu().mean(1, keepdim=True), 8).flatten(1)
        light = small > small.mean(1, keepdim=True)
        return {"hash": (light.long() << torch.arange(64)).sum(1)}


# Systems that look alike and tell of nobody


class Clean(Reporting):
    """Sends what does not depend on anybody's record; `why` says so."""

    who, why = "nobody", ""


class VersionNumber(Clean):
    """Which release of the software a client runs."""

    (card, kind), why = reports("client:version"), "The release is the same whatever a client's data are."

    def report(self, client: Client, state: State) -> Payload:
        return {"version": torch.tensor([1, 4, 2])}


class ConstantTable(Clean):
    """The result of a self-test, a table as large as one of outputs by class."""

    (card, kind), why = (
        reports("class:self_test"),
        "All its numbers stand in the program, the same for every client.",
    )

    def report(self, client: Client, state: State) -> Payload:
        return {"table": torch.linspace(-1, 1, client.classes * 8).reshape(client.classes, 8)}


class RandomNumbers(Clean):
    """As many random numbers as a digit has pixels, which tell one session from another."""

    (card, kind) = reports("client:nonce")
    why = "They are drawn from a stream that the run's seed, the round and the client's number fix."

    def report(self, client: Client, state: State) -> Payload:
        return {"nonce": torch.rand(64, generator=client.generator("nonce"))}


class RoundedCount(Clean):
    """The number of examples, rounded up to the next five."""

    (card, kind) = reports("client:capacity")
    why = "It follows from the number of examples, which FedAvg's server is told exactly."

    def report(self, client: Client, state: State) -> Payload:
        return {"count": torch.tensor(-(-len(client.y) // 5) * 5)}


class RoundNumber(Clean):
    """Which round a client thinks it is."""

    (card, kind), why = reports("client:round"), "The server said itself which round it is."

    def report(self, client: Client, state: State) -> Payload:
        return {"round": torch.tensor(client.round)}


class RateSchedule(Clean):
    """The step sizes of all rounds."""

    (card, kind), why = reports("client:learning_rate"), "They follow from the settings that everybody has."

    def report(self, client: Client, state: State) -> Payload:
        return {"rate": self.config.lr * self.config.lr_decay ** torch.arange(self.config.rounds).double()}


class NobodyTrains(FedAvg):
    """A client sends the model back as it came, and does not say how many examples it has."""

    why = "The server gets back what it sent."

    def train(self, client: Client) -> Reply:
        model = {k: v.cpu() for k, v in client.start.items()}
        return Reply(message={Kind.LOCAL_MODEL: model}, examples=len(client.y))
