"""Variants: the audited run once more with other protections, each a run folder inside the run.

A variant of a simulation shares the seed, so that the same clients with the same data answer in the same rounds
and runs are paired. Of a recorded federation, whose clients nobody can run again, a variant is its messages
passed through the protections (audit/importing/protect_messages.py). Either way it is a complete audit of its own
(variants/NAME has its own report), with attacks chosen anew for what it sends, and continues after a kill like
any other; audit/experiments/whole_audit.py runs them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.audit.case.clock import compare_times
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import EvidenceFolder, read_result
from fedaudit.audit.evidence.phase import is_audited_run
from fedaudit.audit.planning.choice import choose, choose_anew
from fedaudit.audit.planning.options import MOST, MOST_COPIES, Proposal, list_leaks, list_proposals
from fedaudit.audit.planning.questions import ask_attacks, is_traced, observe_scene
from fedaudit.audit.settings.config import Config, SimulatedConfig
from fedaudit.audit.settings.overrides import overridden
from fedaudit.audit.settings.resolve import resolve
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.audit.settings.variant import Variant
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.policy import GradingPolicy, load_policy
from fedaudit.audit.verdict.trade_offs import AS_AUDITED, Option, compare_options, summarise_recommendation
from fedaudit.fl import ledger
from fedaudit.reports.result import AuditResult


class Variants:
    """Those of one run: which there are, where each lies and with which config, and what came of it."""

    def __init__(self, run: RunDir, config: Config, policy: GradingPolicy | None = None) -> None:
        """`policy` is that under which `variants: auto` was answered, by default the one of the config."""
        self._run, self._config, self._policy = run, config, policy

    def list_variants(self) -> tuple[Variant, ...]:
        """Those that the config names, or with `variants: auto` those that the run's own evidence asks for."""
        return self._config.variants if self._config.variants is not None else self.propose_variants()

    def propose_variants(self) -> tuple[Variant, ...]:
        """Variants of a run that was attacked, those first that answer most, as many as the budget allows."""
        return tuple(
            self._fit_budget(
                Variant(name=p.name.replace("_", "-"), protections=(*p.specs, *self.own_protections))
                for p in self.list_proposals()
            )
        )

    def list_proposals(self) -> list[Proposal]:
        """Protections against what the run's attacks demonstrated, under its own policy."""
        case = open_case(self._run, self._config)
        policy = self._policy or load_policy(self._config.locate_policy())
        files = EvidenceFolder(self._run.path).attacks
        traced = is_traced(case.simulated, ledger.read(self._run.ledger))
        scene = observe_scene(
            self._run.artifacts, self._config.system, case.participation.heard, case.data, case.examples, traced
        )
        shown = ask_attacks(scene, choose(self._config, case), policy, files).shown
        leaks = list_leaks(files, shown, case.card.uplink)
        return list_proposals(case, case.artifacts, leaks, [p.name for p in self._config.protections])

    @property
    def own_protections(self) -> tuple[PluginSpec, ...]:
        """What a variant keeps of the audit's own; recorded messages have been through theirs."""
        return self._config.protections if isinstance(self._config, SimulatedConfig) else ()

    def _fit_budget(self, variants: Iterable[Variant]) -> Iterator[Variant]:
        """The first few whose attacks fit the budget together, by the estimates on their cards."""
        left, taken = self._config.budget * 60, 0
        most = MOST if isinstance(self._config, SimulatedConfig) else MOST_COPIES
        for variant in variants:
            changes = {"protections": variant.model_dump()["protections"], "variants": []}
            changed = overridden(self._config, changes, where=f"variant {variant.name}")
            case = open_case(self._run, changed)
            is_auto = changed.attacks is None
            specs = None if is_auto else choose_anew(choose(changed, case), changed.budget)
            needed = sum(choose(changed.model_copy(update={"attacks": specs}), case).seconds.values())
            if needed <= left and taken < most and specs != ():  # one that nothing attacks tells nothing
                left, taken = left - needed, taken + 1
                yield variant

    def configure(self, variant: Variant) -> Config:
        """The config of one variant; raises UserError that names it."""
        plain, where = variant.model_dump(), f"variant {variant.name}"
        changes: dict[str, Any] = {
            "title": f"{self._config.title}: {variant.name}",
            "protections": plain["protections"],
            "variants": [],
        }
        if isinstance(self._config, SimulatedConfig):
            changes |= {"method": plain["method"], "matrix": None}
        changed = overridden(self._config, changes, where=where)
        if changed.attacks is None and variant.attacks is None:  # what it sends decides
            return changed
        choice = choose(changed, open_case(self._run, changed))
        specs = choose_anew(choice, changed.budget, variant.attacks)
        return overridden(changed, {"attacks": [a.model_dump() for a in specs]}, where=where)

    def locate(self, variant: Variant) -> RunDir:
        """The run folder of one variant."""
        return RunDir(self._run.inside(f"variants/{variant.name}"))

    def read_results(self) -> list[tuple[Variant, AuditResult | None]]:
        """Every variant with its audit; None where it was not run to the end, or with other settings."""
        return [(v, self._read_result(v)) for v in self.list_variants()]

    def _read_result(self, variant: Variant) -> AuditResult | None:
        folder, config = self.locate(variant), self.configure(variant)
        if not folder.config.is_file() or not is_audited_run(folder.path, resolve(config)):
            return None
        return read_result(folder.path)

    def weigh(self, result: AuditResult, tests: int, policy: GradingPolicy) -> None:
        """Add to the audit, of so many `tests` examples, what variants left and cost, and the decision."""
        options = [
            Option(
                name=v.name,
                protections=tuple(p.name for p in v.protections),
                result=audited,
                correct=_read_answers(self.locate(v).history(), tests) if audited else None,
            )
            for v, audited in self.read_results()
        ]
        if options:
            result.decision = decide(result, policy)  # options are compared with the audited run's word
            base = Option(name=AS_AUDITED, result=result, correct=_read_answers(self._run.history(), tests))
            result.alternatives = compare_options(base, options)
            result.recommendation = summarise_recommendation(result.alternatives)
            result.figures += compare_times({o.name: o.result for o in (base, *options) if o.result is not None})
        elif self._config.variants is None and any(f.is_demonstrated for f in result.findings):
            result.recommendation = "No option was tried: no protection answers what was demonstrated."
        result.decision = decide(result, policy)


def _read_answers(history: list[dict[str, Any]], tests: int) -> NDArray[np.bool_] | None:
    """Which test examples the last model got right; None where the run did not keep it."""
    kept = next((r["correct"] for r in reversed(history) if r.get("correct")), "")
    if 4 * len(kept) < tests or not tests:
        return None
    return np.unpackbits(np.frombuffer(bytes.fromhex(kept), np.uint8))[:tests].astype(bool)
