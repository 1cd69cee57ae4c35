"""The ledger: what a line says, and how a client's draw enters it."""

import json
from pathlib import Path

import pytest
import torch

from fedaudit.fl.availability.bernoulli import Bernoulli, Clustered
from fedaudit.fl.availability.full import Full
from fedaudit.fl.availability.markov import Markov
from fedaudit.fl.availability.uniform import Uniform
from fedaudit.fl.data.participation import Drawn, describe_drawing
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE, Release, from_fields, read, to_line
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.runtime.durable import Log
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.wire import Wire
from tests.fl.test_wire import CARD

LINE = Release(
    round=0,
    kind="model_delta",
    sender="client/0",
    observers=("server",),
    mechanism="gaussian",
    noise_std=1.0,
    sensitivity=1.0,
    participation_seen_by=("server",),
    count=3,
)


def test_a_line_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_text(to_line(LINE) + "\n")
    assert read(path) == [LINE]


def test_a_line_of_an_older_writer_credits_nothing(tmp_path: Path) -> None:
    fields = {
        k: v
        for k, v in json.loads(to_line(LINE)).items()
        if k in ("round", "kind", "sender", "observers", "mechanism", "noise_std", "sensitivity")
    }
    (tmp_path / "ledger.jsonl").write_text(json.dumps(fields))
    (found,) = read(tmp_path / "ledger.jsonl")
    assert found.participation_seen_by == EVERYONE and found.sampling == "none"
    assert found.derived == "declared"


def test_a_list_that_is_text_is_refused_by_its_line(tmp_path: Path) -> None:
    bad = to_line(LINE).replace('["server"],"count"', '"server","count"')
    (tmp_path / "ledger.jsonl").write_text(to_line(LINE) + "\n" + bad)
    with pytest.raises(UserError, match=r"line 2 .*participation_seen_by must be a list"):
        read(tmp_path / "ledger.jsonl")


def test_availability_says_how_a_client_is_drawn() -> None:
    assert Bernoulli(Bernoulli.Config(p=0.3)).sampling(4, 10) == Drawn("poisson", 0.3)
    clustered = Clustered()
    assert clustered.sampling(4, 10).rate == 0.2 and clustered.sampling(None, 10).rate == 0.5
    nine = Uniform(Uniform.Config(count=9))
    assert nine.sampling(0, 89) == Drawn("fixed_without_replacement", 9 / 89)
    assert nine.sampling(0, 9) == Full().sampling(0, 9) == Drawn("none", 1.0)
    assert Markov().sampling(0, 10).sampling == "unknown"  # its rounds depend on each other


def test_drawing_an_empty_round_again_is_not_poisson_sampling() -> None:
    coin = Bernoulli(Bernoulli.Config(p=0.3))
    assert describe_drawing(coin, 10, "skip", 0) == Drawn("poisson", 0.3)
    assert describe_drawing(coin, 10, "redraw", 0) == Drawn("unknown", 0.3)
    assert describe_drawing(Bernoulli(Bernoulli.Config(p=1.0)), 10, "redraw", 0) == Drawn()


def test_the_wire_enters_how_the_client_was_drawn(tmp_path: Path) -> None:
    noise = DPGaussian(DPGaussian.Config(kinds=(Kind.LOCAL_MODEL,)))
    log = Log(tmp_path / "ledger.jsonl")
    wire = Wire(CARD, Streams(1), [noise], None, log, lambda k: Drawn("poisson", 0.1 * (k or 9)))
    model = {"w": torch.ones(3)}
    wire.uplink(0, {Kind.LOCAL_MODEL: model}, 2, {Kind.GLOBAL_MODEL: model})
    log.offset()
    (found,) = read(tmp_path / "ledger.jsonl")
    assert (found.sampling, found.sample_rate) == ("poisson", 0.2)
    assert found.participation_seen_by == EVERYONE  # its own noise is absent with the client
    assert (found.derived, found.clip_of, found.clip_norm) == ("clip", "update", 1.0)


def test_two_messages_of_a_client_in_a_round_carry_different_noise(tmp_path: Path) -> None:
    def sent(twice: bool) -> tuple[list[torch.Tensor], list[str]]:
        log = Log(tmp_path / f"{twice}.jsonl")
        noise = DPGaussian(DPGaussian.Config(kinds=(Kind.LOCAL_MODEL, Kind.RELAY_MODEL)))
        wire, model = Wire(CARD, Streams(1), [noise], None, log), {"w": torch.zeros(50)}
        found = [wire.uplink(0, {Kind.LOCAL_MODEL: model}, 2, {})]
        if twice:
            found.append(wire.relay(0, {Kind.RELAY_MODEL: model}, 2, 3))
        log.offset()
        read_back = read(tmp_path / f"{twice}.jsonl")
        return [next(iter(m.values()))["w"] for m in found if m], [r.stream for r in read_back]

    (alone,), _ = sent(False)
    (first, second), streams = sent(True)
    assert torch.equal(alone, first) and not torch.allclose(first, second)
    assert len(set(streams)) == 2 and all(streams)


@pytest.mark.parametrize(
    "wrong",
    [
        {"observers": [{}]},
        {"participation_seen_by": [3]},
        {"kind": {}},
        {"sender": 4},
        {"noise_std": "much"},
        {"sensitivity": []},
        {"count": None},
        {"count": True},
        {"count": -1},
        {"round": -1},
        {"noise_std": -1.0},
        {"sample_rate": 1.1},
        {"sampling": "luck"},
        {"unit": ["client"]},
    ],
)
def test_a_field_of_another_type_is_named(wrong: dict[str, object]) -> None:
    line = json.loads(
        to_line(Release(round=0, kind="local_model", sender="client/*", observers=("server",), mechanism="none"))
    )
    assert from_fields(line).kind == "local_model"
    with pytest.raises(ValueError, match=f"{next(iter(wrong))} must be "):
        from_fields(line | wrong)
