"""What Fisher diagonals and outputs on public data tell of clients, by how long these have trained.

    python -m benchmarks.strength.digits_surfaces [fashion_mnist]

scikit-learn's digits or as many images of Fashion-MNIST, a network with one hidden layer of 64, five seeds; 1000
examples of six clients, unequal by Dirichlet(0.5), and 797 that an adversary has, which are the public data too.
Clients train by themselves from a common start.
Printed are, after 0, 1, 5 and 20 epochs over the 30 clients,

* total variation of class shares from their true ones: unmixed, in closed form, from mean outputs, guessed
equal; * AUC of the head's bias for which classes a client has, client by client, and the least ratio of present
to absent; * clients of whom an image stands in a single unit of the diagonal, as fisher_images finds it; * AUC
of the loss for membership, against the others' examples of any class and of the same classes.

Then, before training, how far sqrt(F_W / F_b) over all units is from the nearest of n images, beside their mean.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks.strength.bench import load_images
from fedaudit.attacks import stats
from fedaudit.attacks.attack import Examples, PublicExamples
from fedaudit.attacks.evaluation.ranking import find_present
from fedaudit.attacks.evaluation.scores import log_probability
from fedaudit.attacks.summaries._fisher import mean_by_class, solve_uniform, unmix
from fedaudit.attacks.summaries._public import ClientAnswers
from fedaudit.attacks.summaries.output_shares import mean_output
from fedaudit.audit.cli.show import print_table
from fedaudit.fl.methods.fedcurv import _square_examples
from fedaudit.fl.model import Net
from fedaudit.fl.models.mlp import MLP
from fedaudit.fl.runtime.workers import one_thread

EPOCHS, SEEDS, CLIENTS, RATE, BATCH = (0, 1, 5, 20), range(5), 6, 0.1, 10
Values = NDArray[np.float64]


class Extractor:
    """A network as an adversary runs it."""

    def __init__(self, net: Net) -> None:
        self.net = net.eval()

    def logits(self, images: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            found: NDArray[Any] = self.net(torch.from_numpy(np.ascontiguousarray(images))).numpy()
        return found


class Trained(NamedTuple):
    """A client's network after some epochs."""

    own: Examples
    others: Examples  # of the other clients
    auxiliary: Examples
    net: Net
    fisher: dict[str, Values]


def make_network(seed: int, x: NDArray[Any]) -> Net:
    torch.manual_seed(seed)
    return MLP(x.shape[1:], 10, MLP.Config(hidden=(64,)))


def measure_fisher(net: Net, images: Examples) -> dict[str, Values]:
    weights = {k: p.detach() for k, p in net.named_parameters()}
    found = _square_examples(net, weights, {}, torch.from_numpy(images.x), torch.from_numpy(images.y), "observed")
    return {k: v.double().numpy() for k, v in found.items()}


def train_clients(seed: int, name: str) -> Iterator[tuple[int, list[Trained]]]:
    """Epochs, and all clients' networks after them."""
    (x, y), rng = load_images(name), np.random.default_rng(seed)
    order = rng.permutation(len(y))
    x, y = x[order], y[order]
    parts: list[list[int]] = [[] for _ in range(CLIENTS)]
    for c in range(10):
        rows = np.flatnonzero(y[:1000] == c)
        cuts = (np.cumsum(rng.dirichlet([0.5] * CLIENTS))[:-1] * len(rows)).astype(int)
        for part, some in zip(parts, np.split(rows, cuts), strict=True):
            part += some.tolist()
    auxiliary = Examples(x=x[1000:], y=y[1000:])
    nets = [make_network(seed, x) for _ in parts]
    done = 0
    for epochs in EPOCHS:
        for net, part in zip(nets, parts, strict=True):
            optimiser = torch.optim.SGD(net.parameters(), lr=RATE)
            for _ in range(epochs - done):
                for batch in torch.split(torch.from_numpy(rng.permutation(part)), BATCH):
                    loss = nn.functional.cross_entropy(
                        net(torch.from_numpy(x)[batch]), torch.from_numpy(y)[batch]
                    )
                    for w, g in zip(
                        net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
                    ):
                        w.grad = g
                    optimiser.step()
        done = epochs
        found = []
        for k, (net, part) in enumerate(zip(nets, parts, strict=True)):
            rest = [i for j, other in enumerate(parts) if j != k for i in other]
            own, others = Examples(x=x[part], y=y[part]), Examples(x=x[rest], y=y[rest])
            found.append(Trained(own, others, auxiliary, net, measure_fisher(net, own)))
        yield epochs, found


def measure_client(t: Trained, rng: np.random.Generator) -> dict[str, float]:
    """All of one client."""
    model: Any = Extractor(t.net)
    true = np.bincount(t.own.y, minlength=10)
    bias = t.fisher["head.bias"]
    public = PublicExamples(x=t.auxiliary.x, y=t.auxiliary.y, candidates=np.zeros(len(t.auxiliary), bool))
    answers = ClientAnswers(0, 0, "", np.arange(len(public)), model.logits(public.x).astype(np.float64))

    def distance(shares: Values) -> float:
        return float(np.abs(shares - true / true.sum()).sum() / 2)

    found = {
        "unmixed": distance(unmix(bias, mean_by_class(model, t.auxiliary, 10))),
        "closed form": distance(solve_uniform(bias)),
        "mean outputs": distance(mean_output(answers, public)),
        "equal": distance(np.full(10, 0.1)),
        "image in a unit": float(_shows_an_image(t)),
    }
    here = true > 0
    if not here.all():
        found["presence AUC"] = _area(bias[here], bias[~here])
        found["present to absent"] = float(bias[here].min() / bias[~here].max())
    scores = [log_probability(model.logits(i.x), i.y) for i in (t.own, t.others)]
    found["membership, any class"] = _area(*scores)
    pairs = []
    for c in np.flatnonzero(here):
        own, other = scores[0][t.own.y == c], scores[1][t.others.y == c]
        few = min(len(own), len(other))
        pairs.append([rng.permutation(side)[:few] for side in (own, other)])
    found["membership, same classes"] = _area(*(np.concatenate(side) for side in zip(*pairs, strict=True)))
    return found


def _shows_an_image(t: Trained) -> bool:
    weight, bias = t.fisher["layers.0.weight"], t.fisher["layers.0.bias"]
    units = weight[bias > 0] / bias[bias > 0][:, None]

    def nearest(images: Examples) -> float:
        square = images.x.reshape(len(images), -1).astype(np.float64) ** 2
        return float(min(((units - s) ** 2).mean(1).min() for s in square))

    others = t.auxiliary.only(np.arange(min(len(t.own), len(t.auxiliary))))
    return find_present(nearest(t.own), nearest(others)).member


def _area(members: Values, others: Values) -> float:
    return stats.auc(members, others, groups=stats.INDEPENDENT).value


def measure_identity(n: int, name: str) -> tuple[float, float]:
    """Mean RMSE of sqrt(F_W / F_b) over all units, and of the mean image, to the nearest of n images."""
    (x, y), found = load_images(name), []
    for seed in range(30):
        rows = np.random.default_rng(seed).permutation(len(y))[:n]
        fisher = measure_fisher(make_network(seed, x), Examples(x=x[rows], y=y[rows]))
        own = x[rows].reshape(n, -1)
        guesses = read_inputs(fisher["layers.0.weight"], fisher["layers.0.bias"]), own.mean(axis=0)
        found.append([np.sqrt(((own - g) ** 2).mean(1)).min() for g in guesses])
    ours, blind = np.mean(found, axis=0).tolist()
    return ours, blind


def main(name: str = "digits") -> None:
    rng, all_of = np.random.default_rng(0), dict[int, list[dict[str, float]]]()
    for seed in SEEDS:
        for epochs, clients in train_clients(seed, name):
            all_of.setdefault(epochs, []).extend(measure_client(t, rng) for t in clients)
    least: dict[str, Callable[[Any], Any]] = {"present to absent": np.min}
    names = list(dict.fromkeys(name for rows in all_of.values() for row in rows for name in row))
    table = [
        [
            name,
            *(
                f"{least.get(name, np.mean)([r[name] for r in rows if name in r]):.3f}"
                for rows in all_of.values()
            ),
        ]
        for name in names
    ]
    print_table(["epochs", *map(str, all_of)], table)
    print_table(
        ["images", "sqrt(F_W / F_b)", "mean image"],
        [[str(n), *(f"{v:.3f}" for v in measure_identity(n, name))] for n in (1, 2, 8, 32)],
    )


def read_inputs(weight: NDArray[Any], bias: NDArray[Any]) -> NDArray[np.float64]:
    """sqrt(F_W / F_b) of a linear layer, weight [H, D] and bias [H]: of one example the |input| [D], exactly.

    Of several examples a root mean square of inputs, weighted by gradients. Units that no gradient reached are
    left out; NaN where none was reached.
    """
    reached = np.asarray(bias) > 0
    if not reached.any():
        return np.full(np.shape(weight)[1], np.nan)
    total = np.asarray(weight, np.float64)[reached].sum(axis=0)
    return np.asarray(np.sqrt(np.maximum(total, 0) / np.asarray(bias, np.float64)[reached].sum()))


if __name__ == "__main__":
    with one_thread():
        main(*sys.argv[1:])
