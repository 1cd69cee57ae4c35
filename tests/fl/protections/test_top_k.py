"""Sparse updates: by hand, as a change of the model, and no promise of privacy."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.method import RoundMethod
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.personal_layers import FedRep
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.methods.stc import STC
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.top_k import TopK
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.wire.protection import Sending
from tests.fl.methods.worlds_of_methods import SETTINGS, WORLD
from tests.fl.protections.sends import make, send
from tests.fl.test_all_methods import NAMES, method
from tests.fl.test_bytes import traffic
from tests.fl.worlds import EVERYONE, Stopped, TinyNet, World, close, data, parts, run, same

MODEL = Kind.LOCAL_MODEL
BASE = {"w": torch.tensor([10.0, 20.0, 30.0]), "b": torch.tensor([5.0])}
MOVED = {"w": torch.tensor([10.5, 17.0, 30.25]), "b": torch.tensor([6.0]), "n": torch.tensor([7])}


def test_the_largest_changes_of_all_arrays_together_are_left() -> None:
    """Changes .5, -3, .25 and 1: half of them are -3 and 1."""
    out, releases = send(make(TopK, share=0.5), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE})
    assert out[MODEL]["w"].tolist() == [10.0, 17.0, 30.0] and out[MODEL]["b"].tolist() == [6.0]
    assert out[MODEL]["n"].tolist() == [7]
    assert releases == []  # leaving out promises nothing: the wire lists it in clear


def test_ternary_keeps_signs_and_one_magnitude() -> None:
    out, _ = send(make(TopK, share=0.5, values="ternary"), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE})
    assert out[MODEL]["w"].tolist() == [10.0, 18.0, 30.0] and out[MODEL]["b"].tolist() == [7.0]


def test_ties_keep_the_first_and_one_number_at_least_is_sent() -> None:
    out, _ = send(make(TopK, share=0.01), {Kind.MODEL_DELTA: {"w": torch.tensor([0.0, 2.0, -2.0])}})
    assert out[Kind.MODEL_DELTA]["w"].tolist() == [0.0, 2.0, 0.0]


def test_everything_is_sent_as_it_was() -> None:
    out, _ = send(make(TopK, share=1.0), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE})
    assert all(out[MODEL][k] is v for k, v in MOVED.items())


def test_after_noise_the_ledger_keeps_the_noise() -> None:
    message, base = {MODEL: {"w": torch.zeros(100)}}, {Kind.GLOBAL_MODEL: {"w": torch.zeros(100)}}
    noised, [before] = send(make(DPGaussian, clip_norm=1.0, noise_multiplier=1.0), message, base)
    sparse, releases = send(make(TopK, share=0.1), noised, base)
    assert int((sparse[MODEL]["w"] != 0).sum()) == 10 and releases == [] and before.noise_std > 0


def test_bits_are_the_papers() -> None:
    """Of one number in a hundred: 6 + 1 / (1 - .99^64) bits for its place (eq. 15 to 17), and its sign."""
    assert make(TopK, share=0.01, values="ternary").bits() == pytest.approx(9.108, abs=0.01)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="share must be > 0"):
        configure(TopK, {"share": 0}, "protections[0]")


# With what was left out sent next ------------------------------------------------------------

NUMBERS = sum(v.numel() for v in TinyNet().state_dict().values())


def sparse(share: float = 0.1, **settings: Any) -> list[TopK]:
    return [make(TopK, share=share, residual=True, **settings)]


def of(cls: type[RoundMethod], **settings: Any) -> RoundMethod:
    return cls(cls.Config(**(SETTINGS | settings)))


def updates(world: World) -> dict[tuple[int, int], torch.Tensor]:
    """(round, client) -> what it sent of the change of its model, flat."""
    sent = [a for a in world.artifacts if a.channel is Channel.DOWNLINK and a.kind is Kind.GLOBAL_MODEL]
    models, found = {a.round: a.payload for a in sent}, {}
    for a in (a for a in world.artifacts if a.kind in UPDATES and a.channel is Channel.UPLINK):
        base = models[a.round] if a.kind is Kind.LOCAL_MODEL else dict.fromkeys(a.payload, 0.0)
        moved = [torch.as_tensor(v - base[k]).flatten() for k, v in a.payload.items()]
        found[a.round, a.sender.number] = torch.cat(moved)
    return found


def count_bytes(folder: Path) -> int:
    """Of the updates that clients sent."""
    charged = traffic(folder / "artifacts").items()
    return sum(n for (_, channel, kind, _), n in charged if channel == "uplink" and kind in UPDATES)


def test_where_the_server_sends_all_stc_is_fedavg_with_it() -> None:
    for share in (0.1, 1.0):
        stc = of(STC, share_up=share, share_down=1.0, values="exact")
        assert close(run(of(FedAvg), protections=sparse(share)), run(stc), tolerance=1e-5)
    forgetting = run(of(FedAvg), protections=[make(TopK, share=0.1)])
    assert not close(run(of(FedAvg), protections=sparse()), forgetting, tolerance=1e-3)


@pytest.mark.parametrize("cls", [Scaffold, ReBaFL])
def test_what_a_client_left_out_is_sent_next(cls: type[RoundMethod], tmp_path: Path) -> None:
    """With a rate of 0 after round 0 nothing is new: two rounds send what one of twice the share does."""
    slow: dict[str, Any] = {"rounds": 2, "lr_decay": 0.0, "momentum": 0.0, "weight_decay": 0.0}
    worlds = [
        run(of(cls, **slow), script=EVERYONE, folder=tmp_path / str(s), protections=sparse(s))
        for s in (0.05, 0.1)
    ]
    twice, once = map(updates, worlds)
    clients = [k for t, k in once if t == 0]
    assert len(clients) == 4
    for k in clients:
        torch.testing.assert_close(twice[0, k] + twice[1, k], once[0, k], atol=1e-6, rtol=0)


@pytest.mark.parametrize("cls", [Scaffold, ReBaFL])
def test_signs_of_few_numbers_cross_and_the_ledger_lists_them_in_clear(
    cls: type[RoundMethod], tmp_path: Path
) -> None:
    run(of(cls), script=EVERYONE, folder=tmp_path / "all")
    world = run(of(cls), script=EVERYONE, folder=tmp_path / "few", protections=sparse(values="ternary"))
    for moved in updates(world).values():
        kept = moved[moved.abs() > 1e-6]
        assert 0 < len(kept) <= 0.1 * NUMBERS + 1 and float(kept.abs().max() - kept.abs().min()) < 1e-6
    ledgers = [read(tmp_path / at / "ledger.jsonl") for at in ("all", "few")]
    lines = [[(r.round, r.kind, r.sender, r.mechanism) for r in ledger] for ledger in ledgers]
    assert lines[0] == lines[1] and {mechanism for *_, mechanism in lines[1]} == {"none"}
    assert len([kind for _, kind, _, _ in lines[1] if kind in UPDATES]) == 3
    assert 0 < count_bytes(tmp_path / "few") < 0.1 * count_bytes(tmp_path / "all")


def test_what_was_left_out_by_hand() -> None:
    """Changes .5, -3, .25, 1 and 0, 2, 2, 0 left out before: half is 2.25 and -1, the first of equals."""
    sending = Sending(2, Party.client(3), (), {MODEL: MOVED}, {Kind.GLOBAL_MODEL: BASE}, torch.Generator())
    sending.memory = {MODEL.value: {"w": torch.tensor([0.0, 2.0, 2.0]), "b": torch.tensor([0.0])}}
    (protection,) = sparse(0.5)
    protection.apply(sending)
    assert sending.message[MODEL]["w"].tolist() == [10.0, 19.0, 32.25]
    left = sending.memory[MODEL.value]
    assert left["w"].tolist() == [0.5, 0.0, 0.0] and left["b"].tolist() == [1.0]
    sending.message, sending.reference = {MODEL: {"w": torch.zeros(2)}}, {}
    with pytest.raises(UserError, match="client/3 sends another part of the network than before"):
        protection.apply(sending)


def test_private_layers_stay_beside_what_was_left_out_of_the_others(tmp_path: Path) -> None:
    world = run(of(FedRep), script=EVERYONE, folder=tmp_path, protections=sparse())
    assert len(updates(world)) == 12 and world.history[-1]["personal_accuracy"] > world.history[-1]["accuracy"]


def test_what_was_left_out_advances_with_a_delivered_upload_alone(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(of(FedAvg), folder=tmp_path, stop_after=1, protections=sparse(), **WORLD)
    whole = run(of(FedAvg), protections=sparse(), **WORLD)
    assert same(run(of(FedAvg), folder=tmp_path, protections=sparse(), **WORLD), whole)
    lost = run(of(FedAvg), protections=sparse(), reply_loss=1.0)
    assert same(lost, lost.initial)


@pytest.mark.sample(12)
@pytest.mark.parametrize("name", NAMES)
def test_every_method_of_rounds_sends_less_and_others_say_why_they_cannot(name: str, tmp_path: Path) -> None:
    world: dict[str, Any] = {"d": data(n=100), "index": parts(data(n=80), skew=False), "script": EVERYONE}
    plain = method(name, share_up=1.0, values="exact")  # of STC, which sends few numbers by itself
    if not plain.card.collects:
        with pytest.raises(UserError, match="its clients remember nothing from one upload to the next"):
            run(plain, protections=sparse(0.05), **world)
        return
    run(plain, folder=tmp_path / "few", protections=sparse(0.05), **world)
    run(plain, folder=tmp_path / "all", **world)
    assert count_bytes(tmp_path / "few") <= 0.35 * count_bytes(tmp_path / "all")
