"""Claimed counts held against updates: a leak that also names the clients that lie.

The last layer of an update tells which classes a client trained on
(attacks/updates/label_counts_from_update.py), and what the client claims tells how many examples it has, or
even of each class. Both cannot be true where the update is unlike those of honest clients that hold what is
claimed. The server can make such clients of images of its own: as many as are claimed, of the classes that
are claimed or, where only a number is, that the attack reads off the update. Compared are the two changes of
the last layer: how far apart they are, over the length of the longer, and how much of the honest one the
client's shows (its projection). Clients that inflate counts show less than they should, free riders nothing,
and those that train on false labels are far away.

The error that the check makes by itself is known: honest clients made of the same images go through all of it,
the reading of their classes included, one that holds what is claimed beside each claim, and some others, half
of them with skewed classes. A claim is contradicted where it is SAFETY times as far away as the farthest of
these, or shows less than the least of them over SAFETY. Lies planted in such a client must be seen: a count
times ten, false labels, no work. A free rider that sends the last change of the shared model with noise claims
nothing that its last layer contradicts; audit/robustness/copied_changes.py knows it by its noise.

The idea of finding free riders by inference attacks is that of Recasens et al., FRIDA, arXiv:2410.05020.
"""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Knowledge
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.prototypes._weights import sent_with, uploads
from fedaudit.attacks.updates._head import HeadUpdate, head_names, head_updates
from fedaudit.attacks.updates.label_counts_from_update import LabelCountsFromUpdate
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import messages
from fedaudit.audit.controls.effort import READ, VISITS, PlayedClients
from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.audit.observer.view import grant_knowledge
from fedaudit.audit.robustness.copied_changes import LastChanges, is_copy
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import SERVER, Artifact
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.side_by_side import collect
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.tree import to_numpy
from fedaudit.reports.robustness import CheckedCount, CheckedCounts

CLAIMS = (Kind.NUM_EXAMPLES, Kind.PROTO_COUNTS, Kind.LABEL_COUNTS)
COSTLY = {Kind.CONDENSED_IMAGES, Kind.GAN_G, Kind.GAN_D}  # whose makers do far more than train
PROBES = 6
SKEW = 0.3  # of their classes: Dirichlet
REPLAYS = 3  # honest clients beside each claim
SAFETY = 1.5
LARGEST = 5  # a claim is played as at most so many times the usual one
INFLATED = 10
FEWEST = 16  # examples, below which one client says too little
MOST = 200_000  # examples trained on in all, epochs counted
FREE_RIDING, FLIPPED, INFLATION = "a free rider", "false labels", "counts times ten"

Values = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class ClaimedUpload:
    """What came from one client: its update's last layer and what it claims to hold."""

    upload: Artifact
    head: HeadUpdate
    total: float
    mix: Values | None  # [C] shares that it claims; None: it claims a number alone


def check_claimed_counts(case: Case, attack: LabelCountsFromUpdate) -> CheckedCounts:
    """Every client's latest claim beside its update."""
    if case.artifacts is None:
        return CheckedCounts(reason="no message was recorded")
    read = {*attack.card.reads, *CLAIMS, *case.card.downlink, *case.card.uplink}
    recorded = index(messages(case.artifacts, read, "latest"))
    knowledge, lab = grant_knowledge(case, attack.card), Lab.from_case(case)
    claims = read_claims(recorded, knowledge) if knowledge.architecture else []
    if not claims:
        return CheckedCounts(reason="no client sends its last layer together with a count of examples")
    if not len(case.examples.auxiliary):
        return CheckedCounts(
            reason="the auditor has no examples to make honest clients of (federation.holdout.auxiliary is 0)"
        )
    if lab is None or COSTLY & set(case.card.uplink):
        return CheckedCounts(reason=f"clients of {case.card.title} cannot be played, or do far more than train")
    changes = LastChanges.from_broadcasts(messages(case.artifacts, [Kind.GLOBAL_MODEL], "all"))
    return CountBench(
        case.data, case.examples.auxiliary, case.streams, lab, recorded, knowledge, attack, changes
    ).check(claims)


def count_steps(clients: PlayedClients, settings: Replay, training: LocalConfig) -> dict[int, int]:  # noqa: ARG001
    """Batch size -> steps that honest clients are played for, and classes are read off updates, about."""
    usual, visits = clients.median_size, 2 * REPLAYS + 1  # for a claim, and for its twin
    if usual < FEWEST or not clients.auxiliary:
        return {}
    beside = PROBES * (1 + REPLAYS) + 3
    played = usual * (beside + visits * (2 + LARGEST + len(clients)))
    read = clients.auxiliary * LabelCountsFromUpdate.Config().points * (PROBES + 2 * (3 + len(clients)))
    batch = min(training.batch_size, usual)
    steps = Counter({batch: min(MOST, played * training.local_epochs) // batch})
    steps += Counter({clients.auxiliary: read // READ // clients.auxiliary})
    return steps + Counter({VISITS: beside + visits * (3 + len(clients))})


def read_claims(recorded: Sequence[Artifact], knowledge: Knowledge) -> list[ClaimedUpload]:
    """One for each client's latest upload that has the last layer and comes with a count."""
    recorded = index(recorded)
    heads = {u.artifact: u for u in head_updates(recorded, knowledge)}
    latest: dict[int, ClaimedUpload] = {}
    for a in uploads(recorded, knowledge.training):
        total, mix = read_count(a, recorded, knowledge.classes)
        if a.id in heads and total is not None:
            known = latest.get(a.sender.number)
            if known is None or known.upload.round < a.round:
                latest[a.sender.number] = ClaimedUpload(a, heads[a.id], total, mix)
    return [latest[k] for k in sorted(latest)]


def read_count(upload: Artifact, view: Sequence[Artifact], classes: int) -> tuple[float | None, Values | None]:
    """(examples, [C] shares of classes) that came with an upload; None for what did not."""
    view = index(view)
    number = sent_with(upload, Kind.NUM_EXAMPLES, view)
    total = None if number is None else float(number.payload["count"])
    for kind in (Kind.LABEL_COUNTS, Kind.PROTO_COUNTS):
        if (sent := sent_with(upload, kind, view)) is None:
            continue
        counts = np.asarray(sent.payload["counts"], np.float64)
        of = np.asarray(sent.payload.get("classes", np.arange(len(counts))), np.int64)
        by_class = np.zeros(classes)
        by_class[of] = counts
        whole = float(by_class.sum())
        total = whole if total is None else total
        return total, by_class / whole if np.isfinite(whole) and whole > 0 and (by_class >= 0).all() else None
    return total, None


@dataclass(frozen=True)
class CountBench:
    """Honest clients of the auditor's own, made of `rows` of the data."""

    data: Data
    rows: Index
    streams: Streams
    lab: Lab
    recorded: Sequence[Artifact]
    knowledge: Knowledge
    attack: LabelCountsFromUpdate
    changes: LastChanges

    def check(self, claims: Sequence[ClaimedUpload]) -> CheckedCounts:
        """Probes, planted lies, then every claim for which there is time."""
        sizes = [c.total for c in claims if np.isfinite(c.total) and c.total >= FEWEST]
        if not sizes:
            return CheckedCounts(reason=f"no client claims {FEWEST} examples or more")
        usual = float(np.median(sizes))
        each = REPLAYS * int(self.lab.method.config.local_epochs)
        left = MOST - each * usual * (2 * PROBES + 2 * LARGEST + 4)
        if left < 0:
            return CheckedCounts(reason="clients hold so many examples that playing honest ones takes too long")
        like = claims[0].upload
        if self._train_reply(like, self.rows[:FEWEST], "memory").memory is not None:
            return CheckedCounts(
                reason="clients remember what they did in earlier rounds, and honest ones of the auditor do not"
            )
        rng = self.streams.numpy("claimed_counts")
        mixes = rng.dirichlet(np.full(self.knowledge.classes, SKEW), PROBES)
        mixes[::2] = self._compute_prior()
        numbers = np.quantile(np.minimum(sizes, usual), np.linspace(0, 1, PROBES)).round().astype(int)

        def probe(i: int) -> ClaimedUpload | None:
            return self._play_visit(like, self._draw_rows(int(numbers[i]), mixes[i], f"probe {i}"), f"probe {i}")

        probes = [p for p in collect(range(PROBES), probe) if p is not None]
        if len(probes) < PROBES:
            return CheckedCounts(reason="a protection withholds the update of an honest client")
        honest = collect(
            range(PROBES),
            lambda i: self._check_claim(probes[i], self._choose_mix(probes[i]), f"probe {i}", usual),
        )
        trained = [self.changes.measure(p.upload) for p in probes]
        blind, even = self._test_copies(like, trained), [e for e in trained if e is not None]
        worst, least = max(h.distance for h in honest), max(0.0, min(h.shown for h in honest))

        def judge(named: tuple[str, ClaimedUpload]) -> CheckedCount:
            name, claim = named
            mix = self._choose_mix(claim)
            checked, twin = (check(claim, mix, name, usual) for check in (self._check_claim, self._check_twin))
            is_far = checked.distance > SAFETY * max(worst, twin.distance)
            is_little = checked.shown < max(0.0, min(least, twin.shown)) / SAFETY
            is_copied = not blind and is_copy(self.changes.measure(claim.upload), even)
            is_contradicted = is_far or is_little or is_copied
            return checked.model_copy(update={"contradicted": is_contradicted, "copied": is_copied})

        lies = self._make_lies(like, int(numbers[-1]), mixes[-1])
        seen = zip(lies, collect(lies.items(), judge), strict=True)
        missed = [name for name, found in seen if not found.contradicted]
        able = list[tuple[str, ClaimedUpload]]()
        for claim in (c for c in claims if not c.total < FEWEST):
            left -= each * 2 * self._choose_number(claim, usual)
            if left < 0:
                break
            able.append((f"client {claim.upload.sender.index}", claim))
        judged = collect(able, judge)
        return CheckedCounts(
            probes=len(honest),
            worst=worst,
            least=least,
            bound=SAFETY * worst,
            floor=least / SAFETY,
            missed=missed,
            planted=len(lies),
            clients=judged,
            left_out=len(claims) - len(judged),
            blind_to_copies=blind,
        )

    def _test_copies(self, like: Artifact, trained: Sequence[float | None]) -> str:
        """Why a free rider with the last change and noise would not be seen; empty where a planted one is."""
        forged = self.changes.forge(like, 1.0, self.streams.numpy("claimed_counts", "copies"))
        planted = None if forged is None else self.changes.measure(dataclasses.replace(like, payload=forged))
        if planted is None or None in trained:
            return "the shared models of two rounds in a row, and clients' models, were not recorded"
        if not is_copy(planted, [e for e in trained if e is not None]):
            return "what honest clients send looks like noise as well"
        return ""

    def _make_lies(self, like: Artifact, n: int, mix: Values) -> dict[str, ClaimedUpload]:
        """Claims that are false, of one client of the auditor's."""
        rows, train = self._draw_rows(n, mix, "lies"), self.data.train
        flipped = dataclasses.replace(
            self.data, train=dataclasses.replace(train, y=self.knowledge.classes - 1 - train.y)
        )
        honest = self._play_visit(like, rows, "lies")
        assert honest is not None
        lies = {
            INFLATION: self._play_visit(like, rows, "lies", factor=INFLATED),
            FLIPPED: self._play_visit(like, rows, "lies", data=flipped),
            FREE_RIDING: dataclasses.replace(honest, head=make_idle(honest.head)),
        }
        return {name: lie for name, lie in lies.items() if lie is not None}

    def _check_claim(self, claim: ClaimedUpload, mix: Values, name: str, usual: float) -> CheckedCount:
        """A claim beside honest clients that hold as many examples, with these shares of classes."""
        number = self._choose_number(claim, usual)
        rows = [self._draw_rows(number, mix, "beside", name, j) for j in range(REPLAYS)]
        played = [self._play_visit(claim.upload, r, "beside", name, j) for j, r in enumerate(rows)]
        honest = np.mean([self._measure_change(p.head) for p in played if p is not None], axis=0)
        own, length = self._measure_change(claim.head), float(np.linalg.norm(honest))
        size = float(np.linalg.norm(own))
        return CheckedCount(
            client=claim.upload.sender.number,
            claimed=claim.total,
            distance=float(np.linalg.norm(own - honest)) / max(size, length) if length else 0.0,
            length=size / length if length else 1.0,
            likeness=float(own @ honest) / (size * length) if size * length else 0.0,
            contradicted=False,
        )

    def _check_twin(self, claim: ClaimedUpload, mix: Values, name: str, usual: float) -> CheckedCount:
        """An honest client that holds what a claim says, held against others like any client."""
        rows = self._draw_rows(self._choose_number(claim, usual), mix, "twin", name)
        twin = self._play_visit(claim.upload, rows, "twin", name)
        if twin is None:
            return self._check_claim(claim, mix, f"twin of {name}", usual)
        return self._check_claim(twin, self._choose_mix(twin), f"twin of {name}", usual)

    def _choose_mix(self, claim: ClaimedUpload) -> Values:
        """[C] shares as claimed; else as read off the update; else as the auditor has them."""
        mix = self.attack.shares(claim.head, self.knowledge) if claim.mix is None else claim.mix
        return mix if np.isfinite(mix).all() else self._compute_prior()

    def _compute_prior(self) -> Values:
        """[C] shares of classes among the auditor's rows."""
        labels = self.data.train.y[self.rows]
        return np.asarray(np.bincount(labels, minlength=self.knowledge.classes) / len(labels))

    @staticmethod
    def _choose_number(claim: ClaimedUpload, usual: float) -> int:
        """Examples that a claim is played with."""
        return round(min(claim.total, LARGEST * usual)) if np.isfinite(claim.total) else round(LARGEST * usual)

    def _draw_rows(self, n: int, mix: Values, *name: str | int) -> Index:
        """n of the auditor's rows with these shares of classes; twice where there are not enough."""
        rng, labels = self.streams.numpy("claimed_counts", "rows", *name), self.data.train.y[self.rows]
        shares = np.where(np.isin(np.arange(len(mix)), labels), mix, 0.0)
        shares = (
            shares / shares.sum() if shares.sum() > 0 else np.bincount(labels, minlength=len(mix)) / len(labels)
        )
        exact = n * shares
        counts = np.floor(exact).astype(np.int64)
        for c in np.argsort(counts - exact, kind="stable")[: n - int(counts.sum())]:
            counts[c] += 1
        drawn = [
            rng.choice(of, m, replace=m > len(of))
            for c, m in enumerate(counts)
            if m and len(of := self.rows[labels == c])
        ]
        return np.concatenate(drawn)

    def _play_visit(
        self, like: Artifact, rows: Index, *name: str | int, data: Data | None = None, factor: int = 1
    ) -> ClaimedUpload | None:
        """A visit of `like`'s sender that owns these rows; None where a protection withholds its update."""
        reply = self._train_reply(like, rows, *name, data=data)
        down = find_received_message(self.recorded, like)
        sent = self.lab.send(like.sender.number, like.round, reply.message, down, like.channel)
        if sent is None or like.kind not in sent:
            return None
        folder = like.id.rpartition("/")[0]
        own = [
            dataclasses.replace(
                like, id=f"{folder}/{kind}", kind=kind, payload=_multiply(kind, to_numpy(payload), factor)
            )
            for kind, payload in sent.items()
        ]
        broadcasts = index(self.recorded).select(round=like.round, sender=SERVER)
        view = index([*broadcasts, *own])
        upload = next(a for a in own if a.kind == like.kind)
        (head,) = head_updates(view, self.knowledge)
        total, mix = read_count(upload, view, self.knowledge.classes)
        return ClaimedUpload(upload, head, len(rows) if total is None else total, mix)

    def _train_reply(self, like: Artifact, rows: Index, *name: str | int, data: Data | None = None) -> Reply:
        client = like.sender.number
        parts = list(self.lab.holdings.parts)
        parts[client] = rows
        streams = Streams(self.streams.key("claimed_counts", *name))
        lab = self.lab.holding(parts=parts, streams=streams, data=data or self.data)
        return lab.train(client, like.round, find_received_message(self.recorded, like))

    def _measure_change(self, head: HeadUpdate) -> Values:
        """[P] what an update did to the last layer."""
        names = [n for n in head_names(head.before, self.knowledge) if n]
        return np.concatenate([np.ravel(np.asarray(head.after[n], np.float64) - head.before[n]) for n in names])


def make_idle(head: HeadUpdate) -> HeadUpdate:
    """The update of a client that did nothing."""
    nothing = np.zeros_like(head.norms)
    bias = None if head.bias is None else nothing
    return dataclasses.replace(head, bias=bias, rows=nothing, norms=nothing, after=head.before)


def _multiply(kind: Kind, payload: dict[str, NDArray[Any]], factor: int) -> dict[str, NDArray[Any]]:
    """What is claimed, times a factor."""
    return {k: v * factor for k, v in payload.items() if k == kind.counted} | {
        k: v for k, v in payload.items() if k != kind.counted
    }
