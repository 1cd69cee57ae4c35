"""Rules against ByzFL or second programs written from their papers, on sixty sets with ties and scales.

`python -m tests.fl.aggregators.test_second_programs` prints the largest difference of each rule, over the largest
number that was sent.
"""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import HDBSCAN

from fedaudit.fl.aggregation.aggregator import Combined
from fedaudit.fl.aggregators.fl_detector import EXACT, REFERENCES
from tests.fl.aggregators.byzfl_inputs import FILE, SETS, assumed, uploads
from tests.fl.aggregators.test_rules import context, rule

# ours; theirs, several where a tie may be broken either way; and the largest number that was sent
Case = tuple[np.ndarray, list[np.ndarray], float]
TIE = 1e-9  # by which equal distances may differ


def combine(name: str, rows: np.ndarray, more: Any = None, **settings: Any) -> Combined:
    table = torch.from_numpy(np.asarray(rows, np.float32))
    return rule(name, **settings).combine(
        table, torch.ones(len(rows)).double(), range(len(rows)), context(**(more or {}))
    )


def compare(name: str, theirs: Callable[[np.ndarray], list[np.ndarray]], **settings: Any) -> Iterator[Case]:
    for i in range(SETS):
        rows = uploads(i)
        yield (
            combine(name, rows, **settings).change.numpy(),
            theirs(rows.astype(float)),
            float(np.abs(rows).max()),
        )


def compare_with_byzfl(name: str) -> Iterator[Case]:
    for i, expected in enumerate(json.loads(FILE.read_text())):
        rows, more = uploads(i), {"trusted": 1} if name == "monna" else {}
        found = combine(name, rows, f=assumed(i), **more).change.numpy()
        yield found, [np.array(expected[name])], float(np.abs(rows).max())


def clip(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows that are longer are brought to that length."""
    return np.array([r * min(1.0, bound / n) if (n := np.sqrt((r * r).sum())) else r for r in rows])


# Signs ------------------------------------------------------------------------------------


def turn_rate(rows: np.ndarray, theta: float) -> list[np.ndarray]:
    """Ozdayi et al., eq. 3, weight by weight."""
    out = []
    for column in rows.T:
        agreed = abs(sum(1 if v > 0 else -1 if v < 0 else 0 for v in column))
        mean = sum(column) / len(column)
        out.append(mean if agreed >= theta * len(column) - 1e-9 else -mean)
    return [np.array(out)]


def shift_means(points: np.ndarray) -> set[tuple[int, ...]]:
    """The largest clusters of mean shift with a flat kernel, written down; several that are equally large."""
    n = len(points)
    far = np.array([[np.linalg.norm(a - b) for b in points] for a in points])
    width = float(np.mean([sorted(row)[: max(1, n // 2)][-1] for row in far])) + TIE
    ends: dict[tuple[float, ...], int] = {}
    for point in points:
        at, moved = point, np.inf
        while moved > 1e-3 * max(width, 1e-6):
            new = points[np.linalg.norm(points - at, axis=1) <= width].mean(0)
            moved, at = float(np.linalg.norm(new - at)), new
        ends[tuple(at.round(12))] = int((np.linalg.norm(points - at, axis=1) <= width).sum())
    centres: list[tuple[float, ...]] = []
    for centre in sorted(ends, key=lambda c: (ends[c], c), reverse=True):
        if all(np.linalg.norm(np.subtract(centre, c)) > width for c in centres):
            centres.append(centre)
    labels = [int(np.argmin([np.linalg.norm(p - c) for c in centres])) for p in points]
    most = max(labels.count(k) for k in labels)
    return {tuple(i for i in range(n) if labels[i] == k) for k in labels if labels.count(k) == most}


def guard_signs(rows: np.ndarray) -> list[np.ndarray]:
    """Xu et al., Algorithm 2, on all coordinates."""
    long = np.sqrt((rows**2).sum(1))
    middle = float(np.median(long))
    shares = np.array([[(r > 0).mean(), (r == 0).mean(), (r < 0).mean()] for r in rows])
    out = []
    for alike in shift_means(shares):
        both = [i for i in alike if 0.1 * middle <= long[i] <= 3 * middle]
        out.append(clip(rows[both or list(alike)], middle).mean(0))
    return out


# Directions -------------------------------------------------------------------------------


def find_larger_halves(rows: np.ndarray) -> set[tuple[int, ...]]:
    """Average linkage by cosine distance: the two nearest groups become one, until there are two.

    Of equally near pairs each is tried, and of equally large groups that with the first upload is taken.
    """
    n, long = len(rows), np.sqrt((rows**2).sum(1))
    distance = np.ones((n, n))
    for i in range(n):
        for j in range(n):
            if long[i] and long[j]:
                distance[i, j] = 1 - float(rows[i] @ rows[j]) / (long[i] * long[j])

    @cache
    def average(a: frozenset[int], b: frozenset[int]) -> float:
        return float(distance[np.ix_(sorted(a), sorted(b))].mean())

    level = {frozenset(frozenset([i]) for i in range(n))}
    for _ in range(n - 2):
        level = {joined for groups in level for joined in join_nearest(groups, average)}
    return {tuple(sorted(max(groups, key=lambda g: (len(g), 0 in g)))) for groups in level}


def join_nearest(
    groups: frozenset[frozenset[int]], average: Callable[[frozenset[int], frozenset[int]], float]
) -> Iterator[frozenset[frozenset[int]]]:
    pairs = [(a, b) for a in groups for b in groups if min(a) < min(b)]
    far = [average(a, b) for a, b in pairs]
    for (a, b), d in zip(pairs, far, strict=True):
        if d <= min(far) + TIE:
            yield groups - {a, b} | {a | b}


def compare_clipped_clustering() -> Iterator[Case]:
    """Three rounds each, so that norms of earlier ones count."""
    for i in range(SETS):
        state: Any = {}
        norms: list[float] = []
        for t in range(3):
            rows = uploads(i) * np.float32(10.0 ** (t - 1))
            found = combine("clipped_clustering", rows, {"state": state})
            state, exact = found.state, rows.astype(float)
            norms += np.sqrt((exact**2).sum(1)).tolist()
            halves = find_larger_halves(exact)
            theirs = [clip(exact[list(half)], float(np.median(norms))).mean(0) for half in halves]
            yield found.change.numpy(), theirs, float(np.abs(rows).max())


# The last layer ---------------------------------------------------------------------------


def widen(number: int) -> tuple[np.ndarray, int, int]:
    """Uploads [n, C (H + 1)], the weights of a last layer before its bias, with ties as uploads() has them."""
    rng = np.random.default_rng(number)
    base = uploads(number)
    classes, width = 2 + number % 4, 2 + number % 3
    columns = rng.integers(0, base.shape[1], classes * (width + 1))
    signs = rng.choice([-1, 0, 1, 1], (len(base), len(columns)))
    rows = base[:, columns] * signs.astype(np.float32)
    if number % 4 == 1:
        rows[-1] = rows[0]
    return rows, classes, width


def number_clusters(distance: np.ndarray) -> list[int]:
    """HDBSCAN's clusters of two or more; who is in none is its own."""
    n = len(distance)
    found = HDBSCAN(min_cluster_size=2, min_samples=1, metric="precomputed", allow_single_cluster=True, copy=True)
    return [n + i if c < 0 else int(c) for i, c in enumerate(found.fit_predict(distance.round(9)))]


def see_deep(rows: np.ndarray, classes: int, width: int) -> np.ndarray:
    """Rieger et al., Algorithms 1 to 4, without DDifs; the clusters are HDBSCAN's of scikit-learn."""
    n = len(rows)
    matrix, bias = rows[:, : classes * width].reshape(n, classes, width), rows[:, classes * width :]
    shares = np.zeros((n, classes))
    for i in range(n):
        energy = [(abs(bias[i, c]) + sum(abs(w) for w in matrix[i, c])) ** 2 for c in range(classes)]
        shares[i] = np.array(energy) / sum(energy) if sum(energy) else 1 / classes
    counts = [sum(s > max(0.01, 1 / classes) * max(row) for s in row) for row in shares]
    middle = float(np.median(counts))
    suspected = [c <= middle / 2 and c < middle for c in counts]
    by_share, by_cosine = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            sizes = np.linalg.norm(bias[i]) * np.linalg.norm(bias[j])
            by_share[i, j] = np.linalg.norm(shares[i] - shares[j])
            by_cosine[i, j] = (1 - bias[i] @ bias[j] / sizes if sizes else 1.0) if i != j else 0.0
    labels = [number_clusters(d) for d in (by_share, np.maximum(0, (by_cosine + by_cosine.T) / 2))]
    parted = np.array([[np.mean([c[i] != c[j] for c in labels]) for j in range(n)] for i in range(n)])
    groups = number_clusters(parted)
    bad = {g for g in groups if np.mean([s for s, h in zip(suspected, groups, strict=True) if h == g]) >= 1 / 3}
    kept = [i for i in range(n) if groups[i] not in bad]
    bound = float(np.median(np.sqrt((rows**2).sum(1))))
    return clip(rows[kept], bound).mean(0) if kept else np.zeros(rows.shape[1])


def compare_deep_sight() -> Iterator[Case]:
    for i in range(SETS):
        rows, classes, width = widen(i)
        columns = {"w": slice(0, classes * width), "b": slice(classes * width, rows.shape[1])}
        found = combine("deep_sight", rows, {"head": ("w", "b"), "columns": columns})
        yield found.change.numpy(), [see_deep(rows.astype(float), classes, width)], float(np.abs(rows).max())


# A clipped and noised model ---------------------------------------------------------------


def compare_crfl() -> Iterator[Case]:
    """Algorithm 1, with the noise of the rule's own generator."""
    for i in range(SETS):
        rows = uploads(i)
        scale = float(np.abs(rows).max()) or 1.0
        start = np.asarray(np.random.default_rng(i).standard_normal(rows.shape[1]) * scale, np.float32)
        rho, growth, sigma = scale * (0.1, 1.0, 1e3)[i % 3], scale * 0.1, scale * 0.01
        more = {"start": {"w": torch.from_numpy(start)}}
        found = combine("crfl", rows, more, rho=rho, growth=growth, sigma=sigma).change.numpy()
        model: np.ndarray = start.astype(float) + rows.astype(float).mean(0)
        length = np.sqrt((model**2).sum())
        model = model / max(1.0, length / (rho + growth * 3))  # context() is of round 3
        noise = torch.randn(len(start), generator=context().generator(), dtype=torch.float64).numpy()
        yield found, [model + sigma * noise - start], scale


# Histories --------------------------------------------------------------------------------


def turn_densely(moves: np.ndarray, turns: np.ndarray, v: np.ndarray) -> np.ndarray:
    """BFGS on the whole matrix, update by update, from sigma I."""
    s, y = moves[-1], turns[-1]
    b = np.eye(moves.shape[1]) * (y @ s) / (s @ s)
    for s, y in zip(moves, turns, strict=True):
        bs = b @ s
        b = b - np.outer(bs, bs) / (s @ bs) + np.outer(y, y) / (y @ s)
    return b @ v


def cut_in_two(values: np.ndarray) -> tuple[float, list[bool]]:
    """The least squares within two clusters, and who is in the larger one; by trying every cut."""
    order = np.sort(values)
    squares = [
        ((order[:c] - order[:c].mean()) ** 2).sum() + ((order[c:] - order[c:].mean()) ** 2).sum()
        for c in range(1, len(order))
    ]
    cut = int(np.argmin(np.round(squares, 13))) + 1
    return float(squares[cut - 1]), [bool(v >= order[cut]) for v in values]


def see_gap(values: np.ndarray) -> bool:
    """Tibshirani et al. 2001, with the rule's own uniform draws."""
    if np.ptp(values) <= EXACT * values.max():
        return False
    scaled = (values - values.min()) / np.ptp(values)
    drawn = torch.rand(REFERENCES, len(values), generator=context().generator(), dtype=torch.float64).numpy()
    logs = [
        [np.log(max(1e-300, ((x - x.mean()) ** 2).sum())), np.log(max(1e-300, cut_in_two(x)[0]))]
        for x in (*drawn, scaled)
    ]
    gap = np.mean(logs[:-1], 0) - logs[-1]
    return bool(gap[0] < gap[1] - np.std([b for _, b in logs[:-1]]) * np.sqrt(1 + 1 / REFERENCES))


def compare_fl_detector() -> Iterator[Case]:
    """Ten rounds of clients that go towards points of their own, some of them alike, one of which wanders."""
    window = 3
    for i in range(SETS):
        rng, base = np.random.default_rng(i), uploads(i)
        n, size, scale = len(base), 5, float(np.abs(base).max()) or 1.0
        target = base[:, rng.integers(0, base.shape[1], size)] + (rng.standard_normal(size) * scale)
        pull, w = np.diag(rng.uniform(0.1, 0.6, size)), np.zeros(size)
        state: Any = {}
        uploads_before, mean_before, last = None, None, None
        moves: list[np.ndarray] = []
        turns: list[np.ndarray] = []
        scores: list[np.ndarray] = []
        banned: set[int] = set()
        for _ in range(10):
            rows = ((target - w) @ pull).astype(np.float32)
            if i % 2:
                rows[1] = (rng.standard_normal(size) * scale).astype(np.float32)
            found = combine("fl_detector", rows, {"state": state}, window=window)
            state = found.state
            exact = rows.astype(float)
            if len(moves) >= window:
                turned = turn_densely(np.array(moves), np.array(turns), last)
                far = np.sqrt(((uploads_before + turned - exact) ** 2).sum(1))
                scores.append(far / far.sum())
            if len(scores) >= window and see_gap(means := np.mean(scores[-window:], 0)):
                banned |= {k for k, bad in enumerate(cut_in_two(means)[1]) if bad}
            heard = [k for k in range(n) if k not in banned]
            change = exact[heard].mean(0) if heard else np.zeros(size)
            yield found.change.numpy(), [change], scale
            if last is not None:
                moves, turns = [*moves, last][-window:], [*turns, exact.mean(0) - mean_before][-window:]
            last, mean_before, uploads_before = change, exact.mean(0), exact
            w = w + change


COMPARED: dict[str, tuple[str, Callable[[], Iterator[Case]]]] = {
    **{
        name: ("ByzFL 0.0.11", lambda name=name: compare_with_byzfl(name))  # type: ignore[misc]
        for name in ("mda", "monna", "mean_around_median", "caf")
    },
    "sign_guard": ("arXiv:2109.05872, Alg. 2", lambda: compare("sign_guard", guard_signs, coordinates=1.0)),
    "robust_learning_rate": (
        "arXiv:2007.03767, eq. 3",
        lambda: compare("robust_learning_rate", lambda rows: turn_rate(rows, 0.4)),
    ),
    "clipped_clustering": ("arXiv:2302.07173, Alg. 1", compare_clipped_clustering),
    "deep_sight": ("arXiv:2201.00763, Alg. 1 to 4; HDBSCAN of scikit-learn", compare_deep_sight),
    "crfl": ("arXiv:2106.08283, Alg. 1", compare_crfl),
    "fl_detector": ("arXiv:2207.09209, Alg. 1 to 3; dense BFGS", compare_fl_detector),
}


def measure(name: str) -> float:
    """The largest difference of any number, over the largest that was sent."""
    cases = list(COMPARED[name][1]())
    assert len(cases) >= SETS
    return max(
        min(float(np.abs(ours - t).max()) for t in theirs) / (scale or 1.0) for ours, theirs, scale in cases
    )


@pytest.mark.parametrize("name", COMPARED)
def test_a_rule_gives_the_numbers_of_another_program_on_sixty_sets_with_ties_and_scales(name: str) -> None:
    assert measure(name) <= 1e-6


if __name__ == "__main__":
    for rule_name, (reference, _) in COMPARED.items():
        print(f"{rule_name:22}{measure(rule_name):10.1e}  {reference}", flush=True)
