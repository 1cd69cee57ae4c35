"""What is asked of the run itself, by playing it once more: every bound.

Adaptive composition of differential privacy asks of every release how far apart the values before noise can be on
neighbouring data, given the same view so far. So the federation is played on neighbouring data by its own code;
what leaves is compared with the first play, and then replaced by it (world.py). A release that the ledger credits
with noise may move by its sensitivity; everything else that an observer sees follows from earlier releases and
has to be equal to the bit. Nobody has to list what a method might send.

This differential replay finds counterexamples and proves nothing: "no counterexample among N pairs". It does not
see the law of the noise (noise_tests.py), timing, triggers that no pair pulls, or what other processes do.

The play of the run as it was is held against the run: it enters the same ledger and releases the same model. That
counts where the play is the run, with every training played.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from fedaudit.audit.accounting.budget import SEES
from fedaudit.audit.accounting.status import BoundCheck, find_clear, list_units
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.drawn_noise import find_origin
from fedaudit.audit.noise_audit.other_draws import describe_generators, find_other_draw
from fedaudit.audit.noise_audit.other_lines import find_other_line
from fedaudit.audit.noise_audit.pairs import Side
from fedaudit.audit.noise_audit.stages import PairOutcome, PlayStage
from fedaudit.audit.plays.run import MOST_OF_A_RUN, PlayLimits, RunPlayer
from fedaudit.audit.plays.world import CALCULATED, Key, Listener, Probe, World
from fedaudit.fl.artifact import Channel
from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.ledger import Release, Unit
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.reports.bound import Status

SERVER, CLIENT, PUBLIC = SEES  # the observers, by what they read
OTHER_SUMS = 1e-2  # share of its length by which a model may differ because another machine adds up otherwise
DRAWN_BY_PLACE = (
    "Draws are made by a record's place: one record less leaves others' to it, so that plays with and without a "
    "record say nothing. With a record in another's place nothing moved further than that may; draw for each "
    "of `client.records`, and a record less is compared as well."
)
CLOSE = 1e-4  # of two means that are the same number, printed with four digits


@sharing()
def audit_bounds(
    case: SimulatedCase,
    releases: Sequence[Release] | None = None,
    limits: PlayLimits | None = None,
    progress: Callable[[int, int], None] = lambda *_: None,
) -> list[BoundCheck]:
    """Holds each finite bound of the run against neighbouring plays of it.

    `releases` are the run's ledger, where there is one. Returns one check for each observer and unit that noise
    speaks of. Raises whatever the federation's own code raises.
    """
    player = RunPlayer(case, limits or PlayLimits())
    first = PlayStage(player, SERVER).listen(Side()).world
    whole = first
    if first.is_shortened and player.is_whole:
        whole = player.play(Listener(SERVER, Probe()), trainings=MOST_OF_A_RUN)
    units = list_units([*(releases or ()), *first.lines])
    is_whole = player.is_whole and not whole.is_shortened
    rounds = player.rounds + 1 if player.scale.rounds == player.rounds else player.scale.rounds
    played, ran = ([r for r in lines if r.round < rounds] for lines in (whole.lines, releases or ()))
    other = None if releases is None else find_other_line(ran, played)
    if other is not None and is_whole:
        return [_refute_ledger(o, u, whole.lines, other) for o in SEES for u in units]
    origin = find_origin(player, first.lines)
    aside = origin.aside
    stages = {view: PlayStage(player, view, origin) for view in (SERVER, CLIENT)}
    honest = {SERVER: stages[SERVER].listen(Side(), known=first).world if aside else first}
    honest[CLIENT] = stages[CLIENT].listen(Side(), known=honest[SERVER]).world
    lines = honest[SERVER].lines
    found: dict[tuple[str, Unit], BoundCheck] = {}
    follows = honest[CLIENT].events.keys() <= honest[SERVER].events.keys()
    for number, (view, unit) in enumerate((view, unit) for view in honest for unit in units):
        progress(number, len(honest) * len(units))
        if view == CLIENT and follows and found[SERVER, unit].status is Status.VERIFIED:
            found[view, unit] = replace(found[SERVER, unit], observer=view)  # who sees less learns no more
            continue
        found[view, unit] = _check(stages[view], unit, honest[view])
    checks = [
        _as_seen(found[SERVER if observer == SERVER else CLIENT, unit], observer, unit, lines)
        for observer in SEES
        for unit in units
    ]
    doubts = [*describe_generators(lines, first), *list_doubts(case.dataset, case.data)]
    if elsewhere := find_other_draw(honest[SERVER]):
        doubts.append(str(elsewhere))
    if answers := sorted({r.kind for r in lines if r.noise_multiplier and r.mechanism not in CALCULATED}):
        whose = "how private they are, nor whether a record or client is more than its answers"
        doubts.append(f"answers at random are sent as {', '.join(answers)}: no play shows {whose}")
    if changed := sorted({r.kind for r in lines if r.source in aside and r.noise_multiplier}):
        doubts.append(f"the noise on {', '.join(changed)} is changed after the run's source drew it")
    if other is not None:
        doubts.append(f"a play in which clients train less enters another ledger: {other}")
    if player.scale.rounds < player.rounds:
        doubts.append(f"of {player.rounds:,} rounds the first {player.scale.rounds:,} were played")
    if traces := sorted(honest[SERVER].traces):
        doubts.append(f"code of the team's own opens {', '.join(traces)} in a run, which no play puts back")
    if case.artifacts is not None and is_whole:
        doubts += _find_other_release(case.artifacts, whole)
    if doubts:
        # where all noise is answers, that no play moved any of it is said of nothing
        calculated = any(r.noise_multiplier and r.mechanism in CALCULATED for r in lines)
        open_to_doubt = (Status.VERIFIED,) if calculated else (Status.VERIFIED, Status.DECLARED)
        checks = [_doubt(c, doubts) if c.status in open_to_doubt else c for c in checks]
    if first.is_shortened:
        more = f" Beyond {player.scale.trainings:,} trainings of a play, clients repeated their last messages."
        checks = [replace(c, reason=c.reason + more) if c.status is Status.VERIFIED else c for c in checks]
    return checks


def _refute_ledger(observer: str, unit: Unit, lines: Sequence[Release], other: str) -> BoundCheck:
    """The check of a bound whose ledger is not that of the run."""
    if clear := find_clear(observer, unit, lines):
        return clear
    reason = f"The ledger is not that of a play of the run: {other}."
    return BoundCheck(observer=observer, unit=unit, status=Status.REFUTED, reason=reason, place="ledger")


def _check(stage: PlayStage, unit: Unit, honest: World) -> BoundCheck:
    check = partial(BoundCheck, observer=stage.observer, unit=unit)
    if clear := find_clear(stage.observer, unit, honest.lines):
        return clear
    if twice := [name for name, count in honest.opened.items() if count > 1]:
        reason = f"The stream {twice[0]!r} is opened twice: whoever does so a second time knows the noise."
        return check(status=Status.REFUTED, reason=reason, place="noise")
    if (wrong := find_other_draw(honest)) and wrong.is_dearer:
        key = wrong.event.key
        return check(status=Status.REFUTED, reason=f"{wrong}.", place=f"{key.place} {key.name}")
    again = stage.listen(Side(), honest)
    if again.differences or any(again.ratios.values()):
        drift = next((f"{d.key}: {d.text}" for d in again.differences), "values before noise differ")
        reason = f"The run cannot be played twice to the same numbers ({drift}), so nothing was compared."
        return check(status=Status.DECLARED, reason=reason)
    outcome = PairOutcome()
    for pair in stage.list_pairs(unit, honest):
        if pair.spare and (outcome.has_moved or outcome.is_uncoupled):
            break
        stage.try_pair(pair, honest, outcome)
        if outcome.is_settled:
            break
    if outcome.failure is None and outcome.has_moved:
        stage.try_another_seed(unit, outcome)
    if outcome.failure is None and outcome.is_uncoupled:
        stage.try_replaced_records(honest, outcome)
    return _conclude(partial(check, pairs=outcome.tried), outcome)


def _doubt(check: BoundCheck, doubts: Sequence[str]) -> BoundCheck:
    text = "; ".join(doubts)
    return replace(check, status=Status.DECLARED, reason=f"{text[0].upper()}{text[1:]}.")


def _conclude(check: Callable[..., BoundCheck], outcome: PairOutcome) -> BoundCheck:
    failure, tried = outcome.failure, outcome.tried
    if failure is not None:
        return check(
            status=Status.REFUTED,
            reason=f"On neighbouring data ({outcome.pair}), {failure.key}: {failure.text}.",
            place=f"{failure.key.place} {failure.key.name}",
            round=failure.key.round,
            pair=outcome.pair,
            ratio=failure.ratio,
        )
    if outcome.is_uncoupled:
        return check(status=Status.DECLARED, reason=DRAWN_BY_PLACE)
    if not outcome.has_moved:
        reason = f"None of {tried} pairs of neighbouring plays of the run moved anything that gets noise."
        return check(status=Status.DECLARED, reason=reason)
    reason = (
        f"No counterexample among {tried} pairs of neighbouring plays of the run; the largest distance was "
        f"{outcome.largest:.4f} of what the ledger declares."
    )
    return check(status=Status.VERIFIED, reason=reason, ratio=outcome.largest)


def _as_seen(check: BoundCheck, observer: str, unit: Unit, lines: Sequence[Release]) -> BoundCheck:
    """What a client sees stands for the public, who sees no more."""
    if check.status is Status.NONE and not find_clear(observer, unit, lines):
        return replace(check, observer=observer, status=Status.DECLARED, reason="Nothing of it was played.")
    return replace(check, observer=observer)


def _find_other_release(artifacts: Path, world: World) -> Iterator[str]:
    """Whether a play of the run as it was releases another model than the run did."""
    played = {key: event.payload for key, event in world.events.items()}
    for artifact in read(artifacts, lambda line: line["channel"] == Channel.RELEASE.value):
        key = Key(artifact.channel.value, artifact.round, str(artifact.sender), str(artifact.kind))
        for name, value in artifact.payload.items() if key in played else ():
            ran, again = torch.as_tensor(value).double(), played[key][name].double()
            if float((ran - again).norm()) > OTHER_SUMS * float(ran.norm()):
                yield f"a play of the run as it was releases another {artifact.kind} than the run did"
                return


def list_doubts(dataset: Dataset, data: Data) -> Iterator[str]:
    """Sentences on how a data set was prepared, which is taken on trust."""
    name = dataset.title
    if not is_shipped(dataset):
        yield f"the data set {name!r} is code of the team's own: how it prepares examples was not replayed"
    elif dataset.holds == "private" and _is_normalised_by_itself(data):
        yield f"{name!r} is normalised by the mean of all clients' examples, as if that were public"


def _is_normalised_by_itself(data: Data) -> bool:
    """Whether examples were prepared with numbers that depend on other clients' examples."""
    if data.train.x.dtype.kind != "f" or not len(data.train):
        return False
    axes = tuple(i for i in range(data.train.x.ndim) if i != 1)
    return bool(np.allclose(data.train.x.mean(axes, dtype=np.float64), data.mean, atol=CLOSE))
