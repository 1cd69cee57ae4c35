"""False claims move every server that chooses or weighs by them, and no other."""

import dataclasses
from typing import Any

import pytest
import torch

from fedaudit.attacks.poisoning.count_inflation import COUNTS
from fedaudit.audit.settings import catalog
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.adversary import Adversary, Client, Message
from tests.attacks.poisoning.test_adversaries import adversary
from tests.attacks.poisoning.test_in_a_federation import clean, small
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, data, parts, run, same

STATING = [  # losses of generators decide at most when training ends
    m
    for m in catalog.names("methods")
    if {Kind.LOCAL_LOSS, Kind.NUM_STEPS} & set(sent := catalog.load("methods", m).card.uplink)
    and Kind.GAN_G not in sent
    and m != "tifl"  # what is stated moves how likely tiers are drawn: tests/fl/selections/test_tifl.py
]


COUNTING = [m for m in catalog.names("methods") if set(COUNTS) & set(catalog.load("methods", m).card.uplink)]
UNHEARD = ("dsgd", "power_of_choice")  # counts are stated, and their servers weigh clients alike


def test_what_is_stated_is_multiplied_and_what_is_trained_is_not() -> None:
    message = {
        Kind.LOCAL_LOSS: {"loss": torch.tensor(0.5)},
        Kind.NUM_STEPS: {"steps": torch.tensor(4), "norm": torch.tensor(2.0)},
        Kind.LOCAL_MODEL: {"w": torch.tensor([1.0])},
    }
    made = adversary("false_claims", factor=10.0).craft(None, Reply(message=message, examples=3), {}).message  # type: ignore[arg-type]
    assert float(made[Kind.LOCAL_LOSS]["loss"]) == 5.0 and int(made[Kind.NUM_STEPS]["steps"]) == 40
    assert made[Kind.NUM_STEPS]["steps"].dtype == torch.int64 and float(made[Kind.NUM_STEPS]["norm"]) == 20.0
    assert made[Kind.LOCAL_MODEL] == message[Kind.LOCAL_MODEL]
    assert adversary("false_claims", wait=3.0).late() == 3.0


@pytest.mark.parametrize("of", STATING)
def test_a_false_claim_moves_every_method_that_goes_by_it_and_a_true_one_none(of: str) -> None:
    assert not same(small(of, "false_claims", factor=1000.0), clean(of))
    assert same(small(of, "false_claims", factor=1.0), clean(of))


@pytest.mark.sample(6)
@pytest.mark.dear("private_fl_gan", "sda_fl", "astraea", "faug")
@pytest.mark.parametrize("of", COUNTING)
def test_a_false_count_moves_every_method_but_those_that_weigh_clients_alike(of: str) -> None:
    assert same(small(of, "count_inflation", factor=1000.0), clean(of)) == (of in UNHEARD)


@pytest.mark.sample(6)
@pytest.mark.dear("private_fl_gan", "sda_fl", "astraea", "faug")
@pytest.mark.parametrize("of", COUNTING)
def test_a_count_of_nothing_is_rejected_and_ends_no_run_even_where_nobody_else_is_heard(of: str) -> None:
    alone = method(of)
    try:
        found = run(
            alone,  # type: ignore[arg-type]
            d=data(n=100),
            index=parts(data(n=80)),
            script=[([0, 1, 2, 3, 4], [1]), ([0, 1, 2, 3, 4], [0, 1, 2, 4])],
            adversary=adversary("count_inflation", clients=(1, 2), factor=1e-9),
        )
    except UserError as error:
        assert "rejected what all clients say" in str(error)
    else:
        assert all(bool(torch.isfinite(v).all()) for v in found.model.values())


@pytest.mark.sample(6)
@pytest.mark.dear("private_fl_gan", "sda_fl", "faug")
@pytest.mark.parametrize("of", COUNTING)
def test_a_count_without_measure_has_nobody_make_more_than_it_could(of: str) -> None:
    found = small(of, "count_inflation", factor=1e30)
    assert all(bool(torch.isfinite(v).all()) for v in found.model.values())


class Impossible(Adversary):
    """Names a class, cluster or version that there is not."""

    card = dataclasses.replace(catalog.load("adversaries", "sign_flip").card, kinds=())

    def __init__(self, config: Any, named: int) -> None:
        super().__init__(config)
        self.named = named

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        message = {
            kind: {
                k: torch.full_like(v, self.named) if k in ("classes", "labels", "cluster", "version") else v
                for k, v in payload.items()
            }
            for kind, payload in reply.message.items()
        }
        return dataclasses.replace(reply, message=message)


@pytest.mark.parametrize("named", [-1, 10**6])
@pytest.mark.parametrize(
    "of",
    [
        "fedasync",
        "fedbuff",
        "fedgkt",
        "fedproto",
        "rebafl",
        "ifca",
        "split_learning",
        "splitfed_v1",
        "splitfed_v2",
    ],
)
def test_naming_what_there_is_not_ends_no_run(of: str, named: int) -> None:
    found = run(
        method(of),  # type: ignore[arg-type]
        d=data(n=100),
        index=parts(data(n=80)),
        script=EVERYONE,
        adversary=Impossible(Impossible.Config(clients=(1, 2)), named),
    )
    assert all(bool(torch.isfinite(v).all()) for v in found.model.values())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32])
def test_a_claim_is_as_large_as_its_precision_holds_and_never_below_nothing(dtype: torch.dtype) -> None:
    message = {Kind.NUM_EXAMPLES: {"count": torch.tensor(7, dtype=dtype)}}
    made = adversary("count_inflation", factor=1e300).craft(None, Reply(message=message, examples=7), {})  # type: ignore[arg-type]
    claimed = made.message[Kind.NUM_EXAMPLES]["count"]
    assert claimed.dtype == dtype and float(claimed) > 1e9 and bool(torch.isfinite(claimed.double()))


def test_it_is_refused_where_nobody_states_anything() -> None:
    with pytest.raises(UserError, match="send none of them"):
        small("fedavg", "false_claims")
