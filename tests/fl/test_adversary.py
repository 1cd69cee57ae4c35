"""Compromised clients: who they are, what of a run they may touch; with nobody compromised nothing changes."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.settings import catalog
from fedaudit.fl.clients.client import Client, Reply, count_of
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import Adversary, Card, Colluded, Meeting, Message
from fedaudit.fl.threats.compromise import Compromise, choose_compromised_clients
from fedaudit.fl.wire.protection import Protection
from fedaudit.fl.wire.wire import Wire
from tests.contracts.words import odd
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, Stopped, World, close, data, parts, run, same

NAMES = catalog.names("adversaries")


def adversary(name: str, **settings: Any) -> Adversary:
    cls = catalog.load("adversaries", name)
    made: Adversary = cls(cls.Config(**settings))
    return made


@cache
def clean(name: str) -> World:
    return small(name)


def small(name: str, **world: Any) -> World:
    return run(method(name), d=data(n=100), index=parts(data(n=80)), reply_loss=0.2, **world)  # type: ignore[arg-type]


@pytest.mark.sample(18)
@pytest.mark.parametrize(
    "name", [n for n in NAMES if catalog.load("adversaries", n).card.threat.position == "client"]
)
@pytest.mark.parametrize("of", ["fedavg", "rebafl", "fedbuff"])
def test_with_nobody_compromised_every_bit_is_that_of_the_clean_run(name: str, of: str) -> None:
    found = small(of, adversary=adversary(name, clients=0))
    assert same(found, clean(of)) and found.history == clean(of).history


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_what_the_adversary_does_in_plain_words(name: str) -> None:
    card = catalog.load("adversaries", name).card
    assert card.title and card.source and card.threat.conduct == "malicious"
    assert not card.aim.is_against_people or card.threat.position == "server"
    assert card.threat.knows <= {"honest_updates", "aggregator", "architecture"}
    for text in (card.does, card.remedy):
        assert len(text.split()) >= 4 and not odd(text)


def test_more_compromised_clients_contain_fewer_and_a_list_is_taken_as_it_is() -> None:
    def chosen(**settings: Any) -> frozenset[int]:
        return choose_compromised_clients(adversary("sign_flip", **settings), 20, Streams(7))

    assert chosen(clients=0) < chosen() < chosen(clients=4) == chosen(share=0.2) < chosen(share=1.0)
    assert [len(chosen(clients=m)) for m in (0, 1, 4, 20)] == [0, 1, 4, 20]
    shares = {0.0: 0, 0.001: 1, 0.04: 1, 0.1: 2, 0.15: 3, 0.22: 5, 1.0: 20}  # none is forgotten
    assert {share: len(chosen(share=share)) for share in shares} == shares
    assert chosen(clients=(16, 17)) == {16, 17} and chosen(clients=()) == set()
    for wrong in ({"clients": 21}, {"clients": (3, 20)}):
        with pytest.raises(UserError, match="among the 20 clients"):
            chosen(**wrong)
    with pytest.raises(UserError, match="both clients and share"):
        chosen(clients=1, share=0.5)


def test_where_the_server_is_the_adversary_no_client_is_and_none_can_be_listed() -> None:
    assert choose_compromised_clients(adversary("imprint"), 20, Streams(7)) == frozenset()
    for settings in ({"clients": 2}, {"share": 0.5}):
        with pytest.raises(UserError, match="is done by the server"):
            choose_compromised_clients(adversary("imprint", **settings), 20, Streams(7))
    with pytest.raises(UserError, match="has no such rounds"):
        small("fedbuff", adversary=adversary("imprint"))


class Everything(Adversary):
    """Uses every hook, on client 1."""

    card = Card(title="Everything", source="this test", does="changes whatever it can change", remedy="none")
    remembers = True
    calls: list[str] = []

    def data(self, client: Client) -> Client:
        self.calls.append(f"data {client.index} {bool(client.before)}")
        return client

    def loss(self, client: Client, loss: Callable[..., torch.Tensor], x: Any, y: Any) -> torch.Tensor:
        return 2 * loss(x, y)

    def correct(self, client: Client, grads: Any, params: Any, start: Any, const: Any) -> Any:
        return {k: -g for k, g in grads.items()}

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        self.calls.append(f"craft {client.index} {[str(k) for k in received]}")
        return Reply(message=reply.message | {Kind.NUM_EXAMPLES: count_of(7000)}, examples=reply.examples)

    def collude(self, meeting: Meeting) -> Colluded:
        self.calls.append(f"collude {meeting.round} {sorted(meeting.own)} {meeting.honest} {meeting.before}")
        return Colluded(messages={}, state={"rounds": meeting.before.get("rounds", 0) + 1})


EVERYTHING = Everything(Everything.Config(clients=(1,)))


def test_hooks_run_for_compromised_clients_alone_and_state_goes_from_round_to_round() -> None:
    Everything.calls.clear()
    found = run(method("fedavg"), adversary=EVERYTHING, script=EVERYONE)  # type: ignore[arg-type]
    assert Everything.calls[:3] == ["data 1 False", "craft 1 ['global_model']", "collude 0 [1] None {}"]
    assert Everything.calls[3::3] == ["data 1 True"] * 2 and len(Everything.calls) == 9
    assert Everything.calls[5::3] == ["collude 1 [1] None {'rounds': 1}", "collude 2 [1] None {'rounds': 2}"]
    assert [r["compromised"] for r in found.history] == [[1]] * 3


def test_a_count_that_is_claimed_is_the_count_that_weighs() -> None:
    # client 1 claims 7000 of 7068 examples: the model is nearly its own
    found = run(method("fedavg"), adversary=EVERYTHING, script=EVERYONE)  # type: ignore[arg-type]
    alone = run(method("fedavg"), adversary=EVERYTHING, script=[([1], [1])])  # type: ignore[arg-type]
    far = run(method("fedavg"), script=EVERYONE)  # type: ignore[arg-type]

    def apart(other: World) -> float:
        return sum(float((found[k] - other[k]).abs().sum()) for k in found.model)

    assert apart(alone) < apart(far) / 20


def test_processes_give_the_bits_of_one_by_one_and_stacks_the_same_but_for_rounding() -> None:
    one = run(method("fedavg"), adversary=EVERYTHING)  # type: ignore[arg-type]
    two = run(method("fedavg"), adversary=EVERYTHING, workers=2)  # type: ignore[arg-type]
    assert same(two, one) and two.history == one.history
    assert close(run(method("fedavg"), adversary=EVERYTHING, workers="batched"), one, tolerance=1e-5)  # type: ignore[arg-type]


def test_a_run_that_was_stopped_continues_to_the_same_bits(tmp_path: Path) -> None:
    with pytest.raises(Stopped):
        run(method("rebafl"), adversary=EVERYTHING, folder=tmp_path, stop_after=1)  # type: ignore[arg-type]
    Everything.calls.clear()
    rest = run(method("rebafl"), adversary=EVERYTHING, folder=tmp_path)  # type: ignore[arg-type]
    assert Everything.calls[2] == "collude 2 [1] None {'rounds': 2}" and Everything.calls[0] == "data 1 True"
    assert same(rest, run(method("rebafl"), adversary=EVERYTHING))  # type: ignore[arg-type]


def test_colluding_is_refused_where_replies_never_come_together_or_would_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("fedbuff", "gandalf"):
        with pytest.raises(UserError, match="needs a round whose replies come together"):
            small(name, adversary=EVERYTHING)
    monkeypatch.setattr("fedaudit.fl.aggregation.aggregator.MOST_BYTES", 100)
    with pytest.raises(UserError, match="needs all replies of a round at once"):
        small("fedavg", adversary=EVERYTHING)


def test_forging_what_nobody_sends_is_refused() -> None:
    with pytest.raises(UserError, match="and clients of Federated distillation send none of them"):
        small("fd", adversary=adversary("sign_flip"))
    with pytest.raises(UserError, match="clients of Datacenter send nothing"):
        small("datacenter", adversary=adversary("sign_flip"))


# Protections ------------------------------------------------------------------------------


def uploaded(protections: list[Protection], client: int, round: int = 0) -> float:
    """The norm of a change of norm 5 as it arrives from a client; client 1 is compromised until round 2."""
    bad = Compromise(adversary("sign_flip", leaves=2), frozenset({1}))
    wire = Wire(method("fedavg").card, Streams(3), protections, compromised=bad.acting)
    start = {"w": torch.tensor([1.0, 1.0])}
    sent = {Kind.LOCAL_MODEL: {"w": torch.tensor([4.0, 5.0])}}
    received = wire.uplink(round, sent, client, {Kind.GLOBAL_MODEL: start})
    assert received is not None
    return float((received[Kind.LOCAL_MODEL]["w"] - start["w"]).norm())


def test_protections_of_the_client_do_not_bind_an_attacker_and_those_of_the_server_do() -> None:
    own = DPGaussian(DPGaussian.Config(clip_norm=1.0, noise_multiplier=0.0))
    assert (uploaded([own], 0), uploaded([own], 1)) == pytest.approx((1, 5))
    central = CentralDP(CentralDP.Config(clip_norm=1.0))
    assert (uploaded([central], 0), uploaded([central], 1)) == pytest.approx((1, 1))
    assert (uploaded([own], 1, round=1), uploaded([own], 1, round=2)) == pytest.approx((5, 1))
    # a server that reads sums alone cannot clip one upload
    assert uploaded([central, SecureAggregation()], 1) == pytest.approx(5)


@pytest.mark.parametrize("name", catalog.names("protections"))
def test_a_protection_of_the_server_says_so_and_all_others_are_the_clients(name: str) -> None:
    server = {"central_dp", "secure_aggregation"}
    assert catalog.load("protections", name).enforced_by == ("server" if name in server else "client")


def test_the_ledger_has_no_line_of_a_client_that_left_its_protection_out(tmp_path: Path) -> None:
    own = DPGaussian(DPGaussian.Config(clip_norm=1.0))
    run(
        method("fedavg"),  # type: ignore[arg-type]
        adversary=adversary("sign_flip", clients=(1,)),
        protections=[own],
        folder=tmp_path,
        script=EVERYONE,
    )
    lines = [r for r in read(tmp_path / "ledger.jsonl") if r.kind == "local_model"]
    assert {r.sender for r in lines} == {"client/0", "client/2", "client/4"}
    assert {r.mechanism for r in lines} == {"gaussian"}


@pytest.mark.parametrize("name", ["fedavg", "fedbuff", "seol_kim", "power_of_choice", "qffl"])
def test_only_who_was_heard_counts_as_a_compromised_client_of_the_round(name: str) -> None:
    # whom the server left out, or whose reply was lost, no rule has dropped: Seol and Kim's listed both
    bad = adversary("sign_flip", clients=tuple(range(len(parts(data(n=80))))))
    found = small(name, adversary=bad)
    rounds = [r for r in found.history if not r.get("phase")]
    assert [len(r["compromised"]) for r in rounds] == [r["delivered"] for r in rounds]
    assert any(r["delivered"] < r["selected"] for r in rounds) or name == "fedbuff"
