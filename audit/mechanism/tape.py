"""Questions that need no statistics: the noise is the same in both plays, so a difference of them has none in it.

Where a difference of two plays under one seed is the same under every seed, noise is added to the update whatever
it is, and the difference is how far the update moves what is sent. Where it is not, noise follows the update, or
something comes after the noise.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.mechanism.answers import Answer, Promise, find_nothing, note, refute, tell_nothing
from fedaudit.audit.mechanism.updates import LONG, make_odd, make_updates
from fedaudit.audit.plays.mechanism import Crashed, Floats, Player
from fedaudit.audit.plays.sources import START
from fedaudit.reports.format import number, plural

TOLERANCE = 1e-3  # of a move, relative
FRESH = 8  # plays that are compared for noise that comes again
SEEDS = 8  # under which an update is played
LARGE, FEW = 300_000, 3  # numbers beyond which so few seeds are played, as they are where one array is not zero
ENOUGH = 20_000  # numbers, to see whether they lie on a grid
GRID = 0.1  # share of different numbers among them below which they do
ROUNDED = 16  # times the last digit of the largest number
DENSE, OTHER = f"{LONG:g} clips long", "another one"
COMPARED = (DENSE, "0.5 clips long", "sparse", "one number")  # under two seeds
SHORT = ("0.2 clips long", "0.5 clips long", "0.9 clips long")


@dataclass(frozen=True, kw_only=True)
class Noise:
    """What was seen of the noise of one update, number by number."""

    first: Floats
    same: NDArray[np.bool_]  # under every seed
    zero: NDArray[np.bool_]  # under every seed
    sometimes: bool  # some number is zero under one seed and not under another
    shares: tuple[float, ...]  # of different numbers


class Tape:
    """Plays of one mechanism, compared without statistics."""

    def __init__(self, player: Player, promise: Promise) -> None:
        self.player, self.promise = player, promise
        self.updates = make_updates(player.given, promise.clip)
        self.base = "zero"  # what the others are compared with, where one is removed
        self.coupled = False
        self.additive = False
        self.discrete = False
        self.sometimes_zero = False
        self.moves: dict[str, Floats] = {}  # of the updates, where noise is added
        self.pairs = 0

    @property
    def after(self) -> str:
        """What comes after the noise, or takes its place; "" where nothing was seen."""
        if self.discrete:
            return "what is sent lies on a grid (rounded, or discrete noise)"
        if self.sometimes_zero:
            return "something after the noise makes exact zeros"
        if self.coupled and not self.additive:
            return "the noise that is left depends on the update, or something comes after it"
        return ""

    # 1 ----------------------------------------------------------------------------------------

    def ask_inputs(self) -> Iterator[Answer]:
        """Which updates it takes."""
        yield from self._try_inputs()
        if DENSE not in self.updates and (left := self.player.keep_decimals()):
            self.updates = make_updates(self.player.given, self.promise.clip)
            yield note(1, f"It is asked without {', '.join(left[:4])}, of whole numbers.")
            yield from self._try_inputs()
        if "zero" not in self.updates and "tiny" in self.updates:
            self.base = "tiny"

    def _try_inputs(self) -> Iterator[Answer]:
        raised: dict[str, list[str]] = {}
        said: dict[str, str] = {}
        for name, row in (self.updates | make_odd(self.player.given, self.promise.clip)).items():
            try:
                self.player.play([row], 1)
            except Crashed as reason:
                kind, *words = map(str, reason.args)
                raised.setdefault(kind, []).append(name)
                said.setdefault(kind, f" ({words[0]})" if words and words[0] else "")
                self.updates.pop(name, None)
        for kind, names in raised.items():
            shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            yield note(
                1, f"It raises {kind}{said[kind]} on: {shown}. Whether a call fails depends on the update."
            )

    # 2 ----------------------------------------------------------------------------------------

    def ask_freshness(self) -> Iterator[Answer]:
        """Whether there is noise, and whether it is new every time."""
        player, row = self.player, self.updates[DENSE]
        filters = FRESH // 2 if player.given.size > LARGE else FRESH
        free = [player.play_freely([row, row]) for _ in range(filters)]
        first, second = free[0]
        if all(np.array_equal(a, first) for pair in free for a in pair):
            if not player.play_freely([self.updates[self.base]])[0].any():
                why = "an update without numbers is sent without numbers: there is no noise"
            elif not np.array_equal(first, player.play_freely([row], clock=START)[0]):
                why = "on another day others are sent: the seed of the noise is the time"
            else:
                why = "there is no noise, its seed is fixed, or its seed is made of the update"
            yield refute(2, f"The same update was sent as the same bytes {2 * filters} times; {why}.")
        elif all(np.array_equal(a, b) for a, b in free):
            yield refute(2, "Two calls of one filter add the same noise: it is drawn once and kept.")
        elif all(np.array_equal(a, first) and np.array_equal(b, second) for a, b in free):
            yield refute(2, f"{filters} new filters draw the same noise: the seed is fixed as a filter is made.")
        else:
            held = [player.play_freely([row], clock=START)[0] for _ in range(filters)]
            if all(np.array_equal(a, held[0]) for a in held):
                yield refute(2, "While the clock stands still the noise is the same: its seed is the time.")
            else:
                yield find_nothing(2, f"The noise is new in {2 * filters} calls and {filters} filters.")
        one, again = (player.play([row, row], 1) for _ in range(2))
        self.coupled = all(map(np.array_equal, one, again))

    # 4 ----------------------------------------------------------------------------------------

    def look_at_noise(self) -> dict[str, Noise]:
        """The noise of some updates, number by number; also sees what comes after it."""
        chosen = [n for n in (self.base, DENSE, OTHER, *SHORT, "one number", "sparse") if n in self.updates]
        chosen += [n for n in self.updates if n.endswith(" alone")]
        large = self.player.given.size > LARGE
        found = {
            name: self._look(self.updates[name], FEW if large or name.endswith(" alone") else SEEDS)
            for name in chosen
        }
        assert self.player.sent is not None
        whole = all(t.kind in "iub" for t in self.player.sent.types.values())
        shares = [s for n in (DENSE, OTHER) if n in found for s in found[n].shares]
        self.sometimes_zero = any(found[n].sometimes for n in (self.base, DENSE, OTHER) if n in found)
        self.discrete = whole or (bool(shares) and min(shares) < GRID)
        return found

    def _look(self, row: Floats, seeds: int) -> Noise:
        first: Floats | None = None
        values, shown = [], []
        for seed in range(1, seeds + 1):
            sent = self.player.play([row], seed)[0]
            if first is None:
                first, same, zero, seen = sent, np.ones(sent.size, bool), sent == 0, sent == 0
            same &= sent == first
            zero &= sent == 0
            seen |= sent == 0
            values.append(sent[: max(1, ENOUGH // seeds)])
            shown = values
        assert first is not None
        changing = ~same[: len(shown[0])]
        numbers = np.concatenate([v[changing] for v in shown])
        numbers = numbers[numbers != 0]
        shares = (len(np.unique(numbers)) / len(numbers),) if len(numbers) else ()
        return Noise(first=first, same=same, zero=zero, sometimes=bool((seen & ~zero).any()), shares=shares)

    def ask_noise(self, noise: dict[str, Noise]) -> Iterator[Answer]:
        """Whether the noise follows the update."""
        if self.discrete:
            yield tell_nothing(4, "What is sent lies on a grid, so numbers that stay the same say nothing.")
            return
        found = [*self._find_silent(noise), *self._find_pattern(noise)]
        if not found and self.coupled:
            found = [*self._find_proportion()]
        yield from found or [
            find_nothing(4, f"Under {SEEDS} seeds every number of {plural(len(noise), 'update')} got new noise.")
        ]

    def _find_silent(self, noise: dict[str, Noise]) -> Iterator[Answer]:
        """Numbers that never change, for updates which are sent as different ones."""
        quiet = np.zeros(len(noise[DENSE].same), bool)
        rows = [n for name, n in noise.items() if not name.endswith(" alone")]
        stacked = np.stack([n.first for n in rows])
        still = np.stack([n.same for n in rows])
        for i in range(len(rows)):
            # the same under every seed for this update and for two others, each time another number
            others = [j for j in range(len(rows)) if j != i]
            differ = sum((still[j] & still[i] & (stacked[j] != stacked[i])).astype(int) for j in others)
            quiet |= np.asarray(differ) >= 2
        if quiet.any():
            at = self._name_numbers(quiet)
            yield refute(
                4,
                f"{plural(int(quiet.sum()), 'number')} of {len(quiet):,} are sent without noise: {at}.",
                numbers=float(quiet.sum()),
            )
            return
        silent = [name for name, n in noise.items() if n.same.all()]
        if silent and len(silent) < len(noise):
            yield refute(
                4,
                f"An update ({silent[0]}) is sent without noise, others with it: the noise follows the update.",
                updates=float(len(silent)),
            )

    def _find_pattern(self, noise: dict[str, Noise]) -> Iterator[Answer]:
        if self.sometimes_zero:
            return
        dense, other = noise[DENSE], noise.get(OTHER)
        if other is not None and dense.zero.any() and other.zero.any() and (dense.zero != other.zero).any():
            yield refute(
                4,
                f"Which {int((~dense.zero).sum()):,} of {dense.zero.size:,} numbers are sent depends on the "
                "update and on no noise.",
                sent=float((~dense.zero).sum()),
            )
            return
        parts = self.player.sent.parts if self.player.sent else {}
        for name, n in noise.items():
            quiet = [p for p, at in parts.items() if at.stop > at.start and n.same[at].all()]
            if quiet and not n.same.all() and not any(dense.same[parts[p]].all() for p in quiet):
                yield refute(
                    4,
                    f"For an update ({name}), {', '.join(quiet[:4])} has no noise, for others it has: "
                    "the noise follows the update.",
                    arrays=float(len(quiet)),
                )
                return

    def _find_proportion(self) -> Iterator[Answer]:
        """Noise of one shape and another size: exact under a pair of seeds."""
        from scipy import stats

        p = self.promise
        sizes: dict[str, float] = {}
        reference = self._noise_of(self.base)
        for name in (DENSE, OTHER, *SHORT):
            if name in self.updates and reference.any():
                own = self._noise_of(name)
                ratio = float(own @ reference / (reference @ reference))
                if np.abs(own - ratio * reference).max() <= 1e-4 * np.abs(own).max():
                    sizes[name] = ratio
        for name, ratio in sizes.items():
            if abs(ratio - 1) < 1e-3 or ratio <= 0:
                continue
            law = stats.chi2(len(reference))
            at = law.isf(np.logspace(-1, -12, 200))
            if ratio > 1:
                ours, theirs = law.sf(at / ratio**2), law.sf(at)
            else:
                at = law.ppf(np.logspace(-1, -12, 200))
                ours, theirs = law.cdf(at / ratio**2), law.cdf(at)
            least = float(np.max(np.log(np.maximum(ours - p.delta, 1e-300)) - np.log(np.maximum(theirs, 1e-300))))
            if least > p.epsilon:
                yield refute(
                    4,
                    f"An update ({name}) gets {number(ratio)} times the noise of another ({self.base}): its "
                    f"length alone shows at least epsilon {number(least)} if the noise is Gaussian, "
                    f"{p.epsilon:g} is claimed.",
                    ratio=ratio,
                    epsilon=least,
                )
                return

    def _noise_of(self, name: str) -> Floats:
        row = self.updates[name]
        return self.player.play([row], 1)[0] - self.player.play([row], 2)[0]

    def _name_numbers(self, which: NDArray[np.bool_]) -> str:
        assert self.player.sent is not None
        named = []
        for name, at in self.player.sent.parts.items():
            if count := int(which[at].sum()):
                whole = count == at.stop - at.start
                named.append(f"all of {name}" if whole else f"{count:,} of {name}")
        return ", ".join(named[:4]) + (f" and of {len(named) - 4} arrays more" if len(named) > 4 else "")

    # 3 ----------------------------------------------------------------------------------------

    def measure_moves(self) -> None:
        """How far every update moves what is sent, where noise is added to it."""
        if not self.coupled:
            return
        rounding = 0.0  # square of what rounding adds to the length of a difference
        bases = {seed: self.player.play([self.updates[self.base]], seed)[0] for seed in (1, 2)}
        for name in sorted((n for n in self.updates if n != self.base), key=lambda n: n not in COMPARED):
            self.pairs += 1
            one, most = self._differ(name, 1, bases)
            if name in COMPARED:
                two, _ = self._differ(name, 2, bases)
                unlike = float(np.abs(one - two).max())
                if unlike > most or not np.isfinite(unlike):
                    self.moves = {}
                    return
                rounding = max(rounding, float((one - two) @ (one - two)) / 2)
            length = float(np.linalg.norm(one))
            if length:
                self.moves[name] = one * math.sqrt(max(0.0, 1 - rounding / length**2))
        self.additive = bool(self.moves)

    def _differ(self, name: str, seed: int, bases: Mapping[int, Floats]) -> tuple[Floats, float]:
        """Of an update and its neighbour under one seed, and how much of a number of it may be rounding."""
        row, here = self.updates[name], self.player.play([self.updates[name]], seed)[0]
        there = bases[seed] if self.promise.neighbours == "remove" else self.player.play([-row], seed)[0]
        assert self.player.sent is not None
        digits = max((np.finfo(t).eps for t in self.player.sent.types.values() if t.kind == "f"), default=0.0)
        digits = max(digits, np.finfo(np.float32).eps)
        most = max(float(np.abs(here).max()), float(np.abs(there).max()), float(np.abs(row).max()))
        return here - there, ROUNDED * float(digits) * most

    def ask_moves(self, law: str, deviation: float) -> Iterator[Answer]:
        """Whether an update moves what is sent by more than the clip.

        A mechanism may send what it clipped in other units. So a longer move is refuted where the noise, of that
        standard deviation, does not cover it.
        """
        p = self.promise
        if not self.additive:
            how = "" if self.coupled else " (a generator of its own that no seed reaches)"
            yield tell_nothing(
                3, f"No difference of two plays is free of noise{how}: moves are known from means alone."
            )
        if not self.moves:
            return
        order = 1 if law == "laplace" else 2
        lengths = {name: float(np.linalg.norm(move, order)) for name, move in self.moves.items()}
        worst = max(lengths, key=lengths.__getitem__)
        most = lengths[worst]
        if most <= p.farthest * (1 + TOLERANCE):
            yield find_nothing(
                3,
                f"Of {plural(len(lengths), 'pair')}, none moves what is sent by more than {number(most)}; "
                f"{number(p.farthest)} is allowed.",
                move=most,
                allowed=p.farthest,
            )
            return
        ratio = most / p.farthest
        tell = refute if not p.delta or most > p.most_mu * deviation else note
        yield tell(
            3,
            f"An update ({worst}) moves what is sent by {number(most)}, {number(ratio)} times the "
            f"{number(p.farthest)} of the claim: {self._explain_move(self.moves[worst], ratio, lengths)}.",
            move=most,
            allowed=p.farthest,
            ratio=ratio,
        )

    def _explain_move(self, move: Floats, ratio: float, lengths: dict[str, float]) -> str:
        assert self.player.sent is not None
        parts, clip = self.player.sent.parts, self.promise.farthest
        far = [n for n, at in parts.items() if float(np.linalg.norm(move[at])) > 5 * clip]
        if not self.additive:
            return "by the means of many calls, at least"
        longest = [lengths.get(f"{n:g} clips long", 0.0) for n in (300.0, 3000.0)]
        if longest[1] > 5 * longest[0] > 0:
            near = len(far) < len(parts)
            return f"{', '.join(far[:4])} is not clipped" if near else "nothing is clipped"
        for times, words in (
            (math.sqrt(len(parts)), "each array is clipped by itself (the root of their number)"),
            (math.sqrt(len(move)), "each number is clipped by itself (the root of their number)"),
            (2.0, "twice the clip"),
        ):
            if times > 1 and abs(ratio / times - 1) < 0.02:
                return words
        return "its clip is another one"

    # 6 ----------------------------------------------------------------------------------------

    def ask_memory(self, deviation: float) -> Iterator[Answer]:
        """Whether an update moves what is sent in later calls."""
        if not (self.coupled and self.additive):
            yield tell_nothing(6, "Without a difference that is free of noise nothing is known of memory.")
            return
        p = self.promise
        worst, most = "", 0.0
        later = [self.updates[n] for n in (DENSE, SHORT[-1], self.base) if n in self.updates]
        if self.player.given.size > LARGE:
            later = later[:1]
        for name in ("3000 clips long", "0.5 clips long", "another one"):
            if name not in self.updates:
                continue
            row = self.updates[name]
            near = self.updates[self.base] if p.neighbours == "remove" else -row
            for after in later:
                rows: Sequence[Floats] = [after] * 3
                here, there = self.player.play([row, *rows], 3), self.player.play([near, *rows], 3)
                self.pairs += 1
                total = math.sqrt(sum(float(np.sum((a - b) ** 2)) for a, b in zip(here, there, strict=True)))
                moved = max(float(np.abs(a - b).max()) for a, b in zip(here[1:], there[1:], strict=True))
                largest = max(float(np.abs(a).max()) for a in (*here, row))
                if moved > 1e-4 * largest and total > most:
                    worst, most = name, total
        if most > max(p.farthest * (1 + TOLERANCE), p.most_mu * deviation):
            yield refute(
                6,
                f"An update ({worst}) moves what is sent in later calls too, by {number(most)} in all over four; "
                f"{number(p.farthest)} is allowed.",
                move=most,
                allowed=p.farthest,
            )
        elif most:
            yield note(
                6, f"An update moves what is sent in later calls, by {number(most)} in all over four.", move=most
            )
        else:
            yield find_nothing(
                6, "What is sent in the second to fourth call does not depend on the first update."
            )
