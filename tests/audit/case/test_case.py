"""A case may be recorded: phases give the same for the same knowledge, and say what is missing for less."""

import json
import os
import signal
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fedaudit.attacks.counts.count_recovery import CountRecovery
from fedaudit.audit.case.case import Case, Split, counts
from fedaudit.audit.case.messages import messages, read_arrivals
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.scope import describe_scope
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.phases.account import check_bounds
from fedaudit.audit.phases.attack import Bench, attack_once
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE
from fedaudit.fl.recording.recorder import MANIFEST
from fedaudit.fl.runtime.sharing import sharing
from fedaudit.fl.runtime.side_by_side import DeadPart, collect, share_cores
from fedaudit.fl.runtime.workers import one_thread
from fedaudit.fl.training.private import PrivateTraining
from tests.audit.case.recorded import Recorded
from tests.audit.simulated import simulated

SETTINGS = {
    "federation": {
        "dataset": "digits",
        "clients": 4,
        "availability": {"name": "bernoulli", "p": 0.6},
        "model": {"name": "mlp", "hidden": [8]},
        "holdout": {"auxiliary": 0.3, "reference": 0.3},
    },
    "method": {"name": "rebafl", "rounds": 2, "local_epochs": 1, "lr": 0.1},
    "workers": 0,
    "record": "all",
    "replay": {"clients": 1, "updates": [[1, 1, 2]]},
    "attacks": ["loss_threshold", {"name": "analytic"}, "count_recovery"],
}


@cache
def ran() -> tuple[RunDir, Config]:
    return simulated(SETTINGS)


def whole() -> Recorded:
    """A recorded case whose operator told everything."""
    run, config = ran()
    case = SimulatedCase(config)
    return Recorded(
        card=case.card,
        clients=4,
        data=case.data,
        streams=case.streams,
        artifacts=run.artifacts,
        training=case.training,
        method=case.method,
        make_net=case.network.make,
        first=case.network.initial(),
        examples=Split(
            parts=case.examples.parts, auxiliary=case.examples.auxiliary, reference=case.examples.reference
        ),
    )


def knowing(**examples: Any) -> Recorded:
    """The same with other knowledge of who has which examples."""
    case = whole()
    return replace(case, examples=replace(case.examples, **examples))


def attacked(case: Case) -> dict[str, dict[str, Any]]:
    config = ran()[1]
    attacks = [(build_plugin("attacks", spec, "attacks"), spec.name) for spec in config.attacks]
    bench = Bench(case, [a.card for a, _ in attacks], config.replay)
    found = [attack_once(attack, name, bench) for attack, name in attacks]
    return {f["name"]: {k: v for k, v in f.items() if k != "seconds"} for f in found}


@pytest.mark.nightly
def test_a_recorded_case_that_tells_all_is_attacked_like_the_simulation_to_the_last_bit() -> None:
    simulated = attacked(open_case(*ran()))
    assert [f["status"] for f in simulated.values()] == ["ran", "ran", "ran"]
    style = ", of other people, so their style is not controlled"  # nobody knows who brought examples are of
    recorded = json.dumps(attacked(whole()))
    assert style in recorded and recorded.replace(style, "") == json.dumps(simulated)


@pytest.mark.nightly
def test_without_truth_attacks_say_whose_examples_are_missing() -> None:
    found = attacked(knowing(parts={}))
    assert {f["status"] for f in found.values()} == {"unverified"}
    assert "what these clients hold is not known" in found["loss_threshold"]["reason"]
    assert "what client" in found["count_recovery"]["reason"]
    one_told = attacked(knowing(parts={0: whole().examples.parts[0]}))
    assert {f["status"] for f in one_told.values()} == {"ran"}  # on what client 0 sent, and nobody else


def test_without_architecture_code_or_record_attacks_say_so_and_nothing_is_replayed() -> None:
    blind = attacked(replace(whole(), make_net=None))
    assert [f["status"] for f in blind.values()] == ["not_applicable", "not_applicable", "ran"]
    assert "nobody stated it" in blind["loss_threshold"]["reason"]
    no_code = attacked(replace(whole(), method=None))
    assert no_code["loss_threshold"]["status"] == "ran"
    assert not [e for e in no_code["loss_threshold"]["evidence"] if e["control"] == "positive"]
    assert {f["status"] for f in attacked(replace(whole(), artifacts=None)).values()} == {"not_applicable"}


def test_scope_counts_and_noise_audits_work_without_what_may_be_absent() -> None:
    bare = replace(whole(), training=None, method=None, make_net=None, first=None, examples=Split())
    assert (
        counts(bare.clients, bare.examples, bare.data).shape == (4, 10)
        and not counts(bare.clients, bare.examples, bare.data).any()
    )
    said = describe_scope(bare, bare.training, bare.network.size.parameters, [])
    assert said.dataset == "digits of theirs" and said.parameters == 0 and said.training == {}
    line = PrivateTraining(clip_norm=1.0, noise_multiplier=1.0, sample_rate=0.1, steps=2).line(
        0, "client/0", "local_model", EVERYONE
    )
    assert {c.status for c in check_bounds(None, [line], is_ours=True)} == {"declared"}


@pytest.mark.parametrize("kind", [SimulatedCase, RecordedCase])
def test_a_case_has_twenty_names_at_most(kind: type) -> None:
    assert len([name for name in dir(kind) if not name.startswith("_")]) <= 20


def test_who_was_heard_is_told_by_the_manifest_or_not_at_all(tmp_path: Path) -> None:
    run, _ = ran()
    uploads = {(a.round, a.sender.index) for a in messages(run.artifacts, {Kind.LOCAL_MODEL}, "all")}
    told = read_arrivals(run.artifacts)
    assert told is not None and open_case(*ran()).participation.heard == told
    assert {(t, k) for t, clients in told.items() for k in clients} == uploads
    lines = (run.artifacts / MANIFEST).read_text().splitlines()
    fewer = [x for x in lines if '"sender":"client/' not in x.replace(" ", "") or '"traffic"' in x]
    (tmp_path / MANIFEST).write_text("\n".join(fewer) + "\n")
    assert read_arrivals(tmp_path) is None
    assert SimulatedCase(ran()[1]).participation.heard is None


def test_of_more_models_than_fit_rounds_are_left_out_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = ran()
    wanted = {Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES}
    whole = messages(run.artifacts, wanted, "all")
    rounds = sorted({a.round for a in whole})
    monkeypatch.setattr("fedaudit.audit.case.messages.MOST_BYTES", sum(a.size_bytes for a in whole) * 2 // 3)
    few = messages(run.artifacts, wanted, "all")
    left = {a.round for a in few if a.kind == Kind.LOCAL_MODEL}
    assert max(rounds) in left and 0 < len(left) < len(rounds)
    ids = [a.id for a in few]
    assert ids == [a.id for a in whole if a.kind == Kind.NUM_EXAMPLES or a.round in left]


@pytest.mark.parametrize("missing", ["method", "make_net", "first"])
def test_the_lab_opens_only_with_code_network_and_weights(missing: str) -> None:
    assert Lab.from_case(whole()) is not None
    assert Lab.from_case(replace(whole(), **{missing: None})) is None


class Broken(CountRecovery):
    error: BaseException

    def not_applicable(self, view: object, knowledge: object) -> str:
        raise self.error


class Silent(Exception):
    def __str__(self) -> str:
        raise TypeError("no words")


@pytest.mark.parametrize(
    ("error", "reason"),
    [(IndexError("another table"), "another table"), (SystemExit(0), "SystemExit"), (Silent(), "Silent")],
)
def test_an_attack_that_breaks_while_it_decides_whether_it_applies_ends_only_itself(
    error: BaseException, reason: str
) -> None:
    bench, attack = Bench(whole(), [Broken.card], ran()[1].replay), Broken()
    attack.error = error
    found = attack_once(attack, "broken", bench)
    assert found["status"] == "failed" and reason in found["reason"]


class Killed(CountRecovery):
    def not_applicable(self, view: object, knowledge: object) -> str:
        collect([1, 2], lambda part: os.kill(os.getpid(), signal.SIGKILL))
        return ""


def test_an_attack_that_a_part_of_it_died_of_is_not_one_that_does_not_apply() -> None:
    bench = Bench(whole(), [Killed.card], ran()[1].replay)
    with one_thread(), share_cores(2), pytest.raises(DeadPart, match="ended by SIGKILL"):
        attack_once(Killed(), "killed", bench)


@pytest.mark.parametrize("limits", [{}, {"limit": [300, 100]}])
def test_runs_that_are_open_together_hold_the_same_examples(limits: dict[str, int]) -> None:
    federation = {"dataset": "digits", "clients": 4, **limits}
    with sharing():
        first, second, other = (
            SimulatedCase(
                validate(Config, {"federation": federation, "method": m, "seed": seed}, "").require_simulated()
            ).data
            for m, seed in [("fedavg", 7), ("fedprox", 7), ("fedavg", 8)]
        )
    assert first.train.x is second.train.x and first.test.x is second.test.x
    assert (other.train.x is first.train.x) == (not limits)  # each seed draws its own
