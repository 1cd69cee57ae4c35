"""What a verdict states of a run: numbers, and words of the vocabulary."""

from fedaudit.audit.case.facts import keep_facts


def test_numbers_and_words_of_the_vocabulary_are_facts_and_sentences_are_not() -> None:
    found = keep_facts(
        {"word": "ready", "sentence": "This is ready.", "at_least": 3, "people": 0.25, "failing": ["membership"]}
    )
    assert found == {"word": "ready", "at_least": 3, "people": 0.25, "failing": ["membership"]}


def test_what_holds_no_fact_is_left_out() -> None:
    assert keep_facts({"why": {"note": "nothing was tried"}, "cells": [{"text": "a"}, {"rule": "b"}]}) == {
        "cells": [{"rule": "b"}]
    }
