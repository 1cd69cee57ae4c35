"""What a client sent, or several in a sum, as images are looked for in it, and are planted."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Examples, Floats
from fedaudit.attacks.evaluation.payloads import PIECES, Numbers, find_records
from fedaudit.attacks.evaluation.readings import Values
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.summaries._mixtures import ImageMixtures, build_mixtures
from fedaudit.attacks.summaries._stretches import EXACT, find_stretch, fits
from fedaudit.attacks.summaries._where import Segment, find_place
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.side_by_side import collect

NOBODY = np.zeros((0, 0))


@dataclass(frozen=True)
class SentNumbers:
    """All numbers of one client; the last are `rounds` messages of `width` numbers, the newest at the end."""

    numbers: NDArray[np.float32]
    rounds: int
    width: int
    layout: Sequence[Segment] = ()  # which arrays all numbers are of
    spelled: Sequence[tuple[Kind, Numbers]] = ()  # what bytes spell as other numbers

    @property
    def newest(self) -> NDArray[np.float32]:
        return self.numbers[-self.width :]

    @property
    def most(self) -> int:
        """Values of a record that could stand there, at most."""
        return max([self.width * self.rounds, *(x.values.size for _, x in self.spelled)])

    def list_arrays(self) -> dict[Kind, list[Numbers]]:
        """All arrays by the kind of their message."""
        found: dict[Kind, list[Numbers]] = {kind: [] for kind in self.kinds}
        for s in self.layout:
            found[s.crossed].append(Numbers(s.name, self.numbers[s.begin : s.end].reshape(s.shape)))
        return found

    def list_spelled(self) -> dict[Kind, list[Numbers]]:
        """What bytes spell, by the kind of their message."""
        found: dict[Kind, list[Numbers]] = {}
        for kind, numbers in self.spelled:
            found.setdefault(kind, []).append(numbers)
        return found

    @cached_property
    def kinds(self) -> list[Kind]:
        """Of the messages that these numbers are of."""
        return list(dict.fromkeys(s.crossed for s in self.layout))

    def of_kind(self, kind: Kind) -> "SentNumbers":
        """Those of the messages of one kind, of as many rounds as have equally many."""
        own, end = [s for s in self.layout if s.crossed == kind], len(self.numbers)
        sizes = list[int]()
        for i in range(self.rounds):
            first = end - (i + 1) * self.width
            sizes.append(sum(s.end - s.begin for s in own if first <= s.begin < first + self.width))
        numbers = np.concatenate([self.numbers[s.begin : s.end] for s in own])
        rounds = next((i for i, size in enumerate(sizes) if size != sizes[0]), len(sizes))
        return SentNumbers(numbers, rounds, sizes[0]) if sizes[0] else SentNumbers(numbers, 1, len(numbers))

    def find_again(self) -> NDArray[np.int64]:
        """[width] where each number of the newest message is read once more, as what it changed by; or -1."""
        again, sent = np.full(self.width, -1), dict[tuple[Kind, str], slice]()
        before = len(self.numbers) - self.width
        for s in self.layout:
            if s.begin >= before:
                here = slice(s.begin - before, s.end - before)
                if s.is_change:
                    again[sent[s.kind, s.name]] = np.arange(here.start, here.stop)
                else:  # a client of split learning sends arrays of one name batch by batch
                    sent[s.kind, s.name] = here
        return again


@dataclass(frozen=True)
class Reader:
    """What a client sent, or several in a sum, as images are looked for in it: plainly, and in mixtures."""

    sent: SentNumbers
    mixtures: Sequence[ImageMixtures]  # of what others than one client put into it, each with other noise
    candidates: Floats = field(default_factory=lambda: NOBODY)  # each told from all others

    @classmethod
    def from_message(
        cls, sent: SentNumbers, client: int, known: Examples | None, people: int, candidates: Floats = NOBODY
    ) -> "Reader":
        """`known`: images like those of so many people behind it; None without any.

        Members of another style fit mixtures of these better than held-out people do, with nothing written.
        """
        if client != SEVERAL or known is None or not _are_pictures(known.x):
            return cls(sent, [], candidates)
        return cls(sent, build_mixtures(known, people, sent.width), candidates)

    def fit(self, images: Floats) -> Values:
        """How well each image fits the stretch that it fits best, [readings, n]; no image is looked for twice."""
        fit_together([(self, images)])
        return np.stack([self._cache[key] for key in _list_keys(images)], axis=1)

    def fit_one_reading(self, number: int, images: Floats) -> Values:
        """The same of one reading, [n]; 0 is the plain one, and mixtures follow."""
        if number:
            return self.mixtures[number - 1].fit(self.sent.newest, images)
        stand = set[bytes]().union(*self._standing.values())
        fit = np.array([float(key in stand) for key in _list_keys(images)])
        if not _are_pictures(images):  # rows of a table are like each other at any scale
            return fit
        return np.asarray(np.maximum(fit, fits(self.sent.numbers, images, self.sent.rounds, self.sent.width)))

    @cached_property
    def _standing(self) -> dict[Kind, set[bytes]]:
        """Which candidates stand in messages of each kind, and are told from all others."""
        keys, found = _list_keys(self.candidates), dict[Kind, set[bytes]]()
        for disguised, arrays in ((True, self.sent.list_arrays()), (False, self.sent.list_spelled())):
            for kind, some in arrays.items():
                there = find_records(some, self.candidates, disguised=disguised)
                found.setdefault(kind, set()).update(keys[x.record] for x in there if x.how != PIECES)
        return found

    def find_stretch(self, image: Floats) -> int | None:
        """Where the stretch begins that is the image, or that it fits best in a mixture; None: nowhere."""
        first = find_stretch(self.sent.numbers, image)
        if first is not None or not self.mixtures:
            return first
        _, begin = max(m.find_stretch(self.sent.newest, image) for m in self.mixtures)
        return len(self.sent.numbers) - self.sent.width + begin

    def tell_kinds(self, images: Floats, is_there: NDArray[np.bool_]) -> dict[Kind | None, NDArray[np.bool_]]:
        """In messages of which kinds images stand [n], of those that do; None: in several kinds together."""
        found: dict[Kind | None, NDArray[np.bool_]] = {
            kind: np.zeros(len(images), bool) for kind in self.sent.kinds
        }
        rows = np.flatnonzero(is_there)
        for row, kinds in zip(rows.tolist(), self._find_kinds(images[rows]), strict=True):
            for kind in kinds or (None,):
                found.setdefault(kind, np.zeros(len(images), bool))[row] = True
        return found

    def _find_kinds(self, images: Floats) -> list[set[Kind]]:
        if len(self.sent.kinds) == 1 or not len(images):
            return [set(self.sent.kinds) for _ in images]
        found = [{kind for kind, some in self._standing.items() if key in some} for key in _list_keys(images)]
        for kind in self.sent.kinds if _are_pictures(images) else ():
            of = self.sent.of_kind(kind)
            for kinds, well in zip(found, fits(of.numbers, images, of.rounds, of.width).tolist(), strict=True):
                kinds |= {kind} if well >= EXACT else set()
        return [kinds or self._find_place(image) for kinds, image in zip(found, images, strict=True)]

    def _find_place(self, image: Floats) -> set[Kind]:
        first = self.find_stretch(image)
        segment = None if first is None else find_place(self.sent.layout, first, image.size).segment
        return set() if segment is None else {segment.crossed}

    def fit_planted(self, image: Floats, images: Floats, senders: int, rng: np.random.Generator) -> Values:
        """The same where one sender wrote an image over its part of the mean."""
        found = [
            np.stack([_fit_alone(written, images), *(m.fit(written, images) for m in self.mixtures)])
            for written in write(self.sent, self._again, image, senders, rng)
        ]
        nothing = np.zeros((1 + len(self.mixtures), len(images)))
        return np.asarray(np.max(found, axis=0)) if found else nothing

    def find_least(self, held_out: Values, candidates: int) -> Values:
        """[readings, 1] from which fit on one of so many candidates stands there; held_out [readings, m]."""
        pairs = zip(self.mixtures, held_out[1:], strict=True)
        least = [EXACT, *(m.find_least(fit, candidates, self.sent.width) for m, fit in pairs)]
        return np.array(least)[:, None]

    @cached_property
    def _cache(self) -> dict[bytes, Values]:
        return {}

    @cached_property
    def _again(self) -> NDArray[np.int64]:
        return self.sent.find_again()


def fit_together(wanted: Sequence[tuple[Reader, Floats]]) -> None:
    """Looks for images in what several sent, side by side; the fit of each is known from then on."""
    new = list[tuple[Reader, Floats, list[bytes]]]()
    for reader, images in wanted:
        rows = {key: i for i, key in enumerate(_list_keys(images)) if key not in reader._cache}
        if rows:
            new.append((reader, images[[*rows.values()]], [*rows]))

    def fit(piece: tuple[int, int]) -> Values:
        message, reading = piece
        reader, images, _ = new[message]
        return reader.fit_one_reading(reading, images)

    pieces = [(i, k) for i, (reader, _, _) in enumerate(new) for k in range(1 + len(reader.mixtures))]
    scores = dict(zip(pieces, collect(pieces, fit), strict=True))
    for i, (reader, _, keys) in enumerate(new):
        columns = np.stack([scores[i, k] for k in range(1 + len(reader.mixtures))], axis=1)
        reader._cache.update(zip(keys, columns, strict=True))


def _are_pictures(images: Floats) -> bool:
    return images.ndim == 4


def _fit_alone(numbers: Floats, images: Floats) -> Values:
    if _are_pictures(images):
        return fits(numbers, images)
    fit = np.zeros(len(images))
    fit[[x.record for x in find_records([Numbers("", numbers)], images)]] = 1.0
    return fit


def _list_keys(images: Floats) -> list[bytes]:
    """What each is known by, whatever its precision."""
    return [image.tobytes() for image in np.asarray(images, np.float64)]


def write(
    own: SentNumbers, again: NDArray[np.int64], image: Floats, senders: int, rng: np.random.Generator
) -> list[NDArray[np.float32]]:
    """What stands about an image that one sender wrote over its part of the newest message, at any place of it.

    Once as it was written and, of a model that is known (`again`), once as what it changed by. Nothing where no
    part of the message is long enough for it.
    """
    image, size = image.ravel(), image.size
    is_change = np.zeros(own.width + 1, np.int64)
    is_change[again[again >= 0] + 1] = 1
    crossed = np.cumsum(is_change)
    places = np.flatnonzero(crossed[size:] == crossed[: own.width - size + 1])  # no stretch has changes in it
    if not len(places):
        return []
    at = int(rng.choice(places))
    added = (image - own.newest[at : at + size]) / senders
    found = []
    for place in (np.arange(at, at + size), again[at : at + size]):
        if (there := place >= 0).any():
            first = int(place[there].min())
            begin = max(0, first - size)
            numbers = own.newest[begin : first + 2 * size].copy()
            inside = there & (place - begin < len(numbers))
            numbers[place[inside] - begin] += added[inside]
            found.append(numbers)
    return found
