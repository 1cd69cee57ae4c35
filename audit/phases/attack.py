"""Phase 2: run every attack on what its adversary could see, measure it against the truth, and run every check.

Attacks run side by side, each in one process, with the same numbers as one after another; under torchrun every
rank takes some. One JSON file an attack under evidence/. An attack that cannot run leaves a file that says why.
checks.json holds what is seen without an attack.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from fedaudit.attacks.attack import Attack
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.observer.check import Checked
from fedaudit.audit.phases.attack_bench import Bench
from fedaudit.audit.phases.choice import choose, describe_duration
from fedaudit.audit.phases.efforts import CONTROL, correct_estimates, record_error
from fedaudit.audit.phases.evidence import CHECKS, card_fields, name_file
from fedaudit.audit.phases.one_attack import attack_once
from fedaudit.audit.phases.pace import correct_controls, estimate_controls, list_played
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.spec import AttackSpec, PluginSpec
from fedaudit.fl.runtime import durable, workers
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import processor_seconds
from fedaudit.fl.runtime.side_by_side import DeadPart, Death, Progress, can_copy, share_cores, side_by_side

if TYPE_CHECKING:
    from fedaudit.fl.runtime.torchrun import Call


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
    from fedaudit.audit.phases.shares import share_out

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
