"""Training as it is stated: clients are played once more, and what they sent must be one of such plays.

With the recorded model, the stated examples, method and settings, every play of a client differs by its own order
of batches (and noise) alone; if all that is stated is true, what was recorded is one play among R + 1, in no way
remarkable. Of every array of every upload two numbers are taken of each of the R + 1 changes: how far it lies
from the others on average, and how long it is. Whichever of the R + 1 is called the recorded one, the law is the
same; so the most remarkable number, of all arrays and over all uploads, is held against the same with others in
the place of the recorded ones: one permutation test, whose level is exact however unlike the arrays are.
Far from the played ones: another learning rate, number of epochs, batch size, network, normalisation, labels or
members. Nearer than they are to each other: noise that is claimed and is not there.

A test that would have noticed nothing bears nothing out. So clients are played in other ways too (`_Other`), and
training holds where each of these, in the place of what was recorded, would have been noticed. What no statement
has a word for is never held against anybody: a change that such training would make as well leaves it open.
"""

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.audit.case.case import Split
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.fl.artifact import Channel, Party
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.families.adapters import LoRALinear
from fedaudit.fl.kinds import TRAINED, UPDATES, Kind
from fedaudit.fl.recording.recorder import carries_shared_model, is_from_client, manifest, read_message
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.fl.training.batches import has_batch_statistics
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import CheckedStatement

TITLE, ID = "Training as stated", "training"
LEVEL = 0.002  # one honest federation in 500 is contradicted
UNLIKELY = 0.01  # for what no statement has a word for to have made a change
DRAWS = 1_999  # of which play is called the recorded one
MOST_UPLOADS, FEWEST_PLAYS = 8, 4
MOST_WORK = 1e11  # examples x epochs x parameters of all plays
NEAR = 1e-3  # of a change's length: full batches, whose plays differ by the order of sums alone
RESOLUTION = 1e-2  # of the logarithm of a distance or length: less is told from nothing
EVEN = 0.1  # deviations that count as the same
FLOAT = 1e-6  # of the largest change: what is zero but for rounding
DROPPED = (0.05, 0.1, 0.2, 0.4)  # of what enters adapters
Values = NDArray[np.float64]
Changes = Mapping[str, Values]  # array -> what training changed
NOTHING: Changes = {"": np.array([np.nan])}  # of a message that did not arrive


class Way(NamedTuple):
    """A way of being remarkable."""

    array: str
    measure: str


Table = dict[Way, Values]  # of each way [plays + 1], the first of which is what is looked at
WAYS = {
    "apart": ("lie nearer to those than they do", "lie further from those than they do"),
    "length": ("are shorter than those", "are longer than those"),
}


def check_replays(lab: Lab | None, examples: Split, artifacts: Path, *, foreign: bool) -> CheckedStatement:
    """Whether recorded uploads are what the stated training makes of the stated examples.

    `foreign`: code of others is played, whose errors are a result.
    """
    lines = [x for x in manifest(artifacts) if "message" in x]
    if lab is None:
        return _check("open", "Method, network or first model were not stated: no client can be played.")
    able = [k for k, rows in examples.parts.items() if len(rows) and not _leaves_one(lab, len(rows))]
    told = _uploads(able, lines)
    if not told:
        one = any(len(rows) for rows in examples.parts.values())
        why = "what a batch of one example does to batch statistics cannot be stated" if one else ""
        return _check("open", f"No client could be played on what it holds: {why or 'no examples were given'}.")
    # as few as can reach the level
    plays = max(FEWEST_PLAYS, math.ceil((2 / LEVEL) ** (1 / len(told))) - 1)
    others, size = [*_list_others(lab)], sum(v.numel() for v in lab.initial.values())
    count = sum(len(examples.parts[_index(line)]) for line in told)
    many = fmt.plural(len(told), "upload")
    if (plays + len(others)) * count * lab.method.config.local_epochs * size > MOST_WORK:
        return _check("open", f"To play {many} {plays} times each is too much work.")
    sent = [_Sent(artifacts, _with_models(lines, line)) for line in told]
    try:
        seen = [one.play_among(_Other("", lab), others, plays) for one in sent]
        found, *replaced = (_compare(tables) for tables in zip(*seen, strict=True))
        text = f"Of {many}, each played {plays} times as stated, recorded changes "
        if found.chance > LEVEL:
            names = {
                was: [o.name for o, r in zip(others, replaced, strict=True) if (r.chance <= LEVEL) is was]
                for was in (True, False)
            }
            return _weigh(f"{text}look like one more of them ({found.chance:.2g})", names[True], names[False])
        text += f"{found.words} (probability {found.chance:.2g} if all were as stated)"
        for other in _list_unstated(lab):
            likely = _compare([one.play_among(other, (), plays)[0] for one in sent]).chance
            if likely > UNLIKELY:
                text += f", and look like one more of those with {other.name} (probability {likely:.2g})"
                return _check("open", f"{text}, which no statement has a word for.")
    except Exception as error:  # other people's network
        if not isinstance(error, UserError) and not foreign:
            raise
        return _check("open", f"Clients could not be played: {quote_error(error)}")
    why = "settings, network, normalisation, labels, members or protections are not as stated"
    return _check("contradicted", f"{text}: {why}.")


def _weigh(text: str, noticed: Sequence[str], missed: Sequence[str]) -> CheckedStatement:
    """What it says that nothing was noticed, by which other trainings would have been."""
    if noticed:
        text += f"; noticed would have been: {', '.join(noticed)}"
    if missed:
        text += f"; not noticed: {', '.join(missed)}"
    return _check("open" if missed else "holds", f"{text}.")


class _Other(NamedTuple):
    """Clients that train in another way than stated."""

    name: str
    lab: Lab
    dropped: float = 0.0  # share of what enters adapters, or the last layer
    in_whole_batches: bool = False  # the last examples of a pass, which fill no batch, are left out


def _list_others(lab: Lab) -> Iterator[_Other]:
    """Near alternatives to what is stated."""
    config, data = lab.method.config, lab.holdings.data
    yield _Other("twice the learning rate", _with_settings(lab, lr=2 * config.lr))
    if getattr(config, "optimiser", "sgd") != "sgd":
        yield _Other("SGD", _with_settings(lab, optimiser="sgd", lr=100 * config.lr))
    elif config.momentum:
        yield _Other("no momentum", _with_settings(lab, momentum=0.0, lr=config.lr / (1 - config.momentum)))
    else:
        yield _Other("momentum 0.9 at a tenth of the rate", _with_settings(lab, momentum=0.9, lr=config.lr / 10))
    if data.task.has_classes:  # nearer ones, of two classes, are for the fit of models (model_fit.py)
        train = dataclasses.replace(data.train, y=(data.train.y + 1) % len(data.classes))
        yield _Other("another order of classes", lab.holding(data=dataclasses.replace(data, train=train)))
    if not data.is_text:
        is_plain = set(data.mean) == {0.0} and set(data.std) == {1.0}
        mean, std = (0.5,) * len(data.mean), (0.5,) * len(data.std)
        other = dataclasses.replace(data, mean=mean, std=std) if is_plain else _make_plain(data)
        yield _Other(f"values from {'-1' if is_plain else '0'} to 1", lab.holding(data=other))
    yield _Other("a dropout of 0.1", lab, 0.1)


def _list_unstated(lab: Lab) -> Iterator[_Other]:
    """Trainings that no statement has a word for."""
    if any(isinstance(m, LoRALinear) for m in lab.net.modules()):
        yield from (_Other(f"a dropout of {p} of adapters", lab, p) for p in DROPPED)
    yield _Other("whole batches alone", lab, in_whole_batches=True)
    if "images" in lab.holdings.data.gives:
        data = dataclasses.replace(lab.holdings.data, augment="crop_flip")
        yield _Other("images that are cropped and flipped", lab.holding(data=data))


def _with_settings(lab: Lab, **changes: Any) -> Lab:
    settings = dataclasses.replace(lab.method.config, **changes)
    return dataclasses.replace(lab, method=type(lab.method)(settings))


def _make_plain(data: Data) -> Data:
    return dataclasses.replace(data, mean=(0.0,) * len(data.mean), std=(1.0,) * len(data.std))


class _Sent:
    """A recorded upload and what its sender had received; `lines` are those of the latter, and last its own."""

    def __init__(self, artifacts: Path, lines: Sequence[Mapping[str, Any]]) -> None:
        found = [a for x in lines for a in read_message(artifacts, x)]
        self._upload = next(a for a in found if a.kind in UPDATES)
        self._received = find_received_message(found, self._upload)
        self._message = str(lines[-1]["message"])

    def play_among(self, one: _Other, others: Sequence[_Other], plays: int) -> list[Table | None]:
        """What was recorded among plays of one, and a play of each other among the same.

        Raises ValueError where plays of one are not finite; None where the first is not.
        """
        played = [self._play(one, i) for i in range(plays)]
        if not all(map(_is_finite, played)):
            raise ValueError("training as stated does not stay finite, or a protection withholds it")
        firsts = [self._change(self._upload.payload), *(self._play(other, 0) for other in others)]
        return [_measure([first, *played]) if _is_finite(first) else None for first in firsts]

    def _play(self, other: _Other, number: int) -> Changes:
        """What this client's training changes, with draws of its own."""
        own = Streams(other.lab.holdings.streams.key("played", self._message, other.name, number))
        parts = list(other.lab.holdings.parts)
        if other.in_whole_batches:
            rows, size = parts[self._upload.sender.number], other.lab.method.config.batch_size
            fewer = own.numpy("left out").permutation(rows)[: max(size, len(rows) // size * size)]
            parts[self._upload.sender.number] = np.sort(fewer)
        played = other.lab.holding(streams=own, parts=parts)
        with _drop(played, other.dropped, own):
            sent = played.replay(self._upload, self._received)
        if sent is None:  # the wire lets nothing through that is not finite
            return NOTHING
        if self._upload.kind not in sent:
            raise ValueError(f"the stated method does not send {self._upload.kind}")
        return self._change(to_numpy(sent[self._upload.kind]))

    def _change(self, payload: Mapping[str, NDArray[np.generic]]) -> Changes:
        start, base = to_numpy(self._received[Kind.GLOBAL_MODEL]), float(self._upload.kind in TRAINED)
        names = [n for n in sorted(payload) if n in start and payload[n].dtype.kind == start[n].dtype.kind == "f"]
        return {
            n: np.asarray(payload[n], float).ravel() - base * np.asarray(start[n], float).ravel() for n in names
        }


@contextmanager
def _drop(lab: Lab, share: float, streams: Streams) -> Iterator[None]:
    """Drop a share of what enters adapters or, where there are none, the last linear layer while training."""
    if not share:
        yield
        return
    draws = streams.torch("dropped")

    def drop(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...] | None:
        if not module.training:
            return None
        kept = torch.rand(inputs[0].shape, generator=draws).to(inputs[0].device) >= share
        return (inputs[0] * kept / (1 - share), *inputs[1:])

    modules = [*lab.net.modules()]
    at = [m.lora_A for m in modules if isinstance(m, LoRALinear)]
    at = at or [m for m in modules if isinstance(m, torch.nn.Linear)][-1:]
    hooks = [m.register_forward_pre_hook(drop) for m in at]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Compared(NamedTuple):
    """How remarkable recorded changes are among plays."""

    chance: float  # of as remarkable ones, if they were plays
    words: str  # in what way


def _compare(uploads: Sequence[Table | None]) -> _Compared:
    """Whether the first change of each upload is like the others; what is not finite is not."""
    tables = [t for t in uploads if t is not None]
    if len(tables) < len(uploads):
        return _Compared(0.0, "are not finite")
    names = sorted(set[Way]().union(*tables))
    plays = len(next(iter(tables[0].values())))
    absent = np.zeros(plays)
    rows = [np.stack([t.get(n, absent) for n in names], axis=1) for t in tables]  # [plays + 1, ways]
    spread = np.sqrt(sum(r.var(0) + RESOLUTION**2 for r in rows))
    rows = [(r - r.mean(0)) / spread for r in rows]
    rng, sums = np.random.default_rng(len(names)), np.zeros((DRAWS, len(names)))
    for own in rows:
        sums += own[rng.integers(0, plays, DRAWS)]
    first = np.sum([own[0] for own in rows], axis=0)
    most = int(abs(first).argmax())
    as_much = int((abs(sums).max(1) >= abs(first[most]) - EVEN).sum())
    words = WAYS[names[most].measure][int(first[most] > 0)]
    return _Compared((1 + as_much) / (1 + DRAWS), f"{words}, most of all in {names[most].array}")


def _measure(changes: Sequence[Changes]) -> Table:
    """Of each change and array, logarithms of the mean distance to the other changes and of the length."""
    coarse, table = max(float(abs(v).max(initial=0)) for one in changes for v in one.values()), Table()
    for name in (n for n, v in changes[0].items() if v.size):
        rows = np.stack([one[name] for one in changes])
        lengths = np.linalg.norm(rows, axis=1)
        apart = np.stack([np.linalg.norm(rows - row, axis=1) for row in rows]).mean(1)
        slack = NEAR * float(lengths.max()) + FLOAT * coarse * math.sqrt(rows.shape[1]) + 1e-30
        table[Way(name, "apart")] = np.log(np.hypot(apart, slack))
        table[Way(name, "length")] = np.log(np.hypot(lengths, slack))
    return table


def _is_finite(change: Changes) -> bool:
    return all(np.isfinite(v).all() for v in change.values())


def _leaves_one(lab: Lab, examples: int) -> bool:
    """Whether one example is left over of a pass, which batch statistics take in one way or another."""
    size = int(lab.method.config.batch_size)
    return size > 1 and examples > size and examples % size == 1 and has_batch_statistics(lab.net)


def _uploads(able: Collection[int], lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Lines of uploads to play: of clients that are able to, evenly, the latest first."""
    models = {x["round"] for x in lines if carries_shared_model(x)}
    own = [
        x
        for x in lines
        if is_from_client(x) and {*UPDATES} & {*x["kinds"]} and x["round"] in models and _index(x) in able
    ]
    turn: dict[int, int] = {}
    ordered = []
    for x in sorted(own, key=lambda x: -x["round"]):
        k = _index(x)
        turn[k] = turn.get(k, 0) + 1
        ordered.append((turn[k], k, x))
    return [x for *_, x in sorted(ordered, key=lambda o: o[:2])[:MOST_UPLOADS]]


def _with_models(lines: Sequence[Mapping[str, Any]], line: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of what its sender had received in that round, and last the line."""
    of_round, to = [x for x in lines if x["round"] == line["round"]], {"client", str(line["sender"])}
    down = [x for x in of_round if x["channel"] == Channel.DOWNLINK and to & {*x["seen_by"]}]
    return [*(down or filter(carries_shared_model, of_round)), line]


def _index(line: Mapping[str, Any]) -> int:
    return int(str(Party.parse(str(line["sender"])).index))


def _check(status: str, text: str) -> CheckedStatement:
    return CheckedStatement.model_validate({"id": ID, "title": TITLE, "status": status, "text": text})
