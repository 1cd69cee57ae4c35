"""Coverage: every artifact beside who could read it, what attacked it there, and what did not run."""

from fedaudit.reports.covered import Coverage
from fedaudit.reports.result import AuditResult
from fedaudit.reports.section import Block, Bullets, Paragraph, Table
from fedaudit.reports.sections.coverage import Coverage as Section
from fedaudit.reports.sections.coverage import sentence
from tests.reports.sample import result


def shown(**changes: object) -> list[Block]:
    sample: AuditResult = result()
    covered = sample.headline.coverage.model_copy(update=changes)
    top = sample.headline.model_copy(update={"coverage": covered})
    return Section().build(sample.model_copy(update={"headline": top}))


def test_an_attacked_artifact_has_its_worst_result_and_the_others_say_why_not() -> None:
    artifacts = next(b for b in shown() if isinstance(b, Table))
    assert [row[:3] for row in artifacts.rows] == [
        ["local_prototypes", "server", "Critical"],
        ["proto_counts", "server", "Not attacked"],
        ["global_prototypes", "client", "Not from here"],
        ["global_prototypes", "public", "Not attacked"],
        ["heartbeat", "server", "Tells nothing"],
    ]
    assert [row[3] for row in artifacts.rows][:3] == [
        "upcnn, lira",
        "only a help to upcnn",
        "from the server: lira",
    ]


def test_what_nothing_attacked_is_named_with_who_could_read_it_and_nothing_else_is() -> None:
    (text,) = [b.text for b in shown() if isinstance(b, Paragraph) and b.text.startswith("Nothing")]
    assert "`proto_counts` (server), `global_prototypes` (public)." in text
    assert "local_prototypes" not in text and "heartbeat" not in text and "(client)" not in text


def test_attacks_that_did_not_run_say_why_and_those_that_cannot_stand_by_reason() -> None:
    left, reasons = [b for b in shown() if isinstance(b, Bullets)]
    assert left.items == [
        "It is not among the attacks of this audit: `ridge`.",
        "The budget of 10 minutes has no room for its 2 h: `vae`.",
    ]
    assert reasons.items == ["FedProto sends no local_model to the server: `dlg`."]


def test_a_report_without_attacks_says_that_nothing_was_tested() -> None:
    texts = [b.text for b in shown(ran=0, artifacts=[], untried=[]) if isinstance(b, Paragraph)]
    assert any("not tested" in text for text in texts)


def test_the_headline_counts_over_all_that_exists_and_names_what_nothing_attacked() -> None:
    assert sentence(result().headline.coverage) == (
        "6 of 9 applicable attacks ran; 1 of these was inconclusive; 1 failed, which improves no score; "
        "2 were left out; 3 more do not apply here. Of 4 artifacts (a kind and who "
        "could read it), 2 were attacked; not `proto_counts`, `global_prototypes`."
    )
    bare = Coverage(ran=1, applicable=1, not_applicable=0, inconclusive=0, failed=0)
    assert sentence(bare) == "1 of 1 applicable attack ran; none of these were inconclusive."
