"""Planner: the least noise that keeps a budget over some rounds, for those who see who takes part
and for those who do not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from fedaudit.audit.accounting.accountants import pld, wor_pld
from fedaudit.audit.accounting.accountants.exact import closed_form
from fedaudit.audit.accounting.child import Exceeded, call
from fedaudit.audit.accounting.terms import Term, merged
from fedaudit.fl.ledger import Sampling
from fedaudit.fl.runtime.errors import UserError

How = Literal["poisson", "fixed"]
SAMPLING: dict[How, Sampling] = {"poisson": "poisson", "fixed": "fixed_without_replacement"}
SECONDS, GIGABYTES = 300.0, 8.0
PRECISION = 1e-4  # relative, of the multiplier; the answer is rounded towards more noise
GRID = 1e-4  # of losses, relative to the budget; never downwards
RANGE = (1e-3, 1e7)


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to plan for. Clients are the unit; each takes part with probability `rate` in a round."""

    epsilon: float
    delta: float = 1e-5
    rounds: int = 100
    rate: float = 1.0
    how: How = "poisson"
    per_round: int = 1  # noised releases of one client in a round: a model, prototypes, ...
    replace: bool = False  # replace-one instead of add-or-remove; always so for a fixed number

    def __post_init__(self) -> None:
        for name, good, what in (
            ("epsilon", 0 < self.epsilon < math.inf, "> 0"),
            ("delta", 0 < self.delta < 1, "between 0 and 1"),
            ("rounds", self.rounds >= 1, ">= 1"),
            ("rate", 0 < self.rate <= 1, "above 0 and at most 1"),
            ("per_round", self.per_round >= 1, ">= 1"),
        ):
            if not good:
                raise UserError(
                    f"--{name.replace('_', '-')} must be {what}, got {getattr(self, name)}",
                    hint="fedaudit budget --epsilon 8 --rounds 200 --rate 0.1",
                )

    @property
    def doubled(self) -> bool:
        return self.replace or (self.rate < 1 and self.how == "fixed")


class Answer(NamedTuple):
    observer: str
    counted: str  # what is added up, in words
    noise: float  # standard deviation / clip norm
    curve: dict[int, float]  # rounds -> epsilon at that noise
    engine: str


def answers(question: Question) -> list[Answer]:
    """For each kind of observer the noise, relative to the clip, that keeps the budget."""
    everyone = _closed(
        question,
        question.rounds,
        "whoever sees who takes part (the server), at worst",
        f"a client that takes part in all {question.rounds:,} rounds",
    )
    if question.rate == 1:
        return [everyone._replace(observer="everyone")]
    mean = max(1, round(question.rate * question.rounds))
    usual = _closed(
        question,
        mean,
        "the same, for a usual client",
        f"a client that takes part in {mean:,} rounds, the average",
    )
    return [everyone, usual, _hidden(question)]


def _points(rounds: int) -> list[int]:
    return sorted({max(1, round(rounds * share / 8)) for share in range(1, 9)})


def _closed(question: Question, takes_part: int, observer: str, counted: str) -> Answer:
    import dp_accounting

    count = takes_part * question.per_round
    one = float(dp_accounting.get_sigma_gaussian(question.epsilon, question.delta))
    z = _up(one * math.sqrt(count))
    share = takes_part / question.rounds
    curve = {
        r: closed_form(
            merged({Term("gaussian", z, "none", 1.0): max(1, round(share * r)) * question.per_round}),
            question.delta,
        )
        for r in _points(question.rounds)
    }
    return Answer(observer, counted, z * (2 if question.doubled else 1), curve, "exact")


def _hidden(question: Question) -> Answer:
    """Amplified by sampling. Poisson amplification needs add-or-remove neighbours."""
    if question.replace and question.how == "poisson":
        raise UserError(
            "Poisson sampling is credited for add-or-remove neighbours only",
            hint="leave out --replace, or use --sampling fixed",
        )
    try:
        z, curve = call(search, SECONDS, GIGABYTES, question)
    except Exceeded as reason:
        raise UserError(
            f"no answer for those who do not see who takes part: {reason}",
            hint="ask for a smaller epsilon or fewer rounds",
        ) from None
    drawn = "on coins of their own" if question.how == "poisson" else "in a fixed number"
    return Answer(
        "whoever cannot see who takes part (public, other clients)",
        f"all {question.rounds:,} rounds, clients drawn {drawn} with probability {question.rate:g}",
        z * (2 if question.doubled else 1),
        curve,
        "PLD" if question.how == "poisson" else "WOR-PLD",
    )


def search(question: Question) -> tuple[float, dict[int, float]]:
    """The multiplier and the curve; runs in a child."""
    # the curve composes one distribution several times
    of = lru_cache(maxsize=1)(pld.distribution if question.how == "poisson" else wor_pld.distribution)
    step = max(pld.FINEST, GRID * question.epsilon)

    def spent(z: float, rounds: int) -> float:
        # what one round releases shares the round's draw: one release of less noise
        term = Term("gaussian", z / math.sqrt(question.per_round), SAMPLING[question.how], question.rate)
        return pld.on_grid({term: rounds}, question.delta, step, of)

    z = _up(_least(lambda z: spent(z, question.rounds), question.epsilon))
    return z, {r: spent(z, r) for r in _points(question.rounds)}


def _least(cost: Callable[[float], float], most: float) -> float:
    """The least multiplier that costs at most so much, to PRECISION and never less.

    Logarithms of cost and multiplier are nearly on a line, so Brent's method needs few costs, each of which
    composes all rounds. The bracket is widened from 1 first.
    """
    from scipy.optimize import brentq

    known: dict[float, float] = {}

    def over(log_z: float) -> float:
        if log_z not in known:
            known[log_z] = math.log(max(cost(math.exp(log_z)), 1e-300) / most)
        return known[log_z]

    low = high = 0.0
    while over(high) > 0 and math.exp(high) < RANGE[1]:
        low, high = high, high + math.log(2)
    while over(low) <= 0 and math.exp(low) > RANGE[0]:
        low, high = low - math.log(2), low
    found = float(brentq(over, low, high, xtol=PRECISION / 4)) if over(low) > 0 >= over(high) else high
    enough = [log_z for log_z, excess in known.items() if excess <= 0 and log_z <= found + PRECISION]
    return math.exp(min(enough, default=found + PRECISION / 2))


def _up(z: float) -> float:
    """More noise, in the fourth digit."""
    scale = 10.0 ** (3 - math.floor(math.log10(z)))
    return math.ceil(z * scale - 1e-9) / scale
