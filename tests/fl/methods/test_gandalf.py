"""GANDALF: FedAvg and chains as special cases, the stream of artifacts, faults, noise, continuing."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.clients.failures import FailureConfig, Faults
from fedaudit.fl.families.gan import GanConfig
from fedaudit.fl.families.relay import ToleranceConfig
from fedaudit.fl.families.visit_noise import NoiseConfig
from fedaudit.fl.federation import Federation
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read as read_ledger
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.gandalf import Gandalf
from fedaudit.fl.runtime.errors import UserError
from tests.fl.families.test_relay import Script
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD, continues
from tests.fl.worlds import EVERYONE, World, data, parts, run, same

GAN = GanConfig(cycles=3, least_cycles=3, local=2, width=4, latent=6, batch_size=4)
QUIET = NoiseConfig(scale=0.0, labels_scale=0.0)
PLAIN: dict[str, Any] = {"augmentation": "none", "noise": QUIET}
LIGHT: dict[str, Any] = {"gan": GAN, "labeler_rounds": 2, "noise": QUIET}


def gandalf(cls: type[Gandalf] = Gandalf, **settings: Any) -> Gandalf:
    return cls(cls.Config(**(SETTINGS | settings)))


def relays(world: World, kind: Kind = Kind.RELAY_MODEL, round: int | None = None) -> list[tuple[int, str]]:
    return [
        (a.sender.index, a.seen_by[0])
        for a in world.artifacts
        if a.channel == Channel.RELAY and a.kind == kind and round in (None, a.round)
    ]  # type: ignore[misc]


class Scripted(Gandalf):
    """Faults from a script; without one, none."""

    script = Script()

    def faults(self, t: int, lost: Collection[int], federation: Federation) -> Faults:
        return self.script


# Identities -----------------------------------------------------------------------------------


@pytest.mark.sample(1)
@pytest.mark.parametrize("weighting", ["samples", "uniform"])
def test_a_mediator_for_every_client_is_fedavg_to_the_last_bit(weighting: str) -> None:  # T-GA-2
    alone = gandalf(mediators=4, weighting=weighting, **PLAIN)
    fedavg = FedAvg(FedAvg.Config(**SETTINGS, weighting=weighting))
    assert same(run(alone, **WORLD), run(fedavg, **WORLD))
    assert same(run(alone, **WORLD, workers=2), run(fedavg, **WORLD))
    assert not same(run(gandalf(mediators=2, **PLAIN), **WORLD), run(fedavg, **WORLD))
    noisy = PLAIN | {"noise": NoiseConfig(scale=1e-3)}
    assert not same(run(gandalf(mediators=4, weighting=weighting, **noisy), **WORLD), run(fedavg, **WORLD))


def test_one_mediator_is_one_chain_that_the_server_leaves_as_it_is(tmp_path: Path) -> None:  # T-GA-3
    world = run(gandalf(mediators=1, rounds=2, **PLAIN), script=EVERYONE, folder=tmp_path)
    assert relays(world, round=0) == [(0, "client/1"), (1, "client/2"), (2, "client/4")]
    [last] = [a for a in world.artifacts if a.kind == Kind.LOCAL_MODEL and a.round == 1]
    assert last.sender == Party.client(4)
    assert all(np.array_equal(last.payload[k], v.numpy()) for k, v in world.model.items())


def test_a_chain_is_training_one_after_the_other() -> None:
    """Two clients in a chain: client 4 of a federation whose start is client 2's result."""
    only = [([2, 4], [2, 4])]
    chain = run(gandalf(mediators=1, rounds=1, **PLAIN), script=only)
    first = run(FedAvg(FedAvg.Config(**SETTINGS | {"rounds": 1})), script=[([2], [2])])
    then = run(FedAvg(FedAvg.Config(**SETTINGS | {"rounds": 1})), script=[([4], [4])], initial=first.model)
    assert same(chain, then)


def test_mediator_epochs_go_round_the_group_again(tmp_path: Path) -> None:
    world = run(gandalf(mediators=1, rounds=1, mediator_epochs=2, **PLAIN), script=EVERYONE, folder=tmp_path)
    assert [k for k, _ in relays(world)] == [0, 1, 2, 4, 0, 1, 2]
    once = run(gandalf(mediators=1, rounds=2, **PLAIN), script=EVERYONE)
    assert not same(world, once)  # the second time round has batches of its own


# Phases ---------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_crosses_the_wire_by_the_number_of_groups(tmp_path: Path) -> None:  # T-GA-1
    one = run(gandalf(groups=1, **LIGHT), script=EVERYONE, folder=tmp_path / "one")
    assert relays(one, Kind.GAN_D, 0) == [(0, "client/1"), (1, "client/2"), (2, "client/4")]
    assert relays(one, Kind.GAN_G, 1)[0] == (4, "client/0")  # the next cycle goes on from the last
    alone = run(gandalf(groups=4, **LIGHT), script=EVERYONE, folder=tmp_path / "alone")
    assert not relays(alone, Kind.GAN_G) and not relays(alone, Kind.GAN_D)
    up = [a for a in alone.artifacts if a.kind == Kind.GAN_G and a.channel == Channel.UPLINK]
    assert [a.sender.index for a in up] == [0, 1, 2, 4]
    assert not [a for a in alone.artifacts if a.kind == Kind.GAN_D and a.channel == Channel.UPLINK]


@pytest.mark.nightly
@pytest.mark.parametrize("labeler", ["fedavg", "oracle", "conditional"])
def test_images_are_added_where_a_class_is_short(labeler: str, tmp_path: Path) -> None:
    world = run(gandalf(labeler=labeler, share=1.0, **LIGHT), script=EVERYONE, folder=tmp_path)
    phases = [h["phase"] for h in world.history]
    assert (
        phases
        == ["gan"] * 3 + ["label"] * {"fedavg": 2, "oracle": 1}.get(labeler, 0) + ["augment"] + ["train"] * 3
    )
    sizes: dict[int, list[int]] = {}
    for a in world.artifacts:
        if a.kind == Kind.NUM_EXAMPLES:
            sizes.setdefault(a.sender.index or 0, []).append(int(a.payload["count"]))
    assert all(after >= before for before, after in sizes.values())
    added = sum(after - before for before, after in sizes.values())
    assert added == next(h["images_added"] for h in world.history if "images_added" in h) > 0
    assert "accuracy" in world.history[-1] and "accuracy" not in world.history[0]


def test_without_generators_only_own_images_are_altered() -> None:
    world = run(gandalf(augmentation="static", **LIGHT), script=EVERYONE)
    assert [h["phase"] for h in world.history] == ["augment"] + ["train"] * 3
    assert not same(world, run(gandalf(**PLAIN), script=EVERYONE))


@pytest.mark.nightly
def test_generators_stop_when_their_losses_stay() -> None:
    still = {"lr_generator": 0.0, "lr_critic": 0.0, "penalty": 0.0, "local": 1}
    config = GanConfig(**{**vars(GAN), "cycles": 20, "least_cycles": 4} | still)
    world = run(gandalf(gan=config, labeler_rounds=1, rounds=1, noise=QUIET), script=EVERYONE)
    # groups of two clients have 11 losses, the least to compare, after six cycles
    assert [h["phase"] for h in world.history].count("gan") in (6, 11)


@pytest.mark.nightly
def test_a_run_stopped_and_continued_is_one_never_stopped(tmp_path: Path) -> None:
    for after in range(8):
        folder = tmp_path / str(after)
        assert continues_after(after, folder)
    assert continues(lambda: gandalf(**PLAIN), tmp_path / "plain", **WORLD)


def continues_after(after: int, folder: Path) -> bool:
    from tests.fl.worlds import Stopped

    def make() -> Gandalf:
        return gandalf(**LIGHT | {"noise": NoiseConfig()})

    failing = WORLD | {"failures": FailureConfig(delay=0.5, crash=0.1)}
    with pytest.raises(Stopped):
        run(make(), folder=folder, stop_after=after, **failing)
    return same(run(make(), folder=folder, **failing), run(make(), **failing))


# Faults ---------------------------------------------------------------------------------------


def faulty(script: Script, folder: Path | None = None, **settings: Any) -> World:
    cls = type("Faulty", (Scripted,), {"script": script})
    return run(gandalf(cls, **{"rounds": 1, "mediators": 1} | PLAIN | settings), script=EVERYONE, folder=folder)


def test_with_all_holders_down_training_starts_from_the_rounds_model() -> None:  # T-GA-8
    broken = faulty(Script(silent={(2, 0): 0.0}, gone={(k, 3) for k in (0, 1)}))
    again = Script(silent={(k, 0): 0.0 for k in (0, 1, 2)})
    assert same(broken, faulty(again)) and not same(broken, faulty(Script()))


@pytest.mark.nightly
def test_faults_at_every_step_stop_nothing_and_replay_the_same(tmp_path: Path) -> None:
    for k in (0, 1, 2, 4):
        for step in range(5):
            for n, script in enumerate(
                (Script(late={(k, 0)}), Script(silent={(k, 0): 0.5}), Script(late={(4, 0)}, gone={(k, step)}))
            ):
                first = faulty(script, tmp_path / f"{k}-{step}-{n}")
                assert same(first, faulty(script))
                assert first.history[0]["samples_used"] <= 7 + 20 + 11 + 30  # nobody twice
                assert first.history[0]["events"]
            if k:
                break


def test_a_relay_to_a_client_that_fails_has_been_sent_all_the_same(tmp_path: Path) -> None:
    world = faulty(Script(late={(2, 0)}), tmp_path)
    assert relays(world) == [(0, "client/1"), (1, "client/2"), (1, "client/4"), (4, "client/2")]
    assert world.history[0]["events"][0] == {"time": 0.45, "event": "late", "client": 2, "group": 0}


def test_lost_work_is_no_part_of_the_average() -> None:
    gone = faulty(Script(silent={(4, 0): 0.5}, gone={(2, 4)}))
    assert gone.history[0]["samples_used"] == 7 + 20
    assert [e["event"] for e in gone.history[0]["events"]] == ["silent", "holder_down", "rollback"]


def test_delays_with_and_without_tolerance_always_ends() -> None:
    for tolerance in (True, False):
        rule, failures = ToleranceConfig(tolerance=tolerance), FailureConfig(delay=0.7, crash=0.2)
        world = run(gandalf(**LIGHT | {"faults": rule}), **WORLD, failures=failures)
        assert len(world.history) == 3 + 2 + 1 + 3
        clocks = [h["clock"] for h in world.history if "clock" in h]
        assert clocks == sorted(clocks) and clocks[-1] > 0


def test_a_result_that_is_not_finite_is_dropped_and_the_chain_goes_on() -> None:
    d = data()
    d.train.x[parts(d)[2]] = np.nan
    world = run(gandalf(mediators=1, rounds=1, **PLAIN), script=EVERYONE, d=d)
    assert world.history[0]["rejected"] == 1 and world.history[0]["samples_used"] == 7 + 20 + 30
    without = run(gandalf(mediators=1, rounds=1, **PLAIN), script=[([0, 1, 4], [0, 1, 4])])
    assert same(world, without)


# Noise ----------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_ledger_has_a_line_for_every_visit_and_says_whether_a_clip_is_behind_it(tmp_path: Path) -> None:
    def lines(mode: Any, **more: Any) -> list[Any]:
        noise = NoiseConfig(mode=mode, scale=2.0, critic=0.5, labels_scale=3.0)
        run(gandalf(**LIGHT | {"noise": noise} | more), script=EVERYONE, folder=tmp_path / mode)
        return read_ledger(tmp_path / mode / "ledger.jsonl")

    printed = lines("printed")
    critic = [r for r in printed if r.kind == "gan_D"]
    assert len(critic) == 3 * 4 and {r.sender for r in critic} == {f"client/{k}" for k in (0, 1, 2, 4)}
    assert {(r.noise_std, r.sensitivity, r.clip_norm, r.derived) for r in critic} == {
        (1.0, 0.5, None, "declared")
    }
    # Theorem 1: epsilon = c / sigma, V11
    assert critic[0].claimed_epsilon == pytest.approx(4.844805 / 2, abs=1e-5) and critic[0].claimed_delta == 1e-5
    assert any(r.mechanism == "none" and r.kind == "num_examples" for r in printed)

    accounted = lines("accounted", weighting="uniform")
    assert {r.mechanism for r in accounted} == {"gaussian"}  # nothing in clear spoils the bound
    assert {(r.clip_norm, r.derived) for r in accounted if r.kind == "gan_D"} == {(0.5, "clip")}
    assert {r.noise_std for r in accounted if r.kind == "noised_label_dist"} == {3.0}
    streams = [r.stream for r in accounted]
    assert len(streams) == len(set(streams))  # no noise twice


def test_noise_is_what_the_ledger_says_on_the_wire(tmp_path: Path) -> None:
    noise = NoiseConfig(scale=0.01, labels_scale=0.0)
    quiet = run(gandalf(rounds=1, mediators=1, **PLAIN), script=EVERYONE, folder=tmp_path / "0")
    noisy = run(
        gandalf(rounds=1, mediators=1, **PLAIN | {"noise": noise}), script=EVERYONE, folder=tmp_path / "1"
    )
    a, b = (next(x for x in w.artifacts if x.channel == Channel.RELAY) for w in (quiet, noisy))
    gap = np.concatenate([(b.payload[k] - a.payload[k]).ravel() for k in a.payload])
    assert abs(gap.std() / 0.01 - 1) < 0.15
    again = run(gandalf(rounds=1, mediators=1, **PLAIN | {"noise": noise}), script=EVERYONE)
    assert same(noisy, again)


# Refusals -------------------------------------------------------------------------------------


def test_settings_that_mean_nothing_are_refused(tmp_path: Path) -> None:
    from fedaudit.fl.runtime.plugin import configure

    for wrong, message in (
        ({"share": 0}, "share must be > 0, got 0"),
        ({"groups": -1}, "groups must be >= 0, got -1"),
        ({"mediators": 0}, "mediators must be >= 1, got 0"),
        ({"noise": {"model": 0}}, r"noise\.model must be > 0, got 0"),
        ({"gan": {"cycle": 3}}, r"gan\.cycle"),
    ):
        with pytest.raises(UserError, match=message):
            configure(Gandalf, wrong, "method")


def test_events_in_the_metrics_are_json(tmp_path: Path) -> None:
    run(gandalf(**LIGHT), **WORLD, failures=FailureConfig(delay=0.6), folder=tmp_path)
    found = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    kinds = {e["event"] for line in found for e in line.get("events", [])}
    assert "late" in kinds and {"phase", "clock", "requests"} <= found[0].keys()
