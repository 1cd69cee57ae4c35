"""A first subject.yaml from what an inbox shows: every line marked as seen in it, or as guessed."""

from pathlib import Path

from fedaudit.audit.case.truth import example_shape
from fedaudit.audit.importing.inbox import header, inspect
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.runtime.errors import UserError


def first_subject(inbox: Path, truth: Path | None = None) -> str:
    """YAML with comments, with the shape of `truth`. Raises UserError where the inbox holds no upload."""
    lines = list(inspect(inbox))
    nodes = [x for x in lines if "party" in x]
    uploads = [x for x in lines if "message" in x and x["channel"] == Channel.UPLINK]
    models = {k.value for k in (*UPDATES, Kind.GLOBAL_MODEL)}
    sent = uploads or [x for x in lines if "message" in x and {*x["kinds"]} & models]  # checkpoints alone
    if not sent:
        raise UserError(f"{inbox} holds no model", hint="record at least one round")
    kinds = {k for x in uploads for k in x["kinds"]}
    clients = {x["sender"] for x in uploads} | {x["party"] for x in nodes}
    rounds = max(1, *(x["round"] + bool(uploads) for x in sent))
    arrays = header(inbox / f"{sent[0]['message']}.safetensors")
    shapes = [shape for name, (_, shape) in arrays.items() if name.partition("/")[0] in models]
    classes = next((s[0] for s in reversed(shapes) if len(s) == 1), 2)
    named = ", ".join(f"class {i}" for i in range(classes))
    counted = "samples" if Kind.NUM_EXAMPLES in kinds else "uniform"
    sends = "every client sends" if counted == "samples" else "no client sends"
    changes = Kind.MODEL_DELTA in kinds
    method = (
        "null" if changes else f"{{name: fedavg, rounds: {rounds}, local_epochs: 1, batch_size: 32, lr: 0.01}}"
    )
    filters = sorted({f for x in uploads for f in x.get("filters", ())})
    text = [
        f"# What the operator states of {inbox.name} and the auditor cannot see in it. Correct what is guessed.",
        f"title: {inbox.resolve().name}  # guessed",
        "examples:",
        f"  classes: [{named}]  # guessed: the last bias has {classes} numbers",
        "  shape: [1, 28, 28]  # guessed: channels, height, width of one example"
        if truth is None
        else f"  shape: {example_shape(truth)}  # seen in {truth.name}: of one example",
        "  mean: [0.0]  # guessed: the model sees (x - mean) / std of values from 0 to 1",
        "  std: [1.0]  # guessed",
        f"clients: {len(clients) or 'null'}  # seen: more may exist that were never heard",
        "model: null  # not seen: a name of `fedaudit list models`, or module:Class of a file beside this one",
        f"method: {method}  # guessed: what a client does in a round; rounds were seen",
        f"aggregation: {counted}  # guessed: {sends} its number of examples",
        "protections: []  # not seen: those that are claimed, with their parameters",
    ]
    if filters:
        text.append(f"# seen: messages name the privacy filters {', '.join(filters)}")
    if nodes:
        text.append("identities: {}  # node: name of its truth, where they differ; seen were")
        text += [f"#   {x['node']}: {x['party']}" for x in nodes[:50]]
    return "\n".join(text) + "\n"
