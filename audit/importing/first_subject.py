"""A first subject.yaml from what an inbox shows: every line marked as seen in it, guessed, or not seen."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from fedaudit.audit.case.truth import example_shape, find_label_range, list_classes
from fedaudit.audit.importing.layout import MODEL_KINDS
from fedaudit.audit.importing.message_file import header
from fedaudit.audit.importing.survey import Survey, identify_aggregation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.reports.visible import visible_name

PROTOTYPES = re.compile(r"^class:\w*(proto|mean|centroid|centre|center)", re.IGNORECASE)
UNSEEN = {  # key of the subject -> what cannot be seen in an inbox
    "model": "the network: a name of `fedaudit tools list models`, or module:Class of a file beside the subject",
    "method": "what a client does in a round, with its settings, such as {name: fedavg, rounds: 3, "
    "local_epochs: 1, batch_size: 32, lr: 0.01}",
    "protections": "those that are claimed, with their parameters",
    "examples.classes": "names of the classes, in the order of their labels",
    "examples.mean and std": "the model is given (x - mean) / std of values from 0 to 1",
}


def write_first_subject(inbox: Path, truth: Path | None = None, model: str = "", base: str = "") -> str:
    """YAML with comments, with the shape of `truth`, the stated `model` and the name of its `base`.

    Raises UserError where an import would refuse the inbox.
    """
    return "\n".join(_write_lines(Survey.from_inbox(inbox), truth, model, base)) + "\n"


def list_unseen(model: str = "", *, has_truth: bool = False) -> list[str]:
    """What an inbox cannot show and nobody stated yet, a sentence each."""
    keys = [*(UNSEEN if not model else [k for k in UNSEEN if k != "model"])]
    rest = [] if has_truth else ["truth: what clients hold, as far as you may see it, and examples of your own"]
    return [*(f"{key}: {UNSEEN[key]}" for key in keys), *rest]


def _write_lines(found: Survey, truth: Path | None, model: str, base: str) -> Iterator[str]:
    if not found.messages:
        raise UserError(f"{found.inbox} holds no message", hint="record at least one round")
    name = visible_name(found.inbox.resolve().name)
    whose = "" if truth is None else visible_name(truth.name)
    least, labels = (0, 0) if truth is None else find_label_range(truth)
    outputs = _count_outputs(found)
    if least > 0 and labels == outputs + 1:
        raise UserError(
            f"labels of {whose} go from {least} to {labels - 1}, and the network has {outputs} outputs",
            hint="labels count from 0: subtract 1 from each y",
        )
    classes = max(labels, outputs, 2)
    shown = f"the smallest layer has {outputs} outputs"
    if truth is not None and labels >= outputs:
        shown = f"labels of {whose} go to {labels - 1}"
    yield f"# What the operator states of {name} and the auditor cannot see in it."
    yield f"title: {yaml.safe_dump(name, width=1000).splitlines()[0]}  # guessed"
    yield "examples:"
    named = ", ".join(f"class {i}" for i in range(classes))
    if truth is not None and (folders := list_classes(truth)):
        yield f"  classes: {json.dumps(folders, ensure_ascii=False)}  # seen: folders of {whose}"
    else:
        yield f"  classes: [{named}]  # guessed: {shown}; names are not seen"
    if truth is None:
        yield "  shape: [1, 28, 28]  # guessed: channels, height, width of one example"
    else:
        axes = example_shape(truth)
        yield f"  shape: {axes}  # seen in {whose}: of one example"
        if len(axes) == 1:
            yield "  columns: {}  # not seen: of a table, such as age: {unit: years, step: 1}, one key a column"
    yield f"  mean: [0.0]  # not seen: {UNSEEN['examples.mean and std']}"
    yield "  std: [1.0]  # not seen"
    yield f"clients: {found.clients or 'null'}  # seen: {len(found.heard)} were heard; more may exist"
    yield f"model: {_name_network(model)}  # stated" if model else f"model: null  # not seen: {UNSEEN['model']}"
    adapters = [] if base else _list_adapters(found)
    if base or adapters:
        why = "stated" if base else f"guessed: clients send adapters, such as {adapters[0]:.80}"
        known = _read_adapter_config(found.inbox)
        named = base or str(known.get("base_model_name_or_path") or "a base that is not named")
        yield f"base: {json.dumps(named)}  # {why}"
        if model and (shape := _describe_adapters(found)):
            alpha = known.get("lora_alpha")
            said = "seen in adapter_config.json" if alpha else "guessed: twice the rank"
            yield f"adapters:  # seen: {shape.layers} adapters of rank {shape.rank}, by the names of their arrays"
            yield f"  rank: {shape.rank}"
            yield f"  alpha: {float(alpha) if alpha else 2.0 * shape.rank:g}  # {said}"
            yield f"  targets: {json.dumps(shape.targets)}"
            if shape.in_full:
                yield f"  in_full: {json.dumps(shape.in_full)}"
    yield f"method: null  # not seen: {UNSEEN['method']}"
    name, shown = identify_aggregation(found)
    yield f"aggregation: {name or 'samples'}  # {'seen' if name else 'guessed'}: {shown}"
    yield f"protections: []  # not seen: {UNSEEN['protections']}"
    yield from _write_prototypes(found)
    if found.filters:
        yield f"# seen: messages name the privacy filters {', '.join(sorted(found.filters))}"
    if found.nodes:
        yield "identities: {}  # node: name of its truth, where they differ; seen were"
        yield from (f"#   {node}: {party}" for party, node in [*found.nodes.items()][:50])


def _name_network(model: str) -> str:
    """The network as a subject names it: a folder is one that save_pretrained wrote."""
    return json.dumps({"name": "hf", "path": model}, ensure_ascii=False) if Path(model).is_dir() else model


def _write_prototypes(found: Survey) -> Iterator[str]:
    """Open kinds of classes that are called prototypes or means and have a row of features for each label."""
    rows = dict[str, list[str]]()
    for line in found.sent:
        for name in line["kinds"]:
            if PROTOTYPES.search(name) and name not in rows:
                arrays = header(found.inbox / f"{line['message']}.safetensors")
                own = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{name}/")}
                features = [n for n, (kind, shape) in own.items() if kind[0] in "FB" and len(shape) == 2]
                labels = [n for n, (kind, shape) in own.items() if kind[0] in "IU" and len(shape) == 1]
                if len(features) == 1 and len(labels) < 2:
                    rows[name] = [*features, *labels]
    if rows:
        yield "prototypes:  # guessed by their names and shapes: a row of features for each class"
        yield from (f"  {name}: {json.dumps(arrays)}" for name, arrays in rows.items())


def _list_adapters(found: Survey) -> list[str]:
    """Names of arrays that only an adapter of a larger network has."""
    line = next((x for x in found.sent if MODEL_KINDS & {*x["kinds"]}), None)
    names = () if line is None else header(found.inbox / f"{line['message']}.safetensors")
    return sorted(n.partition("/")[2] for n in names if "lora_" in n)


class AdapterShape(NamedTuple):
    """What the names and shapes of one upload tell of its adapters."""

    rank: int
    layers: int
    targets: list[str]
    in_full: list[str]  # modules that are sent beside adapters


def _describe_adapters(found: Survey) -> AdapterShape | None:
    """None where there are none, or where their ranks differ."""
    line = next((x for x in found.sent if MODEL_KINDS & {*x["kinds"]}), None)
    arrays = {} if line is None else header(found.inbox / f"{line['message']}.safetensors")
    own = {k.partition("/")[2]: s for k, (_, s) in arrays.items() if k.partition("/")[0] in MODEL_KINDS}
    layers = {n.partition(".lora_A")[0]: s[0] for n, s in own.items() if ".lora_A" in n and len(s) == 2}
    others = {n.rpartition(".")[0] for n in own if "lora_" not in n}
    if len(set(layers.values())) != 1:
        return None
    ends = [sorted({n.rpartition(".")[2] for n in names}) for names in (layers, others)]
    return AdapterShape(next(iter(layers.values())), len(layers), *ends)


def _read_adapter_config(inbox: Path) -> dict[str, Any]:
    """What peft's adapter_config.json beside or in an inbox says, read as data; empty where there is none."""
    for folder in (inbox, inbox.parent):
        with contextlib.suppress(OSError, ValueError):
            known = parse_json((folder / "adapter_config.json").read_bytes())
            if isinstance(known, dict):
                alpha = known.get("lora_alpha")
                is_number = isinstance(alpha, int | float) and not isinstance(alpha, bool) and 0 < alpha < 1e9
                return known | {"lora_alpha": alpha if is_number else None}
    return {}


def _count_outputs(found: Survey) -> int:
    """Outputs of the smallest matrix that has a bias beside it; 0 where no model was sent.

    They are its rows, or its columns where only these fit the biases of all, as in Keras.
    """
    line = next((x for x in found.messages if MODEL_KINDS & {*x["kinds"]}), None)
    if line is None:
        return 0
    arrays = header(found.inbox / f"{line['message']}.safetensors")
    shapes = [shape for key, (_, shape) in arrays.items() if key.partition("/")[0] in MODEL_KINDS]
    biases = {shape[0] for shape in shapes if len(shape) == 1}
    matrices = [shape for shape in shapes if len(shape) == 2]
    axis = 0 if {s[0] for s in matrices} <= biases or not {s[1] for s in matrices} <= biases else 1
    return min((s[axis] for s in matrices if s[axis] in biases), default=0)
