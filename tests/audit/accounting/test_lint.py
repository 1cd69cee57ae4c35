"""The noise lint: each lint fires on its planted fault, and none on correct runs."""

import math

import pytest

from fedaudit.audit.accounting.lint import RunRecord, check, lints
from fedaudit.audit.noise_audit.findings import list_contradictions
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.cipher import CIPHER
from fedaudit.reports.bound import Reason, Status
from fedaudit.reports.result import Severity
from tests.audit.accounting.test_exact import release
from tests.reports.sample_bounds import make_bound

SOUND: dict[str, object] = {
    "clipped": "on the client's whole vector",
    "clip_norm": 1.0,
    "clip_of": "update",
    "derived": "clip",
}
STAR = {
    "sender": "client/*",
    "participation_seen_by": ("server",),
    "sampling": "poisson",
    "sample_rate": 0.3,
    "observers": ("client", "public"),
}


def sound(z: float = 2.0, **changes: object) -> Release:
    return release(z, **(SOUND | changes))


def run_record(*releases: Release, **more: object) -> RunRecord:
    fields: dict[str, object] = {"units": {"client": 100, "record": 500}, "delivered": [3, 4, 3]}
    return RunRecord(releases=releases, **(fields | more))  # type: ignore[arg-type]


def fired(found: RunRecord) -> list[str]:
    return [f.id.removeprefix("lint-") for f in check(found)]


def three(**changes: object) -> list[Release]:
    return [sound(round=t, **changes) for t in range(3)]


CORRECT = {
    "a clipped and noised upload in every round": run_record(*three()),
    "replace-one with twice the clip": run_record(
        *three(adjacency="replace_one", sensitivity=2.0, noise_std=4.0)
    ),
    "DP-SGD": run_record(
        *three(
            unit="record",
            clip_of="record",
            sampling="poisson",
            sample_rate=0.05,
            participation_seen_by=(),
            count=20,
            steps=20,
        )
    ),
    "central noise under Poisson sampling": run_record(*three(**STAR)),
    "noise of the cipher, rounded": run_record(
        *three(precision="float32", generator=CIPHER, resolution=1e-6), witnessed=True
    ),
    "noise of a federation that ran elsewhere": run_record(*three()),
    "no noise at all": run_record(release(mechanism="none", noise_std=0.0, sensitivity=None)),
    "an honest claim": run_record(*three(claimed_epsilon=2.0, claimed_delta=1e-5)),
    "nothing": run_record(),
}


@pytest.mark.parametrize("name", CORRECT)
def test_nothing_fires_on_a_correct_run(name: str) -> None:
    assert fired(CORRECT[name]) == []


PLANTED = {
    "L2": run_record(*three(noise_std=0.4, claimed_epsilon=0.9, claimed_delta=1e-5)),
    "L2 rounded down": run_record(*three(noise_std=1.0, claimed_epsilon=4.37, claimed_delta=1e-5)),
    "L8": run_record(*three(), delta=0.02),
    "L8 vacuous": run_record(*three(), delta=0.9),
    "L10": run_record(*three(), release(mechanism="none", kind="label_counts", sensitivity=None)),
    "L14": run_record(*three(noise_std=0.2)),
    "L15": run_record(*three(noise_std=1e-8, sensitivity=1e-8, clip_norm=1e-8)),
    "L15 rounded counts": run_record(*three(noise_std=0.9, sensitivity=0.5, clip_norm=0.5, resolution=1.0)),
    "L16": run_record(*three(precision="float32")),
    "L16 in half precision": run_record(*three(precision="float16")),
    "L16 rounded after an unknown generator": run_record(*three(precision="float32", resolution=1e-6)),
    "L17": run_record(*three(), witnessed=True),
    "L17 named elsewhere": run_record(*three(generator="numpy's PCG64")),
    "L21": run_record(*three(), rounds=5),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_lint_fires_on_its_planted_fault_and_no_other_does(name: str) -> None:
    assert fired(PLANTED[name]) == [name.partition(" ")[0]]


def test_every_lint_has_a_planted_fault_and_words() -> None:
    assert list(lints()) == ["L2", "L8", "L10", "L14", "L15", "L16", "L17", "L21"]
    assert {name.partition(" ")[0] for name in PLANTED} == set(lints())
    for found in (f for b in PLANTED.values() for f in check(b)):
        assert found.summary.endswith(".") and found.remedy.endswith(".")
        assert found.title.partition(": ")[2] and not found.title.endswith(".")


def test_a_bound_that_excludes_nothing_is_named() -> None:
    large = make_bound(Status.VERIFIED, 60.0)
    (found,) = check(run_record(*three(), bounds=[large]))
    assert found.id == "lint-L14" and "epsilon is at most 60 (verified)" in found.summary


def test_flaws_and_contradictions_become_findings_with_their_severity() -> None:
    policy = load_policy("default")
    expected = {
        "L15": Severity.HIGH,
        **dict.fromkeys(("L2", "L8", "L21"), Severity.MEDIUM),
        **dict.fromkeys(("L10", "L14", "L16", "L17"), Severity.LOW),
    }
    for name, planted in PLANTED.items():
        (finding,) = map(policy.rate, check(planted))
        which = name.partition(" ")[0]
        assert finding.id == f"lint-{which}" and finding.severity == expected[which], name
        assert finding.reason.endswith(".") and finding.remedy
    fine = make_bound(Status.VERIFIED, 3.0, observer="public")
    torn = Reason(source="accountant", sentence="PLD gives 3, while RDP bounds it by 2.")
    wrong = make_bound(Status.REFUTED, math.inf, torn, observer="public")
    (found,) = map(policy.rate, list_contradictions([fine, wrong]))
    assert found.severity is Severity.HIGH and "RDP bounds it by 2" in found.summary


def test_what_a_lint_finds_is_a_finding_that_quotes_it() -> None:
    (found,) = check(PLANTED["L17"])
    assert "in rounds 0 to 2" in found.summary
