"""Shortage: how often too few clients will be heard for the server's rule, before anything trains.

Availability, lost replies and failures are drawn as a run draws them, over many rounds of streams of their own.
A method that chooses among those who answer, or that makes several models, gives a rule fewer uploads than this.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from fedaudit.audit.case.case import Examples
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.robustness.plan import label_of, plan_matrix
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.fl.aggregation.aggregator import Aggregator, RowRule
from fedaudit.fl.clients.failures import RandomFaults, turn
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams

ROUNDS = 4000  # a probability of 1/2 is met to 2.4 points in 99.8 % of the cases
LEAST = 0.001  # rarer than once in a thousand rounds goes unsaid

WORDS = {"skip": "are skipped", "median": "take the median", "stop": "end the run"}


def draw_heard(
    config: SimulatedConfig, clients: int, examples: Examples, availability: Availability
) -> Sequence[int]:
    """How many clients are heard in each of many rounds."""
    federation, streams = config.federation, Streams(config.seed)
    streams = Streams(streams.key("shortage"))
    members = [k for k in range(clients) if len(examples.parts[k])]
    heard = []
    for t in range(ROUNDS):
        answering: list[int] = []
        for attempt in range(1 if federation.empty_round == "skip" else 1000):
            drawn = availability.draw(t, range(clients), streams, attempt)
            answering = [k for k in drawn.answering if k in members]
            if answering:
                break
        if federation.failures.any:
            faults = RandomFaults(federation.failures, streams, t)
            answering = [k for k in answering if turn(k, federation.failures, faults).heard]
        lost = streams.numpy("reply_loss", t).random(len(answering)) < federation.reply_loss
        heard.append(len(answering) - int(lost.sum()))
    return heard


def estimate_shortage(rule: RowRule, heard: Sequence[int]) -> float:
    """The share of rounds, of those in which somebody is heard, in which the rule has too few uploads."""
    counts, times = np.unique([n for n in heard if n], return_counts=True)
    short = sum(int(t) for n, t in zip(counts, times, strict=True) if rule.needs(int(n)) > n)
    return short / max(1, int(times.sum()))


def warn_of_shortage(config: SimulatedConfig, case: SimulatedCase) -> Iterator[str]:
    """A sentence for each rule of the config that will lack clients; raises UserError where it always will."""
    rules = {
        k: v for k, v in _list_rules(config, case.aggregator).items() if isinstance(v, RowRule) and _count(v) > 1
    }
    if not rules:
        return
    members = sum(len(part) > 0 for part in case.examples.parts.values())
    if isinstance(case.aggregator, RowRule):
        case.aggregator.check_clients(members)
    for label, availability in _list_availabilities(config.matrix, case.availability).items():
        heard = draw_heard(case.config, case.clients, case.examples, availability)
        for name, rule in rules.items():
            if (share := estimate_shortage(rule, heard)) < LEAST:
                continue
            too_few = getattr(rule.config, "too_few", "skip")
            yield (
                f"{name} has too few clients with a probability of {100 * share:.1f} % in each round{label} "
                f"({_count(rule)} are needed, {np.mean(heard):.1f} of {members} are heard on average); such "
                f"rounds {WORDS[too_few]} (too_few: {too_few})"
            )


def _count(rule: RowRule) -> int:
    """The fewest uploads with which the rule works at all."""
    return next((n for n in range(1, 1000) if rule.needs(n) <= n), 1000)


def _list_rules(config: SimulatedConfig, aggregator: Aggregator) -> dict[str, Aggregator]:
    """The rules of the audit's own run and of its matrix, by name."""
    rules = {config.aggregator.name: aggregator}
    if config.matrix is not None:
        for place in plan_matrix(config):
            if place.rule.name not in rules:
                rules[place.rule.name] = _configure_rule(place.rule.aggregator)
    return rules


def _list_availabilities(matrix: Matrix | None, availability: Availability) -> dict[str, Availability]:
    """Who answers in the audit's own run, and in those of its matrix, by words that follow a sentence."""
    if matrix is None or not matrix.availabilities:
        return {"": availability}
    return {
        f" of {label_of(s)}": configure(catalog.load("availability", s.name), s.settings, "matrix.availabilities")
        for s in matrix.availabilities
    }


def _configure_rule(given: Mapping[str, object]) -> Aggregator:
    settings = {k: v for k, v in given.items() if k != "name"}
    rule: Aggregator = configure(catalog.load("aggregators", str(given["name"])), settings, "matrix.aggregators")
    return rule
