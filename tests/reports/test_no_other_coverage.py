"""No sentence of a report claims that something was tried which the table of questions does not have.

Attacks are deleted, and the model's data, the recording and the protections change; everything that is printed of
such an audit is read.
"""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest

from fedaudit.audit.settings import catalog
from fedaudit.audit.verdict.decision import decide
from fedaudit.audit.verdict.limits import list_limits, list_unanswered
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.audit.verdict.scene import Attempt
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.reports import format as fmt
from fedaudit.reports.document import compose
from fedaudit.reports.questions import Question, State, list_harms
from fedaudit.reports.renderers.markdown import Markdown
from fedaudit.reports.result import AuditResult, Finding, Headline, Outcome, Severity
from tests.audit.verdict.scenes import CARDS, GIVEN, answer, make_scene, try_all
from tests.reports.sample import result

POLICY = load_policy("default")
SECTIONS = [catalog.load("sections", n) for n in catalog.names("sections")]
CLAIMS = re.compile(
    r"every attack|all attacks|was tried|were tried|nothing was left out|no question that was asked|"
    r"attacked: none|artifacts? .*attacked",
    re.I,
)


def make_audit(questions: list[Question], attempts: list[Attempt]) -> AuditResult:
    """An audit in which every attempt ran and showed nothing."""
    made = result()
    made.figures, made.galleries, made.bounds, made.noise_audits, made.alternatives = [], [], [], [], []
    made.findings = [
        Finding(
            id=a.id,
            title=f"{a.card.title}: no leak was demonstrated",
            source="attack",
            outcome=Outcome.RAN,
            severity=Severity.NONE,
            summary="s",
            threat=None,
        )
        for a in attempts
    ]
    made.headline = Headline(severity=Severity.NONE, sentence="s")
    made.reproduction = made.reproduction.model_copy(update={"config": ""})
    made.scope = made.scope.model_copy(update={"threats": []})
    made.questions, made.rule_questions = questions, []
    made.limits = list_limits(questions, simulated=True)
    made.decision = decide(made, POLICY)
    return made


def read_texts(block: Any) -> Iterator[str]:
    """Every text of a block, a cell or a row, each by itself."""
    if isinstance(block, str):
        yield block
    elif isinstance(block, dict):
        for pair in block.items():
            yield " ".join(" ".join(read_texts(p)) for p in pair)
    elif is_dataclass(block):
        for f in fields(block):
            yield from read_texts(getattr(block, f.name))
    elif isinstance(block, list | tuple):
        if block and all(isinstance(b, str) or is_dataclass(b) for b in block) and len(block) < 8:
            yield " ".join(" ".join(read_texts(b)) for b in block)  # a row
        else:
            for b in block:
                yield from read_texts(b)


def read_report(made: AuditResult) -> list[str]:
    document = compose(made, SECTIONS)
    texts = [t for chapter in document.chapters for block in chapter.blocks for t in read_texts(block)]
    return [*texts, *Markdown().render(document).decode().splitlines()]


CASES = [  # method, attacks that are deleted, data, recorded rounds, secure aggregation
    ("fedavg", [], "image", None, False),
    ("fedavg", [], "text", None, False),
    ("fedavg", [], "table", [2], False),
    ("fedavg", [], "image", [2], False),
    ("fedavg", [], "image", [], False),
    ("fedavg", [], "image", None, True),
    ("rebafl", list(CARDS), "image", None, False),
    ("gandalf", ["generator_extraction"], "image", [2], False),
    ("seol_kim", ["count_recovery"], "image", None, True),
    *(("rebafl", [name], "image", None, False) for name in ("ridge", "class_list", "hidden_images", "analytic")),
]


@pytest.mark.parametrize(("method", "deleted", "data", "kept", "summed"), CASES)
def test_only_the_table_says_what_was_asked(
    method: str, deleted: list[str], data: str, kept: list[int] | None, summed: bool
) -> None:
    protections = [SecureAggregation()] if summed else []
    scene = make_scene(method, gives=GIVEN[data], kept=kept, protections=protections)
    attempts = try_all(scene, without=deleted)
    found = answer(scene, attempts)
    made = make_audit(list(found.values()), attempts)
    texts = read_report(made)
    assert [t for t in texts if CLAIMS.search(t)] == []
    for name in deleted:
        alone = [t for t in texts if re.search(rf"\b{name}\b", t)]
        assert all("left out" in t.lower() or "open" in t.lower() for t in alone), (name, alone[:2])
    assert all(q.state is State.OPEN for q in made.questions) and made.decision is not None
    assert f"0 of {len(made.questions)} questions answered" in made.decision.sentence
    assert made.decision.word == "cannot_tell"
    assert sum(t.endswith(" Open") for t in texts) >= len(made.questions)  # a row each


def test_every_open_question_is_counted_in_the_limits_and_names_in_the_table_what_it_lacks() -> None:
    scene = make_scene("rebafl")
    found = answer(scene, try_all(scene, without=["ridge", "lookup"]))
    made = make_audit(list(found.values()), [])
    asked = found["reconstruction.server"]
    assert asked.state is State.OPEN and "ridge (left out" in asked.why
    left = [q for q in made.questions if not q.is_answered]
    (limit,) = list_unanswered(made.questions)
    assert limit in made.limits and limit.startswith(f"{len(left)} questions are open ({list_harms(left)})")
    assert any(f"{fmt.sentence_case(asked.why)}." in t for t in read_report(made))
