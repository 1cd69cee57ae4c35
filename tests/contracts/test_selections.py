"""Every selection: with FedAvg it is the method of its name; with others too its rounds are written down."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.fl.clients.selection import Selection, is_blind
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.method import RoundMethod, select_by
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.contracts.words import odd
from tests.fl.worlds import EVERYONE, World, run, same

NAMES = catalog.names("selections")
COMMON = {"rounds": 4, "local_epochs": 1, "batch_size": 8, "lr": 0.05}
CHOOSING = {  # settings with which somebody is left out of these five clients
    "fedcs": {"deadline": 2e-5},
    "power_of_choice": {"candidates": 4, "chosen": 2},
    "rbcs_f": {"clients_per_round": 2},
    "tifl": {"tiers": 2, "interval": 2},
}


def method(name: str, **settings: Any) -> RoundMethod:
    found: RoundMethod = configure(catalog.load("methods", name), COMMON | settings, "method")
    return found


def selection(name: str) -> Selection:
    found: Selection = configure(catalog.load("selections", name), CHOOSING.get(name, {}), "federation.selection")
    return found


def combine(name: str, chosen_by: str, **settings: Any) -> RoundMethod:
    made = method(name, **settings)
    select_by(made, selection(chosen_by))
    return made


def list_trained(world: World) -> dict[int, list[int]]:
    """Round -> clients whose training arrived."""
    found: dict[int, list[int]] = {}
    for a in world.artifacts:
        if a.kind in (Kind.LOCAL_MODEL, Kind.MODEL_DELTA):
            found.setdefault(a.round, []).append(int(a.sender.index))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_fedavg_with_a_selection_is_the_method_of_that_name_to_the_last_bit(name: str, tmp_path: Path) -> None:
    own = method(name, **CHOOSING[name])
    other = combine("fedavg", name, weighting=own.config.weighting)
    alone = run(own, folder=tmp_path / "own", reply_loss=0.25)
    beside = run(other, folder=tmp_path / "other", reply_loss=0.25)
    assert same(alone, beside) and list_trained(alone) == list_trained(beside)
    lines = [(tmp_path / which / "ledger.jsonl").read_bytes() for which in ("own", "other")]
    assert lines[0] == lines[1]
    assert not same(alone, run(method("fedavg", weighting=own.config.weighting), reply_loss=0.25))


@pytest.mark.parametrize("name", NAMES)
def test_rounds_of_another_method_are_of_the_chosen_and_the_ledger_says_so(name: str, tmp_path: Path) -> None:
    world = run(combine("scaffold", name), folder=tmp_path, script=EVERYONE)
    trained = list_trained(world)
    assert trained and all(len(clients) < 4 for clients in trained.values())
    lines = [r for r in read(tmp_path / "ledger.jsonl") if r.kind == "selection"]
    assert [(r.round, r.mechanism, r.sampling) for r in lines] == [(t, "none", "none") for t in range(4)]


@pytest.mark.parametrize("name", NAMES)
def test_it_chooses_says_how_and_claims_no_more(name: str) -> None:
    made = selection(name)
    assert not made.is_everybody and not is_blind(made)
    text = made.describe()
    assert len(text.split()) >= 3 and not odd(text) and not odd(made.text)
    cards = (combine("fedavg", name).card, catalog.load("methods", name).card)
    assert cards[0].uplink == cards[1].uplink == ("local_model", "num_examples", *made.asks)
    assert cards[0].timed == cards[1].timed == made.timed


NO_ROUNDS = [
    n for n in catalog.names("methods") if not (c := catalog.load("methods", n).card).collects or not c.uplink
]


def test_there_are_methods_without_rounds() -> None:
    assert {"fedasync", "splitfed_v1", "gandalf", "datacenter"} <= set(NO_ROUNDS) and len(NO_ROUNDS) < 20


@pytest.mark.parametrize("name", NO_ROUNDS)
def test_a_method_without_rounds_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="has no rounds in which clients answer together") as refused:
        select_by(catalog.load("methods", name)(), selection("fedcs"))
    assert refused.value.key == "federation.selection" and "leave federation.selection out" in str(
        refused.value.hint
    )


@pytest.mark.parametrize("name", ["tifl", "freezefl", "seol_kim"])
def test_a_method_that_chooses_its_clients_itself_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"chooses the clients of a round, and .* does so itself"):
        select_by(catalog.load("methods", name)(), selection("rbcs_f"))


def test_freezefl_that_leaves_its_clients_open_takes_a_selection() -> None:
    made = method("freezefl", selection=False)
    assert made.selection.is_everybody and not method("freezefl").selection.is_everybody
    select_by(made, selection("power_of_choice"))
    assert not made.selection.is_everybody
