"""A server of split learning that trains clients' layers for itself, beside one that does not, and who notices.

    python -m benchmarks.strength.hijacking_table

Feature-space hijacking (Pasquini, Ateniese, Bernaschi. CCS 2021, arXiv:2012.02670): the server learns an
encoder and a decoder of its own images, and a critic that tells its encoder's features from what clients send;
the gradient that a client gets is that of the critic. Once the two agree the decoder reads clients' images.
Here on handwritten digits: dense layers in place of convolutions, a gradient penalty over all features (the
authors' code sums over height and width alone), weight 10, Adam 1e-3 for every part; the client's optimiser is
the client's. Beside it plain split learning, whose activations the same decoder reads. Both detectors see what
the client is sent.
"""

from itertools import pairwise

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from fedaudit.attacks.evaluation.images import ssim
from fedaudit.attacks.evaluation.split_detectors import (
    Similarities,
    compare_gradients,
    measure_fit,
    score_scrutinizer,
    score_splitguard,
)

STEPS, BATCH, SEEDS, PENALTY, CRITIC_STEPS = 6000, 64, range(2), 10.0, 3
FALSE, AFTER = 0.1, 20  # share of batches with false labels, and the batch after which they begin


def build_dense(*widths: int, last: nn.Module | None = None) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1], *([last] if last is not None else []))


def penalise(critic: nn.Module, between: Tensor) -> Tensor:
    between = between.detach().requires_grad_()
    [slope] = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty: Tensor = (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return penalty


def play(seed: int, is_hijacked: bool) -> dict[str, float]:
    torch.manual_seed(seed)
    rng, digits = np.random.default_rng(seed), load_digits()
    x = torch.from_numpy((digits.images.reshape(len(digits.images), -1) / 16).astype(np.float32))
    y = torch.from_numpy(digits.target.astype(np.int64))
    order = torch.from_numpy(rng.permutation(len(y)))
    own, others = order[:1000], order[1000:]
    client, top = build_dense(64, 64, last=nn.ReLU()), build_dense(64, 32, 10)
    encoder, decoder = build_dense(64, 64, last=nn.ReLU()), build_dense(64, 128, 64, last=nn.Sigmoid())
    critic = build_dense(64, 256, 256, 1)
    of_client, of_top = (torch.optim.Adam(m.parameters(), 1e-3) for m in (client, top))
    of_critic = torch.optim.Adam(critic.parameters(), 1e-3, betas=(0.5, 0.9))
    of_pair = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
    false, regular = list[Tensor](), list[Tensor]()
    likeness, means = list[float](), list[np.ndarray]()
    for number in range(STEPS):
        rows = own[torch.from_numpy(rng.integers(1000, size=BATCH))]
        theirs = x[others[torch.from_numpy(rng.integers(len(others), size=BATCH))]]
        lies = number >= AFTER and rng.random() < FALSE
        labels = (y[rows] + torch.from_numpy(rng.integers(1, 10, size=BATCH))) % 10 if lies else y[rows]
        z = client(x[rows])
        sent = z.detach().requires_grad_()
        of_pair.zero_grad()
        mse_loss(decoder(encoder(theirs)), theirs).backward()  # type: ignore[no-untyped-call]
        of_pair.step()
        if is_hijacked:
            for _ in range(CRITIC_STEPS):
                known = x[others[torch.from_numpy(rng.integers(len(others), size=BATCH))]]
                features, share = encoder(known).detach(), torch.rand(BATCH, 1)
                of_critic.zero_grad()
                loss = critic(sent.detach()).mean() - critic(features).mean()
                loss = loss + PENALTY * penalise(critic, share * features + (1 - share) * sent.detach())
                loss.backward()
                of_critic.step()
            [g] = torch.autograd.grad(-critic(sent).mean(), sent)
        else:
            of_top.zero_grad()
            cross_entropy(top(sent), labels).backward()  # type: ignore[no-untyped-call]
            of_top.step()
            assert sent.grad is not None
            g = sent.grad
        if lies:  # the client learns nothing from these
            false.append(g.mean(0))
            continue
        if number >= AFTER:
            regular.append(g.mean(0))
        found = compare_gradients(g.numpy(), labels.numpy())
        means.append(np.array(found))
        likeness.append(found.same)
        of_client.zero_grad()
        z.backward(g)
        of_client.step()
    shape = (-1, 1, 8, 8)
    with torch.no_grad():
        drawn = decoder(client(x[own])).reshape(shape).numpy()
    true, classes = x[own].reshape(shape).numpy(), y[own].numpy()
    mean = np.stack([x[others][y[others] == c].mean(0).reshape(1, 8, 8).numpy() for c in range(10)])[classes]
    average = Similarities(*np.mean(means, axis=0))
    half = [torch.stack(part).mean(0).numpy() for part in (false, regular[::2], regular[1::2])]
    return {
        "SSIM": float(ssim(drawn, true).mean()),
        "SSIM class mean": float(ssim(mean, true).mean()),
        "rank-1 of 100": rank(drawn, true, rng),
        "rank-1 class mean": rank(mean, true, rng),
        "SplitGuard": score_splitguard(*half),
        "Scrutinizer": score_scrutinizer(average, measure_fit(likeness)),
    }


def rank(drawn: np.ndarray, true: np.ndarray, rng: np.random.Generator) -> float:
    """The share of drawn images whose own is nearest among 100 of all."""
    hits = []
    for i in range(0, len(drawn), 5):
        decoys = true[rng.permutation(len(true))[:99]]
        gaps = np.square(np.concatenate([true[i : i + 1], decoys]) - drawn[i]).sum((1, 2, 3))
        hits.append(gaps[0] <= gaps[1:].min())
    return float(np.mean(hits))


def main() -> None:
    for is_hijacked in (False, True):
        found = [play(seed, is_hijacked) for seed in SEEDS]
        row = ", ".join(f"{k} {np.mean([f[k] for f in found]):.3f}" for k in found[0])
        print(f"{'hijacked' if is_hijacked else 'plain'}: {row}")


if __name__ == "__main__":
    main()
