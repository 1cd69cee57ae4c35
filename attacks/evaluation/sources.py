"""Which model made an artifact, and how many samples stand behind it, as far as a view tells.

Features must be inverted with the very extractor that made them: on features of a client's own
model, a decoder of the global model re-identifies 6 % where the client's re-identifies 84 %.
"""

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evaluation.sums import find_kind, number_of
from fedaudit.attacks.evidence import WHOLE, is_replay
from fedaudit.fl.artifact import Artifact, Party, Role
from fedaudit.fl.kinds import MODELS, UPDATES, Kind

Arrays = Mapping[str, NDArray[Any]]
# what one client's training made of the model, in whatever form; of equals the first is read
UPLOADS = (*UPDATES, Kind.NORMALIZED_DELTA, Kind.CONTROL_DELTA)
NO_AUXILIARY = "this attack needs auxiliary examples, and the federation holds none back"
MOST_EXAMPLES = 10**12  # of one client: a larger number is no number of examples
SAID_WITH = (Kind.CONTROL_GLOBAL, Kind.NUM_STEPS)  # what the last two are read with


@dataclass(frozen=True, kw_only=True)
class Weights:
    values: Arrays
    source: str  # "local model", "global model + delta" or "global model"

    @property
    def own(self) -> bool:
        """The client's own weights, not those it started from."""
        return self.source != "global model"


def sent_with(artifact: Artifact, kind: Kind, view: Sequence[Artifact]) -> Artifact | None:
    """The artifact of that kind that the same sender sent in the same round."""
    return index(view).find_first(round=artifact.round, kind=kind, sender=artifact.sender, origin="recorded")


def read_examples(artifact: Artifact, view: Sequence[Artifact]) -> int | None:
    """How many examples its sender says it trained on, at least 1; None where it says no possible number."""
    sent = sent_with(artifact, Kind.NUM_EXAMPLES, view)
    count = None if sent is None else read_count(sent)
    return None if count is None else max(1, count)


def read_count(artifact: Artifact) -> int | None:
    """A number of examples; None where nobody can have so many.

    It is what its sender states, who may state any number: no work may grow with it.
    """
    count = float(artifact.payload["count"])
    return round(count) if 0 <= count <= MOST_EXAMPLES else None


def broadcast(view: Sequence[Artifact], round: int, sent: Artifact | None = None) -> Artifact | None:
    """The newest message with the global model in that round or before it, or with several (IFCA).

    What a server sent to one client alone is what that client's upload began with, and no other's.
    """
    readers = None if sent is None else ("client", "public", str(sent.sender))
    return index(view).newest(Kind.GLOBAL_MODEL, round, readers)


def global_model(view: Sequence[Artifact], round: int, sent: Artifact | None = None) -> Artifact | None:
    """The newest global model broadcast in that round or before it.

    Of several in one message, the nearest to what a client sent, which is the one it started from; the first
    where nothing is given.
    """
    found = broadcast(view, round, sent)
    models = several(found.payload) if found is not None else []
    if found is None or len(models) == 1:
        return found

    def measure_distance(model: Arrays) -> float:
        own = {} if sent is None else sent.payload
        return sum(float(((np.asarray(own[k], np.float64) - v) ** 2).sum()) for k, v in model.items() if k in own)

    return replace(found, payload=min(models, key=measure_distance))


def pair_models(view: Sequence[Artifact]) -> list[tuple[Artifact, Artifact]]:
    """Each recorded global model with the one before it, of those that everybody reads and of each client's own.

    Of several models in one message each is paired with its own (IFCA). One that did not change is left out.
    """
    pairs, latest = list[tuple[Artifact, Artifact]](), dict[tuple[str, ...], Artifact]()
    for a in sorted(index(view).select(kind=Kind.GLOBAL_MODEL, origin="recorded"), key=lambda a: a.round):
        alone = tuple(reader for reader in a.seen_by if "/" in reader)
        before, latest[alone] = latest.get(alone), a
        models = [several(b.payload) for b in (before, a) if b is not None]
        if before is not None and len(models[0]) == len(models[1]):
            both = zip(*models, strict=True)
            pairs += [
                (replace(before, payload=first), replace(a, payload=second))
                for first, second in both
                if any(k in first and not np.array_equal(v, first[k]) for k, v in second.items())
            ]
    return pairs


def several(payload: Arrays) -> list[Arrays]:
    """One broadcast model, or several whose names begin with their number (IFCA)."""
    numbers = {k.partition("/")[0] if "/" in k else "" for k in payload}
    if not all(n.isdecimal() for n in numbers):
        return [payload]
    return [
        {k.removeprefix(f"{n}/"): v for k, v in payload.items() if k.startswith(f"{n}/")}
        for n in sorted(numbers, key=int)
    ]


def uploads(
    view: Sequence[Artifact], training: Mapping[str, float], kinds: Sequence[Kind] = UPLOADS
) -> list[Artifact]:
    """Clients' uploads, one a message: of several the one with the least published noise."""
    best: dict[tuple[str, Party], Artifact] = {}

    def noise(a: Artifact) -> tuple[float, int]:
        return training.get(f"noise_std.{a.kind}", 0.0), kinds.index(a.kind)

    for a in view:
        if a.kind in kinds and a.sender.role == Role.CLIENT:
            message = a.id.rpartition("/")[0] if a.origin == "recorded" else a.id
            known = best.setdefault((message, a.sender), a)
            if noise(a) < noise(known):
                best[message, a.sender] = a
    return list(best.values())


def rate(training: Mapping[str, float], round: int) -> float:
    """The learning rate of a round; 0 where nobody published it."""
    return training.get("lr", 0.0) * training.get("lr_decay", 1.0) ** round


def compute_change(a: Artifact, start: Arrays, view: Sequence[Artifact], training: Mapping[str, float]) -> Arrays:
    """What an upload says that training added to the parameters it holds, float64.

    FedNova's normalised delta is multiplied by what it was divided by. A control delta of SCAFFOLD and the
    control variate c that came with the model add up to the mean direction of the steps,
    (w - w_k) / (rate ||a||_1) (arXiv:1910.06378, option II); how far they went is in neither, so it counts as
    one step.
    """
    sent = {k: np.asarray(v, np.float64) for k, v in a.payload.items() if k in start}
    if a.kind in UPDATES:
        times = weighting(a, start)
        return {k: v / times - np.asarray(start[k], np.float64) for k, v in sent.items()} if times else sent
    if a.kind == Kind.CONTROL_DELTA:
        common = [c.payload for c in index(view).select(kind=Kind.CONTROL_GLOBAL, round=a.round)]
        sent = {k: v + (np.asarray(common[-1][k], np.float64) if common else 0.0) for k, v in sent.items()}
    return {k: -v * length(a, view, training) for k, v in sent.items()}


def weighting(a: Artifact, start: Arrays) -> float:
    """What a client multiplied its model by before it sent it; 0 where it sent the change alone.

    A kind is a name that a method chooses: under it a client may send its model or what changed in it, the model
    weighted by its examples or by a constant of its own. The one that leaves the smallest change is taken,
    where the kind's own leaves four times as much: local training moves a model by less than the model. Counters
    move by as much as they count, and say nothing of it.
    """
    named = 1.0 if a.kind in MODELS else 0.0
    both = [
        (np.asarray(v, np.float64), np.asarray(start[k], np.float64))
        for k, v in a.payload.items()
        if k in start and np.ndim(v) and np.issubdtype(start[k].dtype, np.floating)
    ]
    along, size = (sum(float((x * w).sum()) for x, w in pairs) for pairs in (both, [(w, w) for _, w in both]))
    if not size or not np.isfinite(along):
        return named

    def change(times: float) -> float:
        return sum(float(((x / times - w if times else x) ** 2).sum()) for x, w in both)

    others = [0.0, 1.0, *([along / size] if abs(along / size - 1) > 0.5 and abs(along / size) > 0.5 else [])]
    best = min(others, key=change)
    return best if 16 * change(best) < change(named) else named


def length(a: Artifact, view: Sequence[Artifact], training: Mapping[str, float]) -> float:
    """What a direction that a client sent is to be multiplied by: rate times the weight of its steps."""
    norm = float(a.note.get("norm", 1.0))
    steps = sent_with(a, Kind.NUM_STEPS, view) if a.kind == Kind.NORMALIZED_DELTA else None
    if steps is not None and a.origin == "recorded":
        norm = float(steps.payload.get("norm", steps.payload["steps"]))
    return norm * (rate(training, a.round) or 1.0)


def made_with(artifact: Artifact, view: Sequence[Artifact]) -> Weights | None:
    """The weights behind an artifact: uploaded, or global plus delta, or the global ones at worst.

    Parameters that a partial upload leaves out are those of the global model.
    """
    view = index(view)
    broadcast = global_model(view, artifact.round)
    start: Arrays = {} if broadcast is None else broadcast.payload
    local = next((a for kind in MODELS if (a := sent_with(artifact, kind, view)) is not None), None)
    if local is not None:
        return Weights(values={**start, **local.payload}, source="local model")
    delta = sent_with(artifact, Kind.MODEL_DELTA, view)
    if broadcast is None:
        return None
    if delta is not None and broadcast.round == artifact.round:
        moved = {k: np.asarray(start[k] + v) for k, v in delta.payload.items() if k in start}
        return Weights(values={**start, **moved}, source="global model + delta")
    return Weights(values=start, source="global model")


def samples_behind(artifact: Artifact, label: int, view: Sequence[Artifact]) -> int | None:
    """How many samples of a class stand behind the artifact, where anything visible says so."""
    if is_replay(artifact.origin) and "n" in artifact.note:
        return int(artifact.note["n"])
    view = index(view)
    counts = sent_with(artifact, Kind.PROTO_COUNTS, view)
    if counts is not None:
        listed = np.flatnonzero(counts.payload["classes"] == label)
        if len(listed):
            return max(1, round(float(counts.payload["counts"][listed[0]])))
    whole = sent_with(artifact, Kind.LABEL_COUNTS, view)
    if whole is not None and label < len(whole.payload["counts"]):
        return max(1, round(float(whole.payload["counts"][label])))
    return None


@dataclass(frozen=True, kw_only=True)
class Prototype:
    """One class of one prototype artifact."""

    artifact: str
    kind: Kind
    sender: Party
    round: int
    origin: str
    label: int
    samples: int | None
    feature: NDArray[np.float32]  # [D]
    pair: str = ""  # of a replayed pair: its name


def columns(every: Sequence[Prototype]) -> dict[str, NDArray[Any]]:
    """What a claim says of the prototypes that it is about, [k] each; n and sender are -1 where unknown."""
    return {
        "label": np.array([p.label for p in every]),
        "n": np.array([p.samples or -1 for p in every]),
        "sender": np.array([number_of(p.sender) for p in every]),
        "artifact": np.array([p.artifact for p in every]),
        "kind": np.array([p.kind.value for p in every]),
        "origin": np.array([p.origin for p in every]),
        "round": np.array([p.round for p in every]),
    }


@dataclass(frozen=True, kw_only=True)
class Source:
    """The prototypes that one set of weights made."""

    weights: Weights
    prototypes: list[Prototype]

    @property
    def features(self) -> NDArray[np.float32]:  # [k, D]
        return np.stack([p.feature for p in self.prototypes])


def unreadable(view: Sequence[Artifact], auxiliary: Sized | None, needed: bool = True) -> str:
    """Why prototypes cannot be read, as a sentence; `needed`: whether auxiliary examples are."""
    if not prototypes(view):
        return "no model was recorded that could have made the prototypes"
    if needed and not len(auxiliary or ()):
        return NO_AUXILIARY
    return ""


def prototypes(view: Sequence[Artifact]) -> list[Source]:
    """All prototypes of a view, by the model that made them; those of unknown models are left out.

    Senders of replayed prototypes come first, then those with the fewest samples behind a class:
    there an attacker with little time begins.
    """
    view = index(view)
    sources: dict[tuple[Party, int], Source] = {}
    for a in view.select(kind=Kind.LOCAL_PROTOTYPES):
        key = (a.sender, a.round)
        if key not in sources:
            weights = made_with(a, view)
            if weights is None:
                continue
            sources[key] = Source(weights=weights, prototypes=[])
        for label, feature in zip(a.payload["classes"], a.payload["features"], strict=True):
            found = np.asarray(feature, np.float32)
            if not np.isfinite(found).all():
                continue
            sources[key].prototypes.append(
                Prototype(
                    artifact=a.id,
                    kind=find_kind(a),
                    sender=a.sender,
                    round=a.round,
                    origin=WHOLE if a.note.get("whole") else a.origin,
                    label=int(label),
                    samples=samples_behind(a, int(label), view),
                    feature=found,
                    pair=str(a.note.get("pair", "")),
                )
            )

    def worth(source: Source) -> tuple[bool, float]:
        replayed = any(is_replay(p.origin) for p in source.prototypes)
        return not replayed, min((p.samples for p in source.prototypes if p.samples), default=np.inf)

    return sorted((s for s in sources.values() if s.prototypes), key=worth)
