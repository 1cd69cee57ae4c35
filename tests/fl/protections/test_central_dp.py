"""Central DP: off it is plain FedAvg, on it clips, divides by a fixed number and adds what it says."""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from fedaudit.fl.artifact import Party
from fedaudit.fl.data.participation import Drawn
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release, read
from fedaudit.fl.method import RoundMethod, is_bounded_by_training, is_only_averaging
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.fedprox import FedProx
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Averaging, Protection, Sending
from fedaudit.fl.wire.wire import Wire
from tests.fl.test_all_methods import NAMES
from tests.fl.test_all_methods import method as named
from tests.fl.worlds import EVERYONE, Stopped, World, data, parts, run, same

OFF = {"clip_norm": math.inf, "noise_multiplier": 0.0}
LOCAL = {"rounds": 3, "local_epochs": 1, "batch_size": 8, "weighting": "uniform"}
ALL = Drawn()
FIVE = (7, 20, 11, 12, 30)  # everybody has data


def protection(**settings: Any) -> CentralDP:
    return CentralDP(CentralDP.Config(**settings))


def world(folder: Path | None = None, lr: float = 0.05, more: Any = (), **settings: Any) -> World:
    """Five clients that all answer, unless `more` says otherwise; no protection without settings."""
    extra = dict(more)
    others = extra.pop("protections", [])
    active = [protection(**settings)] if settings else []
    usual = {"script": EVERYONE, "index": parts(data(), FIVE)}
    method = FedAvg(FedAvg.Config(lr=lr, **LOCAL))  # type: ignore[arg-type]
    return run(method, folder=folder, protections=[*others, *active], **(usual | extra))


def models(result: World) -> list[dict[str, torch.Tensor]]:
    """What was broadcast in each round, and what was released at the end."""
    found = {a.round: a.payload for a in result.artifacts if a.kind is Kind.GLOBAL_MODEL}
    return [{k: torch.from_numpy(v) for k, v in found[t].items()} for t in sorted(found)]


def flat(state: dict[str, Any]) -> torch.Tensor:
    return torch.cat([torch.as_tensor(state[k]).double().flatten() for k in sorted(state)])


def mean_of(
    drawn: Drawn = ALL,
    expected: float = 10,
    delivered: int = 5,
    clients: int = 20,
    size: int = 4,
    **settings: Any,
) -> tuple[torch.Tensor, Release]:
    """What becomes of a mean that moved by 1 everywhere, and the ledger's line."""
    before, new = {"w": torch.zeros(size)}, {"w": torch.ones(size)}
    averaging = Averaging(3, before, new, delivered, expected, clients, drawn, torch.Generator().manual_seed(1))
    protection(**settings).average(averaging)
    [release] = averaging.releases
    return averaging.model["w"], release


# Identity and converse ----------------------------------------------------------------------


def test_off_and_with_everybody_it_is_unweighted_fedavg_to_the_last_bit() -> None:
    plain = world()
    assert same(plain, world(**OFF))
    assert same(plain, world(clip_norm=1e6, noise_multiplier=0.0))  # a clip that never binds
    prox = FedProx(FedProx.Config(lr=0.05, mu=0.0, **LOCAL))  # type: ignore[arg-type]
    index = parts(data(), FIVE)
    assert same(plain, run(prox, protections=[protection(**OFF)], script=EVERYONE, index=index))


def test_clip_noise_and_a_lost_client_each_change_the_run() -> None:
    plain, clipped = world(), world(clip_norm=0.01, noise_multiplier=0.0)
    noised = world(clip_norm=0.01, noise_multiplier=1.0)
    assert not same(plain, clipped) and not same(clipped, noised)
    assert same(noised, world(clip_norm=0.01, noise_multiplier=1.0))
    four = {"script": [([0, 1, 2, 3, 4], [0, 1, 2, 4])]}
    assert not same(world(more=four), world(more=four, **OFF))
    assert same(world(more=four), world(more=four, expected=4, **OFF))


# The clip and the denominator ---------------------------------------------------------------


def test_the_server_gets_no_change_longer_than_the_clip(tmp_path: Path) -> None:
    result = world(tmp_path, clip_norm=0.02, noise_multiplier=1.0)
    before, lengths = models(result), []
    for a in result.artifacts:
        if a.kind is Kind.LOCAL_MODEL:
            lengths.append(float((flat(a.payload) - flat(before[a.round])).norm()))
    assert len(lengths) == 15 and max(lengths) <= 0.02 * (1 + 1e-4)
    assert sum(x > 0.0199 for x in lengths) > 10  # and the clip does bind


def test_lost_clients_count_in_the_denominator(tmp_path: Path) -> None:
    more = {"reply_loss": 0.4}
    result = world(tmp_path, more=more, clip_norm=0.5, noise_multiplier=0.0)
    before = models(result)
    delivered = [h["delivered"] for h in result.history]
    assert min(delivered) < 5 and max(delivered) > 0
    for t, (old, new) in enumerate(pairwise(before)):
        sent = [a for a in result.artifacts if a.kind is Kind.LOCAL_MODEL and a.round == t]
        moved = sum((flat(a.payload) - flat(old) for a in sent), torch.zeros(len(flat(old))))
        assert len(sent) == delivered[t]
        torch.testing.assert_close(flat(new) - flat(old), moved.double() / 5, rtol=0, atol=1e-6)


def test_a_mean_over_five_of_ten_expected_counts_half() -> None:
    out, release = mean_of(clip_norm=3.0, noise_multiplier=0.0)
    assert out.tolist() == [0.5] * 4 and release.mechanism == "none"
    assert mean_of(expected=99, clip_norm=3.0, noise_multiplier=0.0)[0][0] == pytest.approx(5 / 99)
    out, release = mean_of(clip_norm=3.0, expected=5, noise_multiplier=0.0)
    assert out.tolist() == [1.0] * 4 and release.clip_norm == 0.6


# The noise ----------------------------------------------------------------------------------


@pytest.mark.parametrize("z, clip, expected", [(1.0, 1.0, 5.0), (0.5, 3.0, 2.0), (2.0, 0.01, 80.0)])
def test_the_noise_has_the_standard_deviation_of_the_ledger(z: float, clip: float, expected: float) -> None:
    how = {"expected": expected, "size": 40_000, "clip_norm": clip}
    quiet, _ = mean_of(noise_multiplier=0.0, **how)  # type: ignore[arg-type]
    loud, release = mean_of(noise_multiplier=z, **how)  # type: ignore[arg-type]
    noise, std = (loud - quiet).double(), z * clip / expected
    low, high = stats.chi2.interval(1 - 1e-6, len(noise))
    assert low < float(noise.square().sum()) / std**2 < high
    assert stats.kstest(noise.numpy() / std, "norm").pvalue > 1e-6
    assert release.noise_std == pytest.approx(std) and release.noise_multiplier == pytest.approx(z)


def test_the_noised_model_is_where_the_next_round_starts(tmp_path: Path) -> None:
    """At learning rate 0 clients return what they got: the models differ by one round's noise each."""
    sent = models(world(tmp_path, lr=0.0, clip_norm=2.0, noise_multiplier=3.0))
    assert len(sent) == 4  # three broadcasts and the release
    steps = torch.stack([flat(b) - flat(a) for a, b in pairwise(sent)])
    std, n = 3.0 * 2.0 / 5, steps.numel()
    low, high = stats.chi2.interval(1 - 1e-6, n)
    assert low < float(steps.square().sum()) / std**2 < high
    others = torch.corrcoef(steps) - torch.eye(3)
    assert float(others.abs().max()) < 5 / math.sqrt(steps.shape[1])  # fresh in each round


def test_a_round_that_nobody_answers_has_its_noise_too(tmp_path: Path) -> None:
    nobody = {"script": [([0, 1, 2, 3, 4], [])], "empty_round": "skip"}
    sent = models(world(tmp_path, more=nobody, clip_norm=2.0, noise_multiplier=3.0))
    steps = torch.stack([flat(b) - flat(a) for a, b in pairwise(sent)])
    assert all(float(s.std()) == pytest.approx(1.2, rel=0.2) for s in steps)
    assert len([r for r in read(tmp_path / "ledger.jsonl") if r.kind == "global_model"]) == 3
    assert same(world(more=nobody), world(more=nobody, **OFF))


def test_whole_numbers_stay_as_they_were_before_the_round() -> None:
    before = {"w": torch.zeros(2), "seen": torch.tensor(7)}
    new = {"w": torch.ones(2), "seen": torch.tensor(9)}
    averaging = Averaging(0, before, new, 5, 5.0, 5, Drawn(), torch.Generator())
    protection().average(averaging)
    assert int(averaging.model["seen"]) == 7 and averaging.model.keys() == before.keys()


# The ledger ---------------------------------------------------------------------------------


def test_a_round_is_one_release_to_clients_and_public_and_uploads_go_to_the_server(tmp_path: Path) -> None:
    world(tmp_path, clip_norm=2.0, noise_multiplier=0.7)
    releases = read(tmp_path / "ledger.jsonl")
    means = [r for r in releases if r.mechanism == "gaussian"]
    assert [(r.round, r.kind, r.sender, r.observers) for r in means] == [
        (t, "global_model", "client/*", ("client", "public")) for t in range(3)
    ]
    assert {(r.noise_std, r.sensitivity, r.unit) for r in means} == {(0.7 * 2 / 5, 2 / 5, "client")}
    assert {r.participation_seen_by for r in means} == {("server",)}
    assert len({r.stream for r in means}) == 3
    clear = [r for r in releases if r.mechanism == "none"]
    assert {(r.kind, r.observers, r.clip_norm) for r in clear} == {("local_model", ("server",), 2.0)}
    assert {r.sender for r in clear} == {f"client/{k}" for k in range(5)}


def test_under_secure_aggregation_what_the_server_reads_is_named_the_sum(tmp_path: Path) -> None:
    for number, protections in enumerate(
        [[SecureAggregation(), protection()], [protection(), SecureAggregation()]]
    ):
        folder = tmp_path / str(number)
        world(folder, more={"protections": protections})
        releases = read(folder / "ledger.jsonl")
        clear = {(r.kind, r.observers) for r in releases if r.mechanism == "none"}
        assert clear == {("aggregate", ("server",))}


@pytest.mark.parametrize(
    "drawn, adjacency, sensitivity, rate",
    [
        (Drawn(), "add_or_remove_one", 0.1, 1.0),
        (Drawn("poisson", 0.3), "add_or_remove_one", 0.1, 0.3),
        (Drawn("fixed_without_replacement", 0.19), "replace_one", 0.2, 0.2),  # 3.8 of 19 others
        (Drawn("fixed_without_replacement", 0.95), "replace_one", 0.2, 1.0),  # all others
        (Drawn("unknown", 0.3), "replace_one", 0.2, 0.3),
    ],
)
def test_how_clients_are_drawn_decides_the_neighbours(
    drawn: Drawn, adjacency: str, sensitivity: float, rate: float
) -> None:
    _, release = mean_of(drawn, clip_norm=1.0, noise_multiplier=2.0)
    assert (release.adjacency, release.sampling) == (adjacency, drawn.sampling)
    assert release.sensitivity == pytest.approx(sensitivity)
    assert release.sample_rate == pytest.approx(rate)
    assert release.noise_std == pytest.approx(0.2)  # the noise itself is the same


def test_the_expected_number_is_what_availability_says_of_all_clients() -> None:
    wire = Wire(FedAvg.card, Streams(1), [protection(**OFF)], sampling=lambda _: Drawn("poisson", 0.3))
    before, mean = {"w": torch.zeros(2)}, {"w": torch.ones(2)}
    assert wire.average(0, before, mean, 3, 10)["w"].tolist() == [1.0, 1.0]  # 3 of 0.3 * 10
    assert wire.average(1, before, mean, 6, 10)["w"].tolist() == [2.0, 2.0]
    never = Wire(FedAvg.card, Streams(1), [protection()], sampling=lambda _: Drawn("poisson", 0.0))
    with pytest.raises(UserError, match="0 clients are expected"):
        never.average(0, before, mean, 0, 10)


# Where it runs ------------------------------------------------------------------------------


def test_worker_processes_and_stacked_clients_give_the_same_bits() -> None:
    settings = {"clip_norm": 0.05, "noise_multiplier": 0.5}
    here = world(more={"reply_loss": 0.3}, **settings)
    assert same(here, world(more={"reply_loss": 0.3, "workers": 2}, **settings))
    stacked = world(more={"reply_loss": 0.3, "workers": "batched"}, **settings)
    torch.testing.assert_close(flat(stacked.model), flat(here.model), rtol=0, atol=1e-6)


def test_a_stopped_run_that_is_continued_is_the_uninterrupted_one(tmp_path: Path) -> None:
    settings = {"clip_norm": 0.05, "noise_multiplier": 0.5}
    world(tmp_path / "whole", more={"reply_loss": 0.3}, **settings)
    with pytest.raises(Stopped):
        world(tmp_path / "parts", more={"reply_loss": 0.3, "stop_after": 1}, **settings)
    world(tmp_path / "parts", more={"reply_loss": 0.3}, **settings)
    whole, continued = (
        {p.relative_to(f): p.read_bytes() for p in sorted(f.rglob("*")) if p.is_file()}
        for f in (tmp_path / "whole", tmp_path / "parts")
    )
    assert whole == continued and len(whole) > 15


# Refusals -----------------------------------------------------------------------------------

AVERAGING = {"fedavg", "fedprox", "fedlc", "fedrs", "moon", "fedmmd", "flda", "ditto", "bsm_fedavg"}
MORE = {
    "scaffold",
    "fednova",
    "fedopt",
    "feddyn",
    "qffl",
    "power_of_choice",
    "fedbuff",
    "gandalf",
    "rebafl",
    "fedper",
    "ifca",
    "datacenter",
}


@pytest.mark.parametrize("name", NAMES)
def test_only_methods_that_take_plain_means_are_accepted(name: str, tmp_path: Path) -> None:
    method = named(name, rounds=2, weighting="uniform")
    arguments: Any = {
        "protections": [protection(noise_multiplier=0.01)],
        "folder": tmp_path,
        "d": data(n=100),
        "index": parts(data(n=80), FIVE),
        "script": EVERYONE,
    }
    assert isinstance(method, RoundMethod)
    accepted = is_only_averaging(method)
    assert accepted or name not in AVERAGING
    assert not accepted or name not in MORE
    if accepted:
        run(method, **arguments)
        releases = read(tmp_path / "ledger.jsonl")
        seen = {r.kind for r in releases if {"client", "public"} & set(r.observers)}
        assert seen == {"global_model"}  # nothing goes round the noise
    else:
        with pytest.raises(UserError, match="cannot protect") as error:
            run(method, **arguments)
        assert error.value.hint
        assert not any(a.channel == "release" for a in read_if_any(tmp_path))


@pytest.mark.parametrize(("hook", "asks"), [("combine", is_only_averaging), ("finish", is_bounded_by_training)])
def test_a_hook_that_a_method_gives_itself_is_one_of_its_own(
    hook: str, asks: Callable[[RoundMethod], bool]
) -> None:
    method = named("fedavg", rounds=2, weighting="uniform")
    assert asks(method)
    setattr(method, hook, getattr(method, hook))
    assert not asks(method)


def read_if_any(folder: Path) -> list[Any]:
    from fedaudit.fl.recording.recorder import read as artifacts

    return artifacts(folder / "artifacts") if (folder / "artifacts").is_dir() else []


def test_weights_by_examples_are_refused() -> None:
    with pytest.raises(UserError, match="more than take the unweighted mean") as error:
        run(FedAvg(FedAvg.Config(rounds=1)), protections=[protection()])
    assert "weighting: uniform" in error.value.hint


def test_a_method_of_a_users_own_cannot_broadcast_what_is_not_noised() -> None:
    wire = Wire(FedAvg.card, Streams(1), [protection()])
    model = {Kind.GLOBAL_MODEL: {"w": torch.zeros(2)}}
    wire.broadcast(0, model, [0])
    wire.uplink(0, {Kind.LOCAL_MODEL: {"w": torch.ones(2)}}, 0, model)
    for send in (
        lambda: wire.broadcast(1, model, [0]),
        lambda: wire.downlink(1, model, 0),
        lambda: wire.release(1, model),
    ):
        with pytest.raises(UserError, match="before noise is added"):
            send()
    wire.average(0, model[Kind.GLOBAL_MODEL], model[Kind.GLOBAL_MODEL], 1, 1)
    wire.broadcast(1, model, [0])


def test_nothing_passes_from_client_to_client_which_no_noise_of_the_server_reaches() -> None:
    card = replace(FedAvg.card, relay=(Kind.RELAY_MODEL,))
    handed = {Kind.RELAY_MODEL: {"w": torch.ones(2)}}
    assert Wire(card, Streams(1)).relay(0, handed, 0, 1) is not None
    with pytest.raises(UserError, match=r"\(relay\) before noise is added"):
        Wire(card, Streams(1), [protection()]).relay(0, handed, 0, 1)


def test_nothing_may_change_a_clipped_upload_afterwards() -> None:
    noise: Protection = DPGaussian()
    with pytest.raises(UserError, match="would change what") as error:
        Wire(FedAvg.card, Streams(1), [protection(), noise])
    assert "last" in error.value.hint
    Wire(FedAvg.card, Streams(1), [noise, protection(), SecureAggregation()])


def test_an_upload_that_another_protection_has_listed_is_not_listed_again() -> None:
    message = {Kind.LOCAL_MODEL: {"w": torch.tensor([3.0, -4.0])}}
    sending = Sending(
        0,
        Party.client(1),
        ("server", "client", "public"),
        message,
        {},
        torch.Generator(),
        protected={Kind.LOCAL_MODEL},
    )
    protection().apply(sending)
    assert not sending.releases
    np.testing.assert_allclose(sending.message[Kind.LOCAL_MODEL]["w"], [0.6, -0.8], rtol=1e-6)


@pytest.mark.parametrize(
    "settings, match",
    [
        ({"clip_norm": 0.0}, "clip_norm must be > 0"),
        ({"noise_multiplier": -1.0}, "noise_multiplier must be >= 0"),
        ({"clip_norm": math.inf}, "protects nothing"),
        ({"expected": 0.0}, "expected must be > 0"),
    ],
)
def test_settings_that_mean_nothing_are_refused(settings: dict[str, float], match: str) -> None:
    with pytest.raises(UserError, match=match) as error:
        protection(**settings)
    assert error.value.hint


def test_the_description_says_who_reads_what() -> None:
    text = protection(clip_norm=2.0, noise_multiplier=0.5).describe()
    assert "norm 2 on its side" in text and "server itself reads the uploads" in text
