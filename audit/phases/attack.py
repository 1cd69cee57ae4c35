"""Phase 2: run every attack on what its adversary could see, measure it against the truth, and run every check.

Attacks run side by side, each in one process, with the same numbers as one after another; under torchrun every
rank takes some. One JSON file an attack under evidence/. An attack that cannot run leaves a file that says why.
checks.json holds what is seen without an attack.
"""

import dataclasses
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import TypeAdapter

from fedaudit.attacks.attack import Attack, Card, Claim, Knowledge, Player
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import Assertion, ImageGallery, RowExhibit, TextExhibit, is_replay
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import is_anybody_behind, messages
from fedaudit.audit.case.messages import kinds as kinds_of
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.png import png
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.evidence.files import CHECKS, NOTHING, card_fields, name_file
from fedaudit.audit.observer.check import Checked
from fedaudit.audit.observer.reading import Opened, watch_reading
from fedaudit.audit.observer.truth import KnownTruth, MissingTruth, PartialTruth
from fedaudit.audit.observer.view import absent, grant_knowledge, observer, select_visible
from fedaudit.audit.planning.choice import choose, describe_duration
from fedaudit.audit.planning.efforts import CONTROL, correct_estimates, record_error
from fedaudit.audit.planning.pace import correct_controls, estimate_controls, list_played
from fedaudit.audit.plays.client import player
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError, describe_failure
from fedaudit.fl.runtime.machine import processor_seconds
from fedaudit.fl.runtime.records import check_returned
from fedaudit.fl.runtime.shared_pipe import make_portable
from fedaudit.fl.runtime.side_by_side import (
    DeadPart,
    Death,
    Progress,
    can_copy,
    collect,
    share_cores,
    side_by_side,
)

if TYPE_CHECKING:
    from fedaudit.fl.runtime.torchrun import Call


# controls that play every client's latest message, whatever else was read
OF_LATEST = ("updates", "prototypes", "memorised", "condensed", "activations")
SILENT = "no client was heard in any round, so nothing that was sent is made of anybody's examples"
UNMEASURED = "it ran, and this federation has nothing that its claims could be measured on"
OF_UNKNOWN_CLIENTS = "what these clients hold is not known, so no claim about it can be checked"


@workers.one_thread()  # evidence is the same on any number of threads
def run(run: RunDir, config: Config, progress: Progress) -> None:
    """Runs the attacks of the config; those already in evidence/ are made anew."""
    workers.tune_allocator()  # decoders and shadow models train in this process
    case = open_case(run, config)
    chosen = choose(config, case)
    specs, seconds = chosen.specs, dict(chosen.seconds)
    for stale in run.evidence.glob("[0-9]*.json"):  # of a longer or differently ordered list
        durable.remove(stale)
    # the longest first: none is left alone at the end for longer than it takes
    longest = sorted(range(len(specs)), key=lambda i: -seconds[specs[i].label])
    share = {"specs": [s.model_dump(mode="json") for s in specs], "order": longest, "seconds": seconds}
    share |= {"setup": chosen.setup, "config": config.model_dump(mode="json")}
    from fedaudit.audit.planning.shares import share_out

    call = share_out(config.workers, "attacks", run.path, share)
    progress("attack", 0, len(specs))
    with share_cores(workers.processes(config.workers, case.device)):
        cards = [*chosen.cards.values()]
        parameters, played = case.network.size.parameters, list_played(cards)
        stated = estimate_controls(played, case, case.training, case.network.make, config.replay, parameters)
        taking = correct_controls(chosen.setup, stated)
        if planting := sum(taking.values()):
            progress(f"attack (planted leaks, about {describe_duration(planting)})", 0, len(specs))
        bench = Bench(case, cards, config.replay)
        for name in taking:
            record_error(chosen.setup, f"{CONTROL}{name}", stated[name], bench.seconds[name])
        runner = _Runner(run.path, specs, seconds, chosen.setup, bench, progress)
        runner.run(longest if call is None else call.claim(longest))
        for number, death in call.answers(longest) if call else ():
            runner.count_end(number, death)
        named = [*(PluginSpec(name=name) for name in catalog.names("checks")), *config.checks]
        checks = {c.name: build_plugin("checks", c, "checks").check(case, bench.lab) for c in named}
        run.write_json(run.evidence / CHECKS, TypeAdapter(dict[str, Checked]).dump_python(checks, mode="json"))


@workers.one_thread()
def do_share(origin: Origin, call: "Call", folder: Path, what: Mapping[str, Any]) -> None:
    """Attacks that another rank of a torchrun job asked for, as far as this one takes some."""
    workers.tune_allocator()
    config = Config.model_validate(what["config"]).set_origin(origin)
    case, specs = open_case(RunDir(folder), config), [AttackSpec.model_validate(s) for s in what["specs"]]
    cards = [catalog.load("attacks", s.name).card for s in specs]
    with share_cores(workers.processes(config.workers, case.device)):
        runner = _Runner(
            folder, specs, what["seconds"], what["setup"], Bench(case, cards, config.replay), lambda *_: None
        )
        runner.after = call.end
        runner.run(call.claim(what["order"]))


class Bench:
    """What attacks on one case work with: its messages, the planted leaks that their cards name, the truth."""

    def __init__(self, case: Case, cards: Sequence[Card], settings: Replay) -> None:
        self.case, self._scratch = case, TemporaryDirectory(prefix="fedaudit-planted-")
        self._recorded = {
            r: _read_artifacts(case.artifacts, case.card, [c for c in cards if c.rounds == r])
            for r in ("latest", "all")
        }
        controls = sorted({(c.control, c.rounds) for c in cards if c.control})
        controls = [
            c for c in controls if c[0] not in OF_LATEST or c[1] == "all" or (c[0], "all") not in controls
        ]

        def plant_one(control: tuple[str, str]) -> tuple[Replays | BaseException, float]:
            (name, rounds), began = control, processor_seconds()
            try:
                planted: Replays | BaseException = plant(name, self.lab, self._recorded[rounds], settings)
            except DeadPart:
                raise
            except (Exception, SystemExit) as error:  # its attacks fail, no other  # noqa: BLE001
                planted = make_portable(error)
            return planted, processor_seconds() - began

        self.seconds = dict[str, float]()  # of the processor, by control
        self._planted: dict[tuple[str, str], Replays] = {}
        self._errors: dict[tuple[str, str], BaseException] = {}
        for control, (planted, seconds) in zip(controls, collect(controls, plant_one), strict=True):
            self.seconds[control[0]] = self.seconds.get(control[0], 0.0) + seconds
            if isinstance(planted, Replays):
                self._planted[control] = planted
            else:
                self._errors[control] = planted
        artifacts = {a.id: a for recorded in self._recorded.values() for a in recorded}
        groups = {id: rows for planted in self._planted.values() for id, rows in planted.groups.items()}
        self.truth, self.partial_truth = (t(case, artifacts, groups) for t in (KnownTruth, PartialTruth))

    def artifacts(self, card: Card) -> list[Artifact]:
        """Recorded in the rounds that the card wants, and planted for it; raises what its control raised."""
        if error := self._errors.get(self._find_control(card)):
            raise error
        return [*self._recorded[card.rounds], *self.find_planted_leaks(card).artifacts]

    @cached_property
    def silence(self) -> str:
        """Why there is nothing to attack, as a sentence; empty where there is."""
        if self.case.artifacts is None or not self.case.simulated:
            return ""
        return "" if is_anybody_behind(self.case.artifacts) else SILENT

    @cached_property
    def lab(self) -> Lab | None:
        """The clients, to be trained once more; None where they cannot."""
        return Lab.from_case(self.case, Path(self._scratch.name))

    @cached_property
    def player(self) -> Player | None:
        """Clients that adversaries play; what they sent to one attack is not made again for another."""
        return player(self.lab, self.case.card)

    def find_planted_leaks(self, card: Card) -> Replays:
        """The leaks that the control of a card planted."""
        return self._planted.get(self._find_control(card), Replays())

    def _find_control(self, card: Card) -> tuple[str, str]:
        """Some controls play every client's latest message, whatever else was read: made once for both."""
        every = (card.control, "all")
        is_shared = card.control in OF_LATEST and (every in self._planted or every in self._errors)
        return every if is_shared else (card.control, card.rounds)


def _read_artifacts(artifacts: Path | None, card: MethodCard, cards: Sequence[Card]) -> Sequence[Artifact]:
    """What these attacks read, and what clients received, from which controls train them once more.

    An attack that needs a kind which nobody sent runs on nothing, so nothing is read for it.
    """
    if artifacts is None:
        return []
    sent = kinds_of(artifacts)
    summed = {k for k in Kind if k.summed is not Summed.NO} if Kind.AGGREGATE in sent else set[Kind]()
    cards = [c for c in cards if (sent | summed if Kind.AGGREGATE in c.reads else sent).issuperset(c.requires)]
    if not cards:
        return []
    kinds = {k for c in cards for k in (*c.reads, *c.pick_read(sent))}
    if any(c.control for c in cards):
        kinds |= set(card.downlink)
    return index(messages(artifacts, kinds, cards[0].rounds))


class _Runner:
    """Attacks of one list, by their numbers: each in a copy of this process, or here, and its file."""

    def __init__(
        self,
        folder: Path,
        specs: Sequence[AttackSpec],
        seconds: Mapping[str, float],
        setup: str,
        bench: Bench,
        progress: Progress,
    ) -> None:
        """`folder` is of the run; `seconds` are the cards' estimates, by label."""
        self.attacks: list[Attack] = [build_plugin("attacks", s, f"attacks[{i}]") for i, s in enumerate(specs)]
        self._ended = 0
        self.after: Callable[[int, str], None] = lambda number, death: None
        self._run, self._specs, self._setup, self._progress = RunDir(folder), specs, setup, progress
        self._estimates, self._seconds, self._bench = seconds, correct_estimates(setup, seconds), bench

    def run(self, numbers: Iterable[int]) -> None:
        """Raises UserError where the process of one dies."""
        if can_copy():
            side_by_side(numbers, self._carry_out, self._report_progress, self._finish)
        else:
            for number in numbers:
                self._finish(number, self._carry_out(number, self._progress))

    def count_end(self, number: int, death: str) -> None:
        """One was run, here or by another rank; raises UserError where its process died."""
        if death:
            hint = "the same command makes the phase again; use fewer workers"
            raise UserError(f"attack {self._specs[number].label}: {death}", hint=hint)
        self._ended += 1
        self._progress("attack", self._ended, len(self.attacks))

    def _carry_out(self, number: int, progress: Progress) -> dict[str, Any] | Death:
        attack, spec = self.attacks[number], self._specs[number]
        name = spec.label
        time = describe_duration(self._seconds[name])
        progress(f"attack ({name}, about {time})", self._ended, len(self.attacks))
        began = processor_seconds()
        try:
            result = attack_once(attack, name, self._bench) | {"card": card_fields(attack.card, spec)}
        except DeadPart as error:
            return error.death
        if result["status"] == "ran":
            record_error(self._setup, name, self._estimates[name], processor_seconds() - began)
        return result

    def _report_progress(self, phase: str, _: int, total: int) -> None:
        self._progress(phase, self._ended, total)

    def _finish(self, number: int, result: dict[str, Any] | Death) -> None:
        death = str(result) if isinstance(result, Death) else ""
        if not death:
            self._run.write_json(self._run.evidence / name_file(number, self._specs[number].label), result)
        self.after(number, death)
        self.count_end(number, death)


def attack_once(attack: Attack, name: str, bench: Bench) -> dict[str, Any]:
    """One attack's file: what it is, whose view it had, and what it came to.

    Whatever an attack raises is its own failure, never the audit's end. Raises DeadPart where a part of it dies,
    which it may not do once more.
    """
    opened: Opened = {}
    started = time.perf_counter()
    result: dict[str, Any] = {"name": name, "card": card_fields(attack.card), "observer": ""}
    result |= {"status": "ran", "reason": "", **NOTHING}
    try:
        result |= _run_and_measure(attack, name, bench, opened)
    except DeadPart:
        raise
    except UserError as error:
        result |= {"status": "not_applicable", "reason": error.sentence}
    except (Exception, SystemExit) as error:  # noqa: BLE001
        result |= {"status": "failed", "reason": describe_failure(error)}
    read = [*(k for k in attack.card.reads if k in opened), *sorted(k for k in opened if k.open)]
    return result | {
        "read": read,
        "rounds": {k: sorted(opened[k]) for k in read},
        "seconds": time.perf_counter() - started,
    }


def _run_and_measure(attack: Attack, name: str, bench: Bench, opened: Opened) -> dict[str, Any]:
    """What the file of an attack that came to its end says; `opened` gains the kinds it read."""
    card, case = attack.card, bench.case
    artifacts = bench.artifacts(card)
    who = observer(case, artifacts, card)
    view = watch_reading(select_visible(artifacts, who, card, case.participation.heard or {}), opened)
    knowledge = grant_knowledge(case, card, lambda: bench.player)
    if (
        reason := bench.silence
        or card.explain_unfit(case.data.gives)
        or absent(case.card, knowledge, artifacts, view, card)
        or attack.not_applicable(view, knowledge)
    ):
        opened.clear()
        return {"observer": str(who), "status": "not_applicable", "reason": reason}
    gradable = _select_gradable(attack, view, knowledge, bench)
    if 0 < len(gradable) < len(view) and type(attack).assertions is Attack.assertions:  # its claims have no words
        result = _record_unverified(attack, name, bench, [], gradable, knowledge, OF_UNKNOWN_CLIENTS)
    else:
        claim = attack.run(view, knowledge, case.streams.numpy("attack", name))
        try:
            result = _measure(attack, claim, bench.truth, case.streams.numpy("measure", name))
            if not result["evidence"]:
                result |= {"status": "not_applicable", "reason": UNMEASURED}
        except MissingTruth as missing:
            assertions = _ask(attack, "assertions", claim, case.data.groups)
            reason = missing.sentence
            result = _record_unverified(attack, name, bench, assertions, gradable, knowledge, reason)
    result["observer"] = str(who)
    json.dumps(result)  # raises here, where it is this attack's failure, what the file could not hold
    return result


def _measure(attack: Attack, claim: Claim, truth: KnownTruth, rng: np.random.Generator) -> dict[str, Any]:
    evidence = _ask(attack, "measure", claim, truth, rng)
    people = _ask(attack, "count_people", claim, truth, rng)
    shown = _ask(attack, "exhibits", claim, truth)
    return {
        "evidence": [dataclasses.asdict(e) for e in evidence],
        "people": [dataclasses.asdict(p) for p in people],
        "remedy": _ask(attack, "choose_remedy", claim, truth, people),
        "galleries": [_encode(g) for g in _ask(attack, "galleries", claim, truth)],
        "texts": [dataclasses.asdict(x) for x in shown if isinstance(x, TextExhibit)],
        "rows": [dataclasses.asdict(x) for x in shown if isinstance(x, RowExhibit)],
        "curves": [dataclasses.asdict(c) for c in _ask(attack, "curves", claim, truth)],
    }


def _ask(attack: Attack, method: str, *given: Any) -> Any:
    """What a method of it returns; raises TypeError where that is not what its contract says."""
    value = getattr(attack, method)(*given)
    check_returned(type(attack).__name__, Attack, method, value)
    return value


def _select_gradable(
    attack: Attack, view: Sequence[Artifact], knowledge: Knowledge, bench: Bench
) -> Sequence[Artifact]:
    """Messages of clients whose examples the auditor knows, and what the auditor planted; empty where the attack
    cannot run on that."""
    targets = {*attack.card.pick_targets({a.kind for a in view})}
    gradable = index(a for a in view if a.kind not in targets or bench.truth.has_ground_truth(a))
    is_enough = any(a.kind in targets for a in gradable) and not attack.not_applicable(gradable, knowledge)
    return gradable if is_enough else ()


def _record_unverified(
    attack: Attack,
    name: str,
    bench: Bench,
    assertions: Sequence[Assertion],
    gradable: Sequence[Artifact],
    knowledge: Knowledge,
    reason: str,
) -> dict[str, Any]:
    """What an attack asserts of clients that nothing is known of, and what it comes to on `gradable`."""
    case = bench.case
    result: dict[str, Any] = {"status": "unverified", "reason": reason}
    result["assertions"] = [dataclasses.asdict(a) for a in assertions if a.client not in case.examples.parts]
    if not gradable:
        return result
    try:
        claim = attack.run(gradable, knowledge, case.streams.numpy("attack", name))
        result |= _measure(attack, claim, bench.partial_truth, case.streams.numpy("measure", name))
    except DeadPart:
        raise
    except UserError:  # what is left cannot be measured
        return result
    if any(
        e["control"] == "none" and not is_replay(str(e["condition"].get("origin", "")))
        for e in result["evidence"]
    ):
        result |= {"status": "ran", "reason": ""}
    return result


def _encode(gallery: ImageGallery) -> dict[str, Any]:
    rows = {name: [png(p) for p in images] for name, images in gallery.rows.items()}
    return {"title": gallery.title, "caption": gallery.caption, "columns": list(gallery.columns), "rows": rows}
