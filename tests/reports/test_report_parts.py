"""The parts: numbers in words, marks of a paragraph, charts, galleries, places to break a line."""

import base64
import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fedaudit.attacks.evidence import Series
from fedaudit.attacks.measure import find_measure
from fedaudit.audit.case.clock import BY_TIME
from fedaudit.reports import charts
from fedaudit.reports import format as fmt
from fedaudit.reports.exhibits import Gallery
from fedaudit.reports.gallery import enlarge, strips
from fedaudit.reports.markup import spans
from fedaudit.reports.result import NoiseCheck, Severity
from fedaudit.reports.section import Block, Bullets, Chart, Folded, Heading, Paragraph, Table
from fedaudit.reports.sections.exposure import Exposure
from fedaudit.reports.sections.findings import Findings
from fedaudit.reports.sections.noise_audit import NoiseAudit
from fedaudit.reports.sections.training import TIMED, Training
from fedaudit.reports.typeset import breakable, printable
from tests.audit.accounting.test_status import AUDIT
from tests.reports.sample import result
from tests.reports.sample_figures import png


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (12345, "12,345"),
        (0.12345, "0.123"),
        (12345.6, "12,346"),
        (1e-5, "1e-5"),
        (-2.5, "-2.5"),
        (math.inf, "infinite"),
        (math.nan, "not defined"),
    ],
)
def test_numbers_have_three_significant_digits(value, text):
    assert fmt.number(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [
        (0.784, "78.4 %"),
        (1.0, "100 %"),
        (0.0, "0 %"),
        (0.99996, ">99.9 %"),
        (0.999536, ">99.9 %"),
        (0.07, "7.0 %"),
        (0.00004, "<0.1 %"),
        (1.7e-11, "<0.1 %"),
        (-0.021, "-2.1 %"),
    ],
)
def test_percent_never_rounds_up_to_all_of_it(fraction, text):
    assert fmt.percent(fraction).replace("\u00a0", " ") == text


def test_a_fraction_just_below_one_is_not_printed_as_all_of_it():
    assert fmt.percent(1 - 1e-9) != fmt.percent(1.0)


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (20_480_000, "20.5 MB"), (999_999, "1 MB")]
)
def test_bytes_are_in_decimal_units(size, text):
    assert fmt.volume(size).replace("\u00a0", " ") == text


def test_measures_and_intervals_read_as_words():
    assert find_measure("tpr_at_fpr_0.001").words.replace("\u00a0", " ") == "TPR at 0.1 % FPR"
    assert find_measure("extracted_at_fpr_0.01").words.replace("\u00a0", " ") == "extracted at 1 % FPR"
    assert find_measure("rank1").words == "rank-1"
    assert fmt.interval((0.064, 0.14), "fraction").replace("\u00a0", " ") == "6.4 to 14.0 %"
    assert fmt.interval(None, "dB") == "no interval"
    assert fmt.date("2026-03-05T15:07:00+01:00") == "5 March 2026, 14:07 UTC"
    assert fmt.date("on Tuesday") == "on Tuesday"
    assert fmt.duration(0.0627).replace("\u00a0", " ") == "under 0.1 s" and fmt.duration(0).startswith("0")
    assert fmt.duration(3725).replace("\u00a0", " ") == "1 h 2 min"


def test_only_backticks_and_asterisks_mark_a_paragraph():
    assert spans("say *so* in `x*y*z`!") == [
        ("text", "say "),
        ("emphasis", "so"),
        ("text", " in "),
        ("code", "x*y*z"),
        ("text", "!"),
    ]


@pytest.mark.parametrize("text", ["3 * 4 * 5", "a*b*c", "one * alone", "`open", "#x _y_ $z$ **b**"])
def test_everything_else_is_literal(text):
    assert spans(text) == [("text", text)]


@pytest.mark.dear("upcnn-dose", "lira-roc")
@pytest.mark.parametrize("figure", result().figures, ids=lambda f: f.id)
def test_a_chart_is_the_same_bytes_each_time_and_valid_xml(figure):
    image = charts.svg(figure)
    charts._draw.cache_clear()
    assert image == charts.svg(figure)
    assert ET.fromstring(image).tag.endswith("svg")
    assert b"<dc:date>" not in image and b"<text" not in image


def test_a_curve_of_nothing_but_certainty_is_drawn_without_a_warning():
    sure = Series(name="label set", x=[1.0, 1.0], y=[1.0, 1.0])
    figure = next(f for f in result().figures if f.kind == "roc").model_copy(update={"series": [sure]})
    with warnings.catch_warnings(action="error"):
        assert b"label set" in charts.svg(figure)


def test_charts_leave_the_users_matplotlib_settings_alone():
    import matplotlib

    before = dict(matplotlib.rcParams)
    charts.svg(result().figures[0])
    assert dict(matplotlib.rcParams) == before


def test_a_blind_baseline_is_drawn_dashed_and_grey():
    figure = result().figures[0]
    drawn = charts.svg(figure).decode()
    assert charts.GREYS[0] in drawn and "stroke-dasharray" in drawn
    figure.series = [s for s in figure.series if not s.blind]
    assert charts.GREYS[0] not in charts.svg(figure).decode()


def test_a_chart_of_infinities_is_drawn_without_them():
    figure = result().figures[0].model_copy(deep=True)
    figure.series[0].y[0] = math.inf
    assert charts.svg(figure).startswith(b"<?xml")


def test_enlarging_repeats_pixels_and_invents_none():
    small = np.asarray(Image.open(io.BytesIO(base64.b64decode(png(3, side=16)))))
    large = np.asarray(Image.open(io.BytesIO(enlarge(png(3, side=16), side=160))))
    assert large.shape == (160, 160)
    np.testing.assert_array_equal(large, np.kron(small, np.ones((10, 10), dtype=np.uint8)))


def test_long_galleries_are_cut_into_even_strips_that_keep_every_image():
    names = [png(i) for i in range(23)]
    cut = strips(Gallery(finding="f", title="t", caption="c", alt="a", rows={"original": names}))
    assert [len(s.columns) for s in cut] == [7, 8, 8]
    assert [p for s in cut for p in s.rows["original"]] == names


def test_long_words_may_break_and_lose_nothing():
    path = "artifacts/" + "long_name_" * 9
    assert breakable("short words stay") == "short words stay"
    assert "\u200b" in breakable(path)
    assert breakable(path).replace("\u200b", "") == path


@pytest.mark.parametrize("name", ["prototype_membership,", "label_counts/class", "count_recovery"])
def test_a_name_longer_than_the_narrowest_column_may_break_after_a_sign_and_nowhere_else(name):
    parts = breakable(name, names=12).split("\u200b")
    assert len(parts) > 1 and "".join(parts) == name
    assert all(part[-1] in "_/" for part in parts[:-1])


def test_a_long_word_of_the_language_is_not_broken():
    assert breakable("differentially-private reconstruction hyperparameters", names=12).count("\u200b") == 0


def test_signs_no_font_has_are_written_as_code_points():
    assert printable({"a": ["ok ≤ ε", "漢\x00\t"]}) == {"a": ["ok ≤ ε", "[U+6F22][U+0000]    "]}


def test_lines_that_end_in_one_point_are_named_in_a_list_beside_the_axes():
    many = [Series(name=f"attack {i}", x=[1.0, 2.0], y=[1.0 - i / 10, 0.5]) for i in range(5)]
    figure = result().figures[0].model_copy(update={"series": many, "kind": "line"})
    ids = [e.get("id", "") for e in ET.fromstring(charts.svg(figure)).iter()]
    assert [i for i in ids if i.startswith("legend")] == ["legend_1"]


def test_no_text_of_a_chart_or_a_gallery_is_printed_below_8_points():
    template = (Path(charts.__file__).with_name("templates") / "report.typ").read_text()
    gallery = template[template.index("#let print-gallery") : template.index("#let print-callout")]
    assert min(map(float, re.findall(r"text\(([\d.]+)pt", gallery))) >= 8
    (printed,) = re.findall(r"image\(b\.file, width: (\d+)mm", template)
    width = float(ET.fromstring(charts.svg(result().figures[0])).get("width", "").removesuffix("pt")) / 72 * 25.4
    assert "fontsize" not in Path(charts.__file__).read_text()  # every text has the one size
    assert charts.STYLE["font.size"] * float(printed) / width >= 7.9


def test_tests_of_the_noise_are_said_once_failures_first_and_untried_ones_apart() -> None:
    fresh = NoiseCheck(name="noise used twice", passed=True, text="no noise (0 of 9 occur again)", failure_rate=0)
    law = NoiseCheck(name="law of the noise", passed=True, text="it is the law (p = 0.5)", failure_rate=0.01)
    data = NoiseCheck(name="independence", passed=False, text="it depends (p = 0)", failure_rate=0.01)
    rank = NoiseCheck(name="rank", passed=True, text="not tried: there is too little noise", failure_rate=0.0)
    audited = result()
    audited.noise_audits = [
        AUDIT.model_copy(update={"kind": "gan_G", "checks": [law, data, rank, fresh]}),
        AUDIT.model_copy(update={"kind": "gan_D", "checks": [rank, fresh]}),
    ]
    blocks = NoiseAudit().build(audited)
    (table,) = [b for b in blocks if isinstance(b, Table)]
    assert [row[-1] for row in table.rows] == ["2 of 3", "1 of 1"]
    assert [b.items for b in blocks if isinstance(b, Bullets)] == [
        ["*Failed.* Independence: it depends (p = 0)."]
    ]
    said = [b.text for b in blocks if isinstance(b, Paragraph) and b.small]
    assert said == [
        "*Passed*: law of the noise.",
        "*Passed*: noise used twice. *Not tried*, with too little noise: rank.",
    ]
    measured = {b.title: b.blocks for b in blocks if isinstance(b, Folded) and not b.on_paper}
    assert measured["Measured on gan_G"] == [Bullets(["Law of the noise: p = 0.5."])]
    assert measured["Measured on all kinds"] == [Bullets(["Noise used twice: 0 of 9 occur again."])]


def test_kinds_whose_noise_passed_the_same_tests_are_one_entry_and_no_finding_of_their_own_on_paper() -> None:
    law = NoiseCheck(name="law of the noise", passed=True, text="it is the law (p = 0.5)", failure_rate=0.01)
    bad = NoiseCheck(name="law of the noise", passed=False, text="it is another (p = 0)", failure_rate=0.01)
    audited = result()
    audited.noise_audits = [
        AUDIT.model_copy(update={"id": "noise-g", "kind": "gan_G", "checks": [law]}),
        AUDIT.model_copy(update={"id": "noise-m", "kind": "local_model", "checks": [bad]}),
        AUDIT.model_copy(
            update={
                "id": "noise-d",
                "kind": "gan_D",
                "checks": [law.model_copy(update={"text": "it is the law (p = 0.3)"})],
            }
        ),
    ]
    blocks = NoiseAudit().build(audited)
    titles = [(b.text, b.anchor) for b in blocks if isinstance(b, Heading)]
    assert titles == [
        (f"Gan G, gan D: {AUDIT.protection}", "noise-g"),
        (f"Local model: {AUDIT.protection}", "noise-m"),
    ]
    assert [b.title for b in blocks if isinstance(b, Folded)] == ["Measured on gan_G", "Measured on gan_D"]
    ids = {"noise-g": Severity.NONE, "noise-m": Severity.HIGH, "noise-d": Severity.NONE}
    first = audited.findings[0]
    audited.findings = [first.model_copy(update={"id": i, "severity": bad}) for i, bad in ids.items()]
    found = Findings().build(audited)
    assert [b.anchor for b in found if isinstance(b, Heading) and b.anchor] == ["noise-m"]
    assert Paragraph("No test contradicts the noise on gan_G, gan_D: see *Tests of the noise*.") in found


def test_a_text_that_fits_keeps_the_space_between_a_number_and_its_unit() -> None:
    text = f"a rate of up to {fmt.percent(0.336)} cannot be excluded"
    assert fmt.shorten(text, 80) == text and fmt.shorten(text, 20) == "a rate of up to \u2026"


def unfold(blocks: list[Block]) -> list[Block]:
    return [b for x in blocks for b in (unfold(x.blocks) if isinstance(x, Folded) else [x])]


@pytest.mark.parametrize("severity", [Severity.HIGH, Severity.NONE])
def test_a_finding_says_what_the_attack_hit_before_its_measures_and_says_it_once(severity: Severity) -> None:
    audited = result()
    hit, measures = "Membership: 110 of 719 people tested were hit.", "AUC 0.84, 719 trials."
    changes = {"id": "a", "severity": severity, "reason": hit, "summary": measures}
    audited.findings = [audited.findings[0].model_copy(update=changes)]
    first = next(b.text for b in unfold(Findings().build(audited)) if isinstance(b, Paragraph))
    assert first == f"`a`: {hit} {measures}"
    assert repr(Findings().build(audited)).count(hit) == 1
    audited.findings[0].summary = hit  # of what did not run the two are one
    first = next(b.text for b in unfold(Findings().build(audited)) if isinstance(b, Paragraph))
    assert first == f"`a`: {hit}"


def test_a_leak_that_counts_already_says_with_which_finding() -> None:
    audited = result()
    audited.findings[1].part_of = audited.findings[0].id
    said = [b.text for b in unfold(Findings().build(audited)) if isinstance(b, Paragraph)]
    assert any(text.endswith("It shows the same leak as upcnn and counts once.") for text in said)


def test_rounds_are_counted_from_1_in_every_table() -> None:
    audited = result()
    rounds = audited.scope.rounds
    audited.exposures = [
        audited.exposures[0].model_copy(update={"rounds": rounds, "first_round": 0, "last_round": rounds - 1}),
        audited.exposures[0].model_copy(update={"rounds": 1, "first_round": rounds, "last_round": rounds}),
    ]
    (seen,) = [b for b in Exposure().build(audited) if isinstance(b, Table)]
    assert [row[-1] for row in seen.rows] == [f"{rounds} (1–{rounds})", "after the last"]
    last = audited.history[-1].round + 1
    training = [b.text for b in Training().build(audited) if isinstance(b, Paragraph)]
    assert f"Accuracy after round {last}" in training[0]


def test_paper_draws_the_same_accuracies_once_over_time_where_time_was_kept() -> None:
    trained = result()
    trained.figures = [f for f in trained.figures if f.id != TIMED]
    assert len(trained.history) > 1
    drawn = [b.figure.title for b in Training().build(trained) if isinstance(b, Chart)]
    assert "Accuracy over rounds" in drawn
    trained.figures += [trained.figures[0].model_copy(update={"id": TIMED, "finding": "", "title": "Over time"})]
    blocks = Training().build(trained)
    assert "Accuracy over rounds" not in [b.figure.title for b in blocks if isinstance(b, Chart)]
    assert "Over time" in [b.figure.title for b in blocks if isinstance(b, Chart)]
    assert any(isinstance(b, Folded) and b.title == "Accuracy over rounds" for b in blocks)


def test_the_accuracy_over_time_has_the_name_that_the_section_looks_for() -> None:
    assert BY_TIME == TIMED
