"""Records what a Flower server sends and receives, for an audit by fedaudit. Flower 1.30 or newer.

One line of the ServerApp changes:

    strategy.start(grid=GridTap(grid, "/data/inbox"), initial_arrays=..., num_rounds=...)

It sees what crosses the server's boundary, with any strategy, wrapper or loop of your own: messages to train,
also by actions of a name ("train.warmup"), to evaluate, of which the last model is the final one, and of every
other type. A ServerApp of NumPyClients runs DefaultWorkflow(...)(GridTap(grid, "/data/inbox"), context). Flower's
rounds begin at 1, the inbox's at 0. Of several records of arrays the model is the one named "arrays"; others are
kept as kinds of your own, such as client:optimizer, and what stands in records of metrics and configs, numbers,
lists, texts and bytes, as client:records. What answers another action than training is of the kind
client:ACTION, such as client:evaluate.
`uploads="model_delta"` where clients send the change of the model. Whoever cannot touch the server puts
ClientTap into the clients: ClientApp(mods=[ClientTap("/data/inbox"), ...]), first, so that it sees what is sent.
Node ids stay in the manifest as they are, with the number of each client.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from flwr.serverapp import Grid

from fedaudit.audit.importing.recorders.plain import Inbox, name_kind

MODEL = "arrays"  # the record that Flower's strategies aggregate
TRAIN, EVALUATE = "train", "evaluate"
ROUND = ("server-round", "server_round", "current_round")  # in a message's config
RECORDS = "clients:records"  # what the server says besides
COUNTS = ("num-examples", "num_examples")  # in a client's metrics


def _action(message: Any) -> str:
    """What a message asks for: "train" of "train.warmup"."""
    return str(message.metadata.message_type).partition(".")[0]


def _open(array: Any) -> Any:
    """The numbers of an array, or its bytes where Flower cannot read them."""
    try:
        return array.numpy()
    except Exception:  # of a type of the app's own  # noqa: BLE001
        return getattr(array, "data", array)


def _content(message: Any, model: str) -> dict[str, dict[str, Any]]:
    """Kinds of a message: its model, of the kind `model`, and all else in it.

    The model is the one record of arrays, or of several that named MODEL; others are kinds of the app's own. A
    message that asks for another action than training, or answers it, is of one kind, but for a model that the
    server sends to be evaluated.
    """
    down, action, content = model == "global_model", _action(message), message.content
    whose = "clients" if down else "client"
    has_model = action == TRAIN or (down and action == EVALUATE)
    rest = name_kind(whose, "records" if has_model else action)
    kinds: dict[str, dict[str, Any]] = {}
    records = {name: record for name, record in content.array_records.items() if record}
    for name, record in records.items():
        arrays = {key: _open(array) for key, array in record.items()}
        if not has_model:
            kinds.setdefault(rest, {})[name] = arrays
        elif len(records) == 1 or name == MODEL:
            kinds[model] = arrays
        else:
            kinds.setdefault(name_kind(whose, name), {}).update(arrays)
    for part in (content.metric_records, content.config_records):
        for key, value, where in (
            (k, v, f"{name}.{k}") for name, record in part.items() for k, v in record.items()
        ):
            if action == TRAIN and not down and _is_number(value) and key in COUNTS:
                kinds["num_examples"] = {"count": value}
            elif (
                action == TRAIN and not down and _is_number(value) and "loss" in key and "local_loss" not in kinds
            ):
                kinds["local_loss"] = {"loss": value}  # a client's loss on its own data
            elif not (down and key in ROUND):
                kinds.setdefault(rest, {})[where] = value
    return kinds


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and bool(np.isfinite(value))


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
            round = self._next if train else max(0, self._next - 1)
        if train:
            self._next = round + 1
        groups: dict[int, list[Any]] = {}  # a broadcast's messages share one record
        for message in sent:
            groups.setdefault(id(message.content), []).append(message)
        for group in groups.values():
            self._inbox.safely(
                "a message",
                partial(self._send, round, group, len(group) == len(sent)),
                channel="downlink",
                sender="server",
                seen_by=["client"],
            )
        return int(round)

    def _send(self, round: int, group: list[Any], everybody: bool) -> None:
        """A model sent to be evaluated is the one that the next round begins with."""
        to = [self._inbox.client(m.metadata.dst_node_id) for m in group]
        seen = ["client"] if everybody else to
        kinds = _content(group[0], "global_model")
        for kind, values in kinds.items():
            at, own = round, values
            if kind == "global_model":
                at += _action(group[0]) == EVALUATE
            elif kind == RECORDS:
                own = self._inbox.list_news(values, to)
            if own:
                self._inbox.message(at, "downlink", "server", seen, {kind: own}, receivers=to)

    def _up(self, replies: Iterable[Any], round: Callable[[Any], int]) -> Iterator[Any]:
        for reply in replies:
            self._inbox.safely("a reply", partial(self._reply, reply, round))
            yield reply

    def _reply(self, reply: Any, round: Callable[[Any], int]) -> None:
        node = reply.metadata.src_node_id
        if reply.has_error():
            what = f"the answer of node {node} in round {round(reply)}"
            return self._inbox.note_failure(what, reply.error, bytes=0)
        if kinds := _content(reply, self._uploads):
            self._inbox.message(round(reply), "uplink", self._inbox.client(node), ["server"], kinds)

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
        if not reply.has_error():
            inbox = Inbox(self._folder, "flower-client")
            is_sent = inbox.safely("a reply", lambda: self._record(inbox, message, reply, context.node_id))
            if self._guard and is_sent is None:
                raise PermissionError("the reply could not be recorded for its guard: it does not leave")
            if self._guard and is_sent:
                inbox.approve(self._guard)
        return reply

    def _record(self, inbox: Inbox, message: Any, reply: Any, node: int) -> bool | None:
        """Whether there is anything in a reply; None where not all of it is recorded."""
        round, client = _round(message) or 0, inbox.client(node)
        if received := _content(message, "global_model"):
            inbox.message(round, "downlink", "server", [client], received)
        kinds = _content(reply, self._uploads)
        if kinds and not inbox.message(round, "uplink", client, ["server"], kinds):
            return None
        return bool(kinds)
