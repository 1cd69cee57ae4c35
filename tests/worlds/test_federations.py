"""Ordinary federations are imported and audited without a false word, or refused in a sentence."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.worlds.drawn_federations import DRAWN
from tests.worlds.federations import EVERYTHING, FEDERATIONS, Recorded, evaluate, lists
from tests.worlds.orders import ORDERS
from tests.worlds.world import cases, check_world, judge

WORLDS = {**FEDERATIONS, **ORDERS}


@pytest.mark.sample(5)
@pytest.mark.dear("DP-FedAvg of 1,000 clients")
@pytest.mark.parametrize("name", cases(WORLDS))
def test_of_an_ordinary_federation_nothing_false_is_said(name: str, tmp_path: Path, record_property: Any) -> None:
    check_world(WORLDS[name], tmp_path, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases(DRAWN))
def test_of_a_federation_that_was_drawn_nothing_false_is_said(
    name: str, tmp_path: Path, record_property: Any
) -> None:
    check_world(DRAWN[name], tmp_path, record_property)


@pytest.mark.nightly
@pytest.mark.parametrize("name", cases(EVERYTHING))
def test_of_what_is_required_most_is_answered_where_everything_is_given(
    name: str, tmp_path: Path, record_property: Any
) -> None:
    judged = judge(EVERYTHING[name], tmp_path)
    record_property("judged", tuple(judged))
    assert judged.word == "right", judged.why


WAYS = ("uplink", "downlink")
MODEL = 4 * (64 * 16 + 16 + 16 * 10 + 10)  # bytes of nets.Mlp
LISTS = 4 * 8 + 100 * 8 + len("cuda:0") + len("night\nbatch-2") + 1 + 2 * 16 + 300  # of `lists`
ANSWER, COUNTS = 8 + 8 + 10 * 8, 8 + 8  # of `evaluate`; a count and a loss


def test_every_byte_that_is_sent_is_recorded_or_noted(tmp_path: Path) -> None:
    """Five clients in two rounds; a broadcast is recorded once, and what no array can hold is noted."""
    one = Recorded(more=lists, evaluates=evaluate, says={"config.blob": b"\x00\x01", "config.state": object()})
    one.write(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "inbox" / "manifest.jsonl").read_text().splitlines()]
    sent = {way: sum(x["bytes"] for x in lines if "message" in x and x["channel"] == way) for way in WAYS}
    assert sent == {"uplink": 10 * (MODEL + COUNTS + LISTS + ANSWER), "downlink": 3 * MODEL + 2}
    (noted,) = [x for x in lines if "error" in x]
    assert "clients:records/config.state of server in round 0" in noted["error"] and noted["bytes"] > 0
    assert (noted["channel"], noted["seen_by"]) == ("downlink", ["client"])
