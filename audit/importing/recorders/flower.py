"""Records what a Flower server sends and receives, for an audit by fedaudit. Flower 1.30 or newer.

One line of the ServerApp changes:

    strategy.start(grid=GridTap(grid, "/data/inbox"), initial_arrays=..., num_rounds=...)

It sees what crosses the server's boundary, with any strategy, wrapper or loop of your own: messages to train,
also by actions of a name ("train.warmup"), and the models sent to be evaluated, of which the last is the final
one. Messages of other types are counted as not recorded. A ServerApp of NumPyClients runs
DefaultWorkflow(...)(GridTap(grid, "/data/inbox"), context). Flower's rounds begin at 1, the inbox's at 0.
Of several records of arrays the model is the one named "arrays"; others are kept as kinds of your own.
`uploads="model_delta"` where clients send the change of the model. Whoever cannot touch the server puts
ClientTap into the clients: ClientApp(mods=[ClientTap("/data/inbox"), ...]), first, so that it sees what is sent.
Node ids stay in the manifest as they are, with the number of each client.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedaudit.audit.importing.recorders.plain import Inbox

MODEL = "arrays"  # the record that Flower's strategies aggregate
TRAIN, EVALUATE = "train", "evaluate"
SILENT = ("get_properties", "get_parameters", "reconnect")  # of NumPyClients: nobody trains or answers with data
ROUND = ("server-round", "server_round", "current_round")  # in a message's config


def _action(message: Any) -> str:
    """What a message asks for: "train" of "train.warmup"."""
    return str(message.metadata.message_type).partition(".")[0]


def _content(message: Any, arrays: str) -> tuple[dict[str, dict[str, Any]], dict[str, float]]:
    """Kinds of a message, its model under `arrays`, and all other numbers in it.

    The model is the one record of arrays, or of several that named MODEL; others are kinds of the app's own.
    """
    records = {name: record for name, record in message.content.array_records.items() if record}
    whose = "clients" if arrays == "global_model" else "client"
    kinds: dict[str, dict[str, Any]] = {}
    for name, record in records.items():
        own = arrays if len(records) == 1 or name == MODEL else f"{whose}:{re.sub(r'[^a-zA-Z0-9_]', '_', name)}"
        kinds[own] = {k: array.numpy() for k, array in record.items()}
    metrics: dict[str, float] = {}
    for record in message.content.metric_records.values():
        for name, value in record.items():
            if name in ("num-examples", "num_examples"):
                kinds["num_examples"] = {"count": np.int64(value)}
            elif isinstance(value, int | float):
                metrics[name] = float(value)
    for name, value in metrics.items():
        if "loss" in name and np.isfinite(value):  # a client's loss on its own data
            kinds["local_loss"] = {"loss": np.float32(value)}
    return kinds, metrics


def _round(message: Any) -> int | None:
    """From 0, as the strategy says it, or the group of the message; None where neither does."""
    for record in message.content.config_records.values():
        for key in ROUND:
            if key in record:
                return max(0, int(record[key]) - 1)
    group = str(message.metadata.group_id)
    return int(group) - 1 if group.isdecimal() and int(group) > 0 else None


class GridTap(Grid):  # type: ignore[misc]
    """A Grid that records what goes through another."""

    def __init__(self, grid: Grid, folder: str, *, uploads: str = "local_model") -> None:
        self._grid, self._uploads, self._inbox = grid, uploads, Inbox(folder, "flower")
        self._next, self._rounds = 0, dict[str, int]()  # message id -> round
        self._other = {*SILENT}  # actions that are not recorded, noted once

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Iterable[Any]:
        sent = list(messages)
        round = self._down(sent)
        return list(self._up(self._grid.send_and_receive(sent, timeout=timeout), lambda _: round))

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        sent = list(messages)
        round = self._down(sent)
        ids = list(self._grid.push_messages(sent))
        self._rounds |= dict.fromkeys(ids, round)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        replies = self._grid.pull_messages(message_ids)
        return list(self._up(replies, lambda m: self._rounds.get(m.metadata.reply_to_message_id, self._next - 1)))

    def _down(self, sent: list[Any]) -> int:
        """Record what goes out, a broadcast once; the round of the messages."""
        round = self._inbox.safely(
            "the round", lambda: next((r for r in map(_round, sent) if r is not None), None)
        )
        train = any(_action(m) == TRAIN for m in sent)
        if round is None:
            round = self._next if train else self._next - 1
        self._next = round + 1
        groups: dict[int, list[Any]] = {}  # a broadcast's messages share one record
        for message in sent:
            if _action(message) in (TRAIN, EVALUATE):
                groups.setdefault(id(message.content), []).append(message)
            elif _action(message) not in self._other:
                self._other.add(_action(message))
                self._inbox.note_failure(
                    f"messages to {message.metadata.message_type!r}",
                    ValueError("train and evaluate are recorded"),
                )
        for group in groups.values():
            self._inbox.safely("a message", partial(self._send, round, group, len(group) == len(sent)))
        return int(round)

    def _send(self, round: int, group: list[Any], everybody: bool) -> None:
        """A model sent to be evaluated is the one that the next round begins with."""
        to = [self._inbox.client(m.metadata.dst_node_id) for m in group]
        kinds, _ = _content(group[0], "global_model")
        model = {k: v for k, v in kinds.items() if k == "global_model" or k.startswith("clients:")}
        if model:
            at = round + (_action(group[0]) == EVALUATE)
            self._inbox.message(at, "downlink", "server", ["client"] if everybody else to, model, receivers=to)

    def _up(self, replies: Iterable[Any], round: Callable[[Any], int]) -> Iterator[Any]:
        for reply in replies:
            self._inbox.safely("a reply", partial(self._reply, reply, round))
            yield reply

    def _reply(self, reply: Any, round: Callable[[Any], int]) -> None:
        node = reply.metadata.src_node_id
        if reply.has_error():
            return self._inbox.note_failure(f"the answer of node {node} in round {round(reply)}", reply.error)
        kinds, metrics = _content(reply, self._uploads)
        if _action(reply) == TRAIN and kinds:
            client = self._inbox.client(node)
            self._inbox.message(round(reply), "uplink", client, ["server"], kinds, metrics=metrics)

    # All else is the wrapped grid's

    def set_run(self, run: Any) -> None:
        self._grid.set_run(run)

    @property
    def run(self) -> Any:
        return self._grid.run

    def create_message(self, *args: Any, **kwargs: Any) -> Any:
        return self._grid.create_message(*args, **kwargs)

    def get_node_ids(self) -> Iterable[int]:
        found: Iterable[int] = self._grid.get_node_ids()
        return found

    def get_nodes(self) -> Iterable[Any]:
        found: Iterable[Any] = self._grid.get_nodes()
        return found


class ClientTap:
    """A mod that records what leaves this client; on one machine all clients may write to one folder.

    With a `guard`, a command such as ("fedaudit", "tools", "guard", "--truth", "own.npz", "--key", "key.pem"), a
    reply that it stops does not leave; the server gets an error. Give each client a folder of its own then.
    """

    def __init__(self, folder: str, *, uploads: str = "local_model", guard: Sequence[str] = ()) -> None:
        self._folder, self._uploads, self._guard = folder, uploads, guard

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        reply = call_next(message, context)
        inbox = Inbox(self._folder, "flower-client")
        recorded = inbox.safely("a reply", lambda: self._record(inbox, message, reply, context.node_id))
        if self._guard and not reply.has_error() and _action(message) == TRAIN:
            if not recorded:
                raise PermissionError("the reply could not be recorded for its guard: it does not leave")
            inbox.approve(self._guard)
        return reply

    def _record(self, inbox: Inbox, message: Any, reply: Any, node: int) -> bool:
        if reply.has_error() or _action(message) != TRAIN:
            return False
        round, client = _round(message) or 0, inbox.client(node)
        model, _ = _content(message, "global_model")
        inbox.message(round, "downlink", "server", [client], model)
        kinds, metrics = _content(reply, self._uploads)
        return inbox.message(round, "uplink", client, ["server"], kinds, metrics=metrics)
