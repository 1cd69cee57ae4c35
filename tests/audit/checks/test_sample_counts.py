"""Numbers that are not their sender's: every method's honest counts pass, and codes in their place do not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedaudit.audit.case.case import Case
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks.sample_counts import SampleCounts, explain_difference
from fedaudit.audit.checks.traffic import Traffic
from fedaudit.audit.controls.lab import Lab
from fedaudit.audit.observer.check import Checked
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.artifact import Artifact, Channel, Party, Role
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.scaffold import Scaffold
from fedaudit.fl.training.local import Trained
from fedaudit.reports.result import Finding, Severity
from tests.audit.checks.test_raw_samples import audited
from tests.leaks.methods import LabelInNumber
from tests.leaks.runs import LEAKS, config

COUNTING = [m for m in catalog.names("methods") if any(k.counted for k in catalog.load("methods", m).card.uplink)]


def check(case: Case) -> Checked:
    return SampleCounts().check(case, Lab.from_case(case))


def simulated(made: Config, folder: Path) -> list[Finding]:
    run = RunDir.create(folder / "run")
    execute(run, made, ("simulate",), lambda *_: None, skip_finished=True)
    return list(check(open_case(run, made)).results)


@pytest.mark.parametrize(
    "method",
    [
        m if m in ("fedavg", "rebafl", "seol_kim") else pytest.param(m, marks=pytest.mark.nightly)
        for m in COUNTING
    ],
)
def test_honest_clients_send_their_own_numbers(method: str) -> None:
    assert check(open_case(*audited(method))).results == []


@pytest.mark.parametrize(
    ("leak", "kind"),
    [
        ("label in a number", Kind.NUM_EXAMPLES),
        ("image in digits", Kind.NUM_EXAMPLES),
        ("counts in a scale", Kind.PROTO_COUNTS),
        ("counts by order", Kind.PROTO_COUNTS),
    ],
)
def test_a_code_in_the_place_of_a_number_is_a_finding(leak: str, kind: Kind, tmp_path: Path) -> None:
    [found] = simulated(config(LEAKS[leak], False, 0), tmp_path)
    assert found.artifacts == [kind] and int(found.summary.split()[0]) > 3
    assert found.severity is Severity.MEDIUM and "examples" in found.summary


class SaysThatItMadeSome(LabelInNumber):
    """A code in the number of examples, and a card that says that such numbers count what clients made."""

    card = replace(FedAvg.card, counts_made=True)


class SaysSoOfAnother(Scaffold):
    """The same beside another method, whose clients send no number; the code is sent in every round."""

    card = replace(Scaffold.card, uplink=(*Scaffold.card.uplink, Kind.NUM_EXAMPLES), counts_made=True)

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(1000 + int(client.y[0]))}
        return reply


class Repeats(FedAvg):
    """Trains on every example twice, and says so."""

    card = replace(FedAvg.card, counts_made=True)

    def train(self, client: Client) -> Reply:
        both = replace(client, x=torch.cat([client.x, client.x]), y=torch.cat([client.y, client.y]))
        return super().train(both)


def of(name: str, folder: Path) -> Checked:
    like = config(LEAKS["label in a number"], False, 0).model_dump(mode="json")
    made = Config.model_validate({**like, "method": {**like["method"], "name": f"{__name__}:{name}"}})
    run = RunDir.create(folder / "run")
    execute(run, made, ("simulate",), lambda *_: None, skip_finished=True)
    return check(open_case(run, made))


class CountsAsOne(FedAvg):
    """Every client sends one number, whatever it holds: the server's mean weighs all of them alike."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(1)}
        return reply


class CountsAsOneButOnce(FedAvg):
    """The same, but for one client in one round: a number that differs may be a code."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        code = 7 if len(client.y) % 2 else 1
        reply.message[Kind.NUM_EXAMPLES] = {"count": torch.tensor(code)}
        return reply


def test_one_number_for_everybody_says_nothing_of_anybody(tmp_path: Path) -> None:
    checked = of("CountsAsOne", tmp_path)
    assert checked.results == [] and any("All 6 clients send the same" in s for s in checked.declared)


def test_numbers_that_differ_are_a_finding(tmp_path: Path) -> None:
    [found] = of("CountsAsOneButOnce", tmp_path).results
    assert found.summary.startswith("6 of 6 clients")


@pytest.mark.parametrize("name", ["SaysThatItMadeSome", "SaysSoOfAnother"])
def test_a_card_that_says_clients_made_examples_is_not_believed(name: str, tmp_path: Path) -> None:
    [found] = of(name, tmp_path).results
    assert found.artifacts == [Kind.NUM_EXAMPLES]
    assert "6 of 6 clients" in found.summary and "and trains on" in found.summary


def test_a_client_that_does_train_on_what_it_made_is_believed(tmp_path: Path) -> None:
    assert of("Repeats", tmp_path) == Checked(results=[], declared=[])


@pytest.mark.parametrize(
    "method",
    [
        m if m == "seol_kim" else pytest.param(m, marks=pytest.mark.nightly)
        for m in COUNTING
        if catalog.load("methods", m).card.counts_made
    ],
)
def test_what_cannot_be_played_again_is_declared(method: str) -> None:
    found = check(open_case(*audited(method)))
    assert found.results == [] and all(s.startswith("Declared, not checked") for s in found.declared)


@pytest.mark.nightly
@pytest.mark.parametrize("method", catalog.names("methods"))
@pytest.mark.parametrize("seed", [3, 4])
def test_honest_methods_have_no_finding_on_other_seeds(method: str, seed: int, tmp_path: Path) -> None:
    _, made = audited(method)
    other, run = made.model_copy(update={"seed": seed}), RunDir.create(tmp_path / "run")
    execute(run, other, ("simulate",), lambda *_: None, skip_finished=True)
    case = open_case(run, other)
    assert check(case).results == [] and Traffic().check(case, None).results == []


@pytest.mark.nightly
def test_compromised_clients_and_protected_kinds_are_left_out(tmp_path: Path) -> None:
    leak = config(LEAKS["label in a number"], False, 0).model_dump(mode="json")
    lying = {**leak, "method": "fedavg", "adversary": {"name": "count_inflation", "clients": [0]}}
    assert simulated(Config.model_validate(lying), tmp_path / "lying") == []
    noisy = {"name": "laplace", "kinds": ["num_examples"], "clip_norm": 1e9, "scale": 1.0}
    assert simulated(Config.model_validate({**leak, "protections": [noisy]}), tmp_path / "noisy") == []


@pytest.mark.parametrize(
    ("classes", "counts"),
    [
        ([0, 1, 2], [3, 1]),
        ([0, 7], [3, 1]),
        ([0, -1], [3, 2]),
        ([0.5, 1], [3, 1]),
        ([[0, 1]], [[3, 1]]),
        ([0, 1], [3, float("nan")]),
        ([], 3),
    ],
)
def test_counts_of_any_form_are_compared(classes: list[float], counts: list[float]) -> None:
    payload = {"classes": np.array(classes), "counts": np.array(counts)}
    sent = Artifact(
        id="r00000/client-0.uplink/proto_counts",
        kind=Kind.PROTO_COUNTS,
        channel=Channel.UPLINK,
        round=0,
        sender=Party(Role.CLIENT, 0),
        seen_by=("server",),
        payload=payload,
    )
    assert explain_difference(sent, np.array([3, 1, 2]))
    assert explain_difference(replace(sent, payload={}), np.array([3, 1, 2])) == ""
    assert not explain_difference(
        replace(sent, payload=payload | {"classes": np.array([0, 1]), "counts": np.array([3, 1])}),
        np.array([3, 1, 2]),
    )


@pytest.mark.parametrize(
    ("kind", "payload", "words"),
    [
        (Kind.NUM_EXAMPLES, {"count": np.array(12), "image": np.zeros(64)}, "'image' of 64 numbers"),
        (Kind.NUM_EXAMPLES, {"count": np.array(12 + 7j)}, "complex128"),
        (Kind.PROTO_COUNTS, {"classes": np.array([1, 1]), "counts": np.array([4, 4])}, "one a class"),
    ],
)
def test_true_numbers_with_something_beside_them_are_not_just_numbers(
    kind: Kind, payload: dict[str, np.ndarray], words: str
) -> None:
    sent = Artifact(
        id="0",
        round=0,
        channel=Channel.UPLINK,
        sender=Party.client(0),
        seen_by=("server",),
        kind=kind,
        payload=payload,
    )
    assert words in explain_difference(sent, np.array([3, 4, 5]))
