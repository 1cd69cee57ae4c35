"""Rules for the sentences of the two pages one signs, each held on audits of every kind (audits.py)."""

import hashlib
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fedaudit.attacks.evidence import Baseline
from fedaudit.audit.cli.ending import summarise
from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.page import write_page
from fedaudit.fl.kinds import Kind
from fedaudit.reports.document import compose
from fedaudit.reports.page import Page
from fedaudit.reports.questions import State
from fedaudit.reports.renderers.html import Html
from fedaudit.reports.renderers.json import Json
from fedaudit.reports.renderers.markdown import Markdown
from fedaudit.reports.renderers.pdf import Pdf
from fedaudit.reports.result import AuditResult, Severity
from tests.reports.audits import AUDITS, attacked, clear, compared, crowded, exposed, grouped, mild, opened
from tests.reports.sample import result
from tests.reports.sample_findings import HOSTILE

SECTIONS = [catalog.load("sections", n) for n in catalog.names("sections")]
TEMPLATES = Path("reports/templates")
# Said of an option, of what is missing and of controls: of no harm
OF_NO_HARM = re.compile(
    r"We recommend (none|no option)[^.]*|none is missing|More time answers none|no attack|"
    r"Not known: no \w+ was \w+|No control on people[^;]*|No question was asked|"
    r"epsilon at most [^(]*\(verified\)"  # a bound of noise that was played
)
REASSURES = re.compile(
    r"\b(at most \d|nothing|nobody|none|no longer|safe|stops|stopped|(limit|bound|epsilon) holds|are clear)", re.I
)


@pytest.fixture(params=AUDITS)
def audited(request: pytest.FixtureRequest) -> AuditResult:
    return AUDITS[request.param]()


@pytest.fixture
def page(audited: AuditResult) -> Page:
    return audited.verdict.page


def sentences(page: Page) -> Iterator[str]:
    """All that stands as a sentence, or within one, on both pages."""
    yield from (page.sentence, page.summary, page.more, page.bar, page.coverage.text, page.recommendation)
    for h in page.harms:
        yield from (h.what, h.note)
    for o in page.options:
        yield from (o.name, o.what)
    yield from (a.answer for a in page.answers)
    yield page.pictures.caption if page.pictures else ""


def test_l_is_never_above_u_and_no_row_above_the_banner(page: Page) -> None:
    for row in (page.people, *page.harms, *page.bounded, *page.options):
        assert row.at_most is None or row.at_least <= row.at_most
    assert all(h.at_least <= page.people.at_least for h in page.harms if h.unit == "people")


def test_the_first_number_of_the_page_counts_people_or_answers_and_is_l_or_u(page: Page) -> None:
    found = re.search(r"[\d,]*\d", page.sentence)
    if found is None:
        return
    number = int(found[0].replace(",", ""))
    before = page.sentence[: found.start()].lower()
    if "at least" in before:
        assert number in (page.people.at_least, *(h.at_least for h in page.harms if h.unit == "answers"))
    elif "at most" in before:
        assert number == page.people.at_most
    else:
        assert before == "it could be all " and number == page.people.of


def test_no_sentence_reassures_but_where_a_question_is_clear(audited: AuditResult, page: Page) -> None:
    if any(c.state is State.CLEAR for c in audited.cells):
        return
    accused = {h.what for h in page.harms if not h.unit}  # titles of what was seen or proved
    for text in set(sentences(page)) - accused:
        assert not REASSURES.search(OF_NO_HARM.sub("", text)), text
    assert not page.bounded and not any(m.state == "stopped" for o in page.options[:1] for m in o.marks)


def test_no_word_is_banned(page: Page) -> None:
    for text in sentences(page):
        assert not re.search(r"\bno longer\b|up to [^.]* only|nothing was|\bsafe|\bstops\b", text), text
    assert all(h.severity == "" for h in page.bounded)


def test_page_2_repeats_no_number_of_people_of_page_1(page: Page) -> None:
    rows = (page.people, *page.harms, *page.options)
    told = {n for r in rows for n in (r.at_least, r.at_most, r.of) if n and n > 20}
    for a in page.answers:
        numbers = {int(n.replace(",", "")) for n in re.findall(r"(?<![\d./])\d[\d,]*(?![\d./])", a.answer)}
        assert not numbers & told, a.answer


def test_no_id_kind_or_key_stands_on_the_pages(audited: AuditResult, page: Page) -> None:
    names = {*catalog.names("attacks"), *(str(k) for k in Kind), *(f.id for f in audited.findings)}
    names = {n for n in names if "_" in n or "-" in n}
    for text in (t.replace(HOSTILE, "") for t in sentences(page)):
        assert "`" not in text.replace("`fedaudit harden`", "") and "_" not in text, text
        assert not [n for n in names if n in text], text
        assert not re.search(r"[<>=]|\bexcess\b", text), text


def test_sentences_and_answers_are_short(page: Page) -> None:
    for text in sentences(page):
        assert not re.search(r"\([^)]*\((?!\d)", text), text
        for sentence in re.split(r"(?<=[.!?])\s", text):
            assert len(sentence.split()) <= 42 and (":" in sentence or len(sentence.split()) <= 25), sentence
    assert all(len(a.answer.split()) <= 40 for a in page.answers), page.answers
    assert len(page.answers) == 10 and len(page.words) <= 12
    assert all(len(h.note.split()) <= 10 for h in (*page.harms, *page.bounded))


def test_every_question_of_a_reader_has_its_fill_and_rows_have_their_number(
    audited: AuditResult, page: Page
) -> None:
    counts = page.coverage.states
    assert sum(counts.values()) == len(audited.cells) and counts.get("exposed", 0) == sum(
        c.is_exposed for c in audited.cells
    )
    shown = [words for r in page.readers for fill, words in r.cells if fill == "exposed"]
    assert all(re.fullmatch(r"exposed(: \d)?", words) for words in shown)


class Words(HTMLParser):
    """The text of a page, without style and script."""

    def __init__(self) -> None:
        super().__init__()
        self.text, self._skipped = list[str](), False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._skipped = tag in ("style", "script")

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.text.append(data)


def squeeze(text: str) -> str:
    return re.sub(r"[\s\u200b]+", "", text)


@pytest.mark.parametrize("make", [result, compared, mild, attacked])
def test_every_format_prints_the_same_words(make: object) -> None:
    pypdf = pytest.importorskip("pypdf")
    audited: AuditResult = make()  # type: ignore[operator]
    document, page = compose(audited, SECTIONS), audited.verdict.page
    screen = Words()
    screen.feed(Html().render(document).decode())
    paper = [p.extract_text() for p in pypdf.PdfReader(io.BytesIO(Pdf().render(document))).pages[:2]]
    texts = {"html": squeeze("".join(screen.text)), "pdf": squeeze("".join(paper))}
    for text in filter(
        None, (page.sentence, page.coverage.text, page.recommendation, *(h.what for h in page.harms))
    ):
        plain = re.sub(r"\[U\+\w+\]", "", text)
        for name, whole in texts.items():
            assert squeeze(plain) in whole, (name, text)
    for a in page.answers:
        assert (
            squeeze(a.answer.replace("`", "")) in texts["html"]
            and squeeze(a.answer.replace("`", "")) in texts["pdf"]
        )
    read = AuditResult.model_validate_json(Json().render(document)).verdict.page
    assert read == page
    summary = squeeze(Markdown().render(document).decode().replace("\\", ""))
    said = squeeze("".join(summarise(audited)))
    for text in (page.sentence, page.recommendation, page.coverage.text):
        assert squeeze(text) in summary and squeeze(text) in said


def test_the_terminal_has_twelve_lines_at_eighty_columns(audited: AuditResult) -> None:
    lines = list(summarise(audited))
    assert len(lines) <= 12 and all(len(line) <= 79 for line in lines), lines
    assert lines[0].startswith(audited.verdict.word.words.upper())


@pytest.mark.parametrize("risks", [1, 4, 12])
@pytest.mark.parametrize("options", [0, 4])
def test_the_pages_to_decide_by_are_two_however_much_was_found(risks: int, options: int) -> None:
    pypdf = pytest.importorskip("pypdf")
    document = compose(crowded(risks, options), SECTIONS)
    sheets = [p.extract_text() for p in pypdf.PdfReader(io.BytesIO(Pdf().render(document))).pages[:3]]
    first, second, third = (re.sub(r"\s+", " ", s) for s in sheets)
    assert "Date, review by" in first and "Ten questions a signer asks" in second
    assert "Appendices" in second and "Annexes for the file" in second and "What was audited" in third
    assert ("and 4 more, at most critical" in first) is (risks == 12)


def test_pages_hold_few_words() -> None:
    pypdf = pytest.importorskip("pypdf")
    for audited in (crowded(), opened(), compared()):
        sheets = pypdf.PdfReader(io.BytesIO(Pdf().render(compose(audited, SECTIONS)))).pages
        counts = [len(re.findall(r"[A-Za-z][\w'’-]*", p.extract_text())) for p in sheets[:2]]
        assert counts[0] <= 450 and counts[1] <= 600, counts


def test_the_foot_has_the_digits_of_audit_json(tmp_path: Path) -> None:
    audited = clear()
    digest = hashlib.sha256(audited.dump()).hexdigest()
    foot = compose(audited, SECTIONS).foot
    assert foot.startswith(f"Audit {digest[:4]} {digest[4:8]} {digest[8:12]} {digest[12:16]} · policy")


def test_an_option_stops_a_harm_only_where_its_own_audit_is_clear() -> None:
    page = compared().verdict.page
    base, good, bad, unfinished, *_ = page.options
    assert {m.state for m in base.marks} == {"left"} and {m.state for m in good.marks} == {"stopped"}
    states = {h.what: m.state for h, m in zip(page.harms, bad.marks, strict=True)}
    assert states.pop("Guesses who took part") == "left" and set(states.values()) == {"stopped"}
    assert (good.at_least, good.at_most) == (0, 13) and (bad.at_least, bad.at_most) == (300, 512)
    assert {m.state for m in unfinished.marks} == {"untested"} and unfinished.least == unfinished.most == ""
    assert page.recommendation == "We recommend A: its own audit says ready."


def test_a_harm_that_an_option_makes_worse_has_an_arrow_and_a_milder_one_is_reduced() -> None:
    audited = crowded(2, 1)
    option = audited.alternatives[1]
    for state, severity, mark in (
        ("left", "low", "reduced"),
        ("left", "critical", "left"),
        ("open", "none", "untested"),
    ):
        option.effects[0].state, option.effects[0].severity = state, Severity(severity)  # type: ignore[assignment]
        made = write_page(audited, audited.verdict.word, "", audited.verdict.risks, [], "high")
        assert made.options[1].marks[0].state == mark
    audited.verdict.risks[0].severity = "low"
    option.effects[0].state, option.effects[0].severity = "left", Severity.HIGH
    made = write_page(audited, audited.verdict.word, "", audited.verdict.risks, [], "high")
    assert made.options[1].marks[0].state == "worse"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (exposed, "At least 641 of 1,400 people are exposed to the server, and the policy forbids deployment."),
        (clear, "At most 13 of 1,400 people are exposed to what was tested, and the policy tolerates that."),
        (opened, "It could be all 1,400 people: 18 of 18 required answers are missing."),
        (grouped, "At least 23 of 1,400 people are exposed to the server, and the policy forbids deployment."),
        (
            attacked,
            "Malicious clients cost the model at least 95\u00a0% of its answers, and the policy forbids "
            "deployment.",
        ),
        (
            mild,
            "At least 300 of 1,400 people are exposed to the server, and what page 1 lists must be treated, or "
            "accepted in writing.",
        ),
    ],
)
def test_the_banner_says_people_first(make: object, said: str) -> None:
    assert make().verdict.page.sentence == said  # type: ignore[operator]


def test_one_person_is_exposed_and_the_one_attack_found_its_planted_leak() -> None:
    audited = exposed()
    for q in audited.questions:
        q.at_least, q.groups = min(q.at_least, 1), []
    for risk in audited.verdict.risks:
        risk.at_least = min(risk.at_least, 1)
    made = write_page(audited, audited.verdict.word, "", audited.verdict.risks, [], "high")
    assert made.sentence.startswith("At least 1 of 1,400 people is exposed to the server")
    attack = next(f for f in result().findings if any(e.control == "positive" for e in f.evidence))
    chance = (Baseline(name="chance", value=0.5),)
    clear_one = next(e for e in attack.evidence if e.control == "positive")
    attack.evidence = [
        replace(clear_one, measure="auc", unit="fraction", value=1.0, interval=(0.9, 1.0), baselines=chance)
    ]
    audited.findings = [attack]
    made = write_page(audited, audited.verdict.word, "", audited.verdict.risks, [], "high")
    assert made.answers[4].answer.startswith("The one attack for which leaks were planted found some.")


def test_the_banner_and_the_rows_name_the_few_harms_that_forbid_a_deployment() -> None:
    """A number of people who are hit in other ways was read as the reason."""
    audited = exposed()
    risks, word = audited.verdict.risks, audited.verdict.word
    second = next(iter({risks[1].finding, *risks[1].cells} - {""}))
    made = write_page(audited, word, "", risks, [], [second])
    assert made.sentence.endswith("and the policy forbids deployment for harm 2.")
    assert made.bar == "Only harm 2 forbids deployment."


def test_a_picture_that_was_picked_is_a_match_and_one_that_was_drawn_is_redrawn() -> None:
    audited = result()
    gallery = next(g for g in audited.galleries if "reconstruction" in g.rows)
    gallery.rows = {"original": gallery.rows["reconstruction"], **gallery.rows}
    for finding, name in (("lookup", "match"), ("upcnn", "redrawn")):
        leak = next(f for f in audited.findings if f.severity.rank)
        leak.id = gallery.finding = finding
        audited.galleries, audited.figures = [gallery], []
        made = write_page(audited, audited.verdict.word, "", audited.verdict.risks, [], "high")
        assert made.pictures is not None and list(made.pictures.rows)[:2] == ["original", name]


def test_severity_is_darker_where_it_is_worse_in_both_formats() -> None:
    def weigh(colour: str) -> float:
        red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for file, pattern in (("report.css", r"--{}: (#\w+)"), ("report.typ", r'{}: rgb\("(#\w+)"\)')):
        text = (TEMPLATES / file).read_text()
        found = [re.search(pattern.format(s), text) for s in ("critical", "high", "medium", "low")]
        tones = [weigh(f[1]) for f in found if f]
        assert len(tones) == 4 and tones == sorted(tones), file
