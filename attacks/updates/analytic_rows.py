"""Analytic rows: rows of a table from the first layer's change, unit by unit, by one division.

A unit r of z = W x + b that one row of a batch alone switched on has dW_r = (dz_r) x and db_r = dz_r, so x is
dW_r / db_r: exact, without optimisation or data (Phong et al., IEEE TIFS 2018, sec. 3, for each unit by itself).
What a mixture of rows gives is no row. So a candidate is claimed only where it has the form of one: every
category is one-hot within .005, and every number within a quarter of a step of its grid. A table without
categories and steps has no such form; there a row is claimed that two units agree on, and none of three on one
line, since units of a network with one output agree on mixtures too. The truth has no part in it.

Left out are units that moved by less than rounding hides: |db_r| > 250 * 2^-25 (rms W + 3 max |b|), since what is
sent is a difference of numbers in single precision. Adam moves every weight alike and silences this attack, which
bounds nothing. The planted leak is one step on one row, through a layer of random weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Card, Claim, Effort, Knowledge
from fedaudit.attacks.evaluation.gradients import UPLOADS, Update, iterate_updates
from fedaudit.attacks.evaluation.row_recovery import NEAR, RowRecovery, claim_rows
from fedaudit.attacks.evaluation.sources import SAID_WITH
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.columns import Columns, Rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim, Position, ThreatModel

ROUNDING = 250 * 2.0**-25
ONE_HOT = 0.005
GRID = 0.25  # of a step
AGREE = 1e-3  # of a deviation, within which two units give one row
ALIKE = 2 * NEAR  # of a deviation, within which two claims may be of one row
IN_LINE = 1e-4  # of 1 - |cosine|
MOST_AGREED = 100  # candidates of a table without a form
MOST = 500  # rows that are claimed of a client
UNITS = 64  # of the layer through which a row is planted


class AnalyticRows(RowRecovery):
    card = Card(
        title="Rows from single units of the first layer",
        source="Phong et al., IEEE TIFS 2018, sec. 3; the form of a row as its test is ours",
        aim=Aim.RECONSTRUCTION,
        needs=("rows",),
        threat=ThreatModel(position=Position.SERVER, knows=frozenset({"auxiliary_data"})),
        requires=(Kind.GLOBAL_MODEL,),
        also_reads=(*UPLOADS, Kind.NUM_EXAMPLES),
        aids=(Kind.GLOBAL_MODEL, *SAID_WITH, Kind.NUM_EXAMPLES),
        control="",  # planted in measure()
        rounds="all",
        learns="rows of a table that a client trained on, every column, from units that one row alone moved",
        does_not_show="rows of large batches, of which several move every unit, and of training by Adam",
        remedy="train on larger batches, sum uploads securely, or clip and noise them with a stated epsilon",
        effort=Effort(seconds=2, grows=("updates",)),
    )
    leak = "one step on one row, through a layer of random weights"

    def run(self, view: Sequence[Artifact], knowledge: Knowledge, rng: np.random.Generator) -> Claim:
        found: dict[int, list[Rows]] = {}
        for update in iterate_updates(view, knowledge):
            if update.origin == "recorded" and update.client >= 0 and _has_layer(update, knowledge):
                found.setdefault(update.client, []).append(
                    read_rows(update, knowledge.columns, knowledge.shape[0])
                )
        given = knowledge.columns
        rows = {client: _merge(np.concatenate(some), given)[:MOST] for client, some in sorted(found.items())}
        return claim_rows(rows, knowledge)

    def plant(self, rows: Rows, claim: Claim, rng: np.random.Generator) -> Rows:
        columns: Columns = claim["columns"][0]
        given = np.asarray(columns.model_input(rows[:1])[0], np.float64)
        weight = rng.normal(0, 0.1, (UNITS, len(given))).astype(np.float32)
        bias, step = np.zeros(UNITS, np.float32), rng.normal(0, 0.05, UNITS) * (rng.random(UNITS) < 1 / 2)
        moved = (weight + step[:, None] * given).astype(np.float32) - weight.astype(np.float64)
        moved_bias = (bias + step).astype(np.float32) - bias.astype(np.float64)
        return divide(moved, moved_bias, weight, bias, columns)

    def not_applicable(self, view: Sequence[Artifact], knowledge: Knowledge) -> str:
        if not any(_has_layer(update, knowledge) for update in iterate_updates(view, knowledge)):
            return "no upload holds a first dense layer with a bias, and the model that it started from"
        return ""


def _has_layer(update: Update, knowledge: Knowledge) -> bool:
    """Whether there is a layer that may read rows."""
    width = knowledge.shape[0] if knowledge.columns is None else knowledge.columns.width
    return any(True for _ in _list_layers(update.gradient, width))


def read_rows(update: Update, columns: Columns | None, width: int) -> Rows:
    """[k, F] rows in raw units that single units of a first dense layer give."""
    inputs = width if columns is None else columns.width
    found = [np.zeros((0, width))]
    for weight, bias in _list_layers(update.gradient, inputs):
        moved = np.asarray(update.gradient[weight], np.float64), np.asarray(update.gradient[bias], np.float64)
        scale = update.rate * update.steps if update.kind is not Kind.GRADIENT else 1.0
        found.append(
            divide(moved[0] * scale, moved[1] * scale, update.start[weight], update.start[bias], columns)
        )
    return np.concatenate(found)


def divide(
    weight: NDArray[Any], bias: NDArray[Any], old: NDArray[Any], old_bias: NDArray[Any], columns: Columns | None
) -> Rows:
    """[k, F] rows of the change of a layer, weight [h, inputs] and bias [h], from what these were."""
    hidden = ROUNDING * (np.sqrt(np.mean(np.square(old, dtype=np.float64))) + 3 * np.abs(old_bias).max(initial=0))
    clear = np.abs(bias) > hidden
    inputs = weight[clear] / bias[clear, None]
    if columns is None or not any(c.kind == "category" or c.step for c in columns.columns):
        agreed = _choose_agreed(inputs)
        return agreed if columns is None else columns.read_input(agreed)
    rows = columns.read_input(inputs)
    return _merge(columns.snap(rows)[_have_form(inputs, rows, columns)], columns)


def _have_form(inputs: NDArray[Any], rows: Rows, columns: Columns) -> NDArray[np.bool_]:
    """[k] whether inputs [k, width] may be one row's: categories one-hot, numbers near their grid."""
    fits = np.isfinite(inputs).all(axis=1)
    snapped = columns.snap(rows)
    for i, (column, span) in enumerate(zip(columns.columns, columns.spans, strict=True)):
        if column.kind == "category":
            part = inputs[:, span]
            fits &= (np.minimum(np.abs(part), np.abs(part - 1)) <= ONE_HOT).all(axis=1)
            fits &= (part > 1 / 2).sum(axis=1) == 1
        elif column.step:
            fits &= ~(np.abs(rows[:, i] - snapped[:, i]) > GRID * column.step)  # NaN: it is missing
    return np.asarray(fits)


def _choose_agreed(inputs: NDArray[Any]) -> Rows:
    """[k, width] inputs that two units give alike, each once."""
    left, found = np.asarray(inputs, np.float64), list[Rows]()
    while len(left):
        same = (np.abs(left - left[0]) <= AGREE * np.maximum(1, np.abs(left[0]))).all(axis=1)
        if same.sum() > 1:
            found.append(np.median(left[same], axis=0))
        left = left[~same] if same.any() else left[1:]
    rows = _drop_alike(np.array(found).reshape(-1, inputs.shape[1]))[:MOST_AGREED]
    return rows[~_are_in_line(rows)]


def _are_in_line(rows: Rows) -> NDArray[np.bool_]:
    """[k] which rows are on one line with two others."""
    found = np.zeros(len(rows), bool)
    for i in range(len(rows)):
        apart = rows - rows[i]
        length = np.linalg.norm(apart, axis=1)
        units = apart / np.where(length > 0, length, 1)[:, None]
        same = np.abs(units @ units.T) >= 1 - IN_LINE
        np.fill_diagonal(same, val=False)
        same[i] = same[:, i] = False
        if same.any():
            found[i] = True
            found |= same.any(axis=1)
    return found


def _merge(rows: Rows, columns: Columns | None) -> Rows:
    """Each row once, also where rounding keeps claims of it apart."""
    return _drop_alike(np.unique(rows, axis=0), None if columns is None else np.array(columns.std))


def _drop_alike(rows: Rows, spread: Rows | None = None) -> Rows:
    """Rows [k, F] without those that are as an earlier one; numbers are as large as they are without a spread."""
    kept = list[int]()
    for i, row in enumerate(rows):
        near = ALIKE * (np.maximum(1, np.abs(row)) if spread is None else spread)
        same = (np.abs(rows[kept] - row) <= near) | (np.isnan(rows[kept]) & np.isnan(row))
        if not same.all(axis=1).any():
            kept.append(i)
    return rows[kept]


def _list_layers(arrays: Mapping[str, NDArray[Any]], width: int) -> Iterator[tuple[str, str]]:
    """Names of the weight [h, width] and the bias [h] of layers that may read rows."""
    for name, v in arrays.items():
        bias = f"{name.removesuffix('weight')}bias"
        if name.endswith("weight") and v.ndim == 2 and v.shape[1] == width and bias in arrays:
            yield name, bias
