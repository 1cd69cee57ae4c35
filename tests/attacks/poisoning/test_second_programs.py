"""Attacks against second programs written from their papers, on sixty inputs with ties and scales.

`python -m tests.attacks.poisoning.test_second_programs` prints the largest difference of each attack, over the
largest number among its inputs.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.attacks.poisoning._updates import Crowd, measure
from fedaudit.attacks.poisoning.backdoors import PARTS
from fedaudit.attacks.poisoning.fang import choose_by_krum, extreme_range, find_step
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.streams import Streams
from tests.attacks.poisoning.test_adversaries import adversary, client, crafted, meeting
from tests.fl.aggregators.byzfl_inputs import SETS, uploads

Case = tuple[np.ndarray, np.ndarray, float]  # ours, theirs, and the largest number among the inputs
COPIED = "arXiv:1911.12560, sec. 4.3"


def cases() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Honest and own changes."""
    for i in range(SETS):
        rows = uploads(i).astype(np.float64)
        m = 1 + i % max(1, (len(rows) - 2) // 2)
        yield rows[m:], rows[:m]


# Fang et al. ------------------------------------------------------------------------------


def krum(rows: np.ndarray, f: int) -> int:
    """Blanchard's rule, written down."""
    n = len(rows)
    scores = []
    for i in range(n):
        far = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(n) if j != i)
        scores.append(sum(far[: max(1, n - f - 2)]))
    return int(np.argmin(scores))


def forge_against_krum(honest: np.ndarray, own: np.ndarray, f: int) -> np.ndarray:
    """The search of sec. 4.2, written down."""
    m, size = own.shape
    n = len(honest) + m
    against = -np.sign(np.vstack([honest, own])[krum(np.vstack([honest, own]), f)])
    sums = []
    for i in range(len(honest)):
        far = sorted(float(((honest[i] - h) ** 2).sum()) for j, h in enumerate(honest) if j != i)
        sums.append(sum(far[: max(1, n - m - 2)]))
    step = np.sqrt(min(sums) / (max(1, n - 2 * m - 1) * size)) + np.linalg.norm(honest, axis=1).max() / np.sqrt(
        size
    )
    while step >= 1e-5 and krum(np.vstack([np.tile(step * against, (m, 1)), honest]), f) >= m:
        step /= 2
    return step * against


def compare_fang_krum() -> Iterator[Case]:
    for honest, own in cases():
        m = len(own)
        both = torch.from_numpy(np.vstack([honest, own]))
        against = -both[choose_by_krum(measure(both), m)].sign()
        step = find_step(torch.from_numpy(honest), measure(torch.from_numpy(honest)), against, m, m)
        yield (step * against).numpy(), forge_against_krum(honest, own, m), float(np.abs(both.numpy()).max())


def compare_fang_trimmed_mean() -> Iterator[Case]:
    for honest, own in cases():
        signs = np.sign(np.vstack([honest, own]).mean(0))
        ends = [e.numpy() for e in extreme_range(torch.from_numpy(honest), torch.from_numpy(signs), 2.0)]
        theirs = []
        for j, s in enumerate(signs):
            low, high = honest[:, j].min(), honest[:, j].max()
            beyond = (low / 2 if low > 0 else 2 * low) if s > 0 else (2 * high if high > 0 else high / 2)
            theirs.append((low if s > 0 else high, beyond))
        yield np.array(ends), np.array(theirs).T, float(np.abs(honest).max())


# Backdoors --------------------------------------------------------------------------------


def draw_images(number: int) -> tuple[np.ndarray, np.ndarray, float, float]:
    """Pixels [b, 1, H, W] in [0, 1], many black or white; labels; a mean, and a deviation of any scale."""
    rng = np.random.default_rng(number)
    side = int(rng.integers(5, 9))
    x = rng.uniform(0, 1, (4 + number % 5, 1, side, side)).round(number % 3)
    return x, rng.integers(0, 3, len(x)), float(rng.uniform(-1, 1)), 10.0 ** float(rng.integers(-4, 5))


def stamp(pixels: np.ndarray, trigger: str, part: int) -> np.ndarray:
    """3 x 3 white pixels, one from the bottom right corner, or a part of them; or the negative."""
    out = pixels.copy()
    height, width = pixels.shape[2:]
    for row in range(height):
        for column in range(width):
            if trigger == "edge_case":
                out[:, 0, row, column] = 1 - pixels[:, 0, row, column]
                continue
            down, across = row - (height - 4), column - (width - 4)
            inside = 0 <= down < 3 and 0 <= across < 3
            if inside and (part < 0 or part == 2 * (down == 2) + (across == 2)):
                out[:, 0, row, column] = 1.0
    return out


def compare_trigger(trigger: str) -> Iterator[Case]:
    """What a client trains on, and what the model is asked."""
    for i in range(SETS):
        pixels, _, mean, deviation = draw_images(i)
        x, scale = torch.from_numpy((pixels - mean) / deviation), max(1.0, 1.0 / deviation)
        made = adversary("backdoor", trigger=trigger)
        of = client(rank=i % 7, mean=(mean,), std=(deviation,))
        ours = made.add_trigger(of, x).numpy()  # type: ignore[attr-defined]
        part = of.rank % len(PARTS) if trigger == "dba" else -1
        yield ours, (stamp(pixels, trigger, part) - mean) / deviation, scale
        asked = made.aim(x, (mean,), (deviation,))
        assert asked is not None
        yield asked[0].numpy(), (stamp(pixels, trigger, -1) - mean) / deviation, scale


def compare_alternating_minimisation() -> Iterator[Case]:
    """Six steps on a linear softmax model: by hooks and autograd, and by the derivative written down."""
    for i in range(SETS):
        pixels, labels, _, scale = draw_images(i)
        rng, (boost, rho, rate) = np.random.default_rng(i), (5.0, scale * 0.1, 0.5)
        start = rng.standard_normal((pixels[0].size, 3)).round(i % 3)
        before = start - scale * rng.integers(-1, 2, start.shape) if i % 4 else start
        x = torch.from_numpy(pixels * 2 - 1)
        made = adversary("alternating_minimisation", boost=boost, rho=rho, target=1)
        of = client(
            x=x,
            y=torch.from_numpy(labels),
            mean=(0.5,),
            std=(0.5,),
            classes=3,
            message={Kind.GLOBAL_MODEL: {"w": torch.from_numpy(start)}},
            before={"w": torch.from_numpy(before)},
        )
        w, model = start.copy(), torch.from_numpy(start.copy())
        for step in range(6):
            at = replace(of, step=step)
            model = model.detach().requires_grad_()
            loss = made.loss(at, lambda x, y, m=model: cross_entropy(x.flatten(1) @ m, y), x, of.y)  # type: ignore[misc]
            grads = dict(zip("w", torch.autograd.grad(loss, [model]), strict=True))
            found = made.correct(at, grads, {"w": model.detach()}, {"w": torch.from_numpy(start)}, {})["w"]
            model = model.detach() - rate * found
            images = pixels if step % 2 else stamp(pixels, "patch", -1)
            flat, wanted = (images * 2 - 1).reshape(len(pixels), -1), labels if step % 2 else np.ones_like(labels)
            odds = np.exp(flat @ w - (flat @ w).max(1, keepdims=True))
            gradient = flat.T @ (odds / odds.sum(1, keepdims=True) - np.eye(3)[wanted]) / len(flat)
            gap = (w - start) - (start - before)
            stealth = rho * gap / max(1e-12, np.sqrt((gap**2).sum()))
            w = w - rate * (gradient + stealth if step % 2 else boost * gradient)
        yield model.numpy(), w, float(max(np.abs(w).max(), np.abs(before).max(), 1.0))


def compare_three_d_fed() -> Iterator[Case]:
    for i, (honest, own) in enumerate(cases()):
        made, streams = adversary("three_d_fed"), Streams(i)
        made_crowd = build_crowd(honest, own, streams)
        forge = made.forge(made_crowd)  # type: ignore[attr-defined]
        ours = np.array([forge(k).numpy() for k in range(len(own))])
        noise = torch.randn(*own.shape, generator=streams.torch("adversary", 0), dtype=torch.float64).numpy()
        pairs = [np.linalg.norm(a - b) for j, a in enumerate(honest) for b in honest[:j]]
        masks = np.zeros_like(own)
        if len(own) > 1 and pairs:
            noise = noise - sum(noise) / len(noise)
            apart = [((a - b) ** 2).sum() for j, a in enumerate(noise) for b in noise[:j]]
            masks = noise * (np.median(pairs) / np.sqrt(np.mean(apart)))
        bound = np.median([np.sqrt((h**2).sum()) for h in honest])
        cut = np.array([v * min(1.0, bound / max(1e-300, np.sqrt((v**2).sum()))) for v in own])
        yield ours, cut + masks, float(max(np.abs(honest).max(), np.abs(own).max()))


def build_crowd(honest: np.ndarray, own: np.ndarray, streams: Streams) -> Crowd:
    """A round whose clients send these changes; the compromised come first."""
    zero = {Kind.MODEL_DELTA: {"w": torch.zeros(honest.shape[1], dtype=torch.float64)}}
    mine = {k: {Kind.MODEL_DELTA: {"w": torch.from_numpy(v)}} for k, v in enumerate(own)}
    met = replace(
        meeting({}, []), own=mine, received=dict.fromkeys(mine, zero), rng=streams.torch("adversary", 0)
    )
    clients = tuple(range(len(own), len(own) + len(honest)))
    like = {"w": torch.zeros(honest.shape[1], dtype=torch.float64)}
    return Crowd(met, Kind.MODEL_DELTA, like, torch.from_numpy(honest), clients, len(own) + len(honest))


def compare_free_rider(noise: float) -> Iterator[Case]:
    for i in range(SETS):
        rows = uploads(i).astype(np.float64)
        start, before, own = (rows[k] for k in (0, 1 if i % 6 else 0, 2))
        of = client(
            index=i,
            message={Kind.GLOBAL_MODEL: {"w": torch.from_numpy(start)}},
            before={"w": torch.from_numpy(before)},
        )
        made = adversary("free_rider", noise=noise)
        update = made._make_update(of, {"w": torch.from_numpy(own)})["w"].numpy()  # type: ignore[attr-defined]
        last = start - before
        drawn = torch.randn(len(last), generator=of.generator("adversary"), dtype=torch.float64).numpy()
        spread = np.sqrt(((last - last.mean()) ** 2).sum() / (len(last) - 1)) if len(last) > 1 else 0.0
        yield update, last + noise * spread * drawn, float(np.abs(rows).max())
    assert (
        crafted("free_rider", {Kind.MODEL_DELTA: {"w": torch.ones(3)}})[Kind.MODEL_DELTA]["w"].tolist() == [0] * 3
    )


COMPARED: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    "fang_krum": ("arXiv:1911.11815, sec. 4.2", compare_fang_krum),
    "fang_trimmed_mean": ("arXiv:1911.11815, sec. 4.3", compare_fang_trimmed_mean),
    "alternating_minimisation": ("arXiv:1811.12470, sec. 3.3", compare_alternating_minimisation),
    "three_d_fed": ("IEEE S&P 2023, sec. V", compare_three_d_fed),
    "edge-case backdoor": ("the negative, after arXiv:2007.05084", lambda: compare_trigger("edge_case")),
    "distributed backdoor": ("DBA, ICLR 2020, sec. 3", lambda: compare_trigger("dba")),
    "free rider, copies": (COPIED, lambda: compare_free_rider(0.0)),
    "free rider, with noise": (COPIED, lambda: compare_free_rider(1.0)),
}


def compute_difference(name: str) -> float:
    """The largest of any number, over the largest among the inputs."""
    found = list(COMPARED[name][1]())
    assert len(found) >= SETS and any(np.abs(ours).max() > 0 for ours, _, _ in found)
    return max(float(np.abs(ours - theirs).max()) / (scale or 1.0) for ours, theirs, scale in found)


@pytest.mark.parametrize("name", COMPARED)
def test_an_attack_sends_what_another_program_computes_on_sixty_inputs_with_ties_and_scales(name: str) -> None:
    assert compute_difference(name) <= 1e-6


def test_krum_takes_what_is_forged_against_it_on_most_sets() -> None:
    taken = [
        krum(np.vstack([np.tile(forge_against_krum(honest, own, len(own)), (len(own), 1)), honest]), len(own))
        < len(own)
        for honest, own in cases()
    ]
    assert sum(taken) > SETS / 2


if __name__ == "__main__":
    for attack_name, (reference, _) in COMPARED.items():
        print(f"{attack_name:26}{compute_difference(attack_name):10.1e}  {reference}", flush=True)
