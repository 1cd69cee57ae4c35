"""Messages as blocks of numbers, and which of them are of one person who is played alone.

A block is one array of one kind. Three forms are told apart by how plays of single people look:

* whole: the block is of everybody together;
* by class: it has a row for each class, and a person moves the row of their class alone. What lists its classes
  (`classes` or `labels` beside arrays of as many rows) is put into such a table first;
* rows: it has a row for each example, so that a person who is played in several copies fills it with equal rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Sent
from fedaudit.attacks.evaluation.payloads import read_numbers
from fedaudit.fl.kinds import Kind

Values = NDArray[np.float64]
Blocks = dict[str, Values]  # "KIND/NAME" -> numbers; NaN: a class that is not listed
KEYS = ("classes", "labels")


class Form(Enum):
    WHOLE = "whole"
    BY_CLASS = "by class"
    ROWS = "rows"


def read_blocks(sent: Sent, kinds: Sequence[Kind], classes: int) -> Blocks:
    """All numbers of these kinds in a message."""
    found: Blocks = {}
    for kind in kinds:
        arrays = sent.get(kind, {})
        listed = find_listed(arrays, classes)
        for name, values in read_numbers(arrays):
            numbers = values.astype(np.float64)
            if listed is not None and name not in KEYS and numbers.shape[:1] == listed.shape:
                table = np.full((classes, *numbers.shape[1:]), np.nan)
                table[listed] = numbers
                numbers = table
            found[f"{kind}/{name}"] = numbers
    return found


def find_listed(arrays: Mapping[str, NDArray[Any]], classes: int) -> NDArray[np.int64] | None:
    """The classes that a message lists, each once; None where it lists none."""
    there = set(arrays)
    for name in KEYS:
        if name in there:
            listed = np.asarray(arrays[name])
            is_list = listed.ndim == 1 and listed.dtype.kind in "iu" and len(np.unique(listed)) == len(listed)
            if is_list and (not len(listed) or 0 <= listed.min() <= listed.max() < classes):
                return listed.astype(np.int64)
    return None


@dataclass(frozen=True)
class Layout:
    """The form of each block that tells of single people."""

    forms: Mapping[str, Form]

    @classmethod
    def from_plays(
        cls, plays: Sequence[Blocks], labels: NDArray[np.int64], message: Blocks | None, classes: int
    ) -> "Layout":
        """Of blocks that came in all plays of single people, in one shape, and differ between people of a class.

        Without the message every shape is one that it may have.
        """
        forms: dict[str, Form] = {}
        names = set.intersection(*(set(p) for p in plays)) if plays else set()
        for name in sorted(names if message is None else names & set(message)):
            each = [p[name] for p in plays]
            if len({e.shape for e in each}) > 1 or not each[0].size:
                continue
            table = np.stack(each)
            sent = each[0] if message is None else message[name]
            form = _find_form(table, labels, sent, classes)
            if form is not None and _differs(_pick_all(form, table, labels), labels):
                forms[name] = form
        return cls(forms)

    def pick(self, name: str, value: Values, label: int) -> Values:
        """The numbers of a play that are of its person, flat."""
        return _pick(self.forms[name], value, label)


def _find_form(table: Values, labels: NDArray[np.int64], sent: Values, classes: int) -> Form | None:
    """Of plays [m, ...] of people of these classes [m]; None where the message has another shape."""
    shape = table.shape[1:]
    if len(shape) and shape[0] == classes and sent.shape == shape and _moves_own_row(table, labels):
        return Form.BY_CLASS
    if len(shape) and shape[1:] == sent.shape[1:] and sent.ndim == len(shape):
        is_equal = bool(np.array_equal(table, np.broadcast_to(table[:, :1], table.shape), equal_nan=True))
        if (shape[0] > 1 and is_equal) or shape[0] != sent.shape[0]:
            return Form.ROWS if not np.isnan(table).any() else None
    return Form.WHOLE if sent.shape == shape and not np.isnan(table).any() else None


def _moves_own_row(table: Values, labels: NDArray[np.int64]) -> bool:
    """Whether in plays [m, C, ...] all rows but that of a person's class are the same, or missing."""
    others = table.copy()
    others[np.arange(len(table)), labels] = np.nan
    first = np.full(table.shape[1:], np.nan)
    for play in others:
        known = ~np.isnan(play) & ~np.isnan(first)
        if not np.array_equal(play[known], first[known]):
            return False
        first = np.where(np.isnan(first), play, first)
    return True


def _pick(form: Form, value: Values, label: int) -> Values:
    if form is Form.BY_CLASS:
        return np.ravel(value[label])
    return np.ravel(value[0] if form is Form.ROWS else value)


def _pick_all(form: Form, table: Values, labels: NDArray[np.int64]) -> Values:
    return np.stack([_pick(form, value, label) for value, label in zip(table, labels.tolist(), strict=True)])


def _differs(rows: Values, labels: NDArray[np.int64]) -> bool:
    """Whether some people of one class differ by more than rounding."""
    scale = np.nanmax(np.abs(rows), initial=0.0)
    return any(
        np.nanmax(np.ptp(rows[labels == c], axis=0), initial=0.0) > 1e-6 * scale for c in np.unique(labels)
    )
