"""The status of a bound: whatever speaks against it takes its epsilon, from every page."""

import math
from typing import Any

import pytest
from pydantic import ValidationError

from fedaudit.audit.accounting.budget import SpentBudget, budgets
from fedaudit.audit.accounting.spending import PLAIN, over_rounds
from fedaudit.audit.accounting.status import BoundCheck, NoiseResult, combine_status, withhold_numbers
from fedaudit.audit.accounting.verify import DECLARED, Issue, Verified
from fedaudit.audit.noise_audit.findings import list_refuted_bounds
from fedaudit.audit.settings import catalog
from fedaudit.reports.bound import PrivacyBound, Reason, Status, choose_bound, group_observers
from fedaudit.reports.bound_text import describe_bound, label_bound
from fedaudit.reports.document import compose
from fedaudit.reports.result import Alternative, NoiseAuditRecord
from tests.audit.accounting.test_exact import release
from tests.audit.test_bound_status import REFUTING, mentions
from tests.reports.sample import result as sample
from tests.reports.sample import write_pages
from tests.reports.sample_bounds import CLEAR, make_bound

KIND = "model_delta"
PASSED = [NoiseResult(KIND, "law of the noise", True, "")]
FAILED = NoiseResult(KIND, "amount of noise", False, "half of it is there")
UNTESTED = NoiseResult(KIND, "", None, "no protection of the wire adds it")
LEDGER = [release(1.37, round=t, kind=KIND, observers=("server",)) for t in range(2)]


def cost(**changes: Any) -> SpentBudget:
    (found,) = [b for b in budgets(LEDGER, PLAIN, 1e-5, Verified()) if b.observer == "server"]
    return found.model_copy(update=changes)


def checked(status: Any, observer: str = "server", unit: Any = "client", **changes: Any) -> BoundCheck:
    moved = "It moves 3 times as far."
    return BoundCheck(observer=observer, unit=unit, status=Status(status), reason=moved, **changes)


def combine(
    budget: SpentBudget | None = None,
    verified: Verified = Verified(),  # noqa: B008
    checks: tuple[BoundCheck, ...] = (),
    tests: tuple[NoiseResult, ...] = tuple(PASSED),
) -> PrivacyBound:
    (found,) = combine_status([budget or cost()], verified, checks, tests)
    return found


AUDIT = NoiseAuditRecord(
    id="noise-audit-model_delta",
    kind=KIND,
    protection="Gaussian noise",
    mechanism="gaussian",
    unit="client",
    adjacency="add_or_remove_one",
    delta=1e-5,
    multiplier=1.37,
    claimed=cost().epsilon_upper,
    single=cost().epsilon_upper,
    releases=2,
    composed=cost().epsilon_upper,
    failure_rate=0.05,
    refuted=False,
    sentence="Consistent with the ledger, which is no confirmation.",
)
AGAINST: dict[str, dict[str, Any]] = {
    "verifier": {"verified": Verified(issues=(Issue("clip", "the line of model_delta lies."),))},
    "noise test": {"tests": (*PASSED, FAILED)},
    "replay": {"checks": (checked("refuted", place="uplink model_delta", round=1, pair="removed", ratio=3.0),)},
    "accountant": {"budget": cost(disagrees="PLD gives 3, while RDP bounds it by 2.")},
    "all of them": {
        "verified": Verified(issues=(Issue("clip", "the line lies."),), declared=True),
        "tests": (FAILED, UNTESTED),
        "checks": (checked("refuted"), checked("declared")),
    },
}
DOUBTS: dict[str, dict[str, Any]] = {
    "nobody verified it": {"verified": DECLARED},
    "a law is a plugin's": {"budget": cost(assumed=["that clients are drawn as Coins states"])},
    "it cannot be played": {"checks": (checked("declared"),)},
    "its noise was not tested": {"tests": (UNTESTED,)},
    "nothing tested one kind": {"budget": cost(kinds=[KIND, "other"])},
    "nothing was tried": {"tests": ()},
}


@pytest.mark.parametrize(("played", "status"), [("declared", Status.DECLARED), ("verified", Status.VERIFIED)])
def test_a_bound_per_record_that_rests_on_noise_for_clients_is_known_as_well_as_theirs(
    played: str, status: Status
) -> None:
    """Of records that several clients hold no play is made where noise speaks of clients alone."""
    of_clients, of_records = cost(), cost(unit="record")
    assert combine(of_clients, checks=(checked(played),)).status is status
    assert combine(of_records, checks=(checked(played),)).status is status
    own = checked("verified", unit="record")
    assert combine(of_records, checks=(checked("none"), own)).status is Status.VERIFIED


@pytest.mark.parametrize("source", AGAINST)
def test_whatever_speaks_against_a_bound_takes_its_epsilon(source: str) -> None:
    found = combine(**AGAINST[source])
    assert found.status is Status.REFUTED and math.isinf(found.epsilon) and not found.assumes and not found.note
    sentences = [r.sentence for r in found.reasons]
    said = f"{cost().epsilon_upper:g} was declared, refuted: "
    assert sentences[0].startswith(said) and not any(mentions(s, cost().epsilon_upper, 9) for s in sentences[1:])
    assert describe_bound(found).startswith(said) and "no limit holds" in describe_bound(found)
    assert label_bound(found) == "refuted"


@pytest.mark.parametrize("source", AGAINST)
def test_no_page_says_an_epsilon_that_is_refuted(source: str) -> None:
    found = [combine(**AGAINST[source])]
    result = sample()
    result.bounds, result.noise_audits = found, withhold_numbers([AUDIT], found)
    result.alternatives = [
        Alternative(name=name, protections=[], bound=choose_bound(found, "server"))
        for name in ("audited", "other")
    ]
    result.findings = [*result.findings, *list_refuted_bounds(found)]
    result.figures = over_rounds(LEDGER, found, lambda _: found)
    assert result.decision is not None
    write_pages(result)
    document = compose(result, [catalog.load("sections", name) for name in catalog.names("sections")])
    shown = {n: catalog.load("renderers", n)().render(document) for n in catalog.names("renderers") if n != "pdf"}
    shown["blocks"] = repr(document.chapters).encode()
    for name, content in shown.items():
        text = content.decode()
        assert "refuted" in text or "does not hold" in text, name
        for mention in mentions(text, cost().epsilon_upper, 200):
            assert any(words in mention for words in REFUTING), f"{name}: {mention}"


@pytest.mark.parametrize("doubt", DOUBTS)
def test_what_could_not_be_checked_makes_a_bound_declared_and_keeps_its_epsilon(doubt: str) -> None:
    found = combine(**DOUBTS[doubt])
    assert (found.status, found.epsilon) == (Status.DECLARED, cost().epsilon_upper) and found.reasons
    assert label_bound(found) == f"declared: {found.epsilon:g} if zeroed out, {found.replaced:g} if replaced"
    assert describe_bound(found).startswith(f"declared by the ledger: {found.epsilon:g} if zeroed out, ")


def test_a_bound_is_verified_where_nothing_speaks_against_it_and_says_what_was_tried() -> None:
    found = combine(checks=(checked("verified", pairs=36),))
    assert (found.status, found.reasons, found.pairs, found.tests) == (Status.VERIFIED, [], 36, 1)
    tried = "no counterexample among 36 pairs of neighbouring data and 1 test of the noise"
    assert (
        describe_bound(found)
        == f"at most {found.epsilon:g} if zeroed out, {found.replaced:g} if replaced (verified), {tried}"
    )


def test_a_check_of_another_observer_or_unit_says_nothing_of_this_bound() -> None:
    for other in (checked("refuted", observer="another client"), checked("refuted", unit="record")):
        assert combine(checks=(other,)).status is Status.VERIFIED
    assert combine(tests=(*PASSED, FAILED._replace(kind="other"))).status is Status.VERIFIED


def test_what_refutes_noise_for_clients_refutes_it_for_their_records() -> None:
    record = cost(unit="record")
    assert combine(record, checks=(checked("refuted"),)).status is Status.REFUTED
    own = checked("verified", unit="record")
    assert combine(record, checks=(own, checked("declared"))).status is Status.VERIFIED
    assert combine(record, checks=(own, checked("refuted"))).status is Status.REFUTED


def test_a_clear_line_is_no_bound_and_what_is_refuted_beside_it_leaves_no_number_either() -> None:
    clear = cost(
        epsilon_upper=math.inf,
        spoiled_by=["counts"],
        note="The noised releases alone would cost 4.5, as declared.",
    )
    found = combine(clear)
    assert (found.status, found.clear_kinds, found.note) == (Status.NONE, ["counts"], clear.note)
    beside = combine(clear, tests=(FAILED,))
    assert beside.status is Status.NONE and not beside.note and "half of it" in describe_bound(beside)
    replayed = combine(checks=(checked("none"),))
    assert replayed.status is Status.NONE and not mentions(replayed.model_dump_json(), cost().epsilon_upper, 9)


def test_a_bound_without_an_epsilon_cannot_be_given_one() -> None:
    for status in (Status.REFUTED, Status.NONE):
        with pytest.raises(ValidationError, match="cannot have epsilon"):
            make_bound(status, 4.0, CLEAR)
    with pytest.raises(ValidationError, match="cannot have epsilon"):
        make_bound(Status.VERIFIED, math.inf)
    with pytest.raises(ValidationError, match="needs a reason"):
        make_bound(Status.DECLARED, 4.0)


def test_where_there_is_room_for_one_bound_what_holds_comes_first_and_then_what_is_refuted() -> None:
    why = Reason(source="replay", sentence="4.2 was declared, refuted: it moves.")
    none, refuted = make_bound(Status.NONE, math.inf, CLEAR), make_bound(Status.REFUTED, math.inf, why)
    small, large = (make_bound(Status.VERIFIED, e) for e in (2.0, 3.0))
    assert choose_bound([none, refuted, large, small], "server") == small
    assert choose_bound([none, refuted], "server") == refuted
    assert choose_bound([none], "public") is None


def test_observers_with_the_same_bound_share_a_row_and_others_do_not() -> None:
    one, two = make_bound(Status.VERIFIED, 2.0), make_bound(Status.VERIFIED, 2.0, observer="public")
    other = make_bound(Status.VERIFIED, 3.0, observer="another client")
    assert group_observers([one, other, two]) == [("server, public", one), ("another client", other)]
