"""`fedaudit plan`: what an audit will attack, before anything trains."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
import torch

from fedaudit.attacks.evaluation.flagging import FEWEST
from fedaudit.audit.accounting.accountant import UNCREDITED_LAW
from fedaudit.audit.case.case import Split
from fedaudit.audit.case.federation import Simulation
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.cli.plan_lines import Rows
from fedaudit.audit.planning.choice import choose, describe_duration, refuse_fruitless, refuse_impossible
from fedaudit.audit.planning.efforts import correct_estimates
from fedaudit.audit.planning.options import MOST
from fedaudit.audit.planning.pace import correct_controls, estimate_controls, list_played, training_seconds
from fedaudit.audit.planning.questions import plan_limits, plan_questions, read_attackers
from fedaudit.audit.robustness.dropout import find_holders, plan_dropout
from fedaudit.audit.robustness.plan import plan_matrix
from fedaudit.audit.robustness.shortage import Shortage
from fedaudit.audit.settings.config import SimulatedConfig
from fedaudit.audit.settings.errors import locate_errors
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.variant import Variant
from fedaudit.audit.verdict.people import LEAST_HELD_OUT
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.questions import Lacking
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.partition import Index
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import cores, hide_unused
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.wire.protection import describe_protection
from fedaudit.reports import format as fmt
from fedaudit.reports.questions import Cell


class Forecast:
    """What an audit will do, and how long its training takes, by its config and one batch."""

    def __init__(self, config: SimulatedConfig) -> None:
        hide_unused(config.device)
        self._config, self._case = config, SimulatedCase(config)

    def describe(self) -> Iterator[str | Rows]:
        """The plan, sentences and lists; raises UserError for what `run` would refuse."""
        config, case = self._config, self._case
        with locate_errors(config.file):
            resolve(config)
            timed = config.federation.is_timed
            refuse_impossible(case.card, timed, config.attacks, config.protections, case.protections)
            rate, gives = getattr(case.training, "lr", 1), case.data.gives
            refuse_fruitless(rate, gives, config.attacks, config.matrix)
            Simulation(case).refuse_unfit()
        choice, title = choose(config, case), case.card.title
        traffic = choice.scene.traffic
        reasons = {label: traffic.missing(card, title) for label, card in choice.cards.items()}
        gives = choice.scene.gives
        reasons |= {k: why for k, card in choice.cards.items() if (why := card.explain_unfit(gives))}
        policy = load_policy(config.locate_policy())
        asked = [*plan_questions(choice, policy), *read_attackers(config).plan_questions(policy.demands)]
        yield f"{title} on {case.about.dataset}, {fmt.plural(case.clients, 'client')}"
        if empty := sum(not len(part) for part in case.examples.parts.values()):
            who = fmt.plural(empty, "client holds", "clients hold")
            yield f"{who} no example: take fewer, or another partition"
        if any(p.central for p in case.protections) and case.participation.sampling(None).sampling == "unknown":
            yield f"the draw of clients is not credited: {UNCREDITED_LAW}"
        with locate_errors(config.file):
            shortage = Shortage(
                config.federation,
                case.examples,
                lambda: case.population.counts,
                case.streams,
                rounds=case.training.rounds,
                is_choosing=not case.participation.selection.is_everybody,
            )
            drawn = case.participation.availability
            assert drawn is not None
            yield from (
                shortage.warn_of_rule(config.aggregator.name, case.aggregator, drawn)
                if config.attack_matrix is None
                else shortage.warn_of_matrix(config.attack_matrix, drawn)
            )
        yield from _list_rows(
            "protections", {f"{i + 1}": describe_protection(p) for i, p in enumerate(case.protections)}
        )
        seconds = correct_estimates(choice.setup, {k: choice.seconds[k] for k, why in reasons.items() if not why})
        rows = {k: f"{choice.cards[k].title}, about {describe_duration(s)}" for k, s in seconds.items()}
        yield from _list_rows("attacks that will run", rows)
        played = list_played(choice.cards[label] for label in seconds)
        planting = estimate_controls(
            played, case, case.training, case.network.make_untrained, config.replay, case.network.size.parameters
        )
        plants = correct_controls(choice.setup, planting)
        yield from _list_rows("planted leaks", {k: f"about {describe_duration(s)}" for k, s in plants.items()})
        others = {n: traffic.missing(c, title) for n, c in choice.others.items()}
        others |= {n: c.explain_unfit(gives) for n, c in choice.others.items() if not others[n]}
        unlisted = "it is not among the attacks of this audit"
        left = {n: choice.left.get(n, unlisted) for n, why in others.items() if not why}
        yield from _group_reasons("attacks that apply and are left out", left)
        yield from _group_reasons("attacks that find nothing to read", {**reasons, **others})
        coming = [c for c in asked if c.findings]
        bare = [c for c in asked if c not in coming]
        yield from _list_rows(
            "questions that will be asked (* required)", {f"{_mark(c)}{c.id}": c.why for c in coming}
        )
        yield from _list_rows(
            "questions that nothing will answer (* required)", {f"{_mark(c)}{c.id}": c.why for c in bare}
        )
        needed = [q for q in bare if q.required]
        limits, seconds_of = plan_limits(choice, policy), choice.others_seconds
        lacks = sorted({x.name for some in limits.values() for x in some if x.is_left_out})
        yield from _list_rows("attacks that ready lacks", {n: _say_time(seconds_of.get(n)) for n in lacks})
        yield ""
        attacks = fmt.plural(len(seconds), "attack")
        time = describe_duration(sum(seconds.values()) + sum(plants.values()))
        yield (
            f"{len(coming)} of {fmt.plural(len(asked), 'question')} will be asked, by {attacks}; about {time} of "
            "one core, planted leaks included, by the attacks' cards and by what this machine took"
        )
        if needed:
            many = fmt.plural(len(needed), "required question", "required questions")
            yield f"{many} will stay open, so that the verdict can be no better than cannot tell"
        yield from self._describe_ready(limits, lacks)
        yield from self._describe_runs(time)
        if not seconds:
            yield "no attack will run: such an audit is inconclusive"

    def _describe_ready(self, limits: Mapping[str, Sequence[Lacking]], lacks: Sequence[str]) -> Iterator[str]:
        """What stands between this audit and the word ready; nothing where nothing does."""
        if limits:
            many = fmt.plural(len(limits), "required question", "required questions")
            panel = f": {fmt.plural(len(lacks), 'attack')} are left out" if lacks else ""
            yield (
                f"ready is out of reach by attacks, since {many} will have no upper limit{panel}; where none is "
                "left out, a verified epsilon or messages that depend on nobody's examples may stand in"
            )
        data = self._case.data
        yield from describe_held_out(self._case.examples, data.train, data.group(data.train))

    def _describe_runs(self, time: str) -> Iterator[str]:
        """How long training takes, and what else is run, whose attacks take about this time each."""
        yield (
            f"training: about {describe_duration(self._training_seconds)} of one core if everybody answers, by "
            "one batch that was trained here"
        )
        if runs := self._count_further_runs():
            took = describe_duration(runs * self._training_seconds)
            yield (
                f"beside it: {fmt.plural(runs, 'further run')}, about {took} of one core if "
                "each trains as long; those that an attack or a rule does not apply to end at once"
            )
        variants = self._config.variants
        if options := count_options(variants):
            further = fmt.plural(options, "further audit")
            most = "up to " if variants is None else ""
            yield (
                f"options: {most}{further} of the federation with other protections, "
                f"each attacked for about {time} of one core"
            )

    @sharing()
    def refuse_endless(self, most: float) -> None:
        """Raise UserError for a run whose training would take longer than so many seconds of this machine.

        Counts what `plan` says of training, further runs included, over the cores at hand. A GPU is faster by
        what one batch on a processor does not tell, so nothing is refused there.
        """
        if self._config.device != "cpu" and torch.cuda.is_available():
            return
        with locate_errors(self._config.file), torch.random.fork_rng(devices=[]):
            resolve(self._config)
            seconds = self._training_seconds * (1 + self._count_further_runs()) / cores()
        if seconds > most:
            raise UserError(
                f"training would take about {describe_duration(seconds)} here, and at most "
                f"{describe_duration(most)} are allowed",
                hint=f"`fedaudit plan` says why; FEDAUDIT_SECONDS={math.ceil(seconds)} starts it all the same",
            )

    @cached_property
    def _training_seconds(self) -> float:
        case = self._case
        return training_seconds(case, case.training, case.network.make_untrained, case.network.size.parameters)

    def _count_further_runs(self) -> int:
        """Runs of the matrix, of absence and of options; raises UserError where one of them cannot be coming."""
        c, further = self._config, count_options(self._config.variants)
        if c.attack_matrix is not None:
            further += len(plan_matrix(c.attack_matrix, c.method, c.federation, c.protections, c.seed))
        if c.absence is not None:
            further += len(plan_dropout(c.absence, c.method, find_holders(c)))
        return further


def describe_held_out(examples: Split, train: Arrays, groups: Index) -> Iterator[str]:
    """What is wrong with the people of whom luck is learned, a sentence each; nothing where nothing is."""
    is_owned, unseen = train.owner is not None, examples.unseen
    holding = {k: rows for k, rows in examples.parts.items() if len(rows)}
    setting = f"federation.holdout.{'own' if is_owned or unseen else 'reference'}"
    held_out = sum(map(len, unseen.values())) or len(examples.reference)
    if held_out < LEAST_HELD_OUT:
        yield (
            f"ready needs {LEAST_HELD_OUT} held-out people, of whom luck is learned; you have {held_out:,} "
            f"(setting {setting})"
        )
    if is_owned and not unseen:
        yield f"held-out people are of other owners, so that membership stays open (setting {setting})"
        return
    own = {k: len(unseen.get(k, ())) for k in holding if is_owned or k in unseen}
    if few := sum(number < FEWEST for number in own.values()):
        yield (
            f"at {fmt.plural(few, 'client')} fewer than {FEWEST} own people are held out, so that nobody is "
            f"tested there (setting {setting})"
        )
    each = np.bincount(groups[examples.reference], minlength=int(groups.max(initial=0)) + 1)
    if few := sum(bool((each[groups[rows]] < FEWEST).any()) for k, rows in holding.items() if k not in own):
        yield (
            f"at {fmt.plural(few, 'client')} some class has fewer than {FEWEST} held-out people "
            "(setting federation.holdout.reference)"
        )


def count_options(variants: Sequence[Variant] | None) -> int:
    """Variants of the run, or with `variants: auto` as many as there can be."""
    return MOST if variants is None else len(variants)


def _say_time(seconds: float | None) -> str:
    return "" if seconds is None else f"about {describe_duration(seconds)}"


def _mark(cell: Cell) -> str:
    return "* " if cell.required else ""


def _group_reasons(title: str, reasons: dict[str, str]) -> Iterator[Rows]:
    """Names by why, each reason once."""
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        if why:
            names.setdefault(why, []).append(name)
    every = [name for some in names.values() for name in some]
    yield from _list_rows(title, {", ".join(some): why for why, some in names.items()}, every)


def _list_rows(title: str, rows: dict[str, str], names: Sequence[str] = ()) -> Iterator[Rows]:
    yield {"title": title, "names": list(names or rows), "rows": rows}
