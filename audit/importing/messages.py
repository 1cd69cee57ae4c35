"""What is what: names, shapes and meaning of what was sent, and whether the next model follows from the uploads.

A model that the stated network has no place for is refused, since every attack would run on something else.
Whether an upload is a model or a change is seen from its direction: a model points where the one it began with
does. The aggregate is recomputed from the uploads with the stated weights; what differs from it is not explained
away: clients that were not heard, other weights, an optimiser of the server, or central noise.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.audit.importing.message_file import header
from fedaudit.audit.settings.subject import MOST_NODES, ExampleLayout, RecordedSubject
from fedaudit.fl.artifact import SERVER, Artifact
from fedaudit.fl.kinds import DELTAS, TRAINED, UPDATES, Kind
from fedaudit.fl.model import Net
from fedaudit.fl.recording.recorder import carries_shared_model, is_from_client, lines, manifest, read_message
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.wire.protection import Protection, published_noise
from fedaudit.reports.imported import CheckedStatement

ALIKE = 1e-4  # relative to what a round changes: a mean in another order of sums
MOST_CLIENTS = 2_000  # of a round that is recomputed
ROUNDS = 3  # recomputed, the latest
MOST_LOOKED_AT = 200  # models of the server whose names are compared
Values = NDArray[np.float64]


def shapes(artifacts: Path, network: Callable[[], Net], subject: RecordedSubject, base: Path | None) -> None:
    """Raises UserError where the server's model lacks a part of the stated network, or examples do not fit it.

    What its messages hold besides was asked as they came in (door.py).
    """
    own = [*network().state_dict()]
    given = () if base is None or subject.adapters else header(base).keys()
    sent = (x for x in manifest(artifacts) if "message" in x and Kind.GLOBAL_MODEL in x["kinds"])
    first = islice((x for x in sent if x["sender"] == str(SERVER)), MOST_LOOKED_AT)
    for artifact in (a for line in first for a in read_message(artifacts, line)):
        known = artifact.payload.keys() | given
        absent = [n for n in own if n not in known and "num_batches" not in n]
        is_whole = not subject.base or base is not None or subject.adapters is not None
        if artifact.kind == Kind.GLOBAL_MODEL and absent and is_whole:
            raise UserError(
                f"{artifact.id} lacks {absent[0]!r:.80}, which the network that subject.model names has",
                hint="record all of its weights; or name what is never sent as subject.base, and give its "
                "weights with --base: without them what needs the network is not tried",
                key="subject.model",
            )
    _runs(network, subject.examples)


def _runs(network: Callable[[], Net], stated: ExampleLayout) -> None:
    """Raises UserError where the stated network does not take examples of the stated shape."""
    shape = stated.input_shape
    if len(shape) == 1 and not stated.is_table:  # tokens
        return
    try:
        with torch.no_grad():
            net = network()
            found = tuple(net.eval()(torch.zeros(2, *shape)).shape)
    except Exception as error:  # other people's code
        raise UserError(
            f"the stated network does not take examples of the stated shape {list(shape)}: {quote_error(error)}",
            hint="[channels, height, width] of one example, as the network is given it",
            key="subject.examples.shape",
        ) from error
    if found != (2, stated.width, *(shape[1:] if net.task.by_place else ())):
        raise UserError(
            f"the network gives {found[1] if len(found) > 1 else 0} outputs, and {stated.width} "
            f"{'classes are stated' if stated.classes else f'is wanted: {net.task.words}'}",
            hint="name every class, in the order of the outputs",
            key="subject.examples.classes",
        )


def meaning(latest: list[Artifact]) -> CheckedStatement:
    """Whether what is recorded as models are models, and changes changes."""
    start = {a.round: a.payload for a in latest if a.kind == Kind.GLOBAL_MODEL}
    found = []
    for a in latest:
        if a.kind in UPDATES and a.round in start:
            u, g = _flat(a.payload, start[a.round]), _flat(start[a.round], a.payload)
            scale = float(np.linalg.norm(u) * np.linalg.norm(g))
            if scale > 0:
                found.append((a, float(u @ g) / scale, float(np.linalg.norm(u - g) / np.linalg.norm(u))))
    title = "Models or changes"
    if not found:
        return CheckedStatement(
            id="meaning", title=title, status="open", text="No upload was recorded with what it began with."
        )
    middle, left = (float(np.median([x[i] for x in found])) for i in (1, 2))
    is_model, kind = middle > 0.5, found[0][0].kind
    text = (
        f"Uploads are recorded as {kind}; their direction agrees with the model they began with by {middle:.2f}"
    )
    if (is_model and kind in TRAINED) or (middle < 0.5 and kind in DELTAS):
        return CheckedStatement(id="meaning", title=title, status="holds", text=f"{text}, as {kind.words} does.")
    if kind in DELTAS and left > 0.25:  # a change may go on where those before went; a model lies by its start
        return CheckedStatement(
            id="meaning",
            title=title,
            status="open",
            text=f"{text}, as a change does that goes on where those of earlier rounds went.",
        )
    adapters = (Kind.ADAPTER, Kind.ADAPTER_DELTA)
    other = (adapters if kind in adapters else (Kind.LOCAL_MODEL, Kind.MODEL_DELTA))[0 if is_model else 1]
    raise UserError(
        f"{text}: they look like {other}",
        hint=f'record with uploads="{other}", or rename the arrays; an attack on the wrong one finds nothing',
    )


@dataclass(frozen=True)
class _Round:
    """One round's uploads, the model it began with and the next one."""

    number: int
    before: Values
    after: Values
    uploads: Values  # [clients, parameters], models
    weights: Values  # [clients] numbers of examples, or of steps; ones where neither was sent
    steps: bool  # what was sent to be weighted by are steps

    @property
    def ways(self) -> dict[str, Values]:
        """Way of weighing -> weights; those alone that add up to something, since others make no mean."""
        ways = {"samples": self.weights, "uniform": np.ones(len(self.uploads))}
        return {name: weights for name, weights in ways.items() if weights.sum() > 0}

    def residual(self, weights: Values) -> Values:
        return np.asarray(self.after - weights @ self.uploads / weights.sum())

    def measure_distance(self, way: str) -> float:
        """Distance of the next model from that mean, relative to what the round changed; infinite without one."""
        if way not in self.ways:
            return math.inf
        changed = float(np.linalg.norm(self.after - self.before))
        apart = float(np.linalg.norm(self.residual(self.ways[way]))) / max(1e-30, changed)
        return apart if math.isfinite(apart) else math.inf


def aggregate(
    artifacts: Path, subject: RecordedSubject, protections: Sequence[Protection]
) -> list[CheckedStatement]:
    """The next model from the uploads, and the central noise that is claimed on it."""
    rounds = list(whole_rounds(artifacts))
    title, stated = "The server's model", subject.aggregation
    if not rounds:
        text = "No round was recorded with all it takes: the model it began with, its uploads and the next model."
        checks = [CheckedStatement(id="aggregate", title=title, status="open", text=text)]
    else:
        checks = [_follows(rounds, title, stated)]
    return checks + [_central(rounds, _central_noise(p, subject.clients)) for p in protections if p.central]


def measure_means(rounds: list[_Round]) -> dict[str, float]:
    """Way of weighing -> how far the next model is from that mean of the uploads, of what a round changes."""
    return {way: max(r.measure_distance(way) for r in rounds) for way in ("samples", "uniform")}


def _follows(rounds: list[_Round], title: str, stated: str) -> CheckedStatement:
    ways = measure_means(rounds)
    what = {
        "samples": f"weighted by numbers of {'steps' if rounds[0].steps else 'examples'}",
        "uniform": "each alike",
        "other": "some other way",
    }
    fits = [w for w, apart in ways.items() if apart < ALIKE]
    many = f"in the {len(rounds)} rounds recomputed" if len(rounds) > 1 else "in the round recomputed"
    if stated in fits:
        text = f"It is the mean of the uploads, {what[stated]}, {many}, to {ways[stated]:.1g} of the change."
        return CheckedStatement(id="aggregate", title=title, status="holds", text=text)
    if fits:
        text = f"It is said to be made {what[stated]}, and {many} it is the mean of the uploads, {what[fits[0]]}."
        return CheckedStatement(id="aggregate", title=title, status="contradicted", text=text)
    if any(np.array_equal(r.before, r.after) for r in rounds):
        text = f"It stayed as it was {many}: the uploads never came into it."
        return CheckedStatement(id="aggregate", title=title, status="open", text=text)
    near = min(ways, key=ways.__getitem__)
    text = (
        f"It differs from the mean of the uploads {many} by {ways[near]:.2g} times what a round changes"
        f" ({what[near]}): clients not recorded, other weights, an optimiser of the server, or central noise."
    )
    return CheckedStatement(id="aggregate", title=title, status="open", text=text)


def _central_noise(p: Protection, clients: int | None) -> float:
    """The least that the claimed noise on the model can be, as a standard deviation on each number.

    It is that of a sum over the number of clients that are expected in a round. Where nobody says how many these
    are, they are no more than there are clients; who was heard says nothing of either.
    """
    config = p.config
    clip, z = getattr(config, "clip_norm", 0.0), getattr(config, "noise_multiplier", 0.0)
    most = getattr(config, "expected", None) or clients or MOST_NODES
    return published_noise([p], Kind.GLOBAL_MODEL) or float(clip * z / most if z else 0.0)


def _central(rounds: list[_Round], claimed: float) -> CheckedStatement:
    title = "Central noise"
    said = f"Noise of standard deviation {claimed:.3g} or more on every weight of the server's model is claimed"
    if not rounds:
        return CheckedStatement(
            id="central", title=title, status="declared", text=f"{said}; no round could be recomputed."
        )
    fit = min((r.residual(w) for r in rounds for w in r.ways.values()), key=lambda e: float(e.std()))
    found = float(fit.std())
    if found < 0.5 * claimed:
        text = f"{said}, and what the model differs by from the mean of the recorded uploads has {found:.3g}: "
        text += "the noise is not there." if found < 0.01 * claimed else "there is less than was claimed."
        return CheckedStatement(id="central", title=title, status="contradicted", text=text)
    text = f"{said}; the model differs from the mean of the recorded uploads by {found:.3g}: not refuted."
    return CheckedStatement(id="central", title=title, status="declared", text=text)


def whole_rounds(folder: Path, told: Iterable[Mapping[str, Any]] | None = None) -> Iterator[_Round]:
    """The latest rounds of which all was read that it takes to make the next model.

    `told` are the lines of the manifest; by default as they stand in the folder.
    """
    every = [*(lines(folder) if told is None else told)]
    sent = [x for x in every if "message" in x]
    unread = {x["round"] for x in every if "unread" in x and is_from_client(x)}
    down = {x["round"]: x for x in sent if carries_shared_model(x)}
    up: dict[int, list[Mapping[str, object]]] = {}
    for x in sent:
        if is_from_client(x) and {*UPDATES} & {*x["kinds"]}:
            up.setdefault(x["round"], []).append(x)
    able = [t for t in sorted(up) if {t, t + 1} <= down.keys() and len(up[t]) <= MOST_CLIENTS and t not in unread]
    senders = {t: {x["sender"] for x in up[t]} for t in able}
    # a client that aggregates has an update of its own, which need not have crossed
    able = [t for t in able if not is_from_client(down[t + 1]) or down[t + 1]["sender"] in senders[t]]
    for t in able[-ROUNDS:]:
        models = [a for line in (down[t], down[t + 1]) for a in read_message(folder, line)]
        ends = {a.round: a.payload for a in models if a.kind == Kind.GLOBAL_MODEL}
        before, after = ends[t], ends[t + 1]
        parts = [{a.kind: a.payload for a in read_message(folder, line)} for line in up[t]]
        kinds = [next((k for k in (*TRAINED, *DELTAS) if k in own), Kind.MODEL_DELTA) for own in parts]
        sent_by = [own[kind] for own, kind in zip(parts, kinds, strict=True) if kind in own]
        payloads = (before, after, *sent_by)
        counters = {n for payload in payloads for n, v in payload.items() if v.dtype.kind != "f" or not v.ndim}
        names = sorted((before.keys() & after.keys()) - counters)
        if len(sent_by) < len(parts) or any(n not in payload for payload in sent_by for n in names):
            continue
        if any(payload[n].shape != before[n].shape for payload in (after, *sent_by) for n in names):
            continue  # of other networks
        start, rows = _join(before, names), [_join(payload, names) for payload in sent_by]
        trained = [r if k in TRAINED else r + start for r, k in zip(rows, kinds, strict=True)]
        steps = any(Kind.NUM_STEPS in own and Kind.NUM_EXAMPLES not in own for own in parts)
        weights = np.array([_weight(own) for own in parts])
        if len({len(r) for r in trained}) == 1 and len(trained[0]) == len(start):
            yield _Round(t, start, _join(after, names), np.stack(trained), weights, steps)


def _join(payload: Mapping[str, NDArray[np.generic]], names: Sequence[str]) -> Values:
    """Arrays of these names, one after the other."""
    return np.concatenate([np.zeros(0), *(np.asarray(payload[n], np.float64).ravel() for n in names)])


def _weight(own: Mapping[Kind, Mapping[str, NDArray[np.generic]]]) -> float:
    """The number that a client sends to be weighted by: its examples, or with NVFlare its steps."""
    if Kind.NUM_EXAMPLES in own:
        return float(own[Kind.NUM_EXAMPLES]["count"].item())
    return float(own[Kind.NUM_STEPS]["steps"].item()) if Kind.NUM_STEPS in own else 1.0


def _flat(payload: Mapping[str, NDArray[np.generic]], like: Mapping[str, NDArray[np.generic]]) -> Values:
    """Its arrays of floating-point numbers that the other has in the same shape, one after the other.

    Single numbers are left out: a counter that a mean made one grows by as much as it counts.
    """
    alike = (n for n in sorted(payload) if n in like and payload[n].shape == like[n].shape != ())
    return _join(payload, [n for n in alike if payload[n].dtype.kind == like[n].dtype.kind == "f"])
