"""The door: each message of a client, held against the stated model and against what other clients send.

One client's odd message must not end an audit of the others, and a wrong statement must not look like an odd
client. So a message that cannot be what is stated is odd where most clients' messages can be; where most cannot,
the statement is wrong, and the import is refused. Clients vote alike, each by the share of its rounds in which it
was odd. What no statement decides, such as a count that can be none, is odd where most clients send none like it.

What the server sent is never odd: it is as stated, or the import is refused.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from fedaudit.audit.importing.layout import COUNTER, MODEL_KINDS, Layout
from fedaudit.audit.importing.message_file import NUMPY, Header, header, locate
from fedaudit.fl.artifact import Channel, Role
from fedaudit.fl.kinds import UPDATES, Kind, Tells, explain_misfit
from fedaudit.fl.recording.recorder import LARGEST, carries_shared_model, is_from_client
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.visible import visible_name

MOST_ARRAYS = 100_000  # of a message
MOST_EXAMPLES = 10**12  # of a client
LISTS = ("classes", "labels")  # arrays of classes
IN_PARTS = (Kind.UNFROZEN_LAYERS,)  # of a model, of which each client sends others
Form = frozenset[tuple[str, tuple[int, ...], str]]  # array, shape, sort of its numbers


class Oddity(Enum):
    """Ways of being odd, each decided by a vote of its own."""

    MISFIT = "not what is stated, or no message of the format"
    FORM = "other arrays than most send"
    COUNT = "no number of examples"
    EXAMPLE = "of other classes or examples than those stated"
    SENDER = "of a kind that servers send"


@dataclass(frozen=True, kw_only=True)
class Door:
    """What messages of an inbox are held against."""

    inbox: Path
    layout: Layout
    sizes: Mapping[str, int] = field(default_factory=dict)  # as stated, by the letters of fl/kinds.py: C, H, W
    noised: Collection[Kind] = ()  # kinds whose numbers are said to be noised
    arrays: int = MOST_ARRAYS

    def judge(self, lines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
        """Message -> what is odd about it, in a sentence; of those alone that are odd.

        `lines` are those of the inbox's manifest. Raises UserError for what the server sent and is not as stated,
        where most clients' messages are not, and for a file that no recorder leaves.
        """
        votes, forms, updates = _Votes(), _Forms(self.layout), _Updates()
        for line in (x for x in lines if "message" in x):
            found = header(locate(self.inbox, str(line["message"])))
            if not is_from_client(line):
                self._check(line, found)
                updates.add(line)
                continue
            sent = _Sent.of(line)
            votes.hear(sent)
            try:
                shapes = self._check(line, found)
            except UserError as misfit:
                votes.add(sent, Oddity.MISFIT, misfit)
                continue
            updates.add(line)
            forms.add(sent, shapes)
            for oddity, text in self._find_oddities(line, shapes):
                votes.add(sent, oddity, UserError(text))
        for sent, error in updates.find_doubled():
            votes.add(sent, Oddity.MISFIT, error)
        for sent, text in forms.find_odd():
            votes.add(sent, Oddity.FORM, UserError(f"{sent.message}/{text}"))
        return votes.count()

    def settle(self, line: Mapping[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
        """The arrays as later readers find them; raises UserError where they are not those of their kinds."""
        settled = self.layout.settle(str(line["message"]), arrays, str(line["sender"]))
        for kind in self._list_kinds(line, settled):
            if problem := explain_misfit(kind, _shapes_of(settled, kind)):
                raise UserError(
                    f"{line['message']}: {kind} {problem}",
                    hint="`fedaudit tools list messages` prints the arrays of each kind",
                )
        return settled

    def _check(self, line: Mapping[str, Any], found: Header) -> dict[str, Any]:
        """Arrays of no numbers in the form in which later readers find them.

        Raises UserError where they cannot be what is stated.
        """
        message, kinds = str(line["message"]), line["kinds"]
        if unknown := [k for k in kinds if not is_known(k)]:
            raise UserError(
                f"{message}: {unknown[0]!r:.60} is no kind: one of your own is WHOSE:ROLE, such as "
                "client:optimizer",
                hint="`fedaudit tools list messages` prints the kinds",
            )
        if len(found) > self.arrays:
            raise UserError(f"{message} has {len(found):,} arrays", hint=f"at most {self.arrays:,} in a message")
        for name, (dtype, _) in found.items():
            kind, _, part = name.partition("/")
            if kind not in kinds or not part or visible_name(part) != part or len(part) > 300:
                raise UserError(
                    f"{message} holds {name!r:.80}, which its line does not list",
                    hint="arrays are named kind/name, with kind in the line's kinds",
                )
            if dtype not in NUMPY:
                raise UserError(
                    f"{message}: array {name!r:.60} has type {dtype!r:.20}; send float32 or float16",
                    hint="write it with safetensors",
                )
        named = line.get("filters", [])
        if not isinstance(named, list) or not all(isinstance(f, str) and _is_name(f) for f in named):
            raise UserError(
                f"{message}: filters is no list of names, such as ExcludeVars", hint="docs/artifact-format.md"
            )
        bare = {n: np.broadcast_to(np.zeros((), NUMPY[dtype]), shape) for n, (dtype, shape) in found.items()}
        shapes = self.settle(line, bare)
        for key, value in shapes.items():
            kind, _, name = key.partition("/")
            if kind in MODEL_KINDS:
                self._check_array(f"{message}/{kind}", name, value.shape)
        return shapes

    def _check_array(self, where: str, name: str, shape: tuple[int, ...]) -> None:
        own = self.layout.network
        if own and own.get(name) != shape:
            has = (
                f"{list(own[name])} there" if name in own else f"unknown to it; it has {', '.join(list(own)[:4])}"
            )
            raise UserError(
                f"{where} holds {name!r:.80} {list(shape)}, and subject.model: {has}",
                hint="state the network that was trained; arrays are named as in its state_dict()",
                key="subject.model",
            )

    def _find_oddities(self, line: Mapping[str, Any], shapes: Mapping[str, Any]) -> Iterator[tuple[Oddity, str]]:
        """Ways in which a client's message that is as stated may be odd all the same."""
        if not shapes:
            yield Oddity.FORM, f"{line['message']} holds no array"
        for kind in self._list_kinds(line, shapes):
            own, where = _shapes_of(shapes, kind), f"{line['message']}/{kind}"
            if kind in MODEL_KINDS and not own:
                yield Oddity.FORM, f"{where} holds no array"
            if line["channel"] == Channel.UPLINK and kind.tells is Tells.CLIENTS and not kind.open:
                yield Oddity.SENDER, f"{where} is what a server sends, and a client sent it"
            if own and (problem := explain_misfit(kind, own, self.sizes)):
                stated = ", ".join(f"{letter} = {size:,}" for letter, size in self.sizes.items())
                yield Oddity.EXAMPLE, f"{where} {problem}; stated are {stated}"
            if kind.counted and kind not in self.noised:
                counts = self._read(line, f"{kind}/{kind.counted}")
                if (bad := counts[(counts < 0) | (counts != np.floor(counts)) | (counts > MOST_EXAMPLES)]).size:
                    yield (Oddity.COUNT, f"{where} says {bad[0]:g} in {kind.counted!r}: no number of examples")
            classes = self.sizes.get("C", 0)
            for name in (n for n in LISTS if n in own and classes and not kind.open):
                named = self._read(line, f"{kind}/{name}")
                if (bad := named[(named < 0) | (named >= classes)]).size:
                    yield Oddity.EXAMPLE, f"{where} names class {bad[0]:g}; {classes} classes are stated"

    def _list_kinds(self, line: Mapping[str, Any], settled: Iterable[str]) -> list[Kind]:
        """Those that a message names, as they are read, and those of its arrays."""
        named = (self.layout.name_kind(k, str(line["sender"])) for k in line["kinds"])
        return [*map(Kind, dict.fromkeys([*named, *_kinds_of(settled)]))]

    def _read(self, line: Mapping[str, Any], key: str) -> NDArray[np.float64]:
        """The finite numbers of an array, one after the other; none where the file has no such array."""
        values = np.zeros(0)
        with suppress(SafetensorError), safe_open(locate(self.inbox, str(line["message"])), "numpy") as file:
            if key in [*file.keys()]:
                values = np.asarray(file.get_tensor(key), np.float64).ravel()
        return values[np.isfinite(values)]


class _Sent(NamedTuple):
    """A message of a client."""

    message: str
    sender: str
    round: int

    @classmethod
    def of(cls, line: Mapping[str, Any]) -> "_Sent":
        return cls(str(line["message"]), str(line["sender"]), int(line["round"]))


class _Votes:
    """Which messages are odd, and whether most clients' are."""

    def __init__(self) -> None:
        self._heard: dict[str, set[int]] = defaultdict(set)  # client -> rounds
        self._odd: dict[Oddity, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
        self._errors: dict[Oddity, dict[str, UserError]] = defaultdict(dict)  # by message

    def hear(self, sent: _Sent) -> None:
        self._heard[sent.sender].add(sent.round)

    def add(self, sent: _Sent, oddity: Oddity, error: UserError) -> None:
        self._odd[oddity][sent.sender].add(sent.round)
        self._errors[oddity].setdefault(sent.message, error)

    def count(self) -> dict[str, str]:
        """Message -> what is odd; raises UserError where the statement is wrong and not a few clients."""
        found: dict[str, str] = {}
        for oddity, errors in self._errors.items():
            shares = [len(rounds) / len(self._heard[sender]) for sender, rounds in self._odd[oddity].items()]
            if 2 * sum(shares) <= len(self._heard):
                found = {message: error.sentence for message, error in errors.items()} | found
            elif oddity is Oddity.MISFIT:
                raise next(iter(errors.values()))
        return found


class _Updates:
    """Updates of one round of a client that was sent several models: which began with which nobody can tell."""

    def __init__(self) -> None:
        self._models: dict[tuple[int, str], set[str]] = defaultdict(set)  # round, reader
        self._sends: dict[tuple[int, str], list[_Sent]] = defaultdict(list)

    def add(self, line: Mapping[str, Any]) -> None:
        if carries_shared_model(line):
            for reader in line["seen_by"]:
                self._models[line["round"], reader].add(str(line["sha256"]))
        elif {*UPDATES} & {*line["kinds"]}:
            self._sends[line["round"], line["sender"]].append(_Sent.of(line))

    def find_doubled(self) -> Iterator[tuple[_Sent, UserError]]:
        for (round, sender), sends in self._sends.items():
            models = self._models[round, sender] | self._models[round, str(Role.CLIENT)]
            if len(models) > 1 and len(sends) > 1:
                error = UserError(
                    f"in round {round} {sender} was sent {len(models)} different models and sent {len(sends)} "
                    "updates: rounds that were not told apart, or a server that began again",
                    hint="record the round of each message, as `fedaudit tools recorder` does, each run apart",
                )
                yield from ((sent, error) for sent in sends)


class _Forms:
    """Which arrays clients send of each kind of model or features, whether or not a network is stated."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._sent: dict[Kind, dict[Form, list[_Sent]]] = defaultdict(lambda: defaultdict(list))

    def add(self, sent: _Sent, shapes: Mapping[str, NDArray[Any]]) -> None:
        for kind in map(Kind, _kinds_of(shapes)):
            arrays = _arrays_of(shapes, kind)
            if kind in MODEL_KINDS:
                form = frozenset((n, v.shape, self._sort(n, v)) for n, v in arrays.items())
            else:  # rows of features are as many as a client likes, and as long as the others'
                rows = (n for n, shape in kind.arrays.items() if shape.endswith(" D]") and n in arrays)
                form = frozenset((n, arrays[n].shape[-1:], self._sort(n, arrays[n])) for n in rows)
            if form or kind in MODEL_KINDS:
                self._sent[kind][form].append(sent)

    def find_odd(self) -> Iterator[tuple[_Sent, str]]:
        """Messages with arrays that differ from most clients', and what differs."""
        for kind, forms in self._sent.items():
            clients = {form: {one.sender for one in sent} for form, sent in forms.items()}
            usual = max(clients, key=lambda form: len(clients[form]))
            if 2 * len(clients[usual]) <= len(set[str]().union(*clients.values())):
                continue  # most clients agree on nothing
            senders: dict[str, set[str]] = defaultdict(set)  # of each array
            for form, of in clients.items():
                for name, *_ in form:
                    senders[name] |= of
            for form, sent in forms.items():
                if form != usual and (text := self._explain(kind, form, usual, senders, len(clients[form]))):
                    yield from ((one, text) for one in sent)

    def _explain(self, kind: Kind, form: Form, usual: Form, senders: Mapping[str, set[str]], clients: int) -> str:
        """How a form that so many clients send differs from the usual one; empty where that is not odd."""
        known = {name: (shape, sort) for name, shape, sort in usual}
        for name, shape, sort in sorted(form):
            if name not in known and len(senders[name]) == 1 and name not in self._layout.shared:
                return f"{kind} holds {name!r:.80} {list(shape)}, which nobody else sends"
            if known.get(name, (shape, sort)) != (shape, sort):
                theirs = f"{list(known[name][0])} of {known[name][1]}"
                return f"{kind} holds {name!r:.80} {list(shape)} of {sort}, and most clients send {theirs}"
        lacking = sorted(known.keys() - {name for name, *_ in form})
        if lacking and clients == 1 and kind not in IN_PARTS:
            return f"{kind} lacks {lacking[0]!r:.80}, which most clients send"
        return ""

    def _sort(self, name: str, value: NDArray[Any]) -> str:
        is_counter = name.endswith(COUNTER) or name in self._layout.integers
        return "numbers" if is_counter or value.dtype.kind == "f" else "whole numbers"


def is_known(kind: object) -> bool:
    """Whether a kind is one of the format's, or an open one."""
    with suppress(ValueError):
        return bool(Kind(kind))
    return False


def find_unfit(arrays: Mapping[str, NDArray[Any]], *, of_client: bool) -> str:
    """The first array with a number that nothing can be computed with, and what it holds; empty without any."""
    for name, values in sorted(arrays.items()):
        if values.dtype.kind not in "fc" or not values.size:
            continue
        if not np.isfinite(values).all():
            return f"{name} holds NaN or infinity"
        if of_client and (most := float(np.abs(values).max())) > LARGEST:
            return f"{name} holds {most:.3g}, and no more than {LARGEST:.2g} has a square of 32 bits"
    return ""


def _kinds_of(arrays: Iterable[str]) -> list[str]:
    return [*dict.fromkeys(key.partition("/")[0] for key in arrays)]


def _arrays_of(arrays: Mapping[str, NDArray[Any]], kind: str) -> dict[str, NDArray[Any]]:
    return {key.partition("/")[2]: a for key, a in arrays.items() if key.startswith(f"{kind}/")}


def _shapes_of(arrays: Mapping[str, NDArray[Any]], kind: str) -> dict[str, tuple[int, ...]]:
    return {name: a.shape for name, a in _arrays_of(arrays, kind).items()}


def _is_name(text: str) -> bool:
    return 0 < len(text) <= 200 and visible_name(text) == text
