"""Plays somebody's mechanism as a black box and holds it against what is claimed of it."""

import html
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedaudit.audit.claims.claim import Claim
from fedaudit.audit.claims.claim import Promise as ClaimPromise
from fedaudit.audit.mechanism.answers import Answer, Neighbours, Outcome, Promise
from fedaudit.audit.mechanism.game import Game
from fedaudit.audit.mechanism.law import Law
from fedaudit.audit.mechanism.sample import draw_sample
from fedaudit.audit.mechanism.tape import DENSE, Tape
from fedaudit.audit.plays.mechanism import Filter, Player, Update
from fedaudit.fl.ledger import Adjacency
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.format import number
from fedaudit.reports.result import ClaimOutcome

QUESTIONS = {
    1: "Does it run?",
    2: "Is there noise, and is it new every time?",
    3: "How far does an update move what is sent?",
    4: "Does the noise follow the update?",
    5: "Is it enough noise, and of which law?",
    6: "Does it remember?",
    7: "Can two updates be told apart?",
}


@dataclass(frozen=True, kw_only=True)
class MechanismCheck:
    """What was found of one mechanism; a notebook shows it as a table.

    Attributes:
        promise: What is claimed.
        outcome: refuted; no counterexample, among `pairs`; or cannot tell. Never that it is right.
        answers: By question, each with its sentence and its numbers.
        verdict: Of the claim, as `fedaudit dp claims` gives it; "" where no law of the noise is known.
        pairs, calls: Pairs of neighbouring updates that were compared, and calls of the mechanism.
        by_law, by_game: epsilon at least, if the noise has the law that it looks like; and whatever its law.
    """

    promise: Promise
    outcome: Outcome
    answers: tuple[Answer, ...]
    verdict: str
    pairs: int
    calls: int
    by_law: float
    by_game: float

    @property
    def reason(self) -> str:
        """What refutes it, or why nothing can be told, and how much was compared."""
        if refuted := [a for a in self.answers if a.outcome == Outcome.REFUTED]:
            return refuted[0].sentence
        nothing = f"No counterexample among {self.pairs:,} pairs."
        if self.outcome == Outcome.UNTOLD:
            why = next(a.sentence for a in self.answers if a.outcome == Outcome.UNTOLD and a.question == 5)
            return f"{why} {nothing}"
        return nothing

    @property
    def sentence(self) -> str:
        """The answer in one line."""
        words = {Outcome.REFUTED: "Refuted: ", Outcome.UNTOLD: "Cannot tell: ", Outcome.NOTHING: ""}
        return f"{words[self.outcome]}{self.reason}"

    def to_dicts(self) -> list[dict[str, Any]]:
        """One dictionary an answer."""
        return [
            {
                "question": a.question,
                "asked": QUESTIONS[a.question],
                "outcome": a.outcome.value if a.outcome else "note",
                "sentence": a.sentence,
                "numbers": dict(a.numbers),
            }
            for a in self.answers
        ]

    def to_record(self) -> dict[str, Any]:
        """All of it, as JSON takes it."""
        return {
            "outcome": self.outcome.value,
            "sentence": self.sentence,
            "claim": self.verdict,
            "epsilon_by_law": _finite(self.by_law),
            "epsilon_by_game": _finite(self.by_game),
            "pairs": self.pairs,
            "calls": self.calls,
            "answers": [
                row | {"numbers": {name: _finite(value) for name, value in row["numbers"].items()}}
                for row in self.to_dicts()
            ],
        }

    def __str__(self) -> str:
        lines = [self.sentence]
        lines += [f"{d['question']} {d['asked']} {d['outcome']}: {d['sentence']}" for d in self.to_dicts()]
        return "\n".join([*lines, *([f"The claim: {self.verdict}"] if self.verdict else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{d['question']}. {html.escape(d['asked'])}</td><td>{d['outcome']}</td>"
            f"<td>{html.escape(d['sentence'])}</td></tr>"
            for d in self.to_dicts()
        )
        verdict = f"<p>The claim: {html.escape(self.verdict)}</p>" if self.verdict else ""
        return f"<p><b>{html.escape(self.sentence)}</b></p><table>{rows}</table>{verdict}"


def check_mechanism(
    make: Callable[[], Filter],
    like: Update,
    *,
    clip: float,
    epsilon: float,
    delta: float = 1e-5,
    neighbours: Neighbours = "remove",
    rounds: int = 1,
) -> MechanismCheck:
    """Play a mechanism of differential privacy as a black box, and look for what contradicts its claim.

    Every usual source of randomness is seeded, so that two updates are played with the same noise and their
    difference has none in it. All sentences together accuse a right mechanism in at most 1 of 200 checks. It runs
    in this process; `fedaudit tools mechanism` runs a filter of somebody else in the box.

    Args:
        make: Builds a new filter: a function of one update {name: array} that gives what is sent, {name: array}.
        like: One update, of which names, shapes and types are taken.
        clip: Norm that an update is clipped to, of the order that the noise asks for (Laplace: sum of sizes).
        epsilon: Claimed, above 0, of all `rounds` calls together.
        delta: Claimed, 0 or above, below 1.
        neighbours: "remove", an update against one of zeros, or "replace", against any other.
        rounds: Calls of one filter that the claim is about.

    Raises:
        UserError: For values out of range, and for a filter that takes no update at all.

    Examples:
        >>> import numpy as np
        >>> import fedaudit as fa
        >>> def make():
        ...     return lambda update: {k: v + np.random.normal(0, 1, v.shape) for k, v in update.items()}
        >>> found = fa.check_mechanism(make, {"w": np.zeros(100)}, clip=1.0, epsilon=8.0)
        >>> found.outcome.value
        'refuted'
    """
    promise = Promise(clip=clip, epsilon=epsilon, delta=delta, neighbours=neighbours, rounds=rounds)
    return play_questions(Player(make, like), promise)


def play_questions(player: Player, promise: Promise) -> MechanismCheck:
    """Ask the seven questions in their order; where there is no noise, the first two."""
    with player:
        tape = Tape(player, promise)
        answers = [*tape.ask_inputs()]
        if DENSE not in tape.updates or tape.base not in tape.updates:
            raise UserError(
                f"the filter takes no update like the one given: {answers[0].sentence if answers else ''}",
                hint="make() gives a function of {name: array} that gives {name: array}",
            )
        fresh = [*tape.ask_freshness()]
        answers += fresh
        law = game = None
        if not _is_refuted(fresh):
            law, game = _ask_further(tape, promise, answers)
    answers.sort(key=lambda a: a.question)
    return MechanismCheck(
        promise=promise,
        outcome=_conclude(answers),
        answers=tuple(answers),
        verdict=_judge(law, promise) if law else "",
        pairs=tape.pairs,
        calls=player.calls,
        by_law=law.least if law else 0.0,
        by_game=game.least if game else 0.0,
    )


def _ask_further(tape: Tape, promise: Promise, answers: list[Answer]) -> tuple[Law, Game]:
    """Questions 3 to 7, where there is noise."""
    noise = tape.look_at_noise()
    answers += tape.ask_noise(noise)
    del noise
    tape.measure_moves()
    law = Law(draw_sample(tape.player, tape.updates[tape.base]), tape, promise)
    law.measure_means()
    answers += law.ask()
    answers += tape.ask_moves(law.name, law.deviation)
    answers += tape.ask_memory(law.deviation)
    game = Game(tape, promise)
    answers += game.ask()
    return law, game


def _finite(value: float) -> float | str:
    return value if math.isfinite(value) else "infinite"


def _is_refuted(answers: list[Answer]) -> bool:
    return any(a.outcome == Outcome.REFUTED for a in answers)


def _conclude(answers: list[Answer]) -> Outcome:
    if _is_refuted(answers):
        return Outcome.REFUTED
    untold = any(a.outcome == Outcome.UNTOLD and a.question == 5 for a in answers)
    return Outcome.UNTOLD if untold else Outcome.NOTHING


def _judge(law: Law, promise: Promise) -> str:
    """What `dp claims` says of the claim with the noise and the move that were measured."""
    if law.silent or not law.mu or law.name != "gaussian":
        return ""
    from fedaudit.audit.claims.scores import rescore
    from fedaudit.audit.claims.setting import Setting

    adjacency: Adjacency = "zero_out" if promise.neighbours == "remove" else "replace_one"
    claim = Claim(
        id="mechanism",
        title="A mechanism, measured",
        source="fedaudit tools mechanism",
        words=f"epsilon {promise.epsilon:g} at delta {promise.delta:g}",
        promise=ClaimPromise(epsilon=promise.epsilon, delta=promise.delta),
        mechanism="gaussian",
        adjacency=adjacency,
        composes=promise.rounds > 1,
        releases={f"{promise.rounds} calls": promise.rounds},
        settings=(
            Setting(name="What is claimed", role="claimed", noise=None),
            Setting(
                name="The noise and the move that were measured",
                role="measured",
                noise=1.0,
                sensitivity=law.mu,  # over a deviation of 1
                adjacency=adjacency,
                releases=promise.rounds,
            ),
        ),
    )
    found = rescore(claim)
    if found.outcome == ClaimOutcome.REFUTED:
        return found.verdict
    least = number(law.least)
    return f"Cannot be decided: a measurement shows at least {least}, and no measurement shows an upper bound."
