"""Names and types of a model's arrays, brought to those of its network.

Frameworks send what a network's `state_dict()` holds under other names or types: by position ("0", "1", ...),
with kernels whose axes stand as in Keras, below a wrapper's prefix ("module."), or with counters of batches
that a server's mean made floating-point numbers. Only what leaves no doubt is changed, in the run's own copy of
the messages, and every change is reported.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedaudit.audit.importing.message_file import Header
from fedaudit.fl.artifact import Role
from fedaudit.fl.kinds import MODEL, UPDATES, Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt

COUNTER = "num_batches_tracked"
ADAPTER = re.compile(r"(lora_\w+)\.\w+(\.weight|\.bias|$)")  # layer, the adapter's own name, parameter
Shapes = Mapping[str, tuple[int, ...]]
MODEL_KINDS = frozenset(k for k in Kind if dict(k.arrays) == MODEL)


def drop_adapter(name: str) -> str:
    """A parameter's name as peft sends it: lora_A.weight of lora_A.default.weight."""
    return ADAPTER.sub(r"\1\2", name)


def _take(message: str, kind: str, own: Mapping[str, Any], name: str, axes: int) -> Any:
    """An array of so many axes; raises UserError where there is none."""
    if name in own and np.ndim(own[name]) == axes:
        return own[name]
    has = f"of shape {list(np.shape(own[name]))}" if name in own else "not there"
    raise UserError(
        f"{message}: {name!r:.80} of {kind} is {has}, and subject.prototypes states an array of "
        f"{fmt.plural(axes, 'axis', 'axes')}",
        hint=f"it has {', '.join(f'{n} {list(np.shape(v))}' for n, v in sorted(own.items()))[:200]}",
        key="subject.prototypes",
    )


@dataclass
class Layout:
    """How the arrays of one inbox become those of `network`: name -> shape, in its order; empty: not stated."""

    network: Shapes = field(default_factory=dict)
    shared: dict[str, bool] = field(default_factory=dict)  # array of the first shared model -> is of integers
    integers: set[str] = field(default_factory=set)  # arrays that are integers
    changes: dict[str, int] = field(default_factory=dict)  # what was changed, in words -> messages
    # open kind that is stated to be prototypes -> its arrays with features, labels and counts, if there are any
    prototypes: Mapping[str, Sequence[str]] = field(default_factory=dict)
    tied: Mapping[str, str] = field(default_factory=dict)  # array -> the one of which it is another name

    def learn_types(self, sent: Iterable[tuple[str, Header]]) -> None:
        """Note which arrays are integers, in the first shared model or at most clients, of (sender, header)."""
        seen: dict[str, dict[str, bool]] = defaultdict(dict)  # array -> client -> whether it ever sent integers
        for sender, header in sent:
            for key, (kind_of_number, _) in header.items():
                kind, _, name = key.partition("/")
                is_integer = kind_of_number[0] in "IU"
                if kind == Kind.GLOBAL_MODEL and sender == Role.SERVER:
                    self.shared.setdefault(name, is_integer)
                elif kind in MODEL_KINDS:
                    seen[name][sender] = is_integer or seen[name].get(sender, False)
        found = {n: 2 * sum(of.values()) > len(of) for n, of in seen.items()} | self.shared
        self.integers = {name for name, is_integer in found.items() if is_integer}

    def settle(self, message: str, arrays: dict[str, Any], sender: str = "client") -> dict[str, Any]:
        """The arrays of a message as the network has them; the same dict where nothing is to be changed.

        Raises UserError where positions do not fit it, weights are whole numbers, or arrays that are stated to be
        prototypes are none.
        """
        for key, array in arrays.items():
            kind, _, name = key.partition("/")
            is_weight = self.shared.get(name) is False and not name.endswith(COUNTER)
            if kind in UPDATES and is_weight and array.dtype.kind in "biu":
                raise UserError(
                    f"{message}: {name!r:.80} of its {kind} is of whole numbers, that of the shared model not",
                    hint="record what the server makes of compressed or masked uploads, or name them as what "
                    "they are, such as client:masked_upload",
                )
        settled = self._settle_prototypes(message, arrays, sender)
        for key, array in arrays.items():
            kind, _, name = key.partition("/")
            if kind not in MODEL_KINDS and Kind(kind).arrays.get(name) == "[]" and array.shape == (1,):
                settled[key] = np.asarray(array).reshape(())  # a list of one number
        for kind in MODEL_KINDS & {key.partition("/")[0] for key in arrays}:
            own = {key.partition("/")[2]: a for key, a in arrays.items() if key.startswith(f"{kind}/")}
            for name in own:
                del settled[f"{kind}/{name}"]
            own = self._turn(own)
            names = self._name(message, own)
            settled |= {f"{kind}/{names[name]}": self._cast(name, names[name], a) for name, a in own.items()}
            for pair in self.tied.items():
                there = [name for name in pair if f"{kind}/{name}" in settled]
                if len(there) == 1:
                    settled |= {f"{kind}/{name}": settled[f"{kind}/{there[0]}"] for name in pair}
                    self._count("an array that the network has under two names, under both")
        if settled.keys() == arrays.keys() and all(settled[key] is arrays[key] for key in settled):
            return arrays
        return settled

    def name_kind(self, kind: str, sender: str) -> str:
        """The kind that an open one is read as, where its operator stated what its arrays are."""
        if kind not in self.prototypes:
            return kind
        own = Kind.GLOBAL_PROTOTYPES if sender == Role.SERVER else Kind.LOCAL_PROTOTYPES
        return own.value

    def _settle_prototypes(self, message: str, arrays: Mapping[str, Any], sender: str) -> dict[str, Any]:
        """Rows of features by class under the names of prototypes; what else stands beside them stays.

        Raises UserError where a stated array is not there, or its rows are not those of the others.
        """
        settled = dict(arrays)
        for kind, names in self.prototypes.items():
            of_features, of_labels, of_counts = (*names, "", "")[:3]
            own = {k.partition("/")[2]: v for k, v in arrays.items() if k.startswith(f"{kind}/")}
            if not own:
                continue
            rows = _take(message, kind, own, of_features, 2)
            labels = np.arange(len(rows)) if not of_labels else _take(message, kind, own, of_labels, 1)
            counts = _take(message, kind, own, of_counts, 1) if of_counts else None
            if any(v is not None and len(v) != len(rows) for v in (labels, counts)):
                raise UserError(
                    f"{message}: {kind} has {len(rows)} rows of features and another number of labels or counts",
                    hint="each row is of one class",
                    key="subject.prototypes",
                )
            for name in {of_features, of_labels, of_counts} - {""}:
                del settled[f"{kind}/{name}"]
            read_as = self.name_kind(kind, sender)
            settled |= {f"{read_as}/classes": labels.astype(np.int64), f"{read_as}/features": rows}
            if counts is not None:
                settled |= {
                    f"{Kind.PROTO_COUNTS}/classes": labels.astype(np.int64),
                    f"{Kind.PROTO_COUNTS}/counts": counts.astype(np.int64),
                }
            self._count(f"{kind} read as {read_as}, as its operator states of its arrays")
        return settled

    def describe(self) -> list[str]:
        """A sentence for every change that was made."""
        return [f"{fmt.plural(n, 'message')}: {words}." for words, n in self.changes.items()]

    def _name(self, message: str, own: Mapping[str, Any]) -> dict[str, str]:
        """Name in the message -> name in the network."""
        same = {name: name for name in own}
        if not self.network or own.keys() <= self.network.keys():
            return same
        if own.keys() == {str(i) for i in range(len(own))}:
            return self._name_by_position(message, own)
        plain = {name: drop_adapter(name) for name in self.network}
        adapters = {short: name for name, short in plain.items() if short != name}
        if adapters:
            found = self._name_below_prefix(own, {**{n: n for n in plain.values()}, **adapters})
            if found:
                return found
        found = self._name_below_prefix(own, {n: n for n in self.network})
        return found or same

    def _name_below_prefix(self, own: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, str]:
        """Names without a prefix that all share, as `known` says them; empty where one is not known.

        `known`: name as it may be sent -> name in the network.
        """
        if own.keys() <= known.keys():
            self._count("names of an adapter's arrays without the adapter's own name")
            return {name: known[name] for name in own}
        first = next(iter(own)).split(".")
        for i in range(1, len(first)):
            prefix = ".".join(first[:i]) + "."
            short = {name: name.removeprefix(prefix) for name in own}
            if all(n.startswith(prefix) for n in own) and set(short.values()) <= known.keys():
                self._count(f"names of arrays without {prefix!r:.60}, as the stated network has them")
                return {name: known[n] for name, n in short.items()}
        return {}

    def _order(self, own: Mapping[str, Any]) -> list[str]:
        """Names in the network of arrays "0", "1", ...; empty where their shapes are not those there."""
        shapes = [np.shape(own[str(i)]) for i in range(len(own))]
        without_counters = [n for n in self.network if not n.endswith(COUNTER)]
        orders = ([*self.network], without_counters)
        return next((names for names in orders if [self.network[n] for n in names] == shapes), [])

    def _turn(self, own: dict[str, Any]) -> dict[str, Any]:
        """Kernels [..., inputs, outputs] as [outputs, inputs, ...], where arrays by position fit only so."""
        if own.keys() != {str(i) for i in range(len(own))} or self._order(own):
            return own
        turned = {
            n: np.ascontiguousarray(np.moveaxis(a, (-1, -2), (0, 1))) if np.ndim(a) > 1 else a
            for n, a in own.items()
        }
        if not self._order(turned):
            return own
        self._count("kernels [..., inputs, outputs], as Keras has them, turned to those of the stated network")
        return turned

    def _name_by_position(self, message: str, own: Mapping[str, Any]) -> dict[str, str]:
        if names := self._order(own):
            self._count("arrays numbered by position, read in the order of the stated network's state_dict()")
            return {str(i): name for i, name in enumerate(names)}
        shapes = [np.shape(own[str(i)]) for i in range(len(own))]
        there = [*self.network.items()]
        alike = [a == b for a, (_, b) in zip(shapes, there, strict=False)]
        wrong = alike.index(False) if False in alike else len(alike)
        said = f"array {wrong} is {list(shapes[wrong])}" if wrong < len(shapes) else f"there are {wrong}"
        has = f"{there[wrong][0]!r} {list(there[wrong][1])} there" if wrong < len(there) else "nothing there"
        raise UserError(
            f"{message} numbers its arrays by position: {said}, and the stated network has {has}",
            hint="record all of state_dict() in its order, or with names: dict(zip(net.state_dict(), arrays))",
            key="subject.model",
        )

    def _cast(self, before: str, name: str, array: Any) -> Any:
        """A counter as integers; a scalar of a framework that gives every array an axis without it."""
        if self.network and name in self.network and self.network[name] == () and np.shape(array) == (1,):
            array = np.asarray(array).reshape(())
        if (name.endswith(COUNTER) or {before, name} & self.integers) and array.dtype.kind == "f":
            self._count("counters that a mean made floating-point numbers, as whole numbers")
            return np.asarray(np.rint(array), np.int64)
        return array

    def _count(self, words: str) -> None:
        self.changes[words] = self.changes.get(words, 0) + 1
