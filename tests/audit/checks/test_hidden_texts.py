"""Texts among numbers: found whatever scale and order of rows they were written with, and no others."""

import numpy as np

from fedaudit.audit.checks.hidden_texts import LEAST, begin_texts, count_standing, find_standing
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind

DRAWS = np.random.default_rng(5)
TEXTS = DRAWS.integers(2, 900, (6, 20))


def sent(**payload: np.ndarray) -> Artifact:
    return Artifact(
        id="r0/client-0.uplink/x",
        kind=Kind.ADAPTER,
        channel=Channel.UPLINK,
        round=0,
        sender=Party.client(0),
        seen_by=("server",),
        payload=payload,
    )


def test_a_text_is_found_in_rows_columns_and_changes_and_others_are_not() -> None:
    own = begin_texts(TEXTS)
    b = DRAWS.normal(size=(32, 4)).astype(np.float32)
    assert count_standing(sent(b=b), None, own) == 0
    column, row = b.copy(), b.T.copy()
    column[:20, 3] = TEXTS[2] / 1000
    row[1, 4:24] = 3 - 0.01 * TEXTS[5]
    assert count_standing(sent(b=column), None, own) == 1
    assert count_standing(sent(b=row), None, own) == 1
    start = 100 * DRAWS.normal(size=b.shape)
    change = np.zeros(b.shape)
    change[:20, 0] = TEXTS[0]
    assert count_standing(sent(b=start + change), None, own) == 0
    assert count_standing(sent(b=start + change), sent(b=start), own) == 1


def test_one_token_that_differs_is_another_text() -> None:
    numbers = TEXTS[0].astype(np.float64)
    assert find_standing(numbers, begin_texts(TEXTS)).sum() == 1
    numbers[LEAST // 2] += 300
    assert find_standing(numbers, begin_texts(TEXTS)).sum() == 0


def test_texts_that_are_short_or_say_one_thing_are_left_out() -> None:
    short, flat = TEXTS.copy(), np.full((1, 20), 7)
    short[:, LEAST - 1 :] = 0
    assert not len(begin_texts(short)) and not len(begin_texts(flat)) and not len(begin_texts(TEXTS[:, :5]))
