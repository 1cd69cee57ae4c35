"""Numbers that are not their sender's: every method's honest counts pass, and codes in their place do not."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from audit.phases.plan import execute
from audit.settings import catalog
from audit.settings.config import Config
from audit.subject.open import open_case
from audit.subject.rundir import RunDir
from audit.verdict.judge import judged
from audit.verdict.policy import load_policy
from audit.verdict.untrue import Untrue, differs, untrue
from fl.artifact import Artifact, Channel, Party, Role
from fl.kinds import Kind
from reports.result import Severity
from tests.audit.verdict.test_raw import audited
from tests.leaks.runs import LEAKS, config

COUNTING = [m for m in catalog.names("methods") if any(k.counted for k in catalog.load("methods", m).card.uplink)]
BY_HAND = {"fedavg_ft"}  # its server needs examples of its own


def simulated(made: Config, folder: Path) -> list[Untrue]:
    run = RunDir.create(folder / "run")
    execute(run, made, ("simulate",), lambda *_: None, skip_finished=True)
    return untrue(open_case(run, made))


@pytest.mark.parametrize(
    "method",
    [
        m if m in ("fedavg", "rebafl", "seol_kim") else pytest.param(m, marks=pytest.mark.slow)
        for m in COUNTING
        if m not in BY_HAND
    ],
)
def test_honest_clients_send_their_own_numbers(method: str) -> None:
    assert untrue(open_case(*audited(method))) == []


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
    assert found.kind == kind and found.clients > 3
    finding = judged(found, load_policy("default"))
    assert finding.severity == Severity.MEDIUM and "examples" in finding.summary


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
    assert differs(sent, np.array([3, 1, 2]))
    assert differs(replace(sent, payload={}), np.array([3, 1, 2])) == ""
    assert not differs(
        replace(sent, payload=payload | {"classes": np.array([0, 1]), "counts": np.array([3, 1])}),
        np.array([3, 1, 2]),
    )
