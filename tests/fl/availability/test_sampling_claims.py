"""What an availability claims of its sampling holds for its draws, and no class claims it by inheritance.

Every discovered model is drawn 10^4 times (audit/accounting/draws.py), as the verifier does with anybody's.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import fedaudit.audit.accounting.draws
from fedaudit.fl.availability.bernoulli import Bernoulli, Persistent
from fedaudit.fl.availability.full import Full
from fedaudit.fl.availability.uniform import Uniform
from fedaudit.fl.clients.selection import Choice, Selection, is_blind
from fedaudit.fl.data.participation import UNKNOWN, Availability, Drawn, Participation, describe_drawing
from fedaudit.fl.federation import Federation, Holdings
from fedaudit.fl.ledger import read
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.selected import PowerOfChoice
from fedaudit.fl.runtime.plugin import load, names
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.wire import Wire
from tests.fl.availability.test_availability import ALL, STREAMS, model
from tests.fl.worlds import data, parts, run

CLIENTS = 20
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "bernoulli": [{}, {"p": 0.1}, {"p": 0.9}],
    "clustered": [{}, {"p": [0.9, 0.1]}],
    "persistent": [{}, {"p": 0.3, "period": 20}, {"period": 1}],
    "uniform": [{}, {"count": 3}, {"fraction": 0.7}],
    "delay": [{}, {"rate": 0.4}],
    "markov": [{}, {"join": 0.5, "leave": 0.1}],
}


def contradictions(available: Availability) -> list[str]:
    return fedaudit.audit.accounting.draws.contradictions(available, CLIENTS, STREAMS)


@pytest.mark.parametrize(("name", "given"), [(n, s) for n in ALL for s in SETTINGS.get(n, [{}])])
def test_what_is_claimed_holds_for_ten_thousand_draws(name: str, given: dict[str, Any]) -> None:
    assert contradictions(model(name, **given)) == []


class Lasting(Bernoulli):
    """Claims fresh coins and keeps them for three rounds."""

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return super().draw(round - round % 3, candidates, streams, attempt)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", self.config.p)


class Eager(Lasting):
    """Claims a lower rate than it draws with."""

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return Bernoulli.draw(self, round, candidates, streams, attempt)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", 0.9 * self.config.p)


class Together(Eager):
    """Everybody or nobody."""

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        on = streams.numpy("participation", round, attempt).random() < self.config.p
        return Participation(tuple(candidates), tuple(candidates) if on else ())

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", self.config.p)


class Counted(Together):
    """A fixed number, claimed as coins of their own."""

    def draw(self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0) -> Participation:
        return Uniform(Uniform.Config(fraction=0.5)).draw(round, candidates, streams, attempt)

    def sampling(self, client: int | None, clients: int) -> Drawn:
        return Drawn("poisson", self.config.p)


@pytest.mark.parametrize(
    ("liar", "said"), [(Lasting, "draws 1 apart"), (Eager, "rate"), (Together, "two"), (Counted, "two")]
)
def test_a_false_claim_is_contradicted(liar: type[Availability], said: str) -> None:
    assert any(said in text for text in contradictions(liar(liar.Config())))


@pytest.mark.parametrize("name", ALL)
def test_a_class_that_derives_from_a_claim_and_does_not_restate_it_claims_nothing(name: str) -> None:
    class Derived(load("fedaudit.fl.availability", name, Availability)):  # type: ignore[misc]
        def draw(
            self, round: int, candidates: Sequence[int], streams: Streams, attempt: int = 0
        ) -> Participation:
            return Participation(tuple(candidates[:1]), tuple(candidates[:1]))

    class Silent(load("fedaudit.fl.availability", name, Availability)):  # type: ignore[misc]
        """Only its draw's helpers might be others."""

    for cls in (Derived, Silent):
        assert cls(cls.Config()).sampling(0, 10) == UNKNOWN


def test_a_persistent_draw_is_claimed_once_a_period() -> None:
    five = Persistent(Persistent.Config(p=0.3, period=5))
    assert five.sampling(0, 10) == Drawn("poisson", 0.3, 5)
    assert describe_drawing(five, 10, "skip", 0) == Drawn("poisson", 0.3, 5)
    assert describe_drawing(five, 10, "redraw", 0).sampling == "unknown"


def test_drawing_again_spoils_a_fixed_number_where_a_drawn_round_can_be_empty() -> None:
    one, three = (Uniform(Uniform.Config(count=n)) for n in (1, 3))
    assert describe_drawing(one, 10, "skip", 0).sampling == "fixed_without_replacement"
    assert (
        describe_drawing(one, 10, "redraw", 0).sampling == "unknown"
    )  # a neighbour's only client may hold nothing
    assert describe_drawing(three, 10, "redraw", 0, without_data=1).sampling == "fixed_without_replacement"
    assert describe_drawing(three, 10, "redraw", 0, without_data=2).sampling == "unknown"


# Who takes part is also what a method makes of it ----------------------------------------------


def law(candidates: Sequence[int], choice: bool, twice: bool = False) -> str:
    """What the wire says of client 0 after a draw of five clients."""
    wire = Wire(FedAvg.card, Streams(1))
    five = Federation(
        holdings=Holdings(data(), parts(data(), (5,) * 5), Streams(1)),
        initial={},
        availability=Bernoulli(Bernoulli.Config(p=0.5)),
        wire=wire,
        workers=None,  # type: ignore[arg-type]
        empty_round="skip",
    )
    five.participate(0, candidates, choice)
    if twice:
        five.participate(0, candidates, choice)
    return five.wire.accounts.get_law(0)(0).sampling


def test_a_choice_among_the_drawn_a_part_of_them_or_a_second_draw_is_another_law() -> None:
    assert law(range(5), choice=False) == "poisson"
    assert law(range(5), choice=True) == "unknown"
    assert law(range(4), choice=False) == "unknown"
    assert law(range(5), choice=False, twice=True) == "unknown"


@pytest.mark.parametrize("name", names("fedaudit.fl.selections"))
def test_a_selection_says_that_it_chooses(name: str) -> None:
    assert not load("fedaudit.fl.selections", name, Selection)().is_everybody
    assert Selection().is_everybody and is_blind(Selection())


class Blind(Selection):
    """A draw of the round's number alone."""

    is_blind = True

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        return [choice.round % 5]


class Heir(Blind):
    """Chooses otherwise and says nothing."""

    def choose_candidates(self, choice: Choice) -> Sequence[int]:
        return [0]


def test_that_a_choice_is_blind_is_never_inherited() -> None:
    assert is_blind(Blind()) and not is_blind(Heir())


def test_clients_chosen_by_their_data_are_a_release_in_clear(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"rounds": 2, "local_epochs": 1, "batch_size": 8}
    run(PowerOfChoice(PowerOfChoice.Config(**settings)), folder=tmp_path / "a")
    chosen = [r for r in read(tmp_path / "a" / "ledger.jsonl") if r.kind == "selection"]
    assert [(r.round, r.mechanism, r.sender) for r in chosen] == [(t, "none", "client/*") for t in range(2)]
    run(FedAvg(FedAvg.Config(**settings)), folder=tmp_path / "b")
    assert not any(r.kind == "selection" for r in read(tmp_path / "b" / "ledger.jsonl"))


def test_full_participation_is_no_draw() -> None:
    assert describe_drawing(Full(), 10, "redraw", 3) == Drawn()
