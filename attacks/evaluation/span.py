"""What a linear map's change tells of its inputs: they span the rows of the change, whatever the steps were.

The gradient of a linear map is a sum of outer products of output gradients and inputs, so its rows lie in the
span of the inputs, and so do those of any number of steps of gradient descent as long as what computes the
inputs stands still. Petrov, Dimitrov, Baader, Mueller, Vechev. DAGER. NeurIPS 2024, arXiv:2405.15586, sec. 4,
who test the inputs of one gradient in double precision. What differs here: what is sent is a difference of
float32 weights, so the rank is what stands above their rounding, and no tolerance is set by hand; changes of
several maps with the same input, and of several rounds where that input stands still, are stacked.

The law of the rank. With added positions the input at (token v, position p) is a norm of e(v) + e(p), and the
inputs of a batch span tokens + positions - components of the bipartite graph whose edges are the batch's pairs
of token and position: along a cycle of that graph one sum follows from the others. A norm with a bias adds at
most 1.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
ROUNDING = 2.0**-25  # of a float32 weight, as a share of the weights' root mean square
ABOVE = 3.0  # times the largest singular value of as much rounding
MEMBER = 0.05  # share of the median residual of a position, below which an input lies in the span
PREFIX = 0.01  # of its own length, below which the input that a prefix makes lies in the span
OUTSIDE = 5  # directions outside of a span, with fewer of which chance puts some of 160,000 inputs below MEMBER
POWER = 0.25  # of a direction's singular value: its weight where no rank stands out


@dataclass(frozen=True, kw_only=True)
class MapChange:
    """The change of one linear map in one message: its rows [out, in], and the weights [out, in] they were added
    to.
    """

    change: Values
    weights: Values


@dataclass(frozen=True, kw_only=True)
class RowSpace:
    """An orthonormal basis [in, k] of the row space, and the singular values it was cut from, in units of
    rounding.
    """

    basis: Values
    singular: Values

    @property
    def rank(self) -> int:
        return int(self.basis.shape[1])

    @property
    def is_full(self) -> bool:
        """Whether every input lies in it, or some do by chance, so that it tells nothing."""
        return self.rank > len(self.basis) - OUTSIDE

    def compute_residuals(self, inputs: Values) -> Values:
        """[..., in] -> [...]: how much of each input's length lies outside; 1 for an input of zeros."""
        outside = inputs - (inputs @ self.basis) @ self.basis.T
        length = np.linalg.norm(inputs, axis=-1)
        return np.asarray(np.where(length > 0, np.linalg.norm(outside, axis=-1) / np.maximum(length, 1e-30), 1.0))


def compute_span(blocks: Sequence[MapChange]) -> RowSpace:
    """The span of the rows of all these changes.

    Each block is measured in units of its own rounding, so that a change of early rounds, which drowns in it,
    takes nothing from later ones. Raises ValueError where no block changed.
    """
    moved = select_moved(blocks)
    stacked = np.concatenate(
        [b.change / (ROUNDING * np.sqrt(np.mean(b.weights**2) + np.mean(b.change**2))) for b in moved]
    )
    _, singular, right = np.linalg.svd(stacked, full_matrices=False)
    rank = int((singular > ABOVE * (np.sqrt(stacked.shape[0]) + np.sqrt(stacked.shape[1]))).sum())
    return RowSpace(basis=np.ascontiguousarray(right[:rank].T), singular=singular)


def weigh_directions(blocks: Sequence[MapChange]) -> Values:
    """[in, k]: all directions of these changes, each block scaled to length 1, weighed by how strong they are.

    The squared length of an input along them, as a share of its own, orders inputs where noise, an adaptive
    optimiser or too many texts leave no span that an input lies in or not. A direction's weight is the fourth
    root of its singular value: steps of gradient descent make weak directions of inputs that were read as well.
    Raises ValueError where no block changed.
    """
    stacked = np.concatenate([b.change / np.linalg.norm(b.change) for b in select_moved(blocks)])
    _, singular, right = np.linalg.svd(stacked, full_matrices=False)
    return np.ascontiguousarray(right.T * np.sqrt(singular**POWER))


def compute_strengths(directions: Values, inputs: Values) -> Values:
    """[..., in] -> [...]: the share of each input's squared length along weighed directions [in, k]."""
    along = ((inputs @ directions) ** 2).sum(axis=-1)
    return np.asarray(along / np.maximum((inputs**2).sum(axis=-1), 1e-60))


def select_moved(blocks: Sequence[MapChange]) -> list[MapChange]:
    moved = [b for b in blocks if b.change.any()]
    if not moved:
        raise ValueError("no linear map changed, so there is no span")
    return moved


def find_pairs(span: RowSpace, residuals: Values) -> NDArray[np.bool_]:
    """[V, P] residuals of every token's first input at every position -> [V, P]: which inputs lie in the span.

    An input does whose residual is below MEMBER of the median over tokens at its position; none where the span
    is all there is, and none where it is empty.
    """
    if span.is_full or not span.rank:
        return np.zeros(residuals.shape, np.bool_)
    return np.asarray(residuals < MEMBER * np.median(residuals, axis=0))


def rank_tokens(strengths: Values) -> Values:
    """[V, P] -> [V]: how far each token's strongest input stands out among the inputs at its position.

    In deviations from the position's median, in units of the median deviation; high is likelier.
    """
    deviations = strengths - np.median(strengths, axis=0)
    scale = np.maximum(np.median(np.abs(deviations), axis=0), 1e-30)
    return np.asarray((deviations / scale).max(axis=1))


def count_law(pairs: Iterable[tuple[int, int]], *, added: bool = True) -> int:
    """The rank that inputs at these pairs of token and position have: tokens + positions - components.

    `added`: positions are added to embeddings; where they are not (rotary), it is the number of tokens.
    """
    edges = set(pairs)
    tokens, positions = {v for v, _ in edges}, {p for _, p in edges}
    if not added:
        return len(tokens)
    parent = {("token", v): ("token", v) for v in tokens} | {("place", p): ("place", p) for p in positions}

    def find_root(node: tuple[str, int]) -> tuple[str, int]:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for v, p in edges:
        parent[find_root(("token", v))] = find_root(("place", p))
    components = {find_root(node) for node in parent}
    return len(tokens) + len(positions) - len(components)


def list_pairs(texts: NDArray[np.int64]) -> set[tuple[int, int]]:
    """Tokens [N, T], 0 padding -> the pairs of token and position that stand in them."""
    rows, places = np.nonzero(texts)
    return {(int(v), int(p)) for v, p in zip(texts[rows, places], places, strict=True)}
