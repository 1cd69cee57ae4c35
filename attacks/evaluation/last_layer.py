"""What an upload did to the last layer: the change of its bias and of its rows, with the models around.

For softmax cross-entropy the gradient of the bias is the mean of p - onehot(y), and that of row c of
the weights the mean of (p_c - [y = c]) h with h the input of the layer, which a ReLU keeps >= 0. So
the last layer alone says which labels were trained on, and how often. Weight decay, which pulls rows
of every class alike, is taken off, as far as the known rate tells it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Extractor, Knowledge
from fedaudit.attacks.evaluation import sources as weights
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.sources import global_model, pair_models
from fedaudit.attacks.evaluation.sums import SEVERAL, count_clients, find_kind, number_of
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind

Arrays = Mapping[str, NDArray[Any]]
Values = NDArray[np.float64]
UPLOADS = (*weights.UPLOADS, *weights.SAID_WITH)


@dataclass(frozen=True, kw_only=True)
class HeadUpdate:
    """One client's upload, seen at the last layer."""

    client: int
    artifact: str
    kind: Kind
    round: int
    bias: Values | None  # [C] change, after minus before; None where the layer has no bias
    rows: Values  # [C] sum over the layer's inputs of the change of each row
    norms: Values  # [C] Euclidean length of the change of each row
    before: Arrays
    after: Arrays
    examples: int | None  # that the client says it has
    reach: float  # change per unit of a constant gradient: rate * steps / (1 - momentum); 0 unknown


def head_updates(view: Sequence[Artifact], knowledge: Knowledge) -> list[HeadUpdate]:
    """Every recorded upload that holds the last layer, and whose starting model was seen."""
    view, found = index(view), []
    for a in weights.uploads(view, knowledge.training):
        if a.origin != "recorded":
            continue
        start = global_model(view, a.round, a)
        if start is None or start.round != a.round:
            continue
        before = start.payload
        change = weights.compute_change(a, before, view, knowledge.training)
        weight, bias = head_names(before, knowledge)
        if weight not in change:
            continue
        n = weights.read_examples(a, view)
        own = None if n is None else -(-n // count_clients(a))  # of a client, on average
        rate, steps, slow = schedule(knowledge.training, a.round, own)
        if a.kind == Kind.CONTROL_DELTA:  # a direction: one step's worth
            rate, steps, slow = weights.length(a, view, knowledge.training), 1, 1.0
        lost = 1 - (1 - rate * knowledge.training.get("weight_decay", 0.0) / slow) ** steps
        moved = {k: change[k] + lost * np.asarray(before[k], np.float64) for k in (weight, bias) if k in change}
        found.append(
            HeadUpdate(
                client=number_of(a.sender),
                artifact=a.id,
                kind=find_kind(a),
                round=a.round,
                bias=moved.get(bias),
                rows=moved[weight].sum(axis=1),
                norms=np.linalg.norm(moved[weight], axis=1),
                before=before,
                after={**before, **{k: np.asarray(before[k] + v, before[k].dtype) for k, v in change.items()}},
                examples=n,
                reach=rate * steps / slow,
            )
        )
    return found


def head_changes(view: Sequence[Artifact], knowledge: Knowledge) -> list[HeadUpdate]:
    """What each recorded global model changed in the last layer of the one before, as all clients' one upload.

    Its round is that of the uploads: the one that began with the model before.
    """
    found = []
    for before, after in pair_models(view):
        weight, bias = head_names(before.payload, knowledge)
        if weight not in after.payload:
            continue
        moved = {
            k: np.asarray(after.payload[k], np.float64) - np.asarray(before.payload[k], np.float64)
            for k in (weight, bias)
            if k in after.payload
        }
        found.append(
            HeadUpdate(
                client=SEVERAL,
                artifact=after.id,
                kind=after.kind,
                round=before.round,
                bias=moved.get(bias),
                rows=moved[weight].sum(axis=1),
                norms=np.linalg.norm(moved[weight], axis=1),
                before=before.payload,
                after=after.payload,
                examples=None,
                reach=0.0,
            )
        )
    return found


def head_names(weights: Arrays, knowledge: Knowledge) -> tuple[str, str]:
    """Names of the last layer's weight and bias; "" where it has none of that shape."""
    module = knowledge.granted_architecture(weights).module()
    weight = bias = ""
    for name, p in module.named_parameters():
        own = next((k for k in weights if name == k or name.endswith(f".{k}")), None)
        if own is not None and len(p) == knowledge.classes:
            if p.dim() == 2:
                weight, bias = own, ""
            elif p.dim() == 1:
                bias = own
    return weight, bias


def head_non_members(view: Sequence[Artifact], knowledge: Knowledge) -> str:
    """Why the last layer says nothing here, as a sentence; empty where it may."""
    updates = [*head_updates(view, knowledge), *head_changes(view, knowledge)]
    if not updates and not weights.uploads(view, knowledge.training):
        return "no client sends its model, or what changed in it, that the server could read"
    model = next((a for a in view if a.kind == Kind.GLOBAL_MODEL), None)
    if not updates and model is not None:
        module = knowledge.granted_architecture(model.payload).module()
        if not any(p.dim() == 2 and len(p) == knowledge.classes for p in module.parameters()):
            return "the network has no layer with a row for each class, as nn.Linear has, to read labels off"
        return "clients keep the last layer: no upload holds it, so nothing is read off its rows"
    if not updates:
        return "the model that uploads started from was not recorded"
    if not any(u.norms.any() for u in updates):
        return "the last layer is frozen: it did not change in any upload"
    return ""


def starting_models(
    updates: Sequence[HeadUpdate], knowledge: Knowledge
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The models that training started from, as objects, and which of them each update did."""
    starts = {u.round: u.before for u in updates}
    places = {round: i for i, round in enumerate(starts)}
    models = np.empty(len(starts), dtype=object)
    models[:] = [knowledge.granted_architecture(w) for w in starts.values()]
    return models, np.array([places[u.round] for u in updates])


def one_step(extractor: Extractor, image: NDArray[Any], label: int) -> tuple[Values, Values, Values]:
    """Change of bias, row sums and row lengths by a step of rate 1 on one image, [C] each."""
    from scipy.special import softmax

    bias = -softmax(extractor.logits(image)[0].astype(np.float64))
    bias[label] += 1
    features = extractor.features(image)[0].astype(np.float64)
    return bias, bias * features.sum(), np.abs(bias) * float(np.linalg.norm(features))


def confusion(
    extractor: Extractor, images: NDArray[Any], labels: NDArray[np.int64], classes: int, most: int = 100
) -> Values:
    """Mean softmax output for images of each class, [C, C]; rows of absent classes are the mean."""
    from scipy.special import softmax

    chosen = np.concatenate([np.flatnonzero(labels == c)[:most] for c in range(classes)])
    outputs = softmax(extractor.logits(images[chosen]).astype(np.float64), axis=1)
    found = np.tile(outputs.mean(axis=0), (classes, 1))
    for c in np.unique(labels[chosen]):
        found[c] = outputs[labels[chosen] == c].mean(axis=0)
    return found


def schedule(training: Mapping[str, float], round: int, examples: int | None) -> tuple[float, int, float]:
    """Learning rate, number of steps (0: unknown) and 1 - momentum of this round."""
    rate = weights.rate(training, round)
    slow = 1 - training.get("momentum", 0.0)
    if examples is None or "batch_size" not in training:
        return rate, 0, slow
    batches = -(-examples // int(training["batch_size"]))
    return rate, int(training.get("local_epochs", 1)) * batches, slow
