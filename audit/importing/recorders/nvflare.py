"""Records what an NVFlare server sends and receives, for an audit by fedaudit. NVFlare 2.7 or newer.

    recipe.add_server_input_filter(Tap("/data/inbox"))       # results, as the server receives them
    recipe.add_server_output_filter(Tap("/data/inbox"))      # tasks, as the server sends them
    recipe.add_client_output_filter(Tap("/data/inbox"))      # instead, for who cannot touch the server

In swarm and cyclic learning clients send to each other, which their filters see and the server's do not: there
recipe.add_client_input_filter(Tap("/data/inbox")) records what a client is sent, by the server or by a client.
NVFlare hands a filter the tasks that it names, and "*" names none: where you name none, it is a filter of TASKS,
those of NVFlare's own workflows. Name yours, as tasks=["train", "my_task"]; a server notes what crossed in a task
that no Tap is a filter of. What crosses besides tasks, such as XGBoost's histograms, no filter sees.

With guard=("fedaudit", "tools", "guard", "--truth", "own.npz", "--key", "key.pem") a client's filter stops what
that command stops. It changes nothing that goes through it. Exchange objects of the kinds WEIGHTS and
WEIGHT_DIFF are kept as models, those in a COLLECTION as well, and SCAFFOLD's controls, in a collection or in a
model's metadata. All else, statistics, metrics and metadata, is kept as client:records; what belongs to the
evaluation of one site's model by others as client:validate and client:submit_model. Every privacy filter that an
object names in its `filter_history` stands in its line of the manifest, as `filters`, to be held against what was
sent.
The order of filters decides what is recorded: add this one last on a client, first on a server.
"""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.filter import Filter, FilterChainType, FilterContextKey
from nvflare.apis.fl_constant import FLContextKey, ProcessType

from fedaudit.audit.importing.recorders.plain import Inbox, list_arrays, measure, name_kind

KINDS = {DataKind.WEIGHTS: "local_model", DataKind.WEIGHT_DIFF: "model_delta"}
CONTROLS = {"scaffold_c_diff": "control_delta", "scaffold_c_global": "control_global"}  # SCAFFOLD's names -> kind
MODEL = "__model_weights__"  # in a collection: the model beside its controls
HEADERS = "__headers__"  # of a message, with NVFlare's own under __NAME__
OWN = (
    "current_round",
    "start_round",
    "num_rounds",
    "fl_client",
)  # that it writes besides; the last never crosses
SHARED = "cwf.aggr"  # header of a model that one client sends all others to train, and which of them aggregates
HANDED_ON = ("cwf.client_order", "cwf.result_type")  # of a cycle's model, and of a swarm's last one
TASKS = (
    *("train", "evaluate", "validate", "submit_model", "get_weights", "fed_stats", "PSI"),
    *("swarm_learn", "swarm_report_learn_result", "swarm_report_final_result"),
    *("cyclic_learn", "cyclic_report_final_result", "cse_eval", "cse_ask_for_model"),
)
PASSED = {  # which chain a message has passed -> where it stands then
    EventType.AFTER_TASK_DATA_FILTER: (FilterChainType.TASK_DATA_CHAIN, FLContextKey.TASK_DATA),
    EventType.AFTER_TASK_RESULT_FILTER: (FilterChainType.TASK_RESULT_CHAIN, FLContextKey.TASK_RESULT),
}
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

    _filtered: ClassVar[set[tuple[str, str, str]]] = set()  # folder, chain, task: of which one is a filter here
    _first: ClassVar[dict[tuple[str, str], "Tap"]] = {}  # of a folder and chain, who notes what no other records

    def __init__(self, folder: str, guard: Sequence[str] = ()) -> None:
        super().__init__()
        self.folder, self.guard = folder, tuple(guard)
        self._inbox: Inbox | None = None

    def add_to_fed_job(self, job: Any, ctx: Any, **kwargs: Any) -> None:
        """Become a filter of the tasks that are named, or of TASKS one by one, as other filters have them."""
        named = kwargs.pop("tasks", None) or ["*"]
        for tasks in [[task] for task in TASKS] if "*" in named else [named]:
            super().add_to_fed_job(job, ctx, tasks=tasks, **kwargs)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        """Note at a server what crossed in a task that none is a filter of; a filter hears of every task."""
        chain, place = PASSED.get(event_type, ("", ""))
        if chain != self.get_prop(FilterContextKey.CHAIN_TYPE) or not _is_server(fl_ctx):
            return
        task, own = str(fl_ctx.get_prop(FLContextKey.TASK_NAME)), (self.folder, chain)
        if (*own, task) in self._filtered or self._first.setdefault(own, self) is not self:
            return
        inbox, sent = self._open_inbox(fl_ctx), fl_ctx.get_prop(place)
        inbox.safely("a message", lambda: self._note(inbox, sent, task, fl_ctx))

    def _note(self, inbox: Inbox, shareable: Any, task: str, fl_ctx: Any) -> None:
        size = sum(measure(v) for _, dxo in _open(shareable or {}) for _, v in list_arrays(dxo.data, ""))
        way = self._route(inbox, fl_ctx)
        error = LookupError("no Tap is a filter of this task; name it in tasks=")
        inbox.note_failure(f"task {task}", error, bytes=size, round=fl_ctx.get_prop("current_round") or 0, **way)

    def _open_inbox(self, fl_ctx: Any) -> Inbox:
        if self._inbox is None:
            self._inbox = Inbox(self.folder, "nvflare" if _is_server(fl_ctx) else "nvflare-client")
        return self._inbox

    def _route(self, inbox: Inbox, fl_ctx: Any) -> dict[str, Any]:
        """Channel, sender and to whom a message goes, as they stand in the manifest."""
        is_result = self.get_prop(FilterContextKey.CHAIN_TYPE) == FilterChainType.TASK_RESULT_CHAIN
        # a server's filters see results that came and tasks that go, a client's the other way round
        own, peer = _name_own(inbox, fl_ctx), _name_peer(inbox, fl_ctx)
        sender, to = (own, peer) if is_result != _is_server(fl_ctx) else (peer, own)
        channel = "downlink" if sender == "server" else "uplink" if to == "server" else "relay"
        return {"channel": channel, "sender": sender, "seen_by": [to]}

    def process(self, shareable: Any, fl_ctx: Any) -> Any:
        inbox, task = self._open_inbox(fl_ctx), str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
        self._filtered.add((self.folder, self.get_prop(FilterContextKey.CHAIN_TYPE), task))
        is_upload = inbox.safely("a message", lambda: self._record(inbox, shareable, fl_ctx))
        if self.guard and is_upload is None:
            raise PermissionError("a message could not be recorded for its guard: it does not leave")
        if self.guard and is_upload:
            inbox.approve(self.guard)
        return shareable

    def _record(self, inbox: Inbox, shareable: Any, fl_ctx: Any) -> bool | None:
        """Whether a client sends it; None where not all of it is recorded."""
        kinds: dict[str, dict[str, Any]] = {}
        filters: list[str] = []
        said = shareable.get_header("current_round")  # a model's own metadata may be those of the round before
        round, task = fl_ctx.get_prop("current_round"), str(fl_ctx.get_prop(FLContextKey.TASK_NAME))
        way = self._route(inbox, fl_ctx)
        sender, to = way["sender"], way["seen_by"]
        up = sender != "server"
        if (code := shareable.get_return_code()) not in (None, "OK"):
            inbox.note_failure(f"the answer of {sender} to {task}", ValueError(code), bytes=0)
            task = str(code)
        trains = task not in UNTRAINED and code in (None, "OK")
        rest = name_kind("client" if up or not trains else "clients", "records" if trains else task)
        for prefix, dxo in _open(shareable):
            meta = dict(dxo.meta)
            round = meta.pop(MetaKey.CURRENT_ROUND, round)
            filters += [f for f in meta.pop(MetaKey.FILTER_HISTORY, None) or [] if f not in filters]
            for name in [*CONTROLS.keys() & meta.keys()] if trains else ():
                kinds.setdefault(_control(name, up), {}).update(meta.pop(name))
            count = meta.get(MetaKey.NUM_STEPS_CURRENT_ROUND)
            if trains and up and isinstance(count, int | float):
                kinds["num_steps"] = {"steps": meta.pop(MetaKey.NUM_STEPS_CURRENT_ROUND)}
            others = {f"{prefix}meta.{key}": value for key, value in meta.items()}
            if trains and dxo.data_kind in KINDS:
                name = prefix.rstrip("/").rpartition("/")[2]
                kind = _name_model(KINDS[dxo.data_kind], shareable) if up else "global_model"
                kind = _control(name, up) if name in CONTROLS else kind
                under = "" if name in (*CONTROLS, MODEL) else prefix
                kinds.setdefault(kind, {}).update({f"{under}{key}": value for key, value in dxo.data.items()})
            else:
                others[f"{prefix}{getattr(dxo.data_kind, 'value', dxo.data_kind)}"] = dxo.data
            kinds.setdefault(rest, {}).update(others)
        if not up:
            kinds[rest] = inbox.list_news(kinds.get(rest, {}), to)
        kinds = {kind: values for kind, values in kinds.items() if values}
        if not kinds:
            return False
        round = round if said is None else said
        done = inbox.message(int(round or 0), **way, kinds=kinds, receivers=to, filters=filters)
        return up if done else None


def _open(shareable: Any) -> Iterator[tuple[str, DXO]]:
    """Every exchange object in a message; what stands in it besides them is one more, without a kind."""
    own = {key: value for key, value in shareable.items() if key not in ("DXO", HEADERS)}
    own |= {k: v for k, v in shareable.get(HEADERS, {}).items() if not (k.startswith("__") or k in OWN)}
    if own:
        yield "", DXO(data_kind="message", data=own, meta={})
    if "DXO" in shareable:
        yield from parts(from_shareable(shareable))


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
