"""What an accelerator is asked for: kernels, copies and waits, counted on the pretended device of the tests.

`python -m benchmarks.speed.counts`. No GPU is needed, and no times are taken. A kernel is an operation that is no
view; CUDA may take several for one. A wait is a number, or a tensor, that the host reads from the device. What a
step or an iteration costs is the difference between one more and one fewer of them.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.speed.ours import federate
from benchmarks.speed.workload import SEED, invent, network
from fedaudit.attacks.attack import Attack, Examples, Knowledge
from fedaudit.attacks.batches.unsplit import Unsplit
from fedaudit.attacks.evaluation.gradients import Update
from fedaudit.attacks.evaluation.prototype_inversion import InversionTask, PrototypeInversion
from fedaudit.attacks.evaluation.update_inversion import UpdateInversion
from fedaudit.attacks.models.model_inversion import ModelInversion
from fedaudit.attacks.prototypes.grnn import GRNN
from fedaudit.attacks.prototypes.upcnn import UpCNN
from fedaudit.attacks.updates.dlg import DLG
from fedaudit.attacks.updates.grnn_updates import GRNNUpdates
from fedaudit.attacks.updates.idlg import IDLG
from fedaudit.attacks.updates.inverting_gradients import InvertingGradients
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.execution.batched import Batched
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.model import initialise, state_of
from fedaudit.fl.runtime.plugin import configure, load
from fedaudit.fl.runtime.streams import Streams
from tests.accelerator import DEVICE, accelerator, counts

BATCH = 2  # examples, of which the counts do not depend
SORTS = ("kernels", "copies to it", "copies from it", "synchronisations")


def count_round(of: str, clients: int, steps: int, width: int, name: str = "fedavg") -> Counter[str]:
    """Of a round of a method on the network `of`, `width` clients side by side."""
    each, streams = BATCH * steps, Streams(SEED)
    holdings = Holdings(invent(of, clients * each), np.split(np.arange(clients * each), clients), streams)
    method = configure(
        load("fedaudit.fl.methods", name, RoundMethod), {"batch_size": BATCH, "local_epochs": 1}, "method"
    )
    make = partial(network, of)
    with Batched(partial(build_site, method, holdings, make, DEVICE), width) as pool:
        federation = federate(method, holdings, [[*range(clients)]], state_of(initialise(make, streams)), pool)
        state = method.start(federation)
        return _count(lambda: method.round(0, state, {}, federation))


class _Published:
    """The small network, with an image's gradient at its weights."""

    def __init__(self) -> None:
        self._net, self._rng = initialise(network, Streams(SEED)), np.random.default_rng(0)
        self.start = {k: v.detach().numpy() for k, v in self._net.named_parameters()}
        loss = torch.nn.functional.cross_entropy(self._net(torch.rand(1, 1, 28, 28)), torch.tensor([3]))
        found = torch.autograd.grad(loss, list(self._net.parameters()))
        self.gradient = {k: g.double().numpy() for k, g in zip(self.start, found, strict=True)}
        self.known = Knowledge(
            classes=10,
            shape=(1, 28, 28),
            architecture=self,  # type: ignore[arg-type]
            auxiliary=Examples(x=np.zeros((10, 1, 28, 28), np.float32), y=np.arange(10)),
            device=DEVICE,
        )

    def __call__(self, weights: Mapping[str, Any]) -> "_Published":
        return self

    def module(self) -> torch.nn.Module:
        return self._net.to(DEVICE)

    def features(self, images: NDArray[Any]) -> NDArray[Any]:
        """As of another client's model each time."""
        unlike = (images + self._rng.random(images.shape)).astype(np.float32)
        with torch.no_grad():
            found = self.module().features(torch.from_numpy(unlike).to(DEVICE))  # type: ignore[operator]
        return np.asarray(found.cpu().numpy())


def count_inversion(attack: UpdateInversion, targets: int = 1) -> Counter[str]:
    """Of so many updates, each of one image."""
    published = _Published()
    update = Update(
        artifact="",
        kind=Kind.GRADIENT,
        origin="recorded",
        client=0,
        round=0,
        batch=1,
        examples=1,
        steps=1,
        rate=1.0,
        start=published.start,
        gradient=published.gradient,
    )
    chosen, rng = [update] * targets, np.random.default_rng(0)
    return _count(lambda: attack.invert_all(chosen, [1] * targets, published.known, rng))


def count_prototypes(attack: PrototypeInversion, clients: int) -> Counter[str]:
    """Of so many clients with four prototypes each."""
    published, rng = _Published(), np.random.default_rng(0)
    features = published.features(np.zeros((4, 1, 28, 28), np.float32))
    task = InversionTask(extractor=published, features=features, labels=np.arange(4))  # type: ignore[arg-type]
    return _count(lambda: attack.invert([task] * clients, task.extractor, published.known, rng))


def _send(kind: Kind, channel: Channel, sender: Party, payload: Mapping[str, Any]) -> Artifact:
    """A message of the first round, which everybody sees."""
    return Artifact(
        id="sent",
        kind=kind,
        channel=channel,
        round=0,
        sender=sender,
        seen_by=("server", "client"),
        payload=payload,
    )


def count_models(attack: Attack, models: int) -> Counter[str]:
    """Of so many models that clients made of the one that they were sent."""
    published, rng = _Published(), np.random.default_rng(0)
    sent = _send(Kind.GLOBAL_MODEL, Channel.DOWNLINK, SERVER, published.start)
    moved = {k: v - np.float32(published.gradient[k]) for k, v in published.start.items()}
    view = [sent, replace(sent, id="next", round=1, payload=moved)]
    made = replace(sent, kind=Kind.LOCAL_MODEL, channel=Channel.UPLINK, payload=moved, origin="replayed")
    view += [replace(made, id=f"made/{k}", sender=Party.client(k)) for k in range(models - 1)]
    return _count(lambda: attack.run(view, published.known, rng))


def count_activations(attack: Attack, clients: int) -> Counter[str]:
    """Of so many clients who sent features of four images each."""
    published, rng = _Published(), np.random.default_rng(0)
    features = published.features(np.zeros((4, 1, 28, 28), np.float32))
    payload = {"features": features, "labels": np.arange(4)}
    sent = _send(Kind.FEATURES, Channel.UPLINK, Party.client(0), payload)
    view = [replace(sent, id=f"sent/{k}", sender=Party.client(k)) for k in range(clients)]
    return _count(lambda: attack.run(view, published.known, rng))


def unsplit(rounds: int) -> Unsplit:
    """Of one step of images and one of the clone a turn."""
    return Unsplit(Unsplit.Config(rounds=rounds, image_steps=1, clone_steps=1))


def invert(iterations: int, restarts: int) -> InvertingGradients:
    return InvertingGradients(InvertingGradients.Config(iterations=iterations, restarts=restarts))


def _count(work: Callable[[], object]) -> Counter[str]:
    counts.clear()
    work()
    return Counter(counts)


def count_more(of: Callable[[int], Counter[str]], fewer: int) -> Counter[str]:
    """What one more step or iteration asks for."""
    more, less = of(fewer + 1), of(fewer)
    assert not less - more, "more steps ask for less of something"
    return more - less


ROWS: Mapping[str, Callable[[], Counter[str]]] = {
    "small network, a step of ten clients side by side": lambda: count_more(
        lambda n: count_round("small", 10, n, 10), 2
    ),
    "small network, a step of one client": lambda: count_more(lambda n: count_round("small", 1, n, 0), 2),
    "ResNet-18, a step of one client": lambda: count_more(lambda n: count_round("resnet18", 1, n, 0), 2),
    "small network, a round of ten clients of 20 steps": lambda: count_round("small", 10, 20, 10),
    "inverting_gradients from four starts": lambda: count_more(lambda n: count_inversion(invert(n, 4)), 2),
    "dlg of four images, 20 evaluations": lambda: count_more(
        lambda n: count_inversion(DLG(DLG.Config(iterations=n)), 4), 2
    ),
    "idlg of four images, 20 evaluations": lambda: count_more(
        lambda n: count_inversion(IDLG(IDLG.Config(iterations=n)), 4), 2
    ),
    "grnn_updates of four images": lambda: count_more(
        lambda n: count_inversion(GRNNUpdates(GRNNUpdates.Config(iterations=n)), 4), 2
    ),
    "grnn of four clients": lambda: count_more(lambda n: count_prototypes(GRNN(GRNN.Config(steps=n)), 4), 2),
    "upcnn of four clients, a step of fine-tuning": lambda: count_more(
        lambda n: count_prototypes(UpCNN(UpCNN.Config(epochs=1, fine_tune_epochs=n, least_steps=0)), 4), 2
    ),
    "model_inversion of four models": lambda: count_more(
        lambda n: count_models(ModelInversion(ModelInversion.Config(iterations=n)), 4), 2
    ),
    "unsplit of four clients, two steps of images and one of the clone": lambda: count_more(
        lambda n: count_activations(unsplit(n), 4), 2
    ),
}


def main() -> None:
    print(f"| counted | {' | '.join(SORTS)} |\n|---|{'---|' * len(SORTS)}")
    with accelerator():
        for name, of in ROWS.items():
            found = of()
            print(f"| {name} | {' | '.join(f'{found[sort]:,}' for sort in SORTS)} |")


if __name__ == "__main__":
    main()
