"""Relays on the simulated clock: order, timeouts, silence, rollback, with a fault at every step."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from itertools import combinations
from typing import Any, ClassVar

import pytest

from fedaudit.fl.clients.failures import FailureConfig, RandomFaults
from fedaudit.fl.families.relay import START, Relay, ToleranceConfig, plan
from fedaudit.fl.families.relaying import Relaying
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.streams import Streams

MEMBERS = (2, 3, 5, 8)
KINDS = ("late", "silent", "both")


@dataclass
class Script:
    """Every task takes 0.1 but for these: (client, request) -> what happens; `gone`: (client, step)."""

    late: set[tuple[int, int]] = field(default_factory=set)
    silent: dict[tuple[int, int], float] = field(default_factory=dict)
    gone: set[tuple[int, int]] = field(default_factory=set)
    all_gone_from: int = 10**9

    def delay(self, client: int, request: int) -> float:
        return 9.0 if (client, request) in self.late else 0.1

    def silent_after(self, client: int, request: int) -> float | None:
        return self.silent.get((client, request))

    def fails(self, client: int, request: int) -> bool:
        return False

    def answers(self, client: int, step: int) -> bool:
        return (client, step) not in self.gone and step < self.all_gone_from


def settings(**given: Any) -> tuple[ToleranceConfig, FailureConfig]:
    """What the mediators do and how clients fail, from keys of both."""
    own = {f.name for f in fields(ToleranceConfig)}
    rule = {k: v for k, v in given.items() if k in own}
    return ToleranceConfig(**rule), FailureConfig(**{k: v for k, v in given.items() if k not in own})


class Member(int):
    """A client that counts how often it is held against others."""

    held: ClassVar[int] = 0
    __hash__ = int.__hash__

    def __eq__(self, other: object) -> bool:
        Member.held += 1
        return int(self) == other


@pytest.mark.parametrize(("tolerance", "most"), [(False, 2.2), (True, 4.4)])  # who is next is the least of all
def test_a_relay_holds_no_client_against_all_tasks_for_each_task(tolerance: bool, most: float) -> None:
    def count(clients: int) -> int:
        members, Member.held = tuple(map(Member, range(clients))), 0
        assert len(run(Script(), members=members, tolerance=tolerance).chain) == clients
        return Member.held

    assert count(40) <= most * count(20)


def run(
    script: Script,
    *,
    completed: Mapping[int, int] | None = None,
    cap: int = 1,
    members: tuple[int, ...] = MEMBERS,
    **config: object,
) -> Relay:
    rule, failures = settings(**config)
    return plan(members, completed or {}, rule, failures, script, cap)


def clients(relay: Relay) -> list[int]:
    return [t.client for t in relay.tasks]


def events(relay: Relay) -> list[tuple[str, int]]:
    return [(e["event"], e["client"]) for e in relay.events]


def check(relay: Relay, cap: int = 1) -> None:
    """What holds whatever fails: the result is a chain of done tasks from the start, nobody twice."""
    expected = START
    for i in relay.chain:
        assert relay.tasks[i].done and relay.tasks[i].source == expected
        expected = i
    assert all(relay.tasks_of(k) <= cap for k in relay.contributors)
    assert len(relay.contributors) == len(set(relay.contributors))


def test_without_faults_everybody_works_once_in_order_and_hands_on() -> None:
    relay = run(Script())
    assert clients(relay) == [2, 3, 5, 8] and [t.source for t in relay.tasks] == [START, 0, 1, 2]
    assert relay.chain == [0, 1, 2, 3] and not relay.events and relay.time == pytest.approx(0.4)


def test_those_with_the_fewest_completed_tasks_come_first() -> None:
    assert clients(run(Script(), completed={2: 4, 3: 1, 5: 1})) == [8, 3, 5, 2]
    assert clients(run(Script(), completed={2: 4, 3: 1}, tolerance=False)) == [2, 3, 5, 8]


def test_a_client_rests_for_the_gap_unless_nobody_else_can_work() -> None:
    assert clients(run(Script(), members=(1, 2), cap=2)) == [1, 2, 1, 2]
    assert clients(run(Script(), members=(4,), cap=3)) == [4, 4, 4]
    late = Script(late={(2, 0)})
    assert clients(run(late)) == [2, 3, 2, 5, 8]
    assert clients(run(late, gap=2)) == [2, 3, 5, 2, 8]
    assert clients(run(late, gap=0)) == [2, 2, 3, 5, 8]


def test_a_late_client_costs_the_patience_and_is_asked_again() -> None:
    relay = run(Script(late={(3, 0)}))
    assert events(relay) == [("late", 3), ("rollback", 2)]
    assert [t.source for t in relay.tasks] == [START, 0, 0, 2, 3]
    assert relay.time == pytest.approx(4 * 0.1 + 0.25) and relay.contributors == [2, 3, 5, 8]


def test_without_tolerance_a_late_client_costs_the_whole_timeout_and_is_left_out() -> None:
    relay = run(Script(late={(3, 0)}), tolerance=False)
    assert clients(relay) == [2, 3, 5, 8] and relay.contributors == [2, 5, 8]
    assert relay.time == pytest.approx(3 * 0.1 + 1.0)


def test_a_client_that_is_always_late_is_asked_so_often_and_stops_nobody() -> None:
    relay = run(Script(late={(3, i) for i in range(99)}), requests=3)
    assert clients(relay).count(3) == 4 and relay.contributors == [2, 5, 8]  # the last time patiently
    assert relay.time == pytest.approx(3 * 0.1 + 3 * 0.25 + 1.0)


def test_who_is_slow_is_waited_for_at_last_as_it_would_be_without_tolerance() -> None:
    slow = Script()
    slow.delay = lambda client, request: 0.8 if client == 3 else 0.1  # type: ignore[method-assign]
    assert run(slow).contributors == run(slow, tolerance=False).contributors == [2, 3, 5, 8]
    assert clients(run(slow))[-1] == 3 and clients(run(slow)).count(3) == 4


def test_a_client_that_fails_for_once_is_asked_again_and_keeps_what_it_was_given() -> None:
    script = Script()
    script.fails = lambda client, request: (client, request) == (5, 0)  # type: ignore[method-assign]
    relay = run(script)
    assert events(relay) == [("failed", 5), ("rollback", 3)] and relay.contributors == [2, 3, 5, 8]
    assert relay.time == pytest.approx(4 * 0.1 + 0.25 / 3)
    assert run(script, heartbeats=False).time == pytest.approx(4 * 0.1 + 0.25)  # nobody notices
    plain = run(script, tolerance=False)
    assert plain.contributors == [2, 3, 8] and plain.time == pytest.approx(3 * 0.1 + 1.0)


def test_a_crash_that_nobody_notices_is_found_out_by_asking_again() -> None:
    relay = run(Script(silent={(3, 0): 0.5}), heartbeats=False)
    assert clients(relay).count(3) == 4 and relay.contributors == [2, 5, 8]


@pytest.mark.sample(2)
@pytest.mark.parametrize("heartbeats", [True, False])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
@pytest.mark.parametrize("kinds", ["delay", "transient", "crash", "delay transient", "delay transient crash"])
def test_tolerance_never_ends_with_fewer_contributors_than_none(
    kinds: str, share: float, heartbeats: bool
) -> None:
    """Round by round, under the same failures of one kind or several; but for crashes it ends with more."""
    counts = []
    for t in range(60):
        failures = FailureConfig(**dict.fromkeys(kinds.split(), share), heartbeats=heartbeats)  # type: ignore[arg-type]
        both = (ToleranceConfig(tolerance=on) for on in (True, False))
        rounds = [plan(range(10), {}, c, failures, RandomFaults(failures, Streams(3), t)) for c in both]
        counts.append([len(r.contributors) for r in rounds])
    assert all(kept >= plain for kept, plain in counts)
    assert kinds == "crash" or sum(kept for kept, _ in counts) > sum(plain for _, plain in counts)


def test_silence_is_noticed_after_the_heartbeat_and_the_client_is_not_asked_again() -> None:
    relay = run(Script(silent={(3, 0): 0.5}), heartbeat=0.06)
    assert events(relay) == [("silent", 3), ("rollback", 2)] and clients(relay).count(3) == 1
    assert relay.time == pytest.approx(3 * 0.1 + 0.05 + 0.06)
    # by default a third of the time the mediator waits
    assert run(Script(silent={(3, 0): 0.5})).time == pytest.approx(0.35 + 0.25 / 3)


def test_rollback_goes_to_the_newest_holder_that_answers_and_drops_lost_work() -> None:
    relay = run(Script(silent={(8, 0): 0.5}, gone={(5, 4)}), requests=2)
    assert events(relay) == [("silent", 8), ("holder_down", 5), ("rollback", 3)]
    assert relay.chain == [0, 1] and relay.contributors == [2, 3]


def test_who_was_late_still_has_what_it_was_to_go_on_from() -> None:
    relay = run(Script(late={(8, 0)}, gone={(5, 4)}), requests=2)
    assert events(relay) == [("late", 8), ("rollback", 8)]
    assert relay.tasks[4].client == 8 and relay.tasks[4].source == 2 and relay.contributors == [2, 3, 5, 8]


def test_with_all_holders_down_the_relay_starts_from_the_first_model_again() -> None:  # T-GA-8
    relay = run(Script(silent={(5, 0): 0.5}, gone={(2, 3), (3, 3)}))
    assert events(relay)[1:] == [("holder_down", k) for k in (3, 2)] + [("restart", 8)]
    assert relay.tasks[3].source == START and relay.contributors == [8]


def test_where_nobody_holds_anything_at_the_end_there_is_no_result() -> None:
    relay = run(Script(late={(8, 0)}, all_gone_from=4), requests=1)
    assert relay.chain == [] and relay.contributors == []


def test_a_client_keeps_its_own_result_when_it_is_the_holder() -> None:
    relay = run(Script(late={(2, 1)}, gone={(2, s) for s in range(9)}), members=(2,), cap=2)
    assert [t.source for t in relay.tasks] == [START, 0, 0] and relay.tasks_of(2) == 2


@pytest.mark.parametrize("tolerance", [True, False])
@pytest.mark.parametrize("cap", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_at_every_step_and_at_every_two_steps(kind: str, cap: int, tolerance: bool) -> None:
    places = [(k, i) for k in MEMBERS for i in range(cap)]
    for broken in [{p} for p in places] + [set(c) for c in combinations(places, 2)]:
        script = Script(
            late=broken if kind != "silent" else set(),
            silent=dict.fromkeys(broken, 0.5)
            if kind == "silent"
            else {min(broken): 0.0}
            if kind == "both"
            else {},
        )
        relay = run(script, cap=cap, tolerance=tolerance)
        check(relay, cap)
        assert relay == run(script, cap=cap, tolerance=tolerance)  # replayed
        down = {k for k, _ in script.silent}
        # whoever is not down for good takes part in the end
        if tolerance:
            assert set(relay.contributors) >= set(MEMBERS) - down


@pytest.mark.parametrize("gone", [{0}, {1}, {2}, {3}, {0, 1}, {1, 2}, {2, 3}, {0, 1, 2, 3}])
def test_holders_lost_at_every_step(gone: set[int]) -> None:
    for failing in MEMBERS:
        script = Script(late={(failing, 0)}, gone={(MEMBERS[i], s) for i in gone for s in range(9)})
        relay = run(script)
        check(relay)
        assert failing in relay.contributors


@pytest.mark.nightly
def test_random_faults_come_as_often_as_they_should_and_can_be_replayed() -> None:
    rule, config = settings(delay=0.4, crash=0.2)
    faults = [RandomFaults(config, Streams(1), t) for t in range(2000)]
    late = [f.delay(3, 0) > config.timeout for f in faults]
    assert abs(sum(late) / 2000 - 0.4) < 0.04
    crashed = [f.silent_after(3, 0) for f in faults]
    assert abs(sum(c is not None for c in crashed) / 2000 - 0.2) < 0.03
    again = [RandomFaults(config, Streams(1), t).delay(3, 0) for t in range(2000)]
    assert again == [f.delay(3, 0) for f in faults]
    for t in range(200):
        relay = plan(MEMBERS, {}, rule, config, faults[t], 2)
        check(relay, 2)
        assert relay == plan(MEMBERS, {}, rule, config, RandomFaults(config, Streams(1), t), 2)


def test_settings_that_mean_nothing_are_refused() -> None:
    with pytest.raises(UserError, match=r"faults\.requests must be >= 1, got 0"):
        configure(Relaying, {"faults": {"requests": 0}}, "method")
