"""Shortage: how often too few clients will be heard for the server's rule, before anything trains.

Availability, lost replies and failures are drawn as a run draws them, over its rounds, many times over with
streams of their own: who answers may depend on the round. A method that chooses among those who answer, or that
makes several models, gives a rule fewer uploads than this.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.case import Split
from fedaudit.audit.robustness.plan import label_of, list_all_rules
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.federation import FederationSettings
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.fl.aggregation.aggregator import Aggregator, RowRule
from fedaudit.fl.clients.failures import RandomFaults, turn
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams

ROUNDS = 4000  # of all runs together; a probability of 1/2 is met to 2.4 points in 99.8 % of the cases
LEAST = 0.001  # rarer than once in a thousand rounds goes unsaid

WORDS = {"skip": "are skipped", "median": "take the median", "stop": "end the run"}


def estimate_shortage(rule: RowRule, heard: Sequence[int]) -> float:
    """The share of rounds, of those in which somebody is heard, in which the rule has too few uploads."""
    counts, times = np.unique([n for n in heard if n], return_counts=True)
    short = sum(int(t) for n, t in zip(counts, times, strict=True) if rule.needs(int(n)) > n)
    return short / max(1, int(times.sum()))


@dataclass(frozen=True)
class Shortage:
    """Warnings of rounds with too few clients for a rule, in one federation."""

    federation: FederationSettings
    examples: Split
    count: Callable[[], NDArray[np.int64]]  # examples of each class at each client
    streams: Streams
    rounds: int  # of a run
    is_choosing: bool = False  # the method chooses among those who answer

    @cached_property
    def members(self) -> frozenset[int]:
        """Clients that hold data."""
        return frozenset(k for k in range(self.federation.clients) if len(self.examples.parts[k]))

    def draw_heard(self, availability: Availability) -> Sequence[int]:
        """How many clients are heard in each of many rounds."""
        federation, heard = self.federation, []
        availability = availability.among(self.count)
        for number in range(ROUNDS):
            run, t = divmod(number, self.rounds)
            streams = Streams(self.streams.key("shortage", run))
            answering: list[int] = []
            for attempt in range(1 if federation.empty_round == "skip" else 1000):
                drawn = availability.draw(t, range(federation.clients), streams, attempt)
                answering = [k for k in drawn.answering if k in self.members]
                if answering:
                    break
            if federation.failures.any:
                faults = RandomFaults(federation.failures, streams, t)
                answering = [k for k in answering if turn(k, federation.failures, faults).heard]
            if federation.failures.reply_loss:
                lost = streams.numpy("reply_loss", t).random(len(answering)) < federation.failures.reply_loss
                answering = [k for k, is_lost in zip(answering, lost, strict=True) if not is_lost]
            heard.append(len(answering))
        return heard

    def warn_of_rule(self, name: str, rule: Aggregator, availability: Availability) -> Iterator[str]:
        """A sentence if the rule will lack clients; raises UserError where it always will."""
        if isinstance(rule, RowRule) and _count(rule) > 1:
            rule.check_clients(len(self.members))
            yield from self._warn({name: rule}, self.draw_heard(availability))

    def warn_of_matrix(self, matrix: Matrix, availability: Availability) -> Iterator[str]:
        """A sentence for each rule of a matrix that will lack clients."""
        made = {k: r.build() for k, r in list_all_rules(matrix, self.federation.clients).items()}
        rules = {k: r for k, r in made.items() if isinstance(r, RowRule) and _count(r) > 1}
        for label, answers in _list_availabilities(matrix, availability).items() if rules else ():
            yield from self._warn(rules, self.draw_heard(answers), label)

    def _warn(self, rules: Mapping[str, RowRule], heard: Sequence[int], label: str = "") -> Iterator[str]:
        least = "at least " if self.is_choosing else ""
        for name, rule in rules.items():
            if (share := estimate_shortage(rule, heard)) < LEAST:
                continue
            too_few = getattr(rule.config, "too_few", "skip")
            yield (
                f"{name} has too few clients with a probability of {least}{100 * share:.1f} % in a round{label} "
                f"({_count(rule)} are needed, {np.mean(heard):.1f} of {len(self.members)} are heard on average); "
                f"such rounds {WORDS[too_few]} (too_few: {too_few})"
            )


def _count(rule: RowRule) -> int:
    """The fewest uploads with which the rule works at all."""
    return next((n for n in range(1, 1000) if rule.needs(n) <= n), 1000)


def _list_availabilities(matrix: Matrix, availability: Availability) -> dict[str, Availability]:
    """Who answers in the runs of a matrix, by words that follow a sentence."""
    if not matrix.availabilities:
        return {"": availability}
    return {
        f" of {label_of(s)}": configure(catalog.load("availability", s.name), s.settings, "matrix.availabilities")
        for s in matrix.availabilities
    }
