"""Records what an NVFlare server sends and receives, for an audit by fedaudit. NVFlare 2.7 or newer.

    recipe.add_server_input_filter(Tap("/data/inbox"))       # results, as the server receives them
    recipe.add_server_output_filter(Tap("/data/inbox"))      # tasks, as the server sends them
    recipe.add_client_output_filter(Tap("/data/inbox"))      # instead, for who cannot touch the server

In swarm and cyclic learning clients send to each other, which their filters see and the server's do not: there
recipe.add_client_input_filter(Tap("/data/inbox")) records what a client is sent, by the server or by a client.

With guard=("fedaudit", "tools", "guard", "--truth", "own.npz", "--key", "key.pem") a client's filter stops what
that command stops. It changes nothing that goes through it. Exchange objects of the kinds WEIGHTS and
WEIGHT_DIFF are kept, those in a COLLECTION as well, and SCAFFOLD's controls, in a collection or in a model's
metadata. Models of one site that others are asked to evaluate are not. Every privacy filter that an object names
in its `filter_history` stands in its line of the manifest, as `filters`, to be held against what was sent.
The order of filters decides what is recorded: add this one last on a client, first on a server.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ProcessType

from fedaudit.audit.importing.recorders.plain import Inbox

KINDS = {DataKind.WEIGHTS: "local_model", DataKind.WEIGHT_DIFF: "model_delta"}
CONTROLS = {"scaffold_c_diff": "control_delta", "scaffold_c_global": "control_global"}  # SCAFFOLD's names -> kind
MODEL = "__model_weights__"  # in a collection: the model beside its controls
SHARED = "cwf.aggr"  # header of a model that one client sends all others to train, and which of them aggregates
HANDED_ON = ("cwf.client_order", "cwf.result_type")  # of a cycle's model, and of a swarm's last one
UNTRAINED = ("validate", "submit_model")  # tasks that carry a site's model to be evaluated by others


def parts(dxo: DXO, prefix: str = "") -> Iterator[tuple[str, DXO]]:
    """Every exchange object in one, with the path of its name."""
    if dxo.data_kind == DataKind.COLLECTION:
        named = list(dxo.data.items() if isinstance(dxo.data, dict) else enumerate(dxo.data))
        for name, inner in named:  # one alone needs no name
            yield from parts(inner, f"{prefix}{name}/" if len(named) > 1 else prefix)
    else:
        yield prefix, dxo


class Tap(Filter):  # type: ignore[misc]
    """Passes every message on unchanged, or at a client none that its `guard`, a command, stops."""

    def __init__(self, folder: str, guard: Sequence[str] = ()) -> None:
        super().__init__()
        self.folder, self.guard = folder, tuple(guard)
        self._inbox: Inbox | None = None

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        if self._inbox is None:
            self._inbox = Inbox(self.folder, "nvflare" if _is_server(fl_ctx) else "nvflare-client")
        inbox = self._inbox
        is_upload = inbox.safely("a message", lambda: self._record(inbox, shareable, fl_ctx))
        if self.guard and is_upload is None:
            raise PermissionError("a message could not be recorded for its guard: it does not leave")
        if self.guard and is_upload:
            inbox.approve(self.guard)
        return shareable

    def _record(self, inbox: Inbox, shareable: Any, fl_ctx: Any) -> bool:
        """Whether it recorded what a client sends."""
        if shareable.get_return_code() not in (None, "OK"):
            raise ValueError(f"a client answered {shareable.get_return_code()}")
        kinds: dict[str, dict[str, Any]] = {}
        filters: list[str] = []
        said = shareable.get_header("current_round")  # a model's own metadata may be those of the round before
        round = fl_ctx.get_prop("current_round")
        is_result = self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_RESULT_CHAIN
        # a server's filters see results that came and tasks that go, a client's the other way round
        own, peer = _name_own(inbox, fl_ctx), _name_peer(inbox, fl_ctx)
        sender, to = (own, peer) if is_result != _is_server(fl_ctx) else (peer, own)
        up = sender != "server"
        if fl_ctx.get_prop(FLContextKey.TASK_NAME) in UNTRAINED and not self.guard:  # it asks of all
            return False
        for prefix, dxo in parts(from_shareable(shareable)):
            for name in CONTROLS.keys() & dxo.meta.keys():
                kinds[_control(name, up)] = {k: np.asarray(v) for k, v in dxo.meta[name].items()}
            if dxo.data_kind not in KINDS:
                continue
            name = prefix.rstrip("/").rpartition("/")[2]
            kind = _name_model(KINDS[dxo.data_kind], shareable) if up else "global_model"
            kind = _control(name, up) if name in CONTROLS else kind
            under = "" if name in (*CONTROLS, MODEL) else prefix
            kinds.setdefault(kind, {}).update({f"{under}{k}": np.asarray(v) for k, v in dxo.data.items()})
            count = dxo.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND)
            if up and count is not None:
                kinds["num_steps"] = {"steps": np.int64(count)}
            round = dxo.get_meta_prop(MetaKey.CURRENT_ROUND, round)
            filters += [f for f in dxo.get_filter_history() or [] if f not in filters]
        if not kinds:
            return False
        round = round if said is None else said
        channel = "downlink" if not up else "uplink" if to == "server" else "relay"
        done = inbox.message(int(round or 0), channel, sender, [to], kinds, receivers=[to], filters=filters)
        if not done:
            raise ValueError("it was not recorded")
        return bool(up)


def _control(name: str, up: bool) -> str:
    """The kind of a control; what the server sends on is the mean of clients' changes, and no client's."""
    return CONTROLS[name] if up or CONTROLS[name] == "control_global" else f"clients:{name}"


def _name_model(kind: str, shareable: Any) -> str:
    """The kind of a model that a client sends: its own, or, to other clients, the shared one or a cycle's."""
    if shareable.get_header(SHARED) is not None:
        return "global_model"
    is_handed_on = kind == "local_model" and any(shareable.get_header(name) is not None for name in HANDED_ON)
    return "relay_model" if is_handed_on else kind


def _is_server(fl_ctx: Any) -> bool:
    """Whether this process is the server's: a provisioned server's identity is its project's name."""
    return fl_ctx.get_process_type() in (ProcessType.SERVER_PARENT, ProcessType.SERVER_JOB)


def _name_own(inbox: Inbox, fl_ctx: Any) -> str:
    """This end as a party."""
    return "server" if _is_server(fl_ctx) else inbox.client(fl_ctx.get_identity_name())


def _name_peer(inbox: Inbox, fl_ctx: Any) -> str:
    """The other end as a party: a server's is a client, and a client's where its job lists one of that name."""
    name, engine = fl_ctx.get_peer_context().get_identity_name(), fl_ctx.get_engine()
    clients = {client.name for client in engine.get_clients() or ()} if engine else set()
    return inbox.client(name) if _is_server(fl_ctx) or name in clients else "server"
