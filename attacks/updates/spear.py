"""SPEAR: all images of a small batch, from the rank and the zeros of one gradient.

Of a dense layer Z = X W' + b before a ReLU, dW = dZ' X has the rank of the batch, and dZ is 0 wherever a ReLU was
off. The singular vectors, dW = L R, are dZ' but for an unknown invertible matrix, and each of its columns, one an
image, is orthogonal to the rows of L where that image's ReLU was off. Sets of rows are drawn until as many such
directions are found as there are images; db gives each its scale. The ReLUs that are on then, by the weights that
were sent out, say whether zeros were told from rounding.

Dimitrov, Baader, Mueller, Vechev. SPEAR: Exact Gradient Inversion of Batches in Federated Learning. NeurIPS 2024,
arXiv:2403.03945, Alg. 2. Changed: what is zero is told by the rounding of this very update, at three tolerances;
directions are refined by all rows that they leave at zero; nothing is exchanged afterwards; an image behind other
layers is fitted to what entered the dense one, as `analytic` does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from fedaudit.attacks.attack import Effort, Knowledge
from fedaudit.attacks.evaluation.gradients import Imitation, Update
from fedaudit.attacks.evaluation.update_inversion import CARD
from fedaudit.attacks.updates.analytic import Dense, LayerInversion, LayerSearch, draw_layers, read_layer
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero
from fedaudit.fl.runtime.settings import settings

Floats = NDArray[np.floating[Any]]
Values = NDArray[np.float64]
TOLERANCES = (4, 16, 64)  # times the rounding of one number, below which it is zero
MOST_TOLERANCE = 0.002  # of a unit's own length; shorter ones are all rounding
WIDE = 4  # times more, for directions that a few units span
AGREED = 0.97  # of all ReLUs: no other tolerance is tried
DRAWS = 4096  # of units at a time
PATIENCE = 6  # draws without a better set, once there is one
MOST_REFINED = 4  # directions an image, of the most promising of each draw
SPARE = 4  # units in a hyperplane beyond those that span it, by which it is told from chance
MOST = 24  # images: of more, no draw hits a hyperplane
SAME = 0.999  # cosine of directions that are one
LEAST_VOLUME = 3e-3  # smallest singular value of directions that are independent
LEAST_ROUNDING = 1e-8  # of the largest singular value, of numbers of four bytes
ABOVE_ROUNDING = 5  # times the largest singular value that is rounding alone


class Spear(LayerInversion):
    card = replace(
        CARD,
        title="SPEAR",
        source="arXiv:2403.03945, Alg. 2",
        learns="all images of a small batch at once, exactly, from the layer that enters a ReLU",
        does_not_show="images behind several steps, behind more than 24 examples, or where no dense layer "
        "enters a ReLU",
        effort=Effort(seconds=40, grows=("updates",), settings=("draws",)),
    )

    @settings
    class Config(LayerInversion.Config):
        recorded: AtLeastZero = Field(default=1000, description="uploads to attack that crossed the wire")
        most: AtLeastOne = Field(default=MOST, description="images to claim of a replayed update, at most")
        most_recorded: AtLeastOne = Field(
            default=MOST, description="images to claim of an update that crossed the wire, at most"
        )
        draws: AtLeastOne = Field(
            default=100_000, description="sets of units that may span a hyperplane, at most"
        )

    def applies(self, update: Update) -> bool:
        # all in one batch: so it seems as well where nobody says how many examples there are
        return update.examples <= MOST or update.batch == update.examples

    def draw(
        self, update: Update, number: int, knowledge: Knowledge, rng: np.random.Generator
    ) -> list[LayerSearch]:
        copy = Imitation(update, knowledge)
        layer = read_layer(copy, knowledge.shape)
        inputs = None if layer is None else separate(layer, self.config.draws, rng)
        y = rng.integers(knowledge.classes, size=number)  # the pixels are claimed, not the labels
        return draw_layers(copy, () if inputs is None else [*inputs[:number]], knowledge, y)


def separate(layer: Dense, draws: int, rng: np.random.Generator) -> Values | None:
    """[b, D] what entered the layer, an example a row; None where the batch does not come apart.

    Parameters
    ----------
    draws : sets of units that are looked at, at each of the tolerances at most.
    """
    weight, bias = layer.gradient
    left, sizes, right = np.linalg.svd(weight, full_matrices=False)
    noise = max(sizes[min(MOST, len(sizes) - 1)], LEAST_ROUNDING * sizes[0])
    rank = int((sizes[:MOST] > ABOVE_ROUNDING * noise).sum())
    if not rank:
        return None
    left, right = left[:, :rank] * sizes[:rank], right[:rank]
    lengths = np.linalg.norm(left, axis=1)
    rounding = noise / sum(np.sqrt(weight.shape))  # of one number: noise has about this largest singular value
    best, agreed = None, 0.0
    for times in TOLERANCES:
        clear = lengths * MOST_TOLERANCE > times * rounding  # a unit that is off for the whole batch is not
        units, tolerance = left[clear] / lengths[clear, None], times * rounding / lengths[clear]
        for found in find_directions(units, tolerance, draws, rng):
            scale = np.linalg.lstsq(left @ found, bias, rcond=None)[0]
            inputs = np.linalg.solve(found, right) / np.where(scale == 0, np.inf, scale)[:, None]
            is_on = (layer.start[0] @ inputs.T + layer.start[1][:, None] > 0)[clear]
            agreement = float((is_on == (np.abs(units @ found) > tolerance[:, None])).mean())
            if agreement > agreed:
                best, agreed = inputs, agreement
            if agreed > AGREED:
                return best
    return best


def find_directions(units: Values, tolerance: Values, draws: int, rng: np.random.Generator) -> Iterator[Values]:
    """[r, r] whose columns are orthogonal to as many of the units [u, r] as can be; better ones later."""
    rank, found, chosen, unchanged = units.shape[1], list[tuple[int, Values]](), None, 0
    least = rank - 1 + SPARE
    if rank == 1:
        yield np.ones((1, 1))
        return
    for candidates in _draw(units, draws if len(units) >= least else 0, rng):
        zeros = (np.abs(units @ candidates.T) < WIDE * tolerance[:, None]).sum(0)
        order = np.argsort(-zeros, kind="stable")
        left = candidates[order[zeros[order] >= least]]
        for _ in range(MOST_REFINED * rank):
            for known in [d for _, d in found] if len(left) else ():
                left = left[np.abs(left @ known) < SAME]
            if not len(left):
                break
            direction, number = _refine(units, left[0], tolerance)
            left = left[np.abs(left @ left[0]) < SAME]
            if number >= least and all(abs(direction @ d) < SAME for _, d in found):
                found.append((number, direction))
        before, chosen = chosen, _choose(found, rank)
        is_same = chosen is not None and before is not None and np.array_equal(chosen, before)
        unchanged = unchanged + 1 if is_same else 0
        if chosen is not None and not unchanged:
            yield chosen
        if unchanged == PATIENCE:
            return


def _draw(units: Values, draws: int, rng: np.random.Generator) -> Iterator[Values]:
    """Of sets of r - 1 units the directions [m, r] orthogonal to all of a set."""
    rank = units.shape[1]
    for _ in range(-(-draws // DRAWS)):
        chosen = rng.random((DRAWS, len(units))).argpartition(rank - 1, axis=1)[:, : rank - 1]
        some = units[chosen]
        # one coordinate is set to 1, another one each time, so that none that is always 0 stays unseen
        last = int(rng.integers(rank))
        rest = np.delete(some, last, axis=2)
        regular = np.abs(np.linalg.det(rest)) > 0
        solved = np.linalg.solve(rest[regular], -some[regular, :, last, None])[..., 0]
        directions = np.insert(solved, last, 1.0, axis=1)
        yield directions / np.linalg.norm(directions, axis=1, keepdims=True)


def _refine(units: Values, direction: Values, tolerance: Values) -> tuple[Values, int]:
    """What is orthogonal to all units that it leaves at zero, and their number; 0 where they leave a choice."""
    for wide in (WIDE, 1):
        zeros = np.abs(units @ direction) < wide * tolerance
        if zeros.sum() < len(direction):
            return direction, 0
        _, sizes, directions = np.linalg.svd(units[zeros], full_matrices=False)
        if sizes[-2] < LEAST_VOLUME * sizes[0]:  # where two images are off together
            return direction, 0
        direction = directions[-1]
    return direction, int((np.abs(units @ direction) < tolerance).sum())


def _choose(found: Sequence[tuple[int, Values]], rank: int) -> Values | None:
    """[r, r] as columns the independent ones with the most zeros; None where they are fewer."""
    chosen: list[Values] = []
    for _, direction in sorted(found, key=lambda f: -f[0]):
        if np.linalg.svd(np.array([*chosen, direction]), compute_uv=False)[-1] > LEAST_VOLUME:
            chosen.append(direction)
        if len(chosen) == rank:
            return np.array(chosen).T
    return None
