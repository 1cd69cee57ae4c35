"""Sentences that can reach a report are plain English: no inverted clauses, nobody "told", no riddles.

Every text constant of audit/, reports/ and attacks/ that is no docstring is read, and every text of the
policies.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DIALECT = re.compile(
    r"(?<![Cc]annot )\b(?:told|tells|tell)\b(?![^.;]*\bapart\b)"
    r"|\bspeaks? against\b|\b[Ww]hat was asked\b|\b(?:borne|bears) out\b"
    r"|as (?:much|many) as it likes"
    r"|\b[Ww]hose \w+ (?:is|are) whose\b|\b[Tt]owards nobody does\b|\bcry wolf\b|keeps to the protocol and looks"
    r"|\b[Nn]o question that was asked\b|\bstays clear of every\b|\bseen to work on this\b|\bthis very\b"
    r"|\bno longer (?!sent|the one|gain)|\b(?:ends|stops) at n\b"  # what was not shown did not end
    r"|^Of (?:less|more) than \w+ of what\b|\banything is known\b"
)
OLD = (
    "about 11 of them are told beyond guessing",
    "Of less than half of what was sent anything is known; the rest may tell as much as it likes.",
    "towards nobody does differential privacy bound what a better attack learns".capitalize(),
    "Everybody tried here keeps to the protocol and looks.",
    "No question that was asked.",
    "A leak was seen to work on this very federation.",
    "It stays clear of every blind adversary up to n = 2",
    "It beats guessing up to n = 2, no longer at n = 4.",
    "With the run's protections it no longer shows the leaks.",
    "The leak ends at n = 4.",
    "Whose examples are whose is not established.",
    "None of 12 tests speaks against the noise.",
    "which of them occur tells what was noised",
    "The attack ran; nobody told the auditor what clients hold.",
    "What was asked",
    "what its operator states and no message bears out is taken at its word",
)
PLAIN = (
    "about 11 could be identified, beyond luck",
    "Less than half of what was sent was attacked; the rest may leak.",
    "Differential privacy protects nobody here.",
    "What showed the harm is no longer sent.",
    "Only attackers that follow the protocol were tested.",
    "clients are told apart by their numbers",
    "A kind that *tells clients apart* reaches its reader as one client's own.",
    "Cannot tell: too little is known",
)


def list_texts(source: str) -> Iterator[str]:
    """Text constants of a module that are no docstrings."""
    tree = ast.parse(source)
    holders = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    documented = set[int]()
    for node in ast.walk(tree):  # who holds a docstring comes before it
        if isinstance(node, holders) and node.body and isinstance(node.body[0], ast.Expr):
            documented.add(id(node.body[0].value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield node.value


@pytest.mark.parametrize("sentence", OLD)
def test_a_sentence_of_the_old_style_is_caught(sentence: str) -> None:
    assert DIALECT.search(sentence)
    assert DIALECT.search(next(list_texts(f"x = {sentence!r}")))


@pytest.mark.parametrize("sentence", PLAIN)
def test_a_plain_sentence_is_not(sentence: str) -> None:
    assert not DIALECT.search(sentence)


@pytest.mark.parametrize("folder", ["audit", "reports", "attacks"])
def test_no_text_of_the_code_is_in_the_dialect(folder: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}: {text.strip()[:90]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for text in list_texts(path.read_text(encoding="utf-8"))
        if " " in text.strip() and DIALECT.search(text)
    ]
    assert found == []


def test_no_reason_of_a_policy_is_in_the_dialect() -> None:
    texts = [
        str(value)
        for path in sorted((ROOT / "audit" / "policy").glob("*.yaml"))
        for value in _list_values(yaml.safe_load(path.read_text(encoding="utf-8")))
    ]
    assert [" ".join(t.split())[:90] for t in texts if DIALECT.search(" ".join(t.split()))] == []


def _list_values(tree: object) -> Iterator[object]:
    if isinstance(tree, dict):
        for value in tree.values():
            yield from _list_values(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _list_values(value)
    else:
        yield tree
