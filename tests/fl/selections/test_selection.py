"""Any method of rounds with a selection: who is asked what, with which memory, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.settings.config import load
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.clients.selection import Choice
from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.selections.power_of_choice import PowerOfChoice
from tests.contracts.test_selections import CHOOSING, combine, list_trained, method
from tests.fl.selections.test_chosen_by_time import TIMES
from tests.fl.worlds import EVERYONE, run, same


class Answers:
    """A federation whose clients say these losses."""

    def __init__(self, losses: dict[int, float]) -> None:
        self.losses, self.jobs = losses, list[Any]()
        self.workers = self.wire = self

    def map(self, name: str, jobs: list[Any]) -> list[Reply]:
        self.jobs += [(name, *job) for job in jobs]
        said = (self.losses[k] for _, (k, _, _) in jobs)
        return [Reply(message={Kind.LOCAL_LOSS: {"loss": torch.tensor(x)}}, examples=1) for x in said]

    def uplink(self, round: int, message: Any, client: int, reference: Any) -> Any:
        return None if client == 3 else message  # as the wire does with what it refuses


def ask(losses: dict[int, float], chosen: int, memory: dict[int, Any] | None = None) -> tuple[Any, Answers]:
    federation, made = Answers(losses), PowerOfChoice(PowerOfChoice.Config(chosen=chosen))
    sent = {Kind.GLOBAL_MODEL: {"w": torch.zeros(1)}}
    return made.select(Choice(None, federation, {}, 2, sent, memory or {}), list(losses)), federation


def test_power_of_choice_takes_the_largest_losses_by_hand() -> None:
    """Client 3 says the largest loss and is not heard; of equal ones the lower number trains."""
    losses = {0: 0.3, 1: 2.0, 2: 0.7, 3: 9.0, 4: 1.1, 5: 1.1}
    assert ask(losses, 2)[0].clients == [1, 4]
    assert ask(losses, 3)[0].clients == [1, 4, 5]
    assert ask(losses, 6)[0].clients == [0, 1, 2, 4, 5]


def test_a_client_is_asked_with_what_it_remembers() -> None:
    asked = ask({0: 0.1, 1: 0.2}, 1, {1: {"own": 7}})[1].jobs
    work = "selection.report_loss"
    assert asked == [("work", work, (0, {}, {})), ("work", work, (1, {"own": 7}, {}))]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon", "rebafl", "ifca", "fedrep"])
def test_the_worst_off_train_whatever_the_method(name: str, tmp_path: Path) -> None:
    world = run(combine(name, "power_of_choice"), folder=tmp_path, script=EVERYONE)
    losses: dict[int, dict[int, float]] = {}
    for a in world.artifacts:
        if a.kind == Kind.LOCAL_LOSS:
            losses.setdefault(a.round, {})[int(a.sender.index)] = float(a.payload["loss"])
    assert len(losses) == 4 and all(len(said) == 4 for said in losses.values())
    worst = {t: sorted(sorted(said, key=lambda k: -said[k])[:2]) for t, said in losses.items()}
    assert list_trained(world) == worst
    assert not same(world, run(method(name), script=EVERYONE))


# Who trained while each was a method of its own, at commit 711cb903, with a fixed script of who answers
BEFORE = {
    "fedcs": {0: [2, 4], 1: [2], 2: [2], 3: [2, 4], 4: [2]},
    "power_of_choice": {0: [2, 4], 1: [0], 2: [2], 3: [0], 4: [1, 2], 5: [1]},
    "rbcs_f": {0: [2, 4], 1: [0], 2: [2], 3: [0], 4: [2], 5: [0, 1]},
    "tifl": {0: [0, 1], 1: [0], 2: [2], 3: [0], 4: [2]},
}


@pytest.mark.parametrize("name", list(BEFORE))
def test_each_name_chooses_whom_it_chose_as_a_method_of_its_own(name: str, tmp_path: Path) -> None:
    made = method(name, **CHOOSING[name], rounds=6)
    assert list_trained(run(made, folder=tmp_path, time_model=TIMES, reply_loss=0.2)) == BEFORE[name]


def test_a_method_that_sends_all_clients_no_model_cannot_have_them_scored() -> None:
    with pytest.raises(UserError, match=r"Power-of-choice asks clients how the shared model does .* and STC"):
        run(combine("stc", "power_of_choice"), script=EVERYONE)


def test_noise_for_a_mean_of_everybody_is_refused_where_clients_are_chosen() -> None:
    with pytest.raises(UserError, match="its server does more than take the unweighted mean"):
        run(combine("fedavg", "rbcs_f", weighting="uniform"), protections=[CentralDP()], script=EVERYONE)


def write(folder: Path, federation: str, method: str) -> Path:
    path = folder / "audit.yaml"
    head = "federation: {dataset: digits, limit: 200, clients: 4, partition: iid, availability: full, "
    path.write_text(f"{head}model: logreg{federation}}}\nmethod: {method}\n")
    return path


def test_a_config_names_a_selection_for_any_method(tmp_path: Path) -> None:
    path = write(tmp_path, ", selection: {name: tifl, tiers: 2}", "{name: moon, rounds: 2}")
    case = SimulatedCase(load(path))  # type: ignore[arg-type]
    assert case.card.title == "MOON" and Kind.LOCAL_LOSS in case.card.uplink
    assert case.time_model is not None, "who chooses by the clock has one"
    assert case.participation.sampling(0).sampling == "unknown"
    assert "one of 2 groups of clients of like speed" in case.about.clients[2]


def test_without_a_selection_a_config_is_as_it_was(tmp_path: Path) -> None:
    config = load(write(tmp_path, "", "fedavg"))
    assert "selection" not in config.model_dump()["federation"]
    case = SimulatedCase(config)  # type: ignore[arg-type]
    assert case.method.selection.is_everybody and case.time_model is None
    assert len(case.about.clients) == 2 and case.participation.sampling(0).sampling == "none"


@pytest.mark.parametrize(
    ("federation", "method", "where"),
    [
        ("", "{name: fedcs, deadline: 1.0e-12}", "method.deadline"),
        (", selection: {name: fedcs, deadline: 1.0e-12}", "fedavg", "federation.selection.deadline"),
    ],
)
def test_a_deadline_that_nobody_keeps_is_named_where_it_stands(
    tmp_path: Path, federation: str, method: str, where: str
) -> None:
    case = SimulatedCase(load(write(tmp_path, federation, method)))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="FedCS asks nobody") as refused:
        run(case.method, script=EVERYONE)
    assert refused.value.key == where
