"""How well people fit messages, by what a client sends that holds one of them alone."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Player
from fedaudit.attacks.messages._blocks import Blocks, Form, Layout, Values, read_blocks
from fedaudit.attacks.messages._exact import stands_anywhere, stands_at_places
from fedaudit.attacks.messages._heard import ASSUMED, Heard, read_change
from fedaudit.attacks.messages._ratio import Whitened
from fedaudit.attacks.modality.images import fingerprints, to_rows
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError

MOST_NUMBERS = 2**14  # of an update that are compared; of larger ones so many random sums
TOGETHER = 100  # people who are played at a time
COPIES = 4  # of a person whose update is played: code may set some aside, or need several in a batch
PAIRS = 3  # of auxiliary people of one class who are played first: where none differ, nobody else is played
ALONE = 200  # auxiliary people who are played for each client's message, at most
MEAN = 1.5  # factor between rows and means of classes, within which rows are means
NEAR = 1e-4  # of its size: so near is a row to that of a person alone, where other classes do not matter
UNPLAYED = (
    "what clients would send cannot be played, so nothing is read in this way: that says nothing of its safety"
)
Mask = NDArray[np.bool_]
Labels = NDArray[np.int64]


class Fit(NamedTuple):
    """How well people [m] fit a message: log ratios by what it is read from, and of whom a value stands in it."""

    scores: Mapping[str, Values]
    is_exact: Mask


class UpdatePlays:
    """One step of training on each of several people, from one model; a person is played once, whoever asks."""

    def __init__(self, heard: Heard, player: Player, training: Mapping[str, float], seed: int) -> None:
        assert heard.target is not None, "it sends an update"
        self._beginning, self._target = heard.beginning, heard.target
        self._player, self._training, self._seed = player, training, seed
        self._known: dict[bytes, NDArray[np.float32]] = {}
        self._whitened: tuple[Values, Whitened] | None = None
        start = heard.target.start
        self._names = sorted(k for k, v in start.items() if np.issubdtype(v.dtype, np.floating))
        self._bounds = np.cumsum([0, *(start[name].size for name in self._names)])
        self.start = self.flatten(start)
        self._sums: tuple[Labels, Values] | None = None
        if self._bounds[-1] > MOST_NUMBERS:
            rng, many = np.random.default_rng(seed), int(self._bounds[-1])
            self._sums = rng.integers(0, MOST_NUMBERS, many), rng.choice([-1.0, 1.0], many)

    def play(self, images: Examples) -> Values:
        """[m, D] changes; raises UserError where a client that holds one person sends no update."""
        marks = fingerprints(images.x)
        new = list({m: i for i, m in enumerate(marks) if m not in self._known}.values())
        for first in range(0, len(new), TOGETHER):
            some = new[first : first + TOGETHER]
            holdings = [images.only(np.full(COPIES, i)) for i in some]
            sent = self._player.play(self._beginning, holdings, self._seed, steps=1, draws=1, protected=False)
            for i, message in zip(some, sent, strict=True):
                change = read_change(message, self._target, self._training)
                if change is None:
                    raise UserError(UNPLAYED, hint="a client that holds one person must send its update")
                self._known[marks[i]] = self.compress(self.flatten(change)).astype(np.float32)
        return np.stack([self._known[m] for m in marks]).astype(np.float64)

    def flatten(self, arrays: Mapping[str, NDArray[Any]]) -> Values:
        """[N] all numbers that training may change; 0 of what is not there."""
        start = self._target.start
        parts = [np.asarray(arrays.get(k, np.zeros(start[k].shape)), np.float64).ravel() for k in self._names]
        return np.asarray(np.nan_to_num(np.concatenate([np.zeros(0), *parts])))

    def compress(self, numbers: Values) -> Values:
        """[D] the numbers [N], or random sums of them, the same for all."""
        if self._sums is None:
            return numbers
        place, sign = self._sums
        return np.asarray(np.bincount(place, weights=numbers * sign, minlength=MOST_NUMBERS), np.float64)

    def whiten(self, auxiliary: Examples) -> tuple[Values, Whitened]:
        """Plays [a, D] of auxiliary people and what they make, once for all messages that these plays read."""
        if self._whitened is None:
            psi = self.play(auxiliary)
            self._whitened = psi.astype(np.float32), Whitened.from_plays(psi, auxiliary.y)
        return self._whitened

    @property
    def blocks(self) -> list[slice]:
        """Of each array; none of random sums."""
        if self._sums is not None:
            return []
        return [slice(a, b) for a, b in zip(self._bounds[:-1].tolist(), self._bounds[1:].tolist(), strict=True)]


class UpdateReader:
    """Updates of one client, or of one sum, by the same plays: one log ratio over all numbers of all of them."""

    def __init__(self, heard: Sequence[Heard], plays: UpdatePlays, auxiliary: Examples) -> None:
        self._plays = plays
        self._psi, self._whitened = plays.whiten(auxiliary)  # hundreds of MB, which no message has for itself
        self._messages, self._weights = list[tuple[Values, Values, float]](), list[Values]()
        for message in heard:
            assert message.target is not None, "it sends an update"
            change = plays.compress(plays.flatten(message.target.change()))
            mixture, n = self._whitened.find_mixture(change), float(message.examples)
            self._messages.append((change, mixture, n))
            self._weights.append(plays.flatten(message.target.weights))

    def fit(self, people: Examples) -> Fit:
        psi, score = self._plays.play(people), np.zeros(len(people))
        for message, mixture, n in self._messages:
            score += self._whitened.score(message, mixture, n, psi, people.y)
        exact = np.zeros(len(people), bool)
        if self._plays.blocks:
            start = self._plays.start
            for rows, others, messages in (
                (psi, self._psi, [m for m, _, _ in self._messages]),
                (start + psi, start + self._psi, self._weights),
            ):
                for message in messages:
                    for block in self._plays.blocks:
                        exact |= stands_at_places(message[block], rows[:, block], others[:, block])
        return Fit({"update": score}, exact)


class StateReader:
    """All in a message that is no update: made anew by the model that the client had, of a person alone."""

    def __init__(self, heard: Heard, player: Player, auxiliary: Examples, seed: int, classes: int) -> None:
        self._heard, self._player, self._seed, self._classes = heard, player, seed, classes
        self._played = heard
        self._auxiliary = auxiliary.only(np.arange(min(ALONE, len(auxiliary))))
        self._first = auxiliary.only(_find_pairs(auxiliary.y))
        self._kinds: Sequence[Kind] = [*heard.rest]
        self._is_separate = False
        self._alone = self._play(self._first)
        self._layout = Layout.from_plays(self._alone, self._first.y, None, classes)

    @property
    def tells(self) -> bool:
        """Whether what is sent differs between people of one class."""
        return bool(self._layout.forms)

    def play_in(self, other: Heard) -> bool:
        """Play people in the place of another message from now on; whether a few give the same there."""
        self._played, alone = other, self._alone
        self._alone = self._play(self._first)
        return all(
            one.keys() == two.keys() and all(_is_same(one[name], two[name]) for name in one)
            for one, two in zip(alone, self._alone, strict=True)
        )

    def open(self) -> None:
        """Read the message, and play auxiliary people for it."""
        heard = self._heard
        self._message = read_blocks(heard.rest, self._kinds, self._classes)
        self._layout = Layout.from_plays(self._alone, self._first.y, self._message, self._classes)
        if not self.tells:
            return
        self._is_separate = self._can_share()
        played, y = self._play(self._auxiliary), self._auxiliary.y
        self._psi = {name: self._pick(played, name, y) for name in self._layout.forms}
        self._scales = _find_scales(self._psi, y)
        self._whitened = {
            form: Whitened.from_plays(self._join(self._psi, names), y)
            for form in (Form.WHOLE, Form.BY_CLASS)
            if (names := self._list(form))
        }

    def fit(self, people: Examples) -> Fit:
        if not self.tells:
            return Fit({}, np.zeros(len(people), bool))
        played = self._play(people)
        psi = {name: self._pick(played, name, people.y) for name in self._layout.forms}
        scores = dict[str, Values]()
        if names := self._list(Form.WHOLE):
            scores["other numbers"] = self._compare_whole(names, psi, people.y)
        if names := self._list(Form.BY_CLASS):
            scores["its class"] = np.full(len(people), np.nan)
            for label in np.unique(people.y).tolist():
                own = people.y == label
                mine = {name: psi[name][own] for name in names}
                scores["its class"][own] = self._compare_class(names, mine, label)
        if rows := [self._find_nearest(name, psi[name]) for name in self._list(Form.ROWS)]:
            scores["a row"] = np.max(rows, axis=0)
        exact = np.zeros(len(people), bool)
        for name, theirs in psi.items():
            exact |= self._find_exact(name, theirs, people.y)
        return Fit(scores, exact)

    def _play(self, people: Examples) -> list[Blocks]:
        """What is sent of each person alone; of several in one visit, where classes do not mix."""
        groups = _group_by_class(people.y) if self._is_separate else [[i] for i in range(len(people))]
        found: dict[int, Blocks] = {}
        for first in range(0, len(groups), TOGETHER):
            some = groups[first : first + TOGETHER]
            holdings = [people.only(np.repeat(group, self._played.copies)) for group in some]
            sent = self._player.play(self._played.visit, holdings, self._seed, steps=0, draws=1, protected=False)
            for group, message in zip(some, sent, strict=True):
                blocks = read_blocks(message, self._kinds, self._classes)
                found.update((i, blocks) for i in group)
        return [found[i] for i in range(len(people))]

    def _can_share(self) -> bool:
        """Whether the row of a class is the same whoever stands in others, so that many are played at once."""
        if set(self._layout.forms.values()) != {Form.BY_CLASS}:
            return False
        y = self._auxiliary.y
        each = np.array([int(np.flatnonzero(y == c)[0]) for c in np.unique(y)])
        some = self._auxiliary.only(each)
        alone = self._play(some)
        self._is_separate = True
        together = self._play(some)
        for name in self._layout.forms:
            for one, all_, label in zip(alone, together, some.y.tolist(), strict=True):
                rows = one.get(name), all_.get(name)
                if rows[0] is None or rows[1] is None or rows[0].shape != rows[1].shape:
                    return False
                apart = np.abs(rows[0][label] - rows[1][label]).max(initial=0.0)
                if not apart <= NEAR * np.abs(rows[0][label]).max(initial=0.0):
                    return False
        return True

    def _list(self, form: Form) -> list[str]:
        return [name for name, own in self._layout.forms.items() if own is form]

    def _pick(self, played: Sequence[Blocks], name: str, labels: Labels) -> Values:
        """[m, D]; NaN where a block did not come, or in another shape."""
        width = self._layout.pick(name, played[0][name], int(labels[0])).size if name in played[0] else 0
        rows = np.full((len(played), width), np.nan)
        for row, blocks, label in zip(rows, played, labels.tolist(), strict=True):
            if name in blocks and (picked := self._layout.pick(name, blocks[name], label)).size == width:
                row[:] = picked
        return rows

    def _join(self, blocks: Mapping[str, Values], names: Sequence[str]) -> Values:
        """[m, D] all of them, each kind of one size."""
        return np.asarray(np.nan_to_num(np.concatenate([blocks[n] * self._scales[n] for n in names], axis=1)))

    def _compare_whole(self, names: Sequence[str], psi: Blocks, labels: Labels) -> Values:
        """Log ratios [m] in all blocks that are of everybody together."""
        whitened, here = self._whitened[Form.WHOLE], {n: self._message[n].reshape(1, -1) for n in names}
        message = self._join(here, names)[0]
        mixture = whitened.find_mixture(message)
        return whitened.score(message, mixture, float(self._heard.examples), self._join(psi, names), labels)

    def _compare_class(self, names: Sequence[str], psi: Blocks, label: int) -> Values:
        """Log ratios [m] in the rows of a class; NaN where there are none."""
        whitened, here = self._whitened[Form.BY_CLASS], {n: self._message[n][label].reshape(1, -1) for n in names}
        rows = self._join(psi, names)
        if any(np.isnan(v).any() for v in here.values()) or label not in whitened.classes:
            return np.full(len(rows), np.nan)
        message, place = self._join(here, names)[0], int(np.searchsorted(whitened.classes, label))
        table = self._message[names[0]].reshape(self._classes, -1)
        listed = max(1, int((np.isfinite(table).all(axis=1) & (table != 0).any(axis=1)).sum()))
        n = self._heard.of_class(label) or (self._heard.examples or ASSUMED) / listed
        return whitened.score_mean(message / self._size, whitened.means[place], n, rows)

    @cached_property
    def _size(self) -> float:
        """What means of classes are to be multiplied by to give the rows of the message; of a mean it is 1."""
        whitened, names = self._whitened[Form.BY_CLASS], self._list(Form.BY_CLASS)
        along = size = 0.0
        for mean, label in zip(whitened.means, whitened.classes.tolist(), strict=True):
            row = self._join({n: self._message[n][label].reshape(1, -1) for n in names}, names)[0]
            if row.any():
                along, size = along + float(mean @ row), size + float(mean @ mean)
        found = along / size if size else 1.0
        return 1.0 if found <= 0 or abs(np.log(found)) < np.log(MEAN) else found

    def _find_nearest(self, name: str, psi: Values) -> Values:
        """[m] minus the squared distance to the nearest row, in deviations of auxiliary people."""
        spread = self._psi[name].std(axis=0)
        spread = np.maximum(spread, 1e-3 * spread.max(initial=0.0) + 1e-30)
        rows = to_rows(self._message[name]) / spread
        if not len(rows):
            return np.full(len(psi), -np.inf)
        theirs = psi / spread
        apart = (theirs**2).sum(axis=1)[:, None] - 2 * theirs @ rows.T + (rows**2).sum(axis=1)[None]
        return np.asarray(-np.maximum(apart, 0.0).min(axis=1))

    def _find_exact(self, name: str, psi: Values, labels: Labels) -> Mask:
        form, message, auxiliary = self._layout.forms[name], self._message[name], self._psi[name]
        if form is Form.ROWS:
            return stands_anywhere(message, psi, auxiliary)
        if form is Form.WHOLE:
            return stands_at_places(message.ravel(), psi, auxiliary) | stands_anywhere(message, psi, auxiliary)
        found = np.zeros(len(psi), bool)
        for label in np.unique(labels).tolist():
            own, row = labels == label, message[label].ravel()
            if not np.isnan(row).any():
                found[own] = stands_at_places(row, psi[own], auxiliary) | stands_anywhere(
                    row, psi[own], auxiliary
                )
        return found


def _is_same(one: Values, two: Values) -> bool:
    return one.shape == two.shape and np.allclose(one, two, NEAR, 0, equal_nan=True)


def _find_pairs(labels: Labels) -> Labels:
    """Rows of two people of each of the first few classes that have two."""
    rows = list[int]()
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        if len(own) > 1 and len(rows) < 2 * PAIRS:
            rows += own[:2].tolist()
    return np.array(rows or [0], np.int64)


def _group_by_class(labels: Labels) -> list[list[int]]:
    """People in groups in which each class stands once, at most."""
    groups = list[list[int]]()
    times: dict[int, int] = {}
    for i, label in enumerate(labels.tolist()):
        place = times[label] = times.get(label, -1) + 1
        if place == len(groups):
            groups.append([])
        groups[place].append(i)
    return groups


def _find_scales(psi: Blocks, labels: Labels) -> dict[str, float]:
    """What brings all arrays of each kind to variance 1 within classes together."""
    within: dict[str, float] = {}
    for name, rows in psi.items():
        apart = (rows[labels == c] - rows[labels == c].mean(axis=0) for c in np.unique(labels))
        kind = name.partition("/")[0]
        within[kind] = within.get(kind, 0.0) + sum(float(np.nansum(a**2)) for a in apart)
    return {
        name: float(np.sqrt(len(labels) / total)) if (total := within[name.partition("/")[0]]) > 0 else 0.0
        for name in psi
    }
