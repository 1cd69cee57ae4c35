"""Phase 2: run every attack on what its adversary could see, measure it against the truth, and run every check.

Attacks run side by side, each in one process, with the same numbers as one after another; under torchrun every
rank takes some. One JSON file an attack under evidence/. An attack that cannot run leaves a file that says why.
checks.json holds what is seen without an attack, and claimed_counts.json whom labels that were read off updates
contradict.
"""

import dataclasses
import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedaudit.attacks.attack import Attack, Card, Claim, Knowledge, Player
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import Assertion, Evidence, ImageGallery
from fedaudit.attacks.people import count_withheld
from fedaudit.attacks.updates.label_counts_from_update import LabelCountsFromUpdate
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import is_anybody_behind, messages
from fedaudit.audit.case.messages import kinds as kinds_of
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.png import png
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.controls.sizes import sizes, steps
from fedaudit.audit.observer.player import player
from fedaudit.audit.observer.reading import Opened, watch_reading
from fedaudit.audit.observer.truth import KnownTruth, ToldTruth, Untold
from fedaudit.audit.observer.view import absent, grant_knowledge, observer, select_visible
from fedaudit.audit.phases.choice import choose, duration
from fedaudit.audit.phases.efforts import CONTROL, correct_estimates, record_error
from fedaudit.audit.phases.evidence import CHECKS, CLAIMED, NOTHING, card_fields, name_file
from fedaudit.audit.phases.pace import estimate_controls
from fedaudit.audit.robustness.claimed_counts import check
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.spec import AttackSpec
from fedaudit.audit.verdict.replays import is_replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import processor_seconds
from fedaudit.fl.runtime.shared_pipe import make_portable
from fedaudit.fl.runtime.side_by_side import Death, Progress, can_copy, collect, share_cores, side_by_side

if TYPE_CHECKING:
    from fedaudit.fl.runtime.torchrun import Call

OF_LATEST = (
    "updates",
    "prototypes",
    "memorised",
    "condensed",
    "activations",
)  # controls that play every client's latest message, whatever else was read
UNMEASURED = "it ran, and this federation has nothing that its claims could be measured on"
SILENT = "no client was heard in any round, so nothing that was sent is made of anybody's examples"
UNTOLD = "what these clients hold is not known, so no claim about it can be checked"


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
    plain = {"specs": [s.model_dump(mode="json") for s in specs], "order": longest, "seconds": seconds}
    plain |= {"setup": chosen.setup, "config": config.model_dump(mode="json")}
    from fedaudit.audit.phases.shares import share_out

    call = share_out(config.workers, "attacks", run.path, plain)
    progress("attack", 0, len(specs))
    with share_cores(workers.processes(config.workers, case.device)):
        bench = Bench(case, [*chosen.cards.values()], config.replay)
        plants = estimate_controls(
            bench.seconds, case, case.training, case.make_net, config.replay, chosen.setup, corrected=False
        )
        for name, estimate in plants.items():
            record_error(chosen.setup, f"{CONTROL}{name}", estimate, bench.seconds[name])
        runner = _Runner(run.path, specs, seconds, chosen.setup, bench, progress)
        runner.run(longest if call is None else call.claim(longest))
    for number, death in call.answers(longest) if call else ():
        runner.count_end(number, death)
    checks = {name: catalog.load("checks", name)().check(case, bench.lab) for name in catalog.names("checks")}
    run.write_json(run.evidence / CHECKS, {name: dataclasses.asdict(found) for name, found in checks.items()})
    reading = next((a for a in runner.attacks if isinstance(a, LabelCountsFromUpdate)), None)
    if reading is None:
        durable.remove(run.evidence / CLAIMED)
    else:
        run.write(run.evidence / CLAIMED, check(case, reading).model_dump_json(indent=1).encode())


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


class _Runner:
    """Attacks of one list, by their numbers: each in a copy of this process, or here, and its file."""

    def __init__(
        self,
        folder: Path,
        specs: Sequence[AttackSpec],
        seconds: Mapping[str, float],
        setup: str,
        bench: "Bench",
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
            side_by_side(numbers, self._carry_out, self._tell, self._end)
        else:
            for number in numbers:
                self._end(number, self._carry_out(number, self._progress))

    def count_end(self, number: int, death: str) -> None:
        """One was run, here or by another rank; raises UserError where its process died."""
        if death:
            hint = "the same command makes the phase again; use fewer workers"
            raise UserError(f"attack {self._specs[number].label}: {death}", hint=hint)
        self._ended += 1
        self._progress("attack", self._ended, len(self.attacks))

    def _carry_out(self, number: int, progress: Progress) -> dict[str, Any]:
        attack, spec = self.attacks[number], self._specs[number]
        name = spec.label
        progress(f"attack ({name}, about {duration(self._seconds[name])})", self._ended, len(self.attacks))
        began = processor_seconds()
        found = attack_once(attack, name, self._bench) | {"card": card_fields(attack.card, spec)}
        if found["status"] == "ran":
            record_error(self._setup, name, self._estimates[name], processor_seconds() - began)
        return found

    def _tell(self, said: str, _: int, total: int) -> None:
        self._progress(said, self._ended, total)

    def _end(self, number: int, found: dict[str, Any] | Death) -> None:
        death = str(found) if isinstance(found, Death) else ""
        if not death:
            self._run.write_json(self._run.evidence / name_file(number, self._specs[number].label), found)
        self.after(number, death)
        self.count_end(number, death)


class Bench:
    """What attacks on one case work with: its messages, the planted leaks that their cards name, the truth."""

    def __init__(self, case: Case, cards: Sequence[Card], settings: Replay) -> None:
        self.case = case
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
                made: Replays | BaseException = plant(name, self.lab, self._recorded[rounds], settings)
            except Exception as error:  # its attacks fail, no other  # noqa: BLE001
                made = make_portable(error)
            return made, processor_seconds() - began

        answers = collect(controls, plant_one)
        made = [planted for planted, _ in answers]
        self.seconds = dict[str, float]()  # of the processor, by control
        for (name, _), (_, seconds) in zip(controls, answers, strict=True):
            self.seconds[name] = self.seconds.get(name, 0.0) + seconds
        self._planted: dict[tuple[str, str], Replays] = {
            c: m for c, m in zip(controls, made, strict=True) if isinstance(m, Replays)
        }
        self._unplanted: dict[tuple[str, str], BaseException] = {
            c: m for c, m in zip(controls, made, strict=True) if isinstance(m, BaseException)
        }
        artifacts = {a.id: a for found in self._recorded.values() for a in found}
        groups = {id: rows for planted in self._planted.values() for id, rows in planted.groups.items()}
        self.truth, self.told = KnownTruth(case, artifacts, groups), ToldTruth(case, artifacts, groups)

    def artifacts(self, card: Card) -> list[Artifact]:
        """Recorded in the rounds that the card wants, and planted for it; raises what its control raised."""
        if broken := self._unplanted.get(self._find_control(card)):
            raise broken
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
        return Lab.from_case(self.case)

    @cached_property
    def player(self) -> Player | None:
        """Clients that adversaries play; what they sent to one attack is not made again for another."""
        return player(self.lab, self.case.card)

    def find_planted_leaks(self, card: Card) -> Replays:
        """What was planted for it."""
        return self._planted.get(self._find_control(card), Replays())

    def _find_control(self, card: Card) -> tuple[str, str]:
        """Some controls play every client's latest message, whatever else was read: made once for both."""
        every = (card.control, "all")
        is_shared = card.control in OF_LATEST and (every in self._planted or every in self._unplanted)
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


def plant(name: str, lab: Lab | None, recorded: Sequence[Artifact], settings: Replay) -> Replays:
    """The control that a card names: plant() of audit/controls/NAME.py; empty where clients cannot be played."""
    try:
        module = importlib.import_module(f"fedaudit.audit.controls.{name}")
    except ModuleNotFoundError as error:
        raise UserError(f"there is no control {name!r}", hint="a card names a file of audit/controls/") from error
    made: Replays = Replays() if lab is None else module.plant(lab.among_others(), recorded, settings)
    return made


def attack_once(attack: Attack, name: str, bench: Bench) -> dict[str, Any]:
    """One attack's file: what it is, whose view it had, and what it came to.

    Whatever an attack raises is its own failure, never the audit's end.
    """
    opened: Opened = {}
    started = time.perf_counter()
    result: dict[str, Any] = {"name": name, "card": card_fields(attack.card), "observer": ""}
    result |= {"status": "ran", "reason": "", **NOTHING}
    try:
        result |= _carried_out(attack, name, bench, opened)
    except UserError as error:
        result |= {"status": "not_applicable", "reason": str(error.args[0])}
    except Exception as error:  # noqa: BLE001
        result |= {"status": "failed", "reason": f"{type(error).__name__}: {error}"}
    read = [*(k for k in attack.card.reads if k in opened), *sorted(k for k in opened if k.open)]
    return result | {
        "read": read,
        "rounds": {k: sorted(opened[k]) for k in read},
        "seconds": time.perf_counter() - started,
    }


def _carried_out(attack: Attack, name: str, bench: Bench, opened: Opened) -> dict[str, Any]:
    """What changes in the file of an attack that came to its end; `opened` gains the kinds it read."""
    card, case = attack.card, bench.case
    artifacts = bench.artifacts(card)
    who = observer(case, artifacts, card)
    view = watch_reading(select_visible(artifacts, who, card, case.heard or {}), opened)
    knowledge = grant_knowledge(case, card, lambda: bench.player)
    if (
        reason := bench.silence
        or _unfit(case.data, card)
        or absent(case.card, knowledge, artifacts, view, card)
        or attack.not_applicable(view, knowledge)
    ):
        opened.clear()
        return {"observer": str(who), "status": "not_applicable", "reason": reason}
    told = _select_gradable(attack, view, knowledge, bench)
    if 0 < len(told) < len(view) and type(attack).assertions is Attack.assertions:
        found = _record_unverified(
            attack, name, bench, [], told, knowledge, UNTOLD
        )  # without words: measured alone
    else:
        claim = attack.run(view, knowledge, case.streams.numpy("attack", name))
        try:
            found = _measure(attack, claim, bench, bench.truth, case.streams.numpy("measure", name))
            if not found["evidence"]:
                found |= {"status": "not_applicable", "reason": UNMEASURED}
        except Untold as untold:
            said = attack.assertions(claim, case.data.classes)
            found = _record_unverified(attack, name, bench, said, told, knowledge, str(untold.args[0]))
    found["observer"] = str(who)
    json.dumps(found)  # raises here, where it is this attack's failure, what the file could not hold
    return found


def _unfit(data: Data, card: Card) -> str:
    """Why an attack has nothing to say of such examples, as a sentence; empty where it has."""
    if data.modality in card.modality:
        return ""
    return f"it reads {' or '.join(sorted(card.modality))} data, and what clients hold is {data.modality}"


def _measure(
    attack: Attack, claim: Claim, bench: Bench, truth: KnownTruth, rng: np.random.Generator
) -> dict[str, Any]:
    evidence = attack.measure(claim, truth, rng)
    planted, targets = bench.find_planted_leaks(attack.card), attack.card.targets
    people = [
        count_withheld(
            p, planted.count_arrivals(targets if p.kind is None or p.kind == Kind.AGGREGATE else (p.kind,))
        )
        for p in attack.count_people(claim, truth, rng)
    ]
    return {
        "evidence": [dataclasses.asdict(e) for e in evidence],
        "people": [dataclasses.asdict(p) for p in people],
        "remedy": attack.choose_remedy(claim, truth, people),
        "galleries": [_encode(g) for g in attack.galleries(claim, truth)],
        "texts": [dataclasses.asdict(t) for t in attack.exhibits(claim, truth)],
        "curves": [dataclasses.asdict(c) for c in attack.curves(claim, truth)],
    }


def _select_gradable(
    attack: Attack, view: Sequence[Artifact], knowledge: Knowledge, bench: Bench
) -> Sequence[Artifact]:
    """What clients sent of whom the auditor was told, and what the auditor planted; empty where the attack cannot
    run on that."""
    targets = {*attack.card.pick_targets({a.kind for a in view})}
    told = index(a for a in view if a.kind not in targets or bench.truth.has_ground_truth(a))
    able = any(a.kind in targets for a in told) and not attack.not_applicable(told, knowledge)
    return told if able else ()


def _record_unverified(
    attack: Attack,
    name: str,
    bench: Bench,
    said: Sequence[Assertion],
    told: Sequence[Artifact],
    knowledge: Knowledge,
    reason: str,
) -> dict[str, Any]:
    """What was said, and what the attack comes to on `told`, which can be measured."""
    case, card = bench.case, attack.card
    found: dict[str, Any] = {"status": "unverified", "reason": reason}
    found["assertions"] = [dataclasses.asdict(a) for a in said if a.client not in case.examples.parts]
    found["sizes"] = sizes(case.artifacts, card.control)
    found["steps"] = steps(case.training, min(found["sizes"], default=0))
    if not told:
        return found
    try:
        claim = attack.run(told, knowledge, case.streams.numpy("attack", name))
        found |= _measure(attack, claim, bench, bench.told, case.streams.numpy("measure", name))
    except UserError:  # what is left cannot be measured
        return found
    if any(e["control"] == "none" and not is_replay(Evidence(**e)) for e in found["evidence"]):
        found |= {"status": "ran", "reason": ""}
    return found


def _encode(gallery: ImageGallery) -> dict[str, Any]:
    rows = {name: [png(p) for p in images] for name, images in gallery.rows.items()}
    return {"title": gallery.title, "caption": gallery.caption, "columns": list(gallery.columns), "rows": rows}
