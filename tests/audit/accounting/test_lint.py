"""The noise lint: each lint fires on its planted fault, and none on correct runs."""

import math

import pytest

from fedaudit.audit.accounting.lint import LintResult, RunRecord, check, lints
from fedaudit.audit.noise_audit.subjects import make_contradiction_subjects, make_lint_subjects
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.subject import make_finding
from fedaudit.fl.data.participation import Drawn
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
    return [f.id for f in check(found)]


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
    "central noise under Poisson sampling": run_record(*three(**STAR), drawn=Drawn("poisson", 0.3)),
    "central noise that varies": run_record(
        *[sound(round=t, **STAR) for t in range(30)], delivered=[30, 31, 29] * 10
    ),
    "noise of the cipher, rounded": run_record(
        *three(precision="float32", generator=CIPHER, resolution=1e-6), witnessed=True
    ),
    "noise of a federation that ran elsewhere": run_record(*three()),
    "no noise at all": run_record(release(mechanism="none", noise_std=0.0, sensitivity=None)),
    "phases that send kinds of their own": run_record(
        *[sound(round=t, kind="gan_D") for t in (0, 1)],
        *[sound(round=t) for t in (2, 3)],
        sound(round=0, kind="noised_label_dist"),
        sound(round=2, kind="noised_label_dist"),
        delivered=[9] * 4,
        phases=["gan", "gan", "train", "train"],
    ),
    "noise from different streams": run_record(*[sound(round=t, stream=f"noise/{t}") for t in range(3)]),
    "an honest claim": run_record(*three(claimed_epsilon=2.0, claimed_delta=1e-5)),
    "nothing": run_record(),
}


@pytest.mark.parametrize("name", CORRECT)
def test_nothing_fires_on_a_correct_run(name: str) -> None:
    assert fired(CORRECT[name]) == []


PLANTED = {
    "L1": run_record(*three(derived="declared", clipped="", clip_norm=None, clip_of="")),
    "L1 half the sensitivity": run_record(*three(sensitivity=0.5)),
    "L2": run_record(
        *three(claimed_epsilon=8.0, claimed_delta=1e-5, noise_std=math.sqrt(2 * math.log(1.25e5)) / 8)
    ),
    "L2 noise / 10": run_record(*three(noise_std=0.4, claimed_epsilon=0.9, claimed_delta=1e-5)),
    "L3": run_record(*three(unit="record", sensitivity=0.05)),
    "L4": run_record(*three(**STAR), drawn=Drawn("fixed_without_replacement", 0.3)),
    "L4 from the answers": run_record(*[sound(round=t, **STAR) for t in range(30)], delivered=[9] * 30),
    "L5": run_record(*three(participation_seen_by=("server",), sampling="poisson", sample_rate=0.3)),
    "L5 to the server": run_record(*three(**(STAR | {"observers": ("server",), "participation_seen_by": ()}))),
    "L6 a round": run_record(sound(round=0), sound(round=2)),
    "L6 within a phase": run_record(
        *[sound(round=t, kind="gan_D") for t in (0, 2)], delivered=[9] * 4, phases=["gan"] * 3 + ["train"]
    ),
    "L6 steps": run_record(*three(unit="record", clip_of="record", count=1, steps=20)),
    "L7": run_record(*three(normaliser="private")),
    "L8": run_record(*three(), delta=0.02),
    "L8 vacuous": run_record(*three(), delta=0.9),
    "L9": run_record(*three(adjacency="replace_one")),
    "L10": run_record(*three(), release(mechanism="none", kind="label_counts", sensitivity=None)),
    "L11": run_record(*three(stream="noise")),
    "L12": run_record(*three(threshold="from_data")),
    "L13": run_record(*three(noise_std=1.0, claimed_epsilon=4.37, claimed_delta=1e-5)),
    "L14": run_record(*three(noise_std=0.2)),
    "L15": run_record(*three(noise_std=1e-8, sensitivity=1e-8, clip_norm=1e-8)),
    "L16": run_record(*three(precision="float32")),
    "L16 rounded after an unknown generator": run_record(*three(precision="float32", resolution=1e-6)),
    "L17": run_record(*three(), witnessed=True),
    "L17 named elsewhere": run_record(*three(generator="numpy's PCG64")),
    "L18": run_record(*three(precision="float16")),
    "L19": run_record(*three(aggregated=4, observers=("client",)), delivered=[4, 3, 4]),
    "L20": run_record(*three(aggregated=3, observers=("server", "client"))),
    "L21": run_record(*three(), rounds=5),
    "L15 rounded counts": run_record(*three(noise_std=0.9, sensitivity=0.5, clip_norm=0.5, resolution=1.0)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_each_lint_fires_on_its_planted_fault_and_no_other_does(name: str) -> None:
    assert fired(PLANTED[name]) == [name.partition(" ")[0]]


def test_every_lint_has_a_planted_fault_and_words() -> None:
    assert list(lints()) == [f"L{i}" for i in range(1, 22)]
    assert {name.partition(" ")[0] for name in PLANTED} == set(lints())
    for found in (f for b in PLANTED.values() for f in check(b)):
        assert found.flaw.what.endswith(".") and found.flaw.remedy.endswith(".")
        assert found.title and not found.title.endswith(".")


def test_a_bound_that_excludes_nothing_is_named() -> None:
    large = make_bound(Status.VERIFIED, 60.0)
    (found,) = check(run_record(*three(), bounds=[large]))
    assert found.id == "L14" and "epsilon is at most 60 (verified)" in found.flaw.what


def test_flaws_and_contradictions_become_findings_with_their_severity() -> None:
    policy = load_policy("default")
    expected = {
        **dict.fromkeys(("L1", "L3", "L5", "L6", "L9", "L11", "L15", "L18", "L19", "L20"), Severity.HIGH),
        **dict.fromkeys(("L2", "L4", "L7", "L8", "L12", "L21"), Severity.MEDIUM),
        **dict.fromkeys(("L10", "L13", "L14", "L16", "L17"), Severity.LOW),
    }
    for name, planted in PLANTED.items():
        (finding,) = (make_finding(s, policy) for s in make_lint_subjects(planted))
        which = name.partition(" ")[0]
        assert finding.id == f"lint-{which}" and finding.severity == expected[which], name
        assert finding.reason.endswith(".") and finding.remedy
    fine = make_bound(Status.VERIFIED, 3.0, observer="public")
    torn = Reason(source="accountant", sentence="PLD gives 3, while RDP bounds it by 2.")
    wrong = make_bound(Status.REFUTED, math.inf, torn, observer="public")
    (found,) = (make_finding(s, policy) for s in make_contradiction_subjects([fine, wrong]))
    assert found.severity is Severity.HIGH and "RDP bounds it by 2" in found.summary


def test_found_is_a_record() -> None:
    (found,) = check(PLANTED["L7"])
    assert isinstance(found, LintResult) and "in rounds 0 to 2" in found.flaw.what
