"""Examples that cross the wire as they are: a finding of their own, whatever attacks a config lists."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from fedaudit.attacks.evaluation.payloads import find_in_payload
from fedaudit.attacks.evaluation.raw_rows import RowFinder
from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks.raw_samples import RawSamples, describe, describe_few
from fedaudit.audit.evidence.files import EvidenceFolder
from fedaudit.audit.observer.check import Checked
from fedaudit.audit.phases import attack
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.training.local import Trained
from fedaudit.reports.result import Finding, Outcome, Severity
from tests.audit.simulated import simulated
from tests.fl.test_all_methods import adapters, light, perceptron


@cache
def audited(method: str, *attacks: str) -> tuple[RunDir, Config]:
    """Two rounds with four clients, everybody in both."""
    run, config = simulated(
        {
            "federation": {
                "dataset": "digits",
                "clients": 4,
                "partition": {"name": "dirichlet", "alpha": 0.5},
                "availability": "full",
                "model": perceptron(method),
                **adapters(method, "layers.0"),
                "holdout": {"reference": 0.4, "server": 0.1},  # some servers need examples of their own
            },
            "method": {"name": method, **light(method, rounds=2, lr=0.1)},
            "workers": 0,
            "attacks": list(attacks),
        }
    )
    return run, config


def check(method: str) -> Sequence[Finding]:
    return RawSamples().check(open_case(*audited(method)), None).results


def test_every_method_that_sends_examples_is_told_here() -> None:
    senders = {m for m in catalog.names("methods") if Kind.SEED_SAMPLES in catalog.load("methods", m).card.uplink}
    assert senders == {"data_sharing", "faug"}


@pytest.mark.dear("faug")
@pytest.mark.parametrize("method", ["data_sharing", "faug"])
def test_examples_sent_as_they_are_are_critical_without_any_attack(method: str) -> None:
    [raw] = check(method)
    assert raw.artifacts == [Kind.SEED_SAMPLES] and raw.severity is Severity.CRITICAL
    [exact] = re.findall(r"([0-9,]+) of \1 are examples of their sender", raw.summary)
    assert int(exact.replace(",", "")) > 10


def test_other_clients_read_what_the_server_hands_on() -> None:
    assert check("data_sharing")[0].summary.endswith("Read by: server, every client.")
    assert check("faug")[0].summary.endswith("Read by: server.")


def test_methods_that_send_none_have_no_such_finding() -> None:
    assert list(check("fedavg")) == []


def raw(**changes: int) -> Finding:
    counts = {"clients": 3, "sent": 9, "compared": 9, "equal": 0} | changes
    return describe(Kind.SEED_SAMPLES, readers=("server",), **counts)


def test_examples_equal_to_none_of_the_senders_are_not_found_here() -> None:
    assert raw().severity is Severity.NONE


def test_where_nothing_can_be_compared_the_kind_speaks_for_itself() -> None:
    found = raw(compared=0)
    assert found.severity is Severity.CRITICAL and "none could be compared" in found.summary


def test_an_attack_reads_them_too_so_that_noise_does_not_hide_them() -> None:
    run, config = audited("data_sharing", "mashed_membership")
    attack.run(run, config, lambda *_: None)
    [file] = EvidenceFolder(run.path).attacks
    found = {e["measure"]: e for e in file["evidence"] if e["control"] == "none"}
    assert found["auc"]["condition"]["n"] == 1 and found["auc"]["interval"][0] > 0.5


RNG = np.random.default_rng(0)
HELD = Arrays(x=RNG.random((20, 3, 8, 8)).astype(np.float32), y=np.arange(20) % 10)
WAYS: dict[str, dict[str, np.ndarray]] = {
    "as they are": {"images": HELD.x, "labels": HELD.y},
    "with other labels": {"images": HELD.x, "labels": (HELD.y + 1) % 10},
    "without labels": {"images": HELD.x},
    "in bytes": {"images": (HELD.x * 255).round().astype(np.uint8), "labels": HELD.y},
    "channels last": {"images": np.moveaxis(HELD.x, 1, -1), "labels": HELD.y},
    "as rows": {"images": HELD.x.reshape(20, -1), "labels": HELD.y},
    "under another name, inverted": {"x": 1 - HELD.x},
}


def count_equal(payload: dict[str, np.ndarray], own: Arrays) -> int:
    return len({x.record for x in find_in_payload(payload, own.x)})


@pytest.mark.parametrize("way", WAYS)
def test_an_example_is_one_of_its_sender_s_however_it_is_laid_out(way: str) -> None:
    sent = WAYS[way]
    others = Arrays(x=RNG.random((20, 3, 8, 8)).astype(np.float32), y=HELD.y)
    assert (count_equal(sent, HELD), count_equal(sent, others)) == (20, 0)


def test_of_few_values_an_example_is_known_by_all_of_them() -> None:
    held = Arrays(x=RNG.random((5, 3)).astype(np.float32), y=np.zeros(5, np.int64))
    other = replace(held, x=held.x + 0.1)
    sent = {"images": held.x, "labels": held.y}
    assert (count_equal(sent, held), count_equal(sent, other)) == (5, 0)


# Rows of tables


ROWS = 20


class RowsBesideTheModel(FedAvg):
    """Sends the model, and behind its weights a few rows as a network is given them."""

    def finish(self, client: Client, trained: Trained) -> Reply:
        reply = super().finish(client, trained)
        model = reply.message[Kind.LOCAL_MODEL]
        name = next(n for n, v in model.items() if v.numel() >= ROWS * client.x[0].numel())
        hidden = model[name].clone().flatten()
        hidden[-ROWS * client.x[0].numel() :] = client.x[:ROWS].flatten().to(hidden)
        reply.message[Kind.LOCAL_MODEL] = {**model, name: hidden.reshape(model[name].shape)}
        return reply


def table(method: str, data: str | dict[str, Any], model: str, seed: int = 1) -> Checked:
    """What the check says of two rounds of three hospitals with a table."""
    run, config = simulated(
        {
            "seed": seed,
            "federation": {
                "dataset": data,
                "clients": 3,
                "partition": "iid",
                "availability": "full",
                "model": model,
                "holdout": {"reference": 0.2, "auxiliary": 0.1},
            },
            "method": {"name": method, "rounds": 2, "lr": 0.05, "batch_size": 10},
            "record": "all",
            "workers": 0,
        }
    )
    return RawSamples().check(open_case(run, config), None)


PATIENTS = {"name": "patients", "patients": 400}
LEAKING = "tests.audit.checks.test_raw_samples:RowsBesideTheModel"


@pytest.mark.parametrize("data", ["breast_cancer", PATIENTS], ids=["cancer", "patients"])
def test_rows_over_weights_are_critical_and_those_of_honest_clients_are_not_there(data: Any) -> None:
    leaking, honest = (table(method, data, "tab_mlp") for method in (LEAKING, "fedavg"))
    found = leaking.results[0]
    assert found.severity is Severity.CRITICAL and found.id == "raw-local_model" and found.at_least == 3 * ROWS
    assert [f.id for f in honest.results] == ["raw-rows"] and not honest.results[0].severity.rank


def test_what_few_columns_cannot_tell_is_said_with_the_trial_that_would_have_found_it() -> None:
    [found] = table("fedavg", PATIENTS, "logreg").results
    assert found.outcome is Outcome.NOT_APPLICABLE and "cannot be told" in found.title
    assert "Rows of this table cannot be told apart from chance" in found.reason
    assert "20 were found, and 0 of as many held-out rows" in found.summary
    [found] = table("fedavg", "breast_cancer", "logreg").results
    assert found.outcome is Outcome.RAN and not found.reason and found.title.startswith("No row")


def test_of_rows_that_tell_nothing_no_number_could_be_found() -> None:
    limits = RowFinder(np.arange(40).reshape(20, 2) % 2, None, np.arange(40).reshape(20, 2) % 2).count_limits()
    assert limits.enough == 0 and describe_few(3, limits).endswith("no number of them in a row could be either.")
    assert not describe_few(3, limits._replace(alone=0.6, enough=3))


HONEST = [
    (method, data, model)
    for data in ("breast_cancer", "wine", PATIENTS, "diabetes")
    for method, model in (("fedavg", "logreg"), ("fedavg", "mlp"), ("fedprox", "mlp"), ("fedproto", "mlp"))
    if data != "diabetes" or method != "fedproto"  # which is made for classes
]


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [1, 2])
def test_thirty_honest_federations_of_tables_raise_no_alarm(seed: int) -> None:
    for method, data, model in HONEST:
        checked = table(method, data, model, seed)
        assert [f.id for f in checked.results] == ["raw-rows"] and not any(
            f.severity.rank for f in checked.results
        )
