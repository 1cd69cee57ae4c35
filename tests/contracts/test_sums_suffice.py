"""Behind secure aggregation a server has sums alone: the methods that work so do as they do without it."""

import pytest

from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Method
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime import plugin
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import Protection
from tests.fl.test_all_methods import method
from tests.fl.worlds import World, data, parts, run, same

DATA, HELD = data(n=100), parts(data(n=80), (30, 40), skew=False)
HIDES = SecureAggregation()
# Whose server reads single uploads, and what it makes of them
READS = {
    "astraea": "reads 2 uploads one by one",
    "fd": "another 'tables/0/table'",
    "fedavg_fd": "another 'tables/0/table'",
    "flora": "another 'model/fc.folded'",
    "hetlora": "another 'model/fc.lora_A.weight'",
}


def train(name: str, *protections: Protection) -> World:
    script = [([0, 1], [0, 1])]
    return run(method(name, rounds=2), protections=protections, script=script, d=DATA, index=HELD)  # type: ignore[arg-type]


def list_summable() -> list[str]:
    cards = {n: plugin.load("fedaudit.fl.methods", n, Method).card for n in plugin.names("fedaudit.fl.methods")}
    return [n for n, card in cards.items() if card.uplink and not HIDES.refuses(card.uplink)]


@pytest.mark.parametrize("name", [n for n in list_summable() if n not in READS])
def test_a_server_that_works_from_sums_makes_the_same_of_them(name: str) -> None:
    plain, summed = train(name), train(name, HIDES)
    assert same(plain, summed)
    assert plain.history[-1]["accuracy"] == summed.history[-1]["accuracy"]


@pytest.mark.parametrize(("name", "reason"), READS.items())
def test_a_server_that_reads_single_uploads_is_refused_by_the_run(name: str, reason: str) -> None:
    with pytest.raises(UserError, match=reason) as refused:
        train(name, HIDES)
    card = plugin.load("fedaudit.fl.methods", name, Method).card
    assert f"secure aggregation cannot protect {card.title}: in round 0 its server" in str(refused.value)


def test_methods_of_which_no_kind_is_summed_are_refused_by_their_cards() -> None:
    assert HIDES.refuses((Kind.LOCAL_LOSS,)) and "fedavg" in list_summable()
