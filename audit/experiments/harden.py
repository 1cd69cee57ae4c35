"""Hardening: which protections, at which strength, leave nothing that forbids a deployment, at the least cost.

What answers the findings of an audited run is tried alone and together, at several strengths
(Protection.strength). The search is successive halving (Jamieson, Talwalkar, AISTATS 2016): each stage attacks
what is left with more of the attacks that hit people, cheapest first, and keeps the better half. Candidates
share what an earlier stage trained. Screening proves nothing: the best candidate is run again whole, with another
seed and all attacks, and is sufficient where the decision on that run is ready, with conditions or without; where
it is not, the next best is run. Of a recorded federation there is one seed, and its messages pass through the
protections.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedaudit.attacks import stats
from fedaudit.attacks.evidence import Series
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.evidence.phase import Progress, is_audited_run, phases
from fedaudit.audit.experiments.cells import Failure, RunCell, run_cells
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.planning.choice import choose
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.settings.variant import Variant
from fedaudit.audit.verdict.decision import list_exposed
from fedaudit.audit.verdict.trade_offs import Standing, rank
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.decision import Word
from fedaudit.reports.result import AuditResult, Figure, Severity

FACTORS = (1, 4, 16)  # strengths that are tried, as multiples of what is proposed
TOGETHER = 3  # protections in a candidate, at most
MOST = 12  # candidates
LONGEST = 36  # characters of a name, before its factor
VERIFIED = 2  # candidates that are run again whole, at most
SCREENED = ("import", "simulate", "attack", "account", "score")
HARDENED = "hardened.yaml"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """Protections that were tried, and what an audit of them came to."""

    name: str
    protections: tuple[PluginSpec, ...]
    accuracy: float | None  # of the last model; None: there is none
    interval: tuple[float, float] | None = None  # around it; None: nobody knows of how many examples it is
    people: int = 0  # most that any question shows to be hit
    above: tuple[str, ...]  # ids of questions that are exposed, and of facts, that forbid a deployment
    worst: Severity
    stage: int  # how many stages of the search it lived through
    screened: tuple[str, ...] = ()  # ids of the attacks' findings that it was asked about
    epsilon: float | None = None  # the least that is verified towards the server
    bytes: int | None = None  # that crossed the wire in all rounds; None: it was not counted
    word: Word | None = None  # the decision of its whole audit; None: it was screened alone

    @property
    def standing(self) -> Standing:
        """What it is ranked by; its cost is how many protections it has."""
        return Standing(
            name=self.name,
            word=self.word,
            left=len(self.above),
            people=self.people,
            accuracy=self.accuracy,
            interval=self.interval,
            cost=len(self.protections),
        )


STANDING = attrgetter("standing")


@dataclass(frozen=True, kw_only=True)
class Hardening:
    """What a search came to."""

    base: Candidate
    tried: tuple[Candidate, ...]
    verified: tuple[Candidate, ...]  # run again whole, in the order in which they were
    unmended: tuple[str, ...]  # ids of those that every candidate leaves
    seed: int | None  # of the verifying runs; None: a recorded federation has no other
    config: Path | None  # what to run instead

    @property
    def sufficient(self) -> Candidate | None:
        """The first whose own audit lets it be deployed."""
        return next((c for c in self.verified if c.word is not None and not c.word.exit_code), None)

    @property
    def decided(self) -> Candidate:
        """What the search ends with: the best that was run whole, by its word first; the base where none was."""
        return next(iter(rank(self.verified, STANDING)), self.base)

    @property
    def word(self) -> Word:
        """The decision on that, made where every decision is made."""
        assert self.decided.word is not None, "it was audited whole"
        return self.decided.word

    @property
    def sentence(self) -> str:
        """What was found, for a reader."""
        verdict = f' is "{self.word.words}".' if self.word.exit_code else ""
        if not self.base.above:
            text = "Nothing that was shown forbids a deployment as it is: there is nothing to mend."
            return f"{text} The verdict{verdict}" if verdict else text
        if self.sufficient is None:
            left = f" Nothing that was tried ends {', '.join(self.unmended)}." if self.unmended else ""
            whole = f" The verdict on {self.decided.name}, run whole,{verdict}" if self.verified else ""
            return f"None of {len(self.tried)} sets of protections was sufficient.{left}{whole}"
        lost = ""
        if self.base.accuracy is not None and self.sufficient.accuracy is not None:
            lost = f", at an accuracy of {self.sufficient.accuracy:.1%} where it was {self.base.accuracy:.1%}"
        how = "with all attacks" if self.seed is None else f"with seed {self.seed} and all attacks"
        return f"{self.sufficient.name} leaves nothing that forbids a deployment{lost}: run again {how}."


class Search:
    """The search in one run folder: tried/NAME and verified/NAME lie in it, and one that was killed goes on."""

    def __init__(self, run: RunDir, config: Config, progress: Progress) -> None:
        self._run, self._config, self._progress = run, config, progress

    def find(self) -> Hardening:
        """The best candidates, run again whole until one is sufficient, and the config to run instead.

        Audits the config where that was not done. Raises UserError where the audit cannot run.
        """
        if not is_audited_run(self._run.path, resolve(self._config)):
            self._config = overridden(self._config, {"variants": [], "matrix": None}, where="harden")
            self._audit.execute([p.name for p in phases(self._config.case)], self._progress)
        first = read_result(self._run.path)
        base = self._summarise("as audited", self._config.protections, first, word=first.verdict.word)
        tried = self.screen(first) if base.above else ()
        last = max((c.stage for c in tried), default=0)
        able = [c for c in tried if c.stage == last and not c.above]
        verified = list[Candidate]()
        for candidate in rank(able, STANDING)[:VERIFIED]:
            verified.append(self._verify(candidate))
            if self.conclude(base, tried, verified).sufficient:
                break
        return self.conclude(base, tried, verified)

    def conclude(self, base: Candidate, tried: Sequence[Candidate], verified: Sequence[Candidate]) -> Hardening:
        """What these came to; writes the config of the set that is sufficient."""
        found = Hardening(
            base=base,
            tried=tuple(tried),
            verified=tuple(verified),
            unmended=tuple(id for id in base.above if _is_left_by_all(id, tried)),
            seed=self._config.seed + 1 if isinstance(self._config, SimulatedConfig) else None,
            config=None,
        )
        return found if found.sufficient is None else replace(found, config=self._write_config(found.sufficient))

    @property
    def _audit(self) -> WholeAudit:
        return WholeAudit(self._run, self._config)

    def screen(self, first: AuditResult) -> tuple[Candidate, ...]:
        """Every candidate, as far as it came; the best half of each stage goes on to the next."""
        hit = [f.id for f in first.findings if f.source == "attack" and f.severity.rank >= Severity.MEDIUM.rank]
        seconds = choose(self._config, open_case(self._run, self._config)).seconds
        attacks = sorted((label for label in hit if label in seconds), key=lambda label: seconds[label])
        left = [Variant(name=name, protections=specs) for name, specs in self._list_candidates()]
        ended = dict[str, Candidate]()
        stages = [*list_stages(attacks)]
        for stage, names in enumerate(stages, start=1):
            cells = [self._make_cell(v, names) for v in left]
            failures = {f.name for f in self._run_cells(cells, f"stage {stage} of {len(stages)}")}
            for variant, cell in zip(left, cells, strict=True):
                if variant.name not in failures:
                    result = read_result(cell.folder)
                    ended[variant.name] = self._summarise(variant.name, variant.protections, result, stage, names)
            kept = rank((v for v in left if v.name not in failures), lambda v: ended[v.name].standing)
            left = kept[: max(VERIFIED, math.ceil(len(kept) / 2))]
        return tuple(ended.values())

    def _list_candidates(self) -> list[tuple[str, tuple[PluginSpec, ...]]]:
        """Sets of protections by name, each at every strength; those first that answer most."""
        proposals = self._audit.list_proposals()
        sets = [s for n in range(1, TOGETHER + 1) for s in itertools.combinations(proposals, n)]
        sets.sort(key=lambda s: -sum(p.weight for p in s))  # of equals the smaller set first: the sort is stable
        found = list[tuple[int, str, tuple[PluginSpec, ...]]]()
        for number, chosen in enumerate(sets):
            for factor in FACTORS:  # two of a set may withhold the same
                unlike = {s.name: strengthen(s, factor) for p in chosen for s in p.specs}
                specs = (*unlike.values(), *self._audit.own_protections)
                if all(specs != other for _, _, other in found) and not self._clashes(specs):
                    found.append((factor, name_candidate([p.name for p in chosen], number, factor), specs))
        found.sort(key=lambda entry: entry[0] > 1)  # first everything as it is proposed
        return [(name, specs) for _, name, specs in found[:MOST]]

    def _clashes(self, specs: Sequence[PluginSpec]) -> bool:
        """Whether the federation refuses to run with these protections together."""
        try:
            case = open_case(self._run, self._audit.configure(Variant(name="x", protections=tuple(specs))))
            return case.simulated and any(p.refuses(case.card.uplink) for p in case.protections)
        except UserError:
            return True

    def _make_cell(self, variant: Variant, attacks: Collection[str]) -> RunCell:
        """A candidate under some of the attacks; its noise is not played, since nothing is claimed of it yet."""
        screened = self._audit.configure(variant.model_copy(update={"attacks": tuple(attacks)}))
        changes: dict[str, Any] = {"noise_audit": False, "report": ["json"]}
        changed = overridden(screened, changes, where=f"candidate {variant.name}")
        wanted = tuple(p.name for p in phases(changed.case) if p.name in SCREENED)
        folder = self._run.inside(f"tried/{variant.name}")
        return RunCell(name=variant.name, folder=folder, config=changed, phases=wanted)

    def _verify(self, candidate: Candidate) -> Candidate:
        """The whole audit of a candidate, with another seed where there can be one."""
        changed = self._audit.configure(Variant(name=candidate.name, protections=candidate.protections))
        if isinstance(changed, SimulatedConfig):
            changed = overridden(changed, {"seed": changed.seed + 1}, where="harden")
        folder = RunDir.create(self._run.inside(f"verified/{candidate.name}"))
        wanted = tuple(p.name for p in phases(changed.case))
        cell = RunCell(name=candidate.name, folder=folder.path, config=changed, phases=wanted)
        if failures := self._run_cells([cell], "run whole"):
            raise UserError(f"{candidate.name}: {failures[0].sentence}", hint=failures[0].hint)
        result = read_result(folder.path)
        return self._summarise(candidate.name, candidate.protections, result, word=result.verdict.word)

    def _summarise(
        self,
        name: str,
        protections: Sequence[PluginSpec],
        result: AuditResult,
        stage: int = 0,
        screened: Sequence[str] = (),
        word: Word | None = None,
    ) -> Candidate:
        """What an audit came to, in the numbers that candidates are ranked by."""
        shown = [f.severity for f in result.findings]
        accuracies = [h.accuracy for h in result.history if h.accuracy is not None]
        last = accuracies[-1] if accuracies else None
        tests = len(open_case(self._run, self._config).data.test)
        bounds = [b.epsilon for b in result.bounds if b.observer == "server" and str(b.status) == "verified"]
        return Candidate(
            name=name,
            protections=tuple(protections),
            accuracy=last,
            interval=stats.wilson(last * tests, tests) if tests and last is not None else None,
            people=max((q.at_least for q in result.questions), default=0),
            above=tuple(list_forbidding(result)),
            worst=max(shown, key=lambda s: s.rank, default=Severity.NONE),
            stage=stage,
            screened=tuple(screened),
            epsilon=min((b for b in bounds if b is not None), default=None),
            bytes=sum(h.bytes_up + h.bytes_down for h in result.history) or None,
            word=word,
        )

    def _run_cells(self, cells: Sequence[RunCell], name: str) -> list[Failure]:
        reported = _name_stage(name, self._progress)
        return [*self._audit.copy_messages(cells), *run_cells(cells, reported)]

    def _write_config(self, candidate: Candidate) -> Path:
        specs = [p.model_dump() for p in candidate.protections]
        changed = overridden(self._config, {"protections": specs}, where="harden")
        self._run.write(self._run.path / HARDENED, dump(resolve(changed)).encode())
        return self._run.path / HARDENED


def name_candidate(protections: Sequence[str], number: int, factor: int) -> str:
    """A folder's name for a set of protections; its number stands in where their names are too long for one."""
    name = "-".join(protections).replace("_", "-")
    if len(name) > LONGEST:
        name = f"{len(protections)}-protections-{number}"
    return name + (f"-x{factor}" if factor > 1 else "")


def strengthen(spec: PluginSpec, factor: int) -> PluginSpec:
    """The same protection, so many times as strong; as it is where it has no strength."""
    cls = catalog.load("protections", spec.name)
    if not cls.strength:
        return spec
    value = spec.settings.get(cls.strength, getattr(cls.Config, cls.strength, 1))
    return PluginSpec(name=spec.name, settings={**spec.settings, cls.strength: value * factor})


def list_stages(attacks: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Labels of the attacks of each stage: one, twice as many each time, all."""
    number = 1
    while number < len(attacks):
        yield tuple(attacks[:number])
        number *= 2
    yield tuple(attacks)


def list_forbidding(result: AuditResult) -> list[str]:
    """Ids of the questions that are exposed, and of what was seen or proved, that forbid a deployment."""
    return [*(c.id for c in list_exposed(result.cells)), *result.verdict.failing]


def draw_candidates(hardening: Hardening) -> list[Figure]:
    """Severity, epsilon and bytes of every candidate beside its accuracy: those at the lower right are to take.

    Where candidates have no accuracy, as in a recorded federation, their place in the list stands for it.
    """
    # what is drawn later lies above what stands at the same place
    groups = {"screened": hardening.tried, "run again whole": hardening.verified, "as audited": [hardening.base]}
    every = [hardening.base, *hardening.tried, *hardening.verified]
    is_measured = all(c.accuracy is not None for c in every)
    ladder = ", ".join(f"{s.rank} {s}" for s in reversed(Severity))
    heights: dict[str, tuple[str, str, Callable[[Candidate], float | None]]] = {
        "worst severity": (
            f"severity, of {max(s.rank for s in Severity)}",
            f"Worst severity that was demonstrated ({ladder})",
            lambda c: float(c.worst.rank),
        ),
        "epsilon": ("epsilon", "Least epsilon that is verified towards the server", lambda c: c.epsilon),
        "bytes": (
            "megabytes",
            "Megabytes that crossed the wire",
            lambda c: None if c.bytes is None else c.bytes / 1e6,
        ),
    }
    beside = "beside the accuracy of the last model" if is_measured else "of each candidate, in their order"
    figures = []
    for label, (axis, what, height) in heights.items():
        places = {
            name: [
                (c.accuracy if is_measured else every.index(c) + 1, y)
                for c in group
                if (y := height(c)) is not None
            ]
            for name, group in groups.items()
        }
        series = [
            Series(name=name, x=[float(x or 0) for x, _ in points], y=[float(y) for _, y in points])
            for name, points in places.items()
            if points
        ]
        if series:
            told = "; ".join(
                f"{c.name}: accuracy {'not measured' if c.accuracy is None else f'{c.accuracy:.3f}'}, {height(c)}"
                for c in every
            )
            figures.append(
                Figure(
                    id=f"hardening-{label.replace(' ', '-')}",
                    kind="points",
                    title=f"What protections leave and cost: {label}",
                    caption=f"{what}, {beside}.",
                    alt=told,
                    x_label="accuracy" if is_measured else "candidate",
                    y_label=axis,
                    y_log=label == "epsilon",
                    series=series,
                )
            )
    return figures


def _is_left_by_all(name: str, tried: Sequence[Candidate]) -> bool:
    """Whether every candidate of the last stage, which was asked all, leaves something that forbids."""
    last = max((c.stage for c in tried), default=0)
    asked = [c for c in tried if c.stage == last]
    return bool(asked) and all(name in c.above for c in asked)


def _name_stage(name: str, progress: Progress) -> Progress:
    """Progress of one stage: of later ones the same candidates and phases are told once more."""

    def report(said: str, done: int, total: int) -> None:
        progress(name if said == "cells" else f"{name}: {said}", done, total)

    return report
