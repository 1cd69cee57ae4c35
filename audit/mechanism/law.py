"""Scale and law of the noise, from many calls on one update; every comparison has its error rate.

An array's deviation is at most what the chi-squared law leaves at LEVEL, so that "at least" holds if
the noise has the law that it looks like.
"""

import math
from collections.abc import Iterator

import numpy as np

from fedaudit.audit.mechanism.answers import (
    LEVEL,
    Answer,
    Outcome,
    Promise,
    find_nothing,
    note,
    refute,
    tell_nothing,
)
from fedaudit.audit.mechanism.bounds import bound_below
from fedaudit.audit.mechanism.sample import CHAIN, Sample
from fedaudit.audit.mechanism.tape import Tape
from fedaudit.audit.plays.mechanism import Floats
from fedaudit.reports.format import number, plural

FOR_LAW = 20_000  # for Kolmogorov's distance
REJECTED = 1e-5  # p-value below which a law is not that of the noise
LESS = 0.98  # of the variance that independent numbers would have, for numbers that are not
MOST_PAIRS = 20  # of arrays that are compared


class Law:
    """What a sample says of the noise."""

    def __init__(self, sample: Sample, tape: Tape, promise: Promise) -> None:
        self.sample, self.tape, self.promise = sample, tape, promise
        self.deviations = sample.deviations
        self.name = self._find_law()
        self.looks_gaussian = self.name == "gaussian" or self._looks_gaussian()
        self.correlated = self._is_correlated()
        self.mu = 0.0  # the largest move over deviation that was shown
        self.least = 0.0  # epsilon of all calls, if the noise has the law that it looks like

    @property
    def silent(self) -> str:
        """Why no law test may speak; "" where one may."""
        if self.tape.after:
            return self.tape.after
        if self.correlated:
            return "the noise of successive calls is correlated, as that of matrix mechanisms is"
        if not self.name:
            return "the noise is neither Gaussian nor Laplace"
        return ""

    def _find_law(self) -> str:
        from scipy import stats

        scaled = self._scale()
        values = scaled[np.isfinite(scaled)]
        if len(values) < 1000:
            return ""
        rng = np.random.default_rng(2)
        some = rng.choice(values, min(FOR_LAW, len(values)), replace=False)
        if stats.kstest(some, "norm").pvalue > REJECTED and self._has_tails(values):
            return "gaussian"
        return "laplace" if stats.kstest(some, stats.laplace(scale=math.sqrt(0.5)).cdf).pvalue > REJECTED else ""

    def _scale(self) -> Floats:
        """What was kept, over the deviation of its array and place; not finite where there is no noise."""
        s = self.sample
        scale = np.empty_like(s.kept)
        for a, at in enumerate(s.columns.values()):
            scale[:, at] = np.tile(self.deviations[:, a], s.filters)[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            return s.kept / scale * math.sqrt(s.filters / (s.filters - 1))  # its mean was taken away

    def _looks_gaussian(self) -> bool:
        """By one number of each call alone, so that numbers which depend on each other do not count twice."""
        from scipy import stats

        scaled = self._scale()
        rows = np.arange(len(scaled))
        some = scaled[rows, np.random.default_rng(4).integers(scaled.shape[1], size=len(rows))]
        some = some[np.isfinite(some)]
        return len(some) > 100 and float(stats.kstest(some, "norm").pvalue) > REJECTED

    def _has_tails(self, values: Floats) -> bool:
        """Whether as many numbers are far out as of Gaussian noise."""
        from scipy import stats

        for far in (2.5, 3.5, 4.5):
            chance = 2 * float(stats.norm.sf(far))
            if chance * len(values) > 20:
                count = int((np.abs(values) > far).sum())
                if stats.poisson.cdf(count, chance * len(values)) < REJECTED:
                    return False
                if stats.poisson.sf(count - 1, 1.02 * chance * len(values)) < REJECTED:
                    return False
        return True

    def _is_correlated(self) -> bool:
        from scipy import stats

        rows = self.sample.kept.reshape(self.sample.filters, CHAIN, -1)
        # one product a filter: numbers of one call may depend on each other
        products = (rows[:, :-1] * rows[:, 1:]).sum((1, 2))
        error = float(products.std(ddof=1)) / math.sqrt(len(products))
        return abs(float(products.mean())) > float(stats.t.isf(REJECTED / 2, len(products) - 1)) * error > 0

    @property
    def deviation(self) -> float:
        """The largest of any array, at most: what it does not cover, no array covers."""
        from scipy import stats

        s = self.sample
        return float(np.sqrt(s.squares.sum(0) / stats.chi2.ppf(LEVEL, CHAIN * s.counts * (s.filters - 1))).max())

    def measure_means(self) -> None:
        """Moves by means of many calls, at least, where no difference of two plays is free of noise."""
        from scipy import stats

        tape, s = self.tape, self.sample
        base, size = tape.updates[tape.base], tape.player.given.size
        assert tape.player.sent is not None
        if tape.moves or tape.player.sent.size != size:
            return
        calls = min(1_000, len(s.kept))
        for name in ("3000 clips long", "one number"):
            if name not in tape.updates:
                continue
            row = tape.updates[name]
            near = base if self.promise.neighbours == "remove" else -row
            unit = row / float(np.linalg.norm(row))
            here, there = (
                np.array([unit @ tape.player.play([r], 10_000 + i)[0] for i in range(calls)]) for r in (row, near)
            )
            tape.pairs += 1
            error = math.sqrt((here.var(ddof=1) + there.var(ddof=1)) / calls)
            least = float(here.mean() - there.mean()) - float(stats.t.isf(LEVEL, calls - 1)) * error
            if least > 0:
                tape.moves[name] = least * unit

    # the questions ----------------------------------------------------------------------------

    def ask(self) -> Iterator[Answer]:
        """Question 5."""
        s, p = self.sample, self.promise
        if s.repeated and not self.tape.discrete:
            share = s.repeated / len(s.kept)
            yield refute(
                4,
                f"{plural(s.repeated, 'call')} of {len(s.kept):,} sent the same bytes as another: some "
                "calls add no noise.",
                share=share,
            )
        if self.silent:
            yield tell_nothing(5, f"Scale and law are not judged: {self.silent}.")
            if not self.tape.after and not self.correlated and self.tape.additive:
                yield from [*self._ask_directions()] or self._ask_by_number()
            return
        if self.name == "gaussian" and not p.delta:
            yield refute(5, "The noise is Gaussian, which has no finite epsilon at delta 0.")
            return
        for ask in (self._ask_scale, self._ask_directions, self._ask_by_number):
            found = [*ask()]
            yield from found
            if not self.tape.additive or any(a.outcome == Outcome.REFUTED for a in found):
                return

    def _ask_scale(self) -> Iterator[Answer]:
        from scipy import stats

        s, p = self.sample, self.promise
        degrees = s.counts * (s.filters - 1)
        if self.name == "laplace":
            yield from self._ask_laplace()
            return
        arrays = len(s.counts)
        # an array over all places, and at each of them
        whole = np.sqrt(s.squares.sum(0) / stats.chi2.ppf(LEVEL / arrays / 2, CHAIN * degrees))
        places = np.sqrt(s.squares / stats.chi2.ppf(LEVEL / arrays / CHAIN / 2, degrees))
        moves = self._list_moves()
        best, name, where, length = 0.0, "", "", 0.0
        for update, by_array in moves.items():
            for place, high in (
                ("", whole),
                *((f" in call {t + 1} of a filter", row) for t, row in enumerate(places)),
            ):
                noised = high > 0  # arrays without noise are question 4
                mu = math.sqrt(float(np.sum(by_array[noised] ** 2 / high[noised] ** 2)))
                if mu > best:
                    best, name, where, length = mu, update, place, float(np.linalg.norm(by_array))
        self.mu = best
        self.least = p.cost(best) if best else 0.0
        seen = length / best if best else 0.0
        needed = p.farthest / p.most_mu
        numbers = {"deviation": seen, "needed": needed, "epsilon": self.least, "calls": float(len(s.kept))}
        over = "one call costs" if p.rounds == 1 else f"{p.rounds:,} calls cost"
        if best <= p.most_mu:
            yield find_nothing(
                5,
                f"If the noise is Gaussian, as it looks over {len(s.kept):,} calls, {over} at least epsilon "
                f"{number(self.least)}; {p.epsilon:g} is claimed.",
                **numbers,
            )
            return
        yield refute(
            5,
            f"An update ({name}) moves what is sent by {number(length)} and the deviation{where} is at most "
            f"{number(seen)}; the claim needs {number(length / p.most_mu)}"
            f"{self._explain_ratio(best / p.most_mu)}. If the noise is Gaussian, as it looks, {over} at "
            f"least epsilon {number(self.least)}; {p.epsilon:g} is claimed.",
            **numbers,
        )

    def _list_moves(self) -> dict[str, Floats]:
        """Update -> how far it moves each array."""
        assert self.tape.player.sent is not None
        parts = [at for at in self.tape.player.sent.parts.values() if at.stop > at.start]
        return {
            name: np.array([float(np.linalg.norm(move[at])) for at in parts])
            for name, move in self.tape.moves.items()
        }

    def _explain_ratio(self, ratio: float) -> str:
        p, s = self.promise, self.sample
        sigma = p.farthest / p.most_mu
        known = (
            (math.sqrt(s.counts.sum()), "the root of the number of numbers"),
            (math.sqrt(len(s.counts)), "the root of the number of arrays"),
            (1 / sigma, "the variance in place of the deviation"),
            (2.0, "half, as where a replaced update is counted as a removed one"),
            (math.sqrt(10), "a share of ten"),
        )
        fits = [words for times, words in known if times > 1.05 and abs(ratio / times - 1) < 0.02]
        return f" ({number(ratio)} times as much{': ' if fits else ''}{' or '.join(fits)})"

    def _ask_laplace(self) -> Iterator[Answer]:
        s, p = self.sample, self.promise
        from scipy import stats

        numbers = s.counts * (s.filters - 1) * CHAIN
        # the variance of a square is 5 times that of its mean squared
        sure = float(stats.norm.isf(LEVEL / len(s.counts)))
        scale = np.sqrt(s.squares.sum(0) / numbers / 2) * (1 + sure * np.sqrt(5 / numbers) / 2)
        assert self.tape.player.sent is not None
        parts = [at for at in self.tape.player.sent.parts.values() if at.stop > at.start]
        costs = {
            name: float(sum(np.abs(move[at]).sum() / b for at, b in zip(parts, scale, strict=True)))
            for name, move in self.tape.moves.items()
        }
        if not costs:
            yield tell_nothing(
                5, "The noise looks like Laplace noise; no move is known to hold its scale against."
            )
            return
        worst = max(costs, key=costs.__getitem__)
        self.least = max(0.0, p.rounds * costs[worst] + (2 * math.log1p(-p.delta) if p.rounds == 1 else 0.0))
        if p.rounds > 1 and p.delta:
            yield note(5, "Several calls of Laplace noise are judged by one.")
            self.least = max(0.0, costs[worst] + 2 * math.log1p(-p.delta))
        tell = refute if self.least > p.epsilon else find_nothing
        yield tell(
            5,
            f"If the noise is Laplace noise, as it looks over {len(s.kept):,} calls, an update ({worst}) "
            f"costs at least epsilon {number(self.least)}; {p.epsilon:g} is claimed.",
            epsilon=self.least,
        )

    def _ask_directions(self) -> Iterator[Answer]:
        """Whether in some direction the noise is less than that of one number, and an update moves it."""
        if not (self.looks_gaussian and self.promise.delta and self.tape.additive):
            return
        from scipy import stats

        s, p = self.sample, self.promise
        names = list(s.columns)
        compared = 0
        # name, squares summed, degrees, direction, the variance that independent numbers would have
        wanted: list[tuple[str, float, float, Floats, float]] = []
        variances = s.squares.sum(0) / (s.counts * (s.filters - 1) * CHAIN)
        assert self.tape.player.sent is not None
        parts = self.tape.player.sent.parts
        size = self.tape.player.sent.size
        free = s.filters * CHAIN - CHAIN
        for a, name in enumerate(names):
            if not variances[a]:  # which is question 4
                continue
            own = s.kept[:, s.columns[name]]
            at = parts[name]
            unit = np.zeros(size)
            unit[at] = 1 / math.sqrt(at.stop - at.start)
            values = s.means[:, a] * math.sqrt(s.counts[a])
            wanted.append((f"the mean of {name}", float(values @ values), free, unit, variances[a]))
            pairs = own.shape[1] // 2
            if pairs:
                apart = (own[:, : 2 * pairs : 2] - own[:, 1 : 2 * pairs : 2]) / math.sqrt(2)
                unit = np.zeros(size)
                unit[at.start], unit[at.start + 1] = 1 / math.sqrt(2), -1 / math.sqrt(2)
                wanted.append(
                    (f"neighbouring numbers of {name}", float((apart**2).sum()), free * pairs, unit, variances[a])
                )
            for b, other in enumerate(names[a + 1 :], a + 1):
                theirs = s.kept[:, s.columns[other]]
                few = min(own.shape[1], theirs.shape[1])
                if compared < MOST_PAIRS and variances[b]:
                    compared += 1
                    for sign, word in ((-1, "differences"), (1, "sums")):
                        both = (own[:, :few] + sign * theirs[:, :few]) / math.sqrt(2)
                        unit = np.zeros(size)
                        unit[at.start], unit[parts[other].start] = 1 / math.sqrt(2), sign / math.sqrt(2)
                        alone = (variances[a] + variances[b]) / 2
                        wanted.append(
                            (f"{word} of {name} and {other}", float((both**2).sum()), free * few, unit, alone)
                        )
        whole = s.means @ s.counts / math.sqrt(s.counts.sum())
        alone = float(variances @ s.counts / s.counts.sum())
        wanted.append(("the mean of all numbers", float(whole @ whole), free, np.full(size, size**-0.5), alone))
        worst, text = 0.0, ""
        for name, squares, degrees, unit, variance in wanted:
            high = math.sqrt(squares / float(stats.chi2.ppf(LEVEL / len(wanted), degrees)))
            if high * p.most_mu >= p.farthest or high**2 > LESS * variance:  # the longest move would be covered
                continue
            move = self._move_along(unit)
            mu = move / high if high else (math.inf if move else 0.0)
            if mu > worst:
                worst, text = (
                    mu,
                    f"along {name} an update moves it by {number(move)} and the deviation is {number(high)}",
                )
        if worst > p.most_mu:
            self.least = max(self.least, p.cost(worst))
            yield refute(
                5,
                f"The noise of different numbers is not independent: {text}, which shows at least epsilon "
                f"{number(p.cost(worst))}; {p.epsilon:g} is claimed.",
                epsilon=p.cost(worst),
            )
        elif self.name:
            yield find_nothing(
                5, f"In {plural(len(wanted), 'direction')} the noise is as much as that of single numbers."
            )

    def _move_along(self, unit: Floats) -> float:
        """How far an update along a direction moves what is sent, along it."""
        player, p = self.tape.player, self.promise
        if player.given.size != unit.size:
            return 0.0
        row = 30 * p.clip * unit
        near = self.tape.updates[self.tape.base] if p.neighbours == "remove" else -row
        self.tape.pairs += 1
        return abs(float(unit @ (player.play([row], 5)[0] - player.play([near], 5)[0])))

    def _ask_by_number(self) -> Iterator[Answer]:
        """Whatever its law: one number that an update moves, taken over all numbers of its array."""
        s, p = self.sample, self.promise
        move = self.tape.moves.get("one number")
        if move is None or np.abs(move).max() < 0.99 * float(np.linalg.norm(move)):
            return
        assert self.tape.player.sent is not None
        where = int(np.abs(move).argmax())
        name = next(n for n, at in self.tape.player.sent.parts.items() if at.start <= where < at.stop)
        far = abs(float(move[where]))
        values = s.kept[:, s.columns[name]]
        learn, test = values[::2], values[1::2]
        cuts = [
            (way, float(at)) for way in (1, -1) for at in np.quantile(way * learn, np.linspace(0.02, 0.999, 40))
        ]
        sign, cut = max(cuts, key=lambda c: _bound(c[0] * learn, c[1], far, p.delta))
        least = _bound(sign * test, cut, far, p.delta)
        if least > p.epsilon:
            yield refute(
                5,
                f"One number that an update moves by {number(far)} shows at least epsilon {number(least)}, "
                f"whatever law the noise of a number has ({len(test):,} calls); {p.epsilon:g} is claimed.",
                epsilon=least,
            )


def _bound(values: Floats, cut: float, far: float, delta: float) -> float:
    """epsilon at least by `values` [calls, numbers] above `cut`, with and without being moved by `far`.

    Numbers of one call count for fewer trials where they are above a cut together.
    """
    shares = [(values > at).mean(1) for at in (cut - far, cut, 0.0, float(values.std()))]
    means = [float(s.mean()) for s in shares]
    spread = [
        float(s.var()) * values.shape[1] / (mean * (1 - mean))
        for s, mean in zip(shares, means, strict=True)
        if 0 < mean < 1
    ]
    trials = int(values.size / max([1.0, *spread]))
    return bound_below(math.floor(means[0] * trials), trials, math.ceil(means[1] * trials), trials, delta)
