"""A sum of uploads is read as the upload of all its clients together."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.evaluation.sums import (
    SEVERAL,
    average_sum,
    count_clients,
    find_client,
    is_share,
    is_sum,
    number_of,
    open_sum,
    solve_shares,
)
from fedaudit.audit.case.messages import messages
from fedaudit.fl.artifact import Artifact, Channel, Party, Role
from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.methods.fedavg import FedAvg
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.wire.sums import Sums
from tests.fl.worlds import data, parts, run

SUMMED = [k for k in Kind if k.summed is not Summed.NO]


def payload(kind: Kind) -> dict[str, torch.Tensor]:
    """What one client may send of a kind."""
    rng = np.random.default_rng(1)
    rows = torch.from_numpy(rng.random((3, 4)))
    known: dict[Kind, dict[str, Any]] = {
        Kind.LOCAL_PROTOTYPES: {"classes": torch.tensor([0, 2, 3]), "features": rows},
        Kind.PROTO_COUNTS: {"classes": torch.tensor([0, 2, 3]), "counts": torch.tensor([4, 1, 7])},
        Kind.MEAN_LOGIT_TABLE: {"table": rows[:, :3], "present": torch.tensor([1, 0, 1])},
        Kind.NUM_EXAMPLES: {"count": torch.tensor(12)},
        Kind.LABEL_COUNTS: {"counts": torch.tensor([4, 0, 1, 7])},
    }
    if kind is Kind.MEAN_LOGIT_TABLE:
        known[kind]["table"] = rows[:, :3] * torch.tensor([[1.0], [0.0], [1.0]])
    return known.get(kind, {"fc.weight": rows})


@pytest.mark.parametrize("kind", SUMMED)
@pytest.mark.parametrize("clients", [1, 5])
def test_the_sum_of_equal_uploads_is_read_as_that_upload_with_everybodys_examples(
    kind: Kind, clients: int
) -> None:
    message = {k: payload(k) for k in {kind, Kind.NUM_EXAMPLES, Kind.PROTO_COUNTS}}
    sums = Sums()
    for _ in range(clients):
        sums.add(message)
    mean = average_sum({name: v.numpy() for name, v in sums.value().items()})[kind]
    for name, value in message[kind].items():
        times = clients if kind.counted and name != "classes" else 1
        np.testing.assert_allclose(mean[name], value.numpy() * times, rtol=1e-6)


def test_models_count_by_examples_and_features_by_those_of_the_class() -> None:
    sums = Sums()
    for count, held, value in ((1, 3, 10.0), (3, 1, 2.0)):
        sums.add(
            {
                Kind.LOCAL_MODEL: {"w": torch.tensor([value])},
                Kind.NUM_EXAMPLES: {"count": torch.tensor(count)},
                Kind.LOCAL_PROTOTYPES: {"classes": torch.tensor([1]), "features": torch.tensor([[value]])},
                Kind.PROTO_COUNTS: {"classes": torch.tensor([1]), "counts": torch.tensor([held])},
            }
        )
    means = average_sum({name: v.numpy() for name, v in sums.value().items()})
    assert means[Kind.LOCAL_MODEL]["w"].tolist() == [4.0]  # (1 * 10 + 3 * 2) / 4
    assert means[Kind.LOCAL_PROTOTYPES]["features"].tolist() == [[8.0]]  # (3 * 10 + 1 * 2) / 4
    assert int(means[Kind.NUM_EXAMPLES]["count"]) == 4


def test_features_that_nobody_counts_give_no_mean() -> None:
    sums = {"clients": np.array(2), "local_prototypes/classes": np.array([1])}
    sums["local_prototypes/features"] = np.ones((1, 3))
    assert Kind.LOCAL_PROTOTYPES not in average_sum(sums)


def test_prototypes_that_nobody_counts_are_divided_by_how_many_clients_sent_one() -> None:
    sums = Sums()
    for classes in ([1, 3], [1]):
        rows = torch.full((len(classes), 3), 3.0)
        sums.add({Kind.LOCAL_PROTOTYPES: {"classes": torch.tensor(classes), "features": rows}})
    means = average_sum({k: v.numpy() for k, v in sums.value().items()})
    assert means[Kind.LOCAL_PROTOTYPES].keys() == {"classes", "features"}
    assert means[Kind.LOCAL_PROTOTYPES]["features"].tolist() == [[3.0] * 3] * 2


def test_one_step_of_several_clients_is_one_step_of_a_client_that_holds_everything(tmp_path: Path) -> None:
    """Of FedAvg, by its own code: the sum over clients 0, 1 and 4, and one client with the examples of all."""
    method = FedAvg(FedAvg.Config(rounds=1, local_epochs=1, batch_size=1000, lr=0.1))
    own = parts(data())
    script = [((0, 1, 4), (0, 1, 4))]
    summed = run(method, folder=tmp_path / "sum", protections=[SecureAggregation()], script=script)
    [aggregate] = [a for a in summed.artifacts if a.kind is Kind.AGGREGATE]
    [read] = [a for a in open_sum(aggregate) if a.kind is Kind.LOCAL_MODEL]
    whole = [np.concatenate([own[0], own[1], own[4]]), *[own[3]] * 4]
    alone = run(method, folder=tmp_path / "one", index=whole, script=[((0,), (0,))])
    [upload] = [a for a in alone.artifacts if a.kind is Kind.LOCAL_MODEL]
    for name, value in upload.payload.items():
        np.testing.assert_allclose(read.payload[name], value, atol=1e-6)
    assert is_sum(read) and not is_sum(upload) and (count_clients(read), count_clients(upload)) == (3, 1)
    assert (number_of(read.sender), read.id) == (SEVERAL, "r00000/client.uplink/local_model")


def test_the_sum_over_one_client_is_that_clients_upload() -> None:
    sums = Sums()
    sums.add({Kind.LOCAL_MODEL: {"w": torch.tensor([2.0])}, Kind.NUM_EXAMPLES: {"count": torch.tensor(7)}})
    aggregate = Artifact(
        id="r00003/client.uplink/aggregate",
        kind=Kind.AGGREGATE,
        channel=Channel.UPLINK,
        round=3,
        sender=Party(Role.CLIENT),
        seen_by=("server",),
        payload={name: v.numpy() for name, v in sums.value().items()},
    )
    assert {a.sender for a in open_sum(aggregate, {5})} == {Party.client(5)}
    assert {a.sender for a in open_sum(aggregate, {4, 5})} == {Party(Role.CLIENT)}  # somebody's answer was lost


def test_an_upload_that_the_server_once_read_is_not_hidden_by_later_ones_in_sums(tmp_path: Path) -> None:
    """Client 4 answers alone in round 0, which is no sum, and among others in rounds 1 to 3."""
    method = ReBaFL(ReBaFL.Config(rounds=4, local_epochs=1, batch_size=8, lr=0.05))
    script = [((4,), (4,)), ((0, 1), (0, 1)), ((0, 1, 4), (0, 1, 4)), ((1, 2, 4), (1, 2, 4))]
    run(method, folder=tmp_path, protections=[SecureAggregation()], script=script)
    wanted = {Kind.LOCAL_MODEL, Kind.AGGREGATE, Kind.GLOBAL_MODEL}
    latest = [a for a in messages(tmp_path / "artifacts", wanted, "latest") if "server" in a.seen_by]
    assert {(str(a.sender), a.round) for a in latest} == {("client/4", 0), ("client", 1), ("client", 3)}
    every = messages(tmp_path / "artifacts", wanted, "latest")
    begun = {a.round for a in every if a.kind is Kind.GLOBAL_MODEL and a.channel == "downlink"}
    assert begun >= {0, 1, 3}  # each with the model that it began with


ROUNDS = {0: (0, 1, 4), 1: (0, 1), 2: (1, 2), 3: (2, 4)}  # every client stands alone in some combination


def sums_of(
    changes: dict[int, float], counts: dict[int, int], rounds: dict[int, tuple[int, ...]]
) -> list[Artifact]:
    """Sums of models that begin at the round's number and move by each client's change."""
    made = []
    for t, clients in rounds.items():
        sums = Sums()
        for k in clients:
            model = {"w": torch.tensor([t + changes[k], t - changes[k]])}
            sums.add({Kind.LOCAL_MODEL: model, Kind.NUM_EXAMPLES: {"count": torch.tensor(counts[k])}})
        made.append(
            Artifact(
                id=f"r{t:05d}/client.uplink/aggregate",
                kind=Kind.AGGREGATE,
                channel=Channel.UPLINK,
                round=t,
                sender=Party(Role.CLIENT),
                seen_by=("server",),
                payload={name: v.numpy() for name, v in sums.value().items()},
            )
        )
    return made


def test_clients_that_change_the_model_alike_in_every_round_are_solved_from_sums() -> None:
    changes, counts = {0: 0.5, 1: -2.0, 2: 3.0, 4: 0.25}, {0: 10, 1: 30, 2: 7, 4: 3}
    starts = {t: {"w": np.array([t, t], float)} for t in ROUNDS}
    shares = solve_shares(sums_of(changes, counts, ROUNDS), starts, {t: set(c) for t, c in ROUNDS.items()})
    models = {a.sender.index: a for a in shares if a.kind is Kind.MODEL_DELTA}
    assert set(models) == {0, 1, 2, 4} and all(is_sum(a) and is_share(a) for a in shares)
    for client, share in models.items():
        assert client is not None
        np.testing.assert_allclose(share.payload["w"], [changes[client], -changes[client]], atol=1e-4)
        assert (share.round, find_client(share.id)) == (max(t for t, c in ROUNDS.items() if client in c), client)
    told = {a.sender.index: int(a.payload["count"]) for a in shares if a.kind is Kind.NUM_EXAMPLES}
    assert told == counts


@pytest.mark.parametrize(
    "rounds",
    [
        {0: (0, 1, 4), 1: (0, 1, 4), 2: (0, 1, 4)},  # the same in every round
        {0: (0, 1, 4)},  # a single sum
        {0: (0, 1), 1: (2, 4)},  # nobody stands alone
    ],
)
def test_sums_that_tell_no_clients_apart_give_no_shares(rounds: dict[int, tuple[int, ...]]) -> None:
    changes, counts = {0: 0.5, 1: -2.0, 2: 3.0, 4: 0.25}, {0: 10, 1: 30, 2: 7, 4: 3}
    sums, starts = sums_of(changes, counts, rounds), {t: {"w": np.array([t, t], float)} for t in rounds}
    assert solve_shares(sums, starts, {t: set(c) for t, c in rounds.items()}) == []
    unknown = {t: set(c[:1]) for t, c in ROUNDS.items()}  # not all who are in a sum are known
    assert solve_shares(sums_of(changes, counts, ROUNDS), {t: {"w": np.zeros(2)} for t in ROUNDS}, unknown) == []


def test_arrays_that_a_round_lacks_are_left_out_of_shares() -> None:
    changes, counts = {0: 0.5, 1: -2.0, 2: 3.0, 4: 0.25}, {0: 10, 1: 30, 2: 7, 4: 3}
    sums, participants = sums_of(changes, counts, ROUNDS), {t: set(c) for t, c in ROUNDS.items()}
    other: dict[int, Any] = {t: {"0/w": np.zeros(2)} for t in ROUNDS}  # several models, or other names
    assert solve_shares(sums, other, participants) == []
    assert solve_shares(sums, {}, participants) == []


def test_names_of_other_messages_are_no_shares() -> None:
    assert [find_client(id) for id in ("r00000/client.uplink/aggregate", "a#b/local_model", "r1/x")] == [None] * 3
