"""Secure aggregation: who saw what, and that the sum is the one the server needs."""

from pathlib import Path

import numpy as np

from fedaudit.audit.verdict.exposure import exposures
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import read
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.recording.recorder import manifest
from tests.fl.worlds import World, run, same


def world(folder: Path | None = None, on: bool = True, clients: tuple[int, ...] = (0, 1, 4)) -> World:
    method = ReBaFL(ReBaFL.Config(rounds=2, local_epochs=1, batch_size=8, lr=0.05))
    return run(
        method, folder=folder, protections=[SecureAggregation()] if on else [], script=[(clients, clients)]
    )


def test_the_server_reads_the_sum_and_no_upload(tmp_path: Path) -> None:
    result = world(tmp_path)
    read_by_server = {a.kind for a in result.artifacts if "server" in a.seen_by}
    assert read_by_server == {Kind.AGGREGATE}
    rows = exposures(manifest(tmp_path / "artifacts"))
    assert [(e.kind, e.single_client) for e in rows if e.party == "server"] == [("aggregate", False)]
    hidden = [e for e in rows if e.party.startswith("nobody")]
    assert {e.kind for e in hidden} == {"local_model", "num_examples", "local_prototypes", "proto_counts"}


def test_the_sum_gives_the_next_model_and_the_next_prototypes(tmp_path: Path) -> None:
    result = world(tmp_path)
    [sums] = [a.payload for a in result.artifacts if a.kind == Kind.AGGREGATE and a.round == 1]
    assert int(sums["clients"]) == 3
    mean = sums["local_model/fc.weight"] / sums["num_examples/count"]
    np.testing.assert_allclose(mean, result["fc.weight"].numpy(), atol=1e-6)
    down = {(a.kind, a.round): a.payload for a in result.artifacts if a.channel == "downlink"}
    [first] = [a.payload for a in result.artifacts if a.kind == Kind.AGGREGATE and a.round == 0]
    pooled = first["local_prototypes/features"] / first["proto_counts/counts"][:, None]
    received = down[Kind.GLOBAL_PROTOTYPES, 1]
    assert received["classes"].tolist() == first["local_prototypes/classes"].tolist()
    np.testing.assert_allclose(pooled, received["features"], atol=1e-5)


def test_training_is_the_same_to_the_last_bit() -> None:
    assert same(world(), world(on=False))


def test_the_sum_of_one_upload_is_that_upload_and_the_record_says_so(tmp_path: Path) -> None:
    result = world(tmp_path, clients=(4,))
    seen = [a for a in result.artifacts if "server" in a.seen_by]
    assert {str(a.sender) for a in seen} == {"client/4"} and Kind.LOCAL_PROTOTYPES in {a.kind for a in seen}


def test_the_ledger_lists_what_the_sum_tells_as_released_in_clear(tmp_path: Path) -> None:
    world(tmp_path)
    releases = read(tmp_path / "ledger.jsonl")
    assert {r.mechanism for r in releases} == {"none"}
    assert {r.kind for r in releases} >= {"local_model", "local_prototypes"}
