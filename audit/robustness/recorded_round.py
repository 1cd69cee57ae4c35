"""One recorded round, to be replayed: its uploads as they came, some forged, and what a rule makes of them.

Nobody trains. What clients would have sent after a forged round is not known, so nothing is said of later rounds.
Forged uploads are made by the adversaries of a simulation, through the code that a running federation uses.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.robustness.model_test import ModelTest
from fedaudit.fl.aggregation.aggregator import MOST_BYTES, Aggregator, Averages
from fedaudit.fl.artifact import Artifact, Channel
from fedaudit.fl.clients.client import Client, Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net, head_names
from fedaudit.fl.recording.recorder import manifest, read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.adversary import Adversary, JudgedModel
from fedaudit.fl.threats.compromise import Compromise, Tampering
from fedaudit.fl.threats.rehearsal import RuleRehearsal
from fedaudit.fl.wire.check import is_finite
from fedaudit.fl.wire.protection import Message, Payload

REPLAYABLE = (Kind.LOCAL_MODEL, Kind.MODEL_DELTA)  # what becomes a model without a step of the server's own
TRAINING = ("data", "loss", "correct", "tamper", "answer")  # hooks that act where a client, or a server, works


@dataclass(frozen=True)
class RecordedRound:
    """The uploads of one round, as the server received them."""

    number: int
    start: Payload  # the model that the round began with; empty where it was not recorded
    before: Payload  # that of the round before; empty where it was not recorded
    messages: Mapping[int, Message]  # client -> what it sent
    kind: Kind  # what of it is replayed
    is_hidden: bool  # the server sees sums of them alone
    aggregation: str  # how clients are weighed, as the operator states
    test: ModelTest
    streams: Streams

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Those that were sent; none where the network is not known, and everything counts."""
        net, sent = self.test.net, self.test.sent
        return () if net is None else tuple(k for k, _ in net.named_parameters() if k in sent)

    @cached_property
    def _claim(self) -> tuple[Kind, str] | None:
        """What clients are weighed by, and its array; None: alike."""
        if self.aggregation == "uniform":
            return None
        claims = ((Kind.NUM_EXAMPLES, "count"), (Kind.NUM_STEPS, "steps"))
        return next((c for c in claims if all(c[0] in m for m in self.messages.values())), None)

    def weigh(self, reply: Reply) -> float:
        if self._claim is None:
            return 1.0
        kind, name = self._claim
        return float(reply.message[kind][name])

    @property
    def weights(self) -> dict[int, float]:
        """Client -> what it is weighed by."""
        return {k: self.weigh(Reply(message=m, examples=0)) for k, m in self.messages.items()}

    @property
    def weights_in_words(self) -> str:
        if self._claim is None:
            return "each alike"
        what = "examples" if self._claim[0] is Kind.NUM_EXAMPLES else "steps"
        return f"by the numbers of {what} that they claim"

    def begin(self, rule: Aggregator) -> Averages:
        """An aggregation of this round; a rule that remembers remembers nothing."""
        head = head_names(self.test.net) if self.test.net is not None else ()
        return Averages(rule, self.number, self.streams, parameters=self.parameters, head=head)

    def combine(self, rule: Aggregator, messages: Mapping[int, Message]) -> Payload:
        """What the rule makes of these messages: a model, or a change where clients sent changes.

        Raises UserError where the rule cannot work on them.
        """
        return self.average(self.begin(rule), messages)

    def average(self, averages: Averages, messages: Mapping[int, Message]) -> Payload:
        """The same by an aggregation of the round that has begun nothing."""
        made = averages.begin()
        start = self.start if self.kind is Kind.LOCAL_MODEL else {}
        for k in sorted(messages):
            upload = messages[k][self.kind]
            known = {n: start[n] for n in upload} if start else {}
            made.add(k, upload, self.weigh(Reply(message=messages[k], examples=0)), known)
        if not made.total > 0:
            raise UserError(f"The weights that clients claim in round {self.number} add up to nothing.")
        return made.value()

    def model(self, made: Payload) -> Payload:
        """The model that the server has after the round."""
        if self.kind is Kind.LOCAL_MODEL:
            return {**self.start, **made}
        return self.start | {
            k: (self.start[k].double() + v.double()).to(self.start[k].dtype) for k, v in made.items()
        }

    def draw_clients(self, malicious: int) -> list[int]:
        """So many of those heard, the first of one permutation: more of them contain fewer."""
        senders = sorted(self.messages)
        return [senders[i] for i in self.streams.numpy("adversary").permutation(len(senders))[:malicious]]

    def forge(
        self, adversary: Adversary, malicious: Collection[int], rule: Aggregator
    ) -> tuple[dict[int, Message], dict[str, Any]]:
        """All messages, those of the `malicious` clients forged, and what is noted of it (`sent`, `near`, ranks).

        A forged one that a server would reject is missing.

        With nobody malicious every message is the recorded one. Raises UserError for an adversary that acts where
        clients train, or forges something else.
        """
        refuse_training(adversary)
        senders = sorted(self.messages)
        compromise = Compromise(adversary, frozenset(malicious))
        kinds = [k for m in self.messages.values() for k in m]
        compromise.check("this federation", kinds, True, self.test.data.task)
        received: Message = {Kind.GLOBAL_MODEL: self.start}
        sent = [(k, Reply(message=self.messages[k], examples=0)) for k in senders]
        crafted = [
            (k, compromise.leave(self._make_client(k), reply, received) if k in compromise.clients else reply)
            for k, reply in sent
        ]
        tampering = Tampering(compromise, self._rehearse(rule), {}, lambda _: False)
        forged = {k: reply.message for k, reply in tampering.replies(crafted, lambda *_: received)}
        return {k: m for k, m in forged.items() if is_finite(m)}, dict(tampering.notes())

    def _make_client(self, index: int) -> Client:
        net = self.test.net if self.test.net is not None else _Names(self.messages[index][self.kind])
        nothing = torch.zeros(0)
        return Client(
            index=index,
            round=self.number,
            x=nothing,
            y=nothing.long(),
            classes=len(self.test.data.classes),
            message={Kind.GLOBAL_MODEL: self.start},
            memory={},
            net=net,
            streams=self.streams,
            before=self.before,
        )

    def _rehearse(self, rule: Aggregator) -> "_RoundRehearsal":
        judge = self.test.judge if self.test.examples is not None else None
        return _RoundRehearsal(averages=self.begin(rule), round=self, measure=judge)

    @cached_property
    def spread(self) -> float:
        """Root of the mean squared distance of the recorded uploads from their plain mean."""
        uploads, squares = [m[self.kind] for m in self.messages.values()], 0.0
        for name in self._name_arrays(uploads[0]):
            rows = torch.stack([u[name].double() for u in uploads])
            rows -= rows[0].clone()  # rounding of the mean of equal rows is no spread
            squares += float((rows - rows.mean(0)).square().sum())
        return math.sqrt(squares / len(uploads))

    def measure_displacement(self, made: Payload, other: Payload) -> float:
        """The distance of two aggregates in spreads of the recorded uploads.

        Raises UserError where these are all one, so that nothing is a unit.
        """
        if not self.spread:
            raise UserError(
                "All recorded uploads of the round are one and the same: there is no spread to count in"
            )
        names = self._name_arrays(made)
        far = sum(float((made[k].double() - other[k].double()).square().sum()) for k in names)
        return math.sqrt(far) / self.spread

    def _name_arrays(self, payload: Payload) -> list[str]:
        """Of the parameters; where the network is not known, of all that are no counters."""
        return [k for k, v in payload.items() if v.is_floating_point() and k in (self.parameters or payload)]


class _Names(Net):
    """What was sent, under its names: all that a forger asks of a network that nobody stated."""

    def __init__(self, arrays: Payload) -> None:
        super().__init__((), 0)
        self._arrays = {k: v for k, v in arrays.items() if v.is_floating_point()}

    def named_parameters(self, *_: Any, **__: Any) -> Any:
        return iter(self._arrays.items())


@dataclass(frozen=True, kw_only=True)
class _RoundRehearsal(RuleRehearsal):
    """What attackers try on a recorded round; the auditor's auxiliary examples stand for theirs."""

    round: RecordedRound
    measure: Callable[[Sequence[Payload]], list[JudgedModel]] | None

    @property
    def model(self) -> Payload:
        return self.round.start if self.measure is not None else {}

    def serve(self, averages: Averages, state: Tree, sent: Mapping[int, Reply]) -> tuple[Payload, Tree]:
        here, messages = self.round, {k: r.message for k, r in sent.items()}
        made = here.average(averages, messages)
        start = here.start if here.kind is Kind.LOCAL_MODEL else {}
        return {n: v.double() - start[n].double() if n in start else v for n, v in made.items()}, {}

    def judge(self, changes: Sequence[Payload]) -> list[JudgedModel]:
        assert self.measure is not None
        return self.measure([self.apply_change(c) for c in changes])

    def train(self, clients: Sequence[int], change: Payload) -> dict[int, tuple[Message, Message]]:
        raise UserError(
            "an attacker who looks rounds ahead trains, and recorded clients cannot", hint="set its ahead to 0"
        )


def refuse_training(adversary: Adversary) -> None:
    """Raises UserError for an adversary that acts where a client trains, or where a server sends."""
    for hook in TRAINING:
        if getattr(type(adversary), hook) is not getattr(Adversary, hook):
            raise UserError(
                f"{adversary.card.title} acts before an upload is made, and recorded uploads are not made again",
                hint="choose an adversary that forges what is sent, such as sign_flip or adaptive",
            )


def find_round(case: RecordedCase) -> RecordedRound:
    """The last of those rounds in which most clients were heard.

    Raises UserError where no round can be replayed: clients sent no models, sums hide them, or too few came.
    What a server would have rejected, such as a count below 0, is left out.
    """
    number, lines = _choose_round(case.artifacts)
    messages = _read_uploads(case.artifacts, number, {x["message"] for x in lines})
    models = _read_models(case.artifacts, (number - 1, number))
    start, first = models.get(number, {}), next(iter(messages.values()))
    kind = next(k for k in REPLAYABLE if k in first)
    arrays = first[kind].keys()
    fitting = all(k in start and start[k].shape == v.shape for k, v in first[kind].items())
    if kind is Kind.LOCAL_MODEL and not fitting:
        raise UserError(
            f"The model that round {number} began with was not recorded with all arrays of the uploads, in their "
            "shapes, and rules compare what clients changed."
        )
    if not any(v.is_floating_point() and v.numel() for v in first[kind].values()):
        raise UserError(
            f"Uploads of round {number} hold no numbers with a fraction, and rules work on no codes of them."
        )
    return RecordedRound(
        number,
        start,
        models.get(number - 1, {}),
        messages,
        kind,
        is_hidden=not all("server" in x["seen_by"] for x in lines),
        aggregation=case.subject.aggregation,
        test=ModelTest(case.network.make, case.data, case.examples, case.device, start, arrays),
        streams=Streams(case.streams.key("replayed round", number)),
    )


def _choose_round(artifacts: Path) -> tuple[int, list[Mapping[str, Any]]]:
    """The number of the round and the manifest's lines of its uploads, one a sender."""
    lines = [x for x in manifest(artifacts) if "message" in x and x["channel"] == Channel.UPLINK]
    replayable = [x for x in lines if {*REPLAYABLE} & {*x["kinds"]}]
    if not replayable and any(Kind.AGGREGATE in x["kinds"] for x in manifest(artifacts) if "message" in x):
        raise UserError("Sums of uploads were recorded and no upload by itself: none of them can be replaced.")
    if not replayable:
        kinds = sorted({str(k) for x in lines for k in x["kinds"]})
        raise UserError(
            f"Clients sent {', '.join(kinds) or 'nothing that was recorded'}: only models, and changes of a "
            "model, are replayed with forged ones among them."
        )
    heard: dict[int, dict[str, Mapping[str, Any]]] = {}
    for line in replayable:
        heard.setdefault(line["round"], {})[line["sender"]] = line
    most = max(len(senders) for senders in heard.values())
    chosen = max(t for t, senders in heard.items() if len(senders) == most)
    if most < 2:
        raise UserError(
            f"Of round {chosen} one upload was recorded: an attacker has nobody to hide among, and a rule "
            "nothing to choose from."
        )
    return chosen, [*heard[chosen].values()]


def _read_uploads(artifacts: Path, number: int, messages: set[str]) -> dict[int, Message]:
    """Client -> what it sent; raises UserError where no rule can compare that."""
    found: dict[int, Message] = {}
    size = 0
    for a in read(artifacts, lambda x: x["message"] in messages):
        found.setdefault(a.sender.number, {})[a.kind] = _to_tensors(a)
        size += a.size_bytes
    if size > MOST_BYTES:
        raise UserError(
            f"The uploads of round {number} are more than {MOST_BYTES >> 30} GiB, and all are needed."
        )
    found = {k: m for k, m in found.items() if is_finite(m)}
    if len(found) < 2:
        raise UserError(
            f"Of the uploads of round {number} a server accepts {len(found) or 'none'}: the others have a number "
            "that is not finite, or a count below 0 or of nothing."
        )
    sent = [(k, m[k]) for m in found.values() for k in REPLAYABLE if k in m]
    shapes = {(kind, *((n, v.shape) for n, v in sorted(arrays.items()))) for kind, arrays in sent}
    if len(shapes) > 1:
        raise UserError(f"Uploads of round {number} differ in their arrays, and a rule compares them one by one.")
    return dict(sorted(found.items()))


def _read_models(artifacts: Path, rounds: Collection[int]) -> dict[int, Payload]:
    """Round -> the shared model that it began with, where that was recorded."""
    found: dict[int, Payload] = {}
    for a in read(
        artifacts, lambda x: x["channel"] == Channel.DOWNLINK and x["round"] in rounds, (Kind.GLOBAL_MODEL,)
    ):
        found.setdefault(a.round, _to_tensors(a))
    return found


def _to_tensors(artifact: Artifact) -> Payload:
    return {k: torch.from_numpy(np.array(v)) for k, v in artifact.payload.items()}
