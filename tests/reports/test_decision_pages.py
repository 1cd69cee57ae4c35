"""The pages to decide by and the annexes: what a person who signs reads."""

import io
import re
from pathlib import Path
from typing import Literal

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.decision import HARMS
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.threats.threat import Aim, Harm
from fedaudit.reports import format as fmt
from fedaudit.reports.bound import Status
from fedaudit.reports.decision import Word
from fedaudit.reports.document import Document, compose
from fedaudit.reports.renderers.pdf import Pdf
from fedaudit.reports.result import Alternative, AuditResult, HarmEffect, Severity
from fedaudit.reports.robustness import NotRun
from fedaudit.reports.section import Banner, Block, Cell, Folded, Heading, Paragraph, Table, words
from fedaudit.reports.sections._not_run import tabulate_failures
from fedaudit.reports.sections.annexes import Annexes
from fedaudit.reports.sections.behind import Behind
from fedaudit.reports.sections.decision import Decision
from fedaudit.reports.sections.protections import Protections
from fedaudit.reports.system import System
from tests.reports.sample import result
from tests.reports.sample_bounds import make_bound


def options(audited: AuditResult) -> list[list[str]]:
    blocks = Decision().build(audited)
    at = blocks.index(Heading("What must be decided"))
    table = next(b for b in blocks[at:] if isinstance(b, Table))
    return [[words(c) for c in row] for row in table.rows]


@pytest.mark.parametrize("word", Word)
def test_every_word_has_a_banner_of_its_own_and_none_says_safe(word: Word) -> None:
    audited = result()
    assert audited.decision is not None
    audited.decision.word = word
    (banner,) = [b for b in Decision().build(audited) if isinstance(b, Banner)]
    assert word.replace("_", " ") in banner.title.lower() and "safe" not in banner.title.lower()


def test_options_have_what_was_measured_of_the_variants_and_accepting_the_risk_is_the_last() -> None:
    audited = result()
    audited.alternatives = [
        Alternative(name="as audited", protections=[], accuracy=0.93, word=Word.NOT_READY),
        Alternative(
            name="noise",
            protections=["Gaussian noise"],
            word=Word.CANNOT_TELL,
            answered=7,
            asked=9,
            at_most=36,
            people=719,
            accuracy=0.9,
            why_not="Without an answer: membership by the server.",
            bound=make_bound(Status.VERIFIED, 4.0),
        ),
        Alternative(name="stopped", protections=[], finished=False),
    ]
    first, second, last = options(audited)
    said = [b.text for b in Decision().build(audited) if isinstance(b, Paragraph)]
    (first_step,) = [text for text in said if text.startswith("*What to do first.*")]
    assert "is enough alone. Option A is the only one that was measured. With it: worst harm" in first_step
    assert "accuracy 90 % (now 93 %)" in first_step.replace("\u00a0", " ")
    audited.alternatives[1].recommended, audited.recommendation = True, "noise is recommended. It is."
    said = [b.text.replace("\u00a0", " ") for b in Decision().build(audited) if isinstance(b, Paragraph)]
    price = "With it: worst harm shown none (now critical), accuracy 90 % (now 93 %)."
    assert f"*What to do first.* noise is recommended. It is. {price}" in said
    audited.alternatives[1].recommended = False
    assert first[0] == "A. noise: Gaussian noise" and first[2].replace("\u00a0", " ") == "90 %"
    shown = first[1].replace("\u00a0", " ")
    assert shown.startswith("Cannot tell") and "7 of its 9 questions answered" in shown
    assert "at most 36 of 719 people" in shown and "epsilon at most 4 (verified), per client" in shown
    assert "Without an answer" in shown
    assert second[1] == "not run to the end"
    assert last[0] == "C. Deploy as it is"


def test_without_variants_options_are_the_remedies_and_say_that_nothing_was_measured() -> None:
    audited = result()
    rows = options(audited)
    remedies = [f.remedy for f in audited.findings if f.is_demonstrated and f.remedy]
    assert len(rows) > 1 and remedies
    assert all("not measured" in row[1] for row in rows[:-1])


def test_a_long_remedy_ends_where_its_first_part_ends() -> None:
    audited = result()
    leak = next(f for f in audited.findings if f.is_demonstrated)
    first = "Keep labels at the clients and compute the loss there"
    leak.remedy = f"{first}, or choose a method that sends nothing of single examples whatever clients train"
    audited.alternatives, audited.findings = [], [leak]
    assert options(audited)[0][0] == f"A. {first}"


def test_remedies_that_no_protection_offers_are_not_said_to_be_measurable() -> None:
    audited = result()
    audited.recommendation = "No option was tried: no protection answers what was demonstrated."
    rows = options(audited)
    assert all(row[1] == "no protection to measure" for row in rows[:-1])


def test_a_result_of_an_older_version_has_no_pages_to_decide_by() -> None:
    audited = result()
    audited.decision = None
    assert Decision().build(audited) == Behind().build(audited) == Annexes().build(audited) == []


def cells(blocks: list[Block]) -> list[list[str]]:
    return [[words(c) for c in row] for b in blocks if isinstance(b, Table) for row in b.rows]


def test_page_2_says_who_saw_what_in_words_and_single_clients_first() -> None:
    audited = result()
    said = next(row[1] for row in cells(Behind().build(audited)) if row[0] == "Who saw what?")
    assert said.startswith(
        "Server: class-mean features of one client; how many examples each prototype averages."
    )
    for e in audited.exposures:
        assert e.description and e.kind not in said and e.kind.replace("_", " ") not in said
        assert f"{e.description[:1].lower()}{e.description[1:]}" in said and e.party in said.lower()
    audited.exposures = []
    said = next(row[1] for row in cells(Behind().build(audited)) if row[0] == "Who saw what?")
    assert said == "Not known: no message was recorded."


def test_a_run_that_stands_alone_in_the_table_of_the_unfinished_is_not_called_one_of_more() -> None:
    runs = [
        NotRun(cells=["median"], reason="too few", failed=False),
        NotRun(cells=["krum", "bulyan", "none"], reason="an error", failed=True),
    ]
    rows = cells([tabulate_failures(runs, "Run", "c")])
    assert [row[0] for row in rows] == ["median", "krum and 2 more"]


def test_the_annex_has_a_row_an_observer_and_never_calls_the_untested_safe() -> None:
    rows = {row[0]: row for row in cells(Annexes().build(result()))}
    server, other = rows["The server"], rows["Another client"]
    assert server[1:] == [
        "upcnn, dp-upper",
        "upcnn: reconstruction, at least 760, at most 840 of 1,400 people",
        "membership, linkage",
        "exposed, as configured",
    ]
    assert other[2:] == ["nobody is known to be hit", "membership, an attribute of a person", "not known"]


def test_a_cell_says_all_it_has() -> None:
    assert words(Cell(lead="a", text="b", note="c", badge=Severity.LOW)) == "low a b c"


STAMP = re.compile(r"\d{4}-\d\d-\d\dT")


def test_every_time_of_the_report_is_written_in_the_one_way(document: Document) -> None:
    for chapter in document.chapters:
        for block in chapter.blocks:
            assert not STAMP.search(repr(block)), chapter.card.title


def test_a_simulated_federation_has_no_section_on_where_it_came_from(document: Document) -> None:
    assert document.result.imported is None
    assert "Where it came from" not in [c.card.title for c in document.chapters]
    scope = next(c for c in document.chapters if c.card.title == "What was audited")
    assert "simulated by fedaudit" in repr(scope.blocks)


def test_a_row_of_page_1_leads_to_each_of_its_findings_in_both_formats(
    document: Document, rendered: dict[str, bytes]
) -> None:
    pypdf = pytest.importorskip("pypdf")
    assert document.result.decision is not None
    told = {b.anchor for c in document.chapters for b in c.blocks if isinstance(b, Heading)}
    wanted = [i for r in document.result.decision.risks for i in (r.finding, *r.also) if i in told]
    page = rendered["html"].decode()
    table = page[page.index("What could happen") : page.index("What must be decided")]
    assert wanted
    for name in wanted:
        assert f'href="#finding-{name}"' in table and f'id="finding-{name}"' in page
    first = pypdf.PdfReader(io.BytesIO(rendered["pdf"])).pages[0]
    links = [a.get_object() for a in first.get("/Annots", [])]
    assert sum(a.get("/Subtype") == "/Link" for a in links) >= len(wanted)


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (None, "is the only one that was measured"),
        ({"word": Word.NOT_READY}, 'ranks first by its verdict, "Cannot tell", which is no sign of safety'),
        ({"at_most": 500}, "ranks first by people who could be exposed, its verdict being no better"),
        ({"accuracy": 0.5}, "ranks first by accuracy, its verdict being no better"),
        ({"time": 9.0}, "ranks first by the time that it takes, its verdict being no better"),
        ({}, "ranks first by name alone, its verdict being no better"),
    ],
)
def test_the_first_option_is_placed_by_what_tells_it_from_the_second(
    second: dict[str, object] | None, why: str
) -> None:
    audited = result()
    now = Alternative(name="as audited", protections=[], accuracy=0.93, word=Word.NOT_READY)
    best = Alternative(name="a", protections=[], accuracy=0.9, word=Word.CANNOT_TELL, at_most=36, place=1)
    other = [] if second is None else [best.model_copy(update={"name": "b", "place": 2, **second})]
    audited.alternatives = [now, best, *other]
    said = [b.text for b in Decision().build(audited) if isinstance(b, Paragraph)]
    (first_step,) = [text for text in said if text.startswith("*What to do first.*")]
    assert f"Option A {why}." in first_step


def test_of_options_that_did_not_end_none_ranks_first() -> None:
    audited = result()
    now = Alternative(name="as audited", protections=[], accuracy=0.93, word=Word.NOT_READY)
    audited.alternatives = [now, *(Alternative(name=n, protections=[], finished=False) for n in "ab")]
    said = " ".join(b.text for b in Decision().build(audited) if isinstance(b, Paragraph))
    assert "No option was measured: none was run to the end." in said and "ranks first" not in said


EFFECTS: list[Literal["stopped", "left", "open"]] = ["stopped", "left", "open", "stopped"]


def crowded(audited: AuditResult, risks: int, options: int, title: str) -> AuditResult:
    """As much on the pages to decide by as real audits have had, and more."""
    assert audited.decision is not None
    row = audited.decision.risks[0]
    audited.decision.risks = [
        row.model_copy(
            update={
                "finding": f"robustness-{i}",
                "also": ["robustness-rebafl-dirichlet-prototypes-capped_mean"] * (12 * (i % 2)),
                "what": f"{[*HARMS.values()][i % len(HARMS)]} ({i})",
                "who": "the server, another client and whoever gets the model",
                "unit": "people",
                "at_least": 719_000,
                "at_most": 1_999_999,
                "people": 2_000_000,
                "note": "rule geometric median of buckets",
            }
        )
        for i in range(risks)
    ]
    audited.alternatives = [
        Alternative(
            name="clipped-and-noised",
            protections=["Gaussian noise on the mean feature vectors alone, standard deviation 2.5"],
            accuracy=0.9,
            word=Word.CANNOT_TELL,
            answered=14,
            asked=21,
            at_most=719,
            people=719,
            unanswered=["membership by the server", "inversion by the server"],
            why_not="Without an answer: membership by the server, inversion by the server and 3 others.",
            effects=[
                *(
                    HarmEffect(what=r.what, state=EFFECTS[i % 4], severity=Severity.LOW)
                    for i, r in enumerate(audited.decision.risks)
                ),
                HarmEffect(
                    state="new", what="People who stand in small groups are counted", severity=Severity.MEDIUM
                ),
            ],
            measures={"bytes_up": 7.2e6, "bytes_down": 8.6e6},
        )
    ] * (options + 1)
    audited.title, audited.policy = title, load_policy("default").record()
    audited.system = System(
        name="Demonstration of fedaudit",
        purpose="to show what an audit says of a method that sends averages of what it computes from data",
        clients="organisations",
        data="handwritten digits, a public data set",
        controller="none, in a demonstration where each image of a digit stands for a person",
        author="whoever runs this demonstration",
    )
    audited.decision.more = (
        "12 of 27 open required questions can be asked in about 9 min 30 s of one core, by attacks left out: "
        "label_counts_from_update, label_counts_from_gradient, majority_class and 7 others. 12 stay open however "
        "long it runs: fedaudit has no attack for 8 and attacks on 4 ran without a result."
    )
    audited.decision.sentence = "Membership, server, the mean of the features of a class. " * 12
    audited.exposures = audited.exposures * 6
    audited.questions = [audited.questions[0].model_copy(update={"harm": harm}) for harm in Harm]
    audited.rule_questions = [audited.rule_questions[0].model_copy(update={"aim": aim}) for aim in Aim]
    audited.decision.answers = audited.decision.answers * 5
    for answer in audited.decision.answers[:2]:
        answer.answer = "22 attacks that would apply. " + "Nothing attacked: how many examples one holds. " * 4
    return audited


@pytest.mark.parametrize("risks", [1, 4, 12])
@pytest.mark.parametrize("options", [0, 4])
def test_the_pages_to_decide_by_are_two_however_much_was_found(risks: int, options: int) -> None:
    pypdf = pytest.importorskip("pypdf")
    title = "Prototypes on handwritten digits of ten clinics: privacy and robustness"
    audited = crowded(result(), risks, options, title)
    audited.policy = load_policy("default").record()
    assert audited.decision is not None
    for risk in audited.decision.risks:
        risk.finding = audited.findings[0].id
    document = compose(audited, [catalog.load("sections", n) for n in catalog.names("sections")])
    sheets = [p.extract_text() for p in pypdf.PdfReader(io.BytesIO(Pdf().render(document))).pages[:3]]
    first, second, third = (re.sub(r"\s+", " ", s).lower() for s in sheets)
    assert "review by" in first and "what stands behind page 1" in second
    assert "severity follows from how many people" in second
    assert "appendices" in second and "annexes for the file" in second and "what was audited" in third


def test_no_interval_is_written_in_brackets() -> None:
    assert fmt.points(0.012, (0.003, 0.02)) == "1.2 (0.3 to 2.0)" and fmt.points(-0.5, None) == "-50.0"
    assert fmt.points_less(0.012, (-0.003, 0.02)) == "1.2 points less (-0.3 to 2.0)"
    assert fmt.points_less(-0.094, (-0.12, 0.003)) == "9.4 points more (-0.3 to 12.0)"
    assert fmt.points_less(-0.0001, None) == "0.0 points less"
    sources = [
        p for folder in ("reports", "audit") for p in Path(folder).rglob("*.py") if "reproduce" not in p.parts
    ]
    bracketed = re.compile(r"\[\{[^}]*\}, \{[^}]*\}\]")
    assert [str(p) for p in sources if bracketed.search(p.read_text())] == []


def test_page_1_names_every_option_that_was_tried_the_best_first() -> None:
    audited = crowded(result(), 4, 4, "Five tried")
    names = ["as audited", "second", "fifth", "first", "third", "fourth"]
    places = [0, 1, 4, 0, 2, 3]
    audited.alternatives = [
        audited.alternatives[0].model_copy(update={"name": n, "place": p})
        for n, p in zip(names, places, strict=True)
    ]
    (table,) = [b for b in Decision().build(audited) if isinstance(b, Table) and b.header[0] == "Option"]
    assert [str(row[0])[:9] for row in table.rows[:3]] == ["A. first:", "B. second", "C. third:"]
    (more,) = [b for b in Decision().build(audited) if isinstance(b, Paragraph) and "Also tried" in str(b.text)]
    assert re.search(r"fourth \(cannot tell[^)]*\); fifth \(cannot tell[^)]*\)\.", str(more.text))


def test_a_row_of_an_option_says_which_harms_it_stops_and_which_stay() -> None:
    audited = crowded(result(), 5, 1, "Five harms")
    assert audited.decision is not None
    audited.decision.risks[1].severity = "low"
    row = options(audited)[0][1]
    assert "Stops 1, 4, 5. Leaves 2. Unknown 3. New: people who stand in small groups" in row
    audited.decision.risks[1].severity = "high"
    audited.alternatives[1].effects[3].at_most = 9
    row = options(audited)[0][1]
    assert "Stops 1, 4 (at most 9 people), 5. Leaves 2 (rated low)." in row
    assert options(audited)[-1][1].startswith("Leaves 1 to 5. Against the policy")
    said = " ".join(b.text for b in Decision().build(audited) if isinstance(b, Paragraph))
    assert "*Stops*: at most" in said and "*Unknown*" in said and "*New*" in said
    audited.alternatives[1].effects = audited.alternatives[1].effects[1:2]
    assert "Stops none. Leaves 2 (rated low)." in options(audited)[0][1]
    said = " ".join(b.text for b in Decision().build(audited) if isinstance(b, Paragraph))
    assert "*Stops*: at most" in said and "*Unknown*" not in said and "*New*" not in said


def test_the_appendix_has_what_becomes_of_every_harm() -> None:
    audited = crowded(result(), 5, 1, "Five harms")
    (folded,) = [b for b in Protections().build(audited) if isinstance(b, Folded) and "every harm" in b.title]
    (table,) = folded.blocks
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows] == [
        "stopped",
        "left, low",
        "open",
        "stopped",
        "stopped",
        "People who stand in small groups are counted (medium)",
    ]


def test_page_1_says_what_the_first_step_costs_beside_what_is_paid_now() -> None:
    audited = crowded(result(), 3, 1, "Costs")
    now, option = audited.alternatives = [a.model_copy() for a in audited.alternatives]
    option.accuracy_change_interval, option.measures = (-0.021, 0.004), {"bytes_up": 9e6, "bytes_down": 8.6e6}

    def advice() -> str:
        texts = [b.text for b in Decision().build(audited) if isinstance(b, Paragraph)]
        return next(text.replace("\u00a0", " ") for text in texts if "What to do first" in text)

    assert "accuracy 90 % (as now; up to 2.1 points may be lost), bytes sent 17.6 MB (now 15.8 MB)" in advice()
    assert "worst harm shown medium (now critical)" in advice() and "Unknown with it: 1 of 3 harms" in advice()
    now.accuracy = option.accuracy = None
    assert "accuracy not measured, bytes sent" in advice()
    assert options(audited)[0][2].replace("\u00a0", " ") == "not measured, 17.6 MB"
    option.measures = {}
    assert "accuracy not measured." in advice() and options(audited)[0][2] == "not measured"


def test_a_row_of_page_1_has_both_limits_and_no_number_for_what_is_certain() -> None:
    audited = result()
    assert audited.decision is not None
    reconstructed, certain = audited.decision.risks
    reconstructed.at_most = None
    rows = cells(Decision().build(audited)[3:])
    (first,) = [row for row in rows if row[0].startswith("1. ")]
    (second,) = [row for row in rows if row[0].startswith("2. ")]
    assert first[1:] == ["760 of 1,400 people", "no limit known", "critical"]
    assert certain.note == "certain" and second[1:] == ["Certain", "", "high"]


def test_page_2_says_what_makes_a_severity_and_how_much_is_tolerable() -> None:
    audited = result()
    said = " ".join(b.text for b in Behind().build(audited) if isinstance(b, Paragraph))
    assert "Tolerable by policy default 2026-01: reconstruction: at most 1 % of people" in said
    audited.policy = load_policy("default").record()
    said = " ".join(b.text for b in Behind().build(audited) if isinstance(b, Paragraph))
    for harm in Harm:
        assert re.search(rf"{harm.label}[^:;]*: at most \d+ %", said.replace("\u00a0", " ")), harm


def test_page_2_explains_every_word_that_a_question_of_the_run_uses() -> None:
    audited = result()
    said = " ".join(b.text for b in Behind().build(audited) if isinstance(b, Paragraph))
    used = [q.harm.label for q in audited.questions] + [str(q.aim) for q in audited.rule_questions]
    assert all(f"*{fmt.sentence_case(word)}*: " in said for word in used)


@pytest.mark.parametrize(
    ("parties", "said"),
    [
        (["the server"] * 9, "more harms, all by the server, are in"),
        ([""] * 9, "more harms are in"),
        (["the server"] * 8 + [""], "more harms are in"),
    ],
)
def test_harms_without_a_row_name_who_can_do_them_where_it_is_one(parties: list[str], said: str) -> None:
    audited = crowded(result(), len(parties), 0, "Many harms")
    assert audited.decision is not None
    for risk, who in zip(audited.decision.risks, parties, strict=True):
        risk.who = who
    (text,) = [b.text for b in Decision().build(audited) if isinstance(b, Paragraph) and "more harms" in b.text]
    assert said in text
