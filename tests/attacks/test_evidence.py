"""The records of evidence and the table of measures: one row a measure, and the same record all the way."""

import ast
import dataclasses
import math
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from fedaudit.attacks import measure
from fedaudit.attacks.evidence import Baseline, Evidence, Series
from fedaudit.attacks.measure import MEASURES, Measure
from fedaudit.fl.threats.threat import Position, ThreatModel
from fedaudit.reports.result import AuditResult, Figure, Finding, Outcome, Severity

ROOT = Path(__file__).parents[2]
# Functions that take a measure's name first, beside Evidence(measure=...)
SAYING = {"say", "share", "hits", "mean", "state", "count_error"} | {
    *("judge_hits", "judge_values", "judge_likeness")
}


def emitted() -> set[str]:
    """Names of measures in the source of the attacks; a formatted part is a `*`."""
    found: set[str] = set()
    for path in (ROOT / "attacks").rglob("*.py"):
        tree = ast.parse(path.read_text())
        constants = {
            target.id: node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = [k.value for k in node.keywords if k.arg == "measure"]
            said = [*given, *(node.args[:1] if called in SAYING else [])]
            found |= {n for a in said for n in literal(constants.get(getattr(a, "id", ""), a))}
    return found


def of_robustness() -> set[str]:
    """The same of what is measured of models that malicious clients had a part in."""
    trees = [ast.parse(p.read_text()) for p in (ROOT / "audit" / "robustness").glob("*.py")]
    said = {n.value for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant)}
    return {name for name in MEASURES if name in said}


def literal(node: ast.expr) -> list[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(v.value) if isinstance(v, ast.Constant) else "*" for v in node.values)]
    return []


def test_every_measure_that_an_attack_emits_has_a_row_and_every_row_of_theirs_is_emitted() -> None:
    names = emitted()
    assert len(names) > 20
    assert not [n for n in names if not any(fnmatchcase(row, n) for row in MEASURES)]
    # extracted: renamed by generator_extraction; the others are for attacks of a user's own
    # and canary_exposure chooses by copies which of its two it emits
    apart = {
        "extracted_at_fpr_0.01",
        "exposure_of_one",
        "exact_match",
        "accuracy",
        "epsilon_lower",
    } | of_robustness()
    assert not [r for r in MEASURES if r not in apart and not any(fnmatchcase(r, n) for n in names)]


@pytest.mark.parametrize("row", MEASURES.values(), ids=str)
def test_every_row_is_complete_and_evidence_of_it_is_accepted(row: Measure) -> None:
    assert row.words and "_" not in row.words
    e = Evidence(
        measure=row.name, value=0.5, unit=row.unit, trials=3, interval=None, higher_is_worse=row.higher_is_worse
    )
    assert e.measure == row.name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"measure": "likeness"}, "no row in attacks/measure.py"),
        ({"unit": "index"}, "is in unit 'fraction'"),
        ({"higher_is_worse": False}, "higher_is_worse=True"),
    ],
)
def test_evidence_of_no_row_or_against_its_row_is_refused_when_made_and_when_read(
    change: dict[str, object], said: str
) -> None:
    fields: dict[str, object] = {
        "measure": "rank1",
        "value": 0.5,
        "unit": "fraction",
        "trials": 3,
        "interval": None,
    }
    with pytest.raises(ValueError, match=said):
        Evidence(**(fields | change))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=said):
        TypeAdapter(Evidence).validate_python(fields | change)


def test_the_most_telling_measures_come_first_and_do_not_depend_on_the_order_given() -> None:
    names = ["psnr", "auc", "rank5", "rank1", "auc"]
    assert measure.telling(names, 2) == measure.telling(reversed(names), 2) == ["rank1", "auc"]


FOUND = Evidence(
    measure="psnr",
    value=math.inf,
    unit="dB",
    trials=3,
    interval=(-math.inf, math.inf),
    baselines=(Baseline(name="class mean", value=9.5, interval=(9.0, math.inf)),),
    looks=4,
    control="positive",
    condition={"n": 5.0, "origin": "replayed"},
    note="n",
)


FINDING = Finding(
    id="x",
    title="t",
    source="attack",
    outcome=Outcome.RAN,
    severity=Severity.LOW,
    summary="s",
    threat=ThreatModel(position=Position.SERVER, knows=frozenset({"c", "a", "d", "b"})),
    evidence=[FOUND],
)


def test_the_record_an_attack_makes_is_the_one_that_the_audit_reads_back() -> None:
    assert Finding.model_validate_json(FINDING.model_dump_json()) == FINDING
    assert Finding.model_validate(FINDING.model_dump(mode="json")).evidence == [FOUND]
    assert TypeAdapter(Evidence).validate_python(dataclasses.asdict(FOUND)) == FOUND
    assert FINDING.model_dump(mode="json")["threat"]["knows"] == ["a", "b", "c", "d"]  # never a set's order
    drawn = Figure(
        id="f",
        title="t",
        caption="c",
        alt="a",
        x_label="x",
        y_label="y",
        series=[Series(name="s", x=[1.0], y=[math.inf], low=[0.0], high=[math.inf])],
    )
    assert Figure.model_validate_json(drawn.model_dump_json()) == drawn


def test_an_unknown_field_of_a_record_is_refused_at_any_depth() -> None:
    whole = FINDING.model_dump(mode="json")
    (e,) = whole["evidence"]
    for wrong in ({**e, "p": 1}, {**e, "baselines": [{"name": "b", "value": 1, "p": 1}]}):
        with pytest.raises(ValueError, match=r"\.p\n"):
            Finding.model_validate(whole | {"evidence": [wrong]})
    with pytest.raises(ValueError, match=r"threat\.p\n"):
        Finding.model_validate(whole | {"threat": {"position": "server", "p": 1}})


def test_the_schema_of_a_result_has_the_fields_of_the_records() -> None:
    schema = AuditResult.model_json_schema()["$defs"]
    for record in (Evidence, Baseline, Series, ThreatModel):
        assert list(schema[record.__name__]["properties"]) == [f.name for f in dataclasses.fields(record)]
        assert schema[record.__name__]["additionalProperties"] is False


def test_the_records_import_neither_torch_nor_numpy() -> None:
    code = "import sys, fedaudit.attacks.evidence; print(sorted({'torch', 'numpy', 'scipy'} & set(sys.modules)))"
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "wrong",
    [
        {"value": math.nan},
        {"value": 0.4},
        {"interval": (0.9, 0.5)},
        {"interval": (math.nan, 1.0)},
        {"trials": -1},
        {"looks": 0},
        {"confidence": 1.0},
        {"baselines": ({"name": "chance", "value": math.nan},)},
        {"baselines": ({"name": "chance", "value": 0.5, "interval": (0.6, 0.7)},)},
    ],
    ids=str,
)
def test_a_value_that_no_measurement_gives_is_refused_when_it_is_made_and_when_it_is_read(wrong: dict) -> None:
    right = {"measure": "auc", "value": 0.7, "unit": "fraction", "trials": 9, "interval": (0.5, 1.0)}
    reader = TypeAdapter(Evidence)
    assert reader.validate_python(right).value == 0.7
    with pytest.raises(ValueError):
        reader.validate_python(right | wrong)
