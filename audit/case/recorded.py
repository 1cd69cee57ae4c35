"""A recorded case: a federation that ran elsewhere, as its messages, its operator's statements and truth tell it.

Nothing is invented: what nobody stated or brought is absent, and whoever needs it says so.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path

import numpy as np

from fedaudit.audit.case.case import About, Participation, Split
from fedaudit.audit.case.networks import read_task
from fedaudit.audit.case.plugins import build_plugin
from fedaudit.audit.case.recorded_network import RecordedNetwork
from fedaudit.audit.case.truth import NOBODY, TruthFile
from fedaudit.audit.settings.config import RecordedConfig
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.fl.artifact import Channel, Party, Role
from fedaudit.fl.clients.time_model import TimeModel
from fedaudit.fl.data.columns import Columns
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.data.population import content
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card, LocalConfig, Method
from fedaudit.fl.recording.recorder import manifest, unread
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.machine import choose_device
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.runtime.task import Task, load_task
from fedaudit.fl.threats.compromise import Compromise
from fedaudit.fl.training.private import PrivateTraining
from fedaudit.fl.wire.protection import Protection

AUXILIARY = 0.5  # share of the auditor's own examples that an adversary has; the rest is unseen


@dataclass(frozen=True)
class RecordedCase:
    """A federation that somebody recorded, as far as it is known.

    `artifacts` is the run's own copy of the inbox; `truth` the file of examples, where some were brought, and
    `base` that of weights which nobody sent.
    """

    config: RecordedConfig
    artifacts: Path
    truth: Path | None = None
    base: Path | None = None

    @property
    def subject(self) -> RecordedSubject:
        return self.config.subject

    @property
    def streams(self) -> Streams:
        return Streams(self.config.seed)

    # The examples that were given to the auditor, and who has them --------------------------------

    @cached_property
    def clients(self) -> int:
        """As stated, or as many as appear; raises UserError where fewer are stated than appear."""
        seen = -1
        for line in chain(manifest(self.artifacts), unread(self.artifacts)):
            parties = [line["sender"], *line.get("receivers", ())] if "traffic" not in line else []
            named = [p.index for p in map(Party.parse, parties) if p.role == Role.CLIENT and p.index is not None]
            seen = max(seen, *named) if named else seen
        stated = self.subject.clients
        if stated is not None and stated <= seen:
            raise UserError(
                f"subject.clients is {stated}, and the inbox names {seen + 1} clients",
                hint="correct it, or leave it out",
                key="subject.clients",
            )
        return seen + 1 if stated is None else stated

    @cached_property
    def _truth_file(self) -> TruthFile:
        if self.truth is None:
            return TruthFile.none(self.subject.examples)
        return TruthFile.from_bytes(self.truth.read_bytes())

    @cached_property
    def data(self) -> Data:
        stated, known = self.subject.examples, self._truth_file.examples
        return Data(
            train=known,
            test=Arrays(x=known.x[:0], y=known.y[:0]),
            classes=tuple(stated.classes),
            mean=tuple(stated.mean),
            std=tuple(stated.std),
            about="The examples were stated by the federation's operator.",
            columns=self._columns,
            task=self._task,
        )

    @cached_property
    def _columns(self) -> Columns | None:
        """As stated; ranges that are not are those of the auditor's own rows, which no client holds."""
        stated, known = self.subject.examples.table, self._truth_file
        own = known.examples.x[known.owner == NOBODY]
        if stated is None or not len(own):
            return stated
        return replace(stated.learn(own), mean=stated.mean, std=stated.std)

    @cached_property
    def _task(self) -> Task:
        """As stated; groups of labels are cut at those of the auditor's own examples, which no client holds."""
        known = self._truth_file
        stated: Task = load_task(self.subject.examples.task)()
        task = stated.learn_scale(known.examples.y[known.owner == NOBODY])
        return read_task(self.subject.model, task, "subject.model") if self.subject.model else task

    @cached_property
    def examples(self) -> Split:
        """What was given to the auditor.

        The auditor's own examples are split evenly of their classes: an adversary's, those nobody sees, and,
        where no client's are known, half of the latter for clients to be played with. A client holds none of
        them, and none is there twice.
        """
        owner, x, held_out = self._truth_file.owner, self._truth_file.examples.x, self._truth_file.held_out
        parts, unseen = (
            {int(k): np.flatnonzero((owner == k) & of) for k in np.unique(owner[of]) if k != NOBODY}
            for of in (~held_out, held_out)
        )
        seen = {content(x[i]) for i in np.flatnonzero(owner != NOBODY)}
        kept = []
        for i in np.flatnonzero(owner == NOBODY):
            mark = content(x[i])
            if mark not in seen:
                seen.add(mark)
                kept.append(i)
        rows = self.streams.numpy("own examples").permutation(np.array(kept, np.int64))
        rows = rows[np.argsort(self.data.group(self._truth_file.examples)[rows], kind="stable")]
        mine = np.diff(np.floor(np.arange(len(rows) + 1) * AUXILIARY + 1e-9)) > 0
        rest = rows[~mine]
        planted = rest[1::2] if not parts else rest[:0]
        return Split(
            parts=parts,
            unseen=unseen,
            auxiliary=np.sort(rows[mine]),
            reference=np.sort(rest[::2] if not parts else rest),
            planted=np.sort(planted),
        )

    # What clients are stated to run ---------------------------------------------------------------

    @cached_property
    def method(self) -> Method | None:
        spec = self.subject.method
        found: Method | None = build_plugin("methods", spec, "subject.method") if spec else None
        return found

    @property
    def training(self) -> LocalConfig | None:
        return self.method.config if self.method else None

    @cached_property
    def protections(self) -> list[Protection]:
        """Those that its operator claims, then those that recorded messages were passed through, as an option."""
        return [
            *(
                build_plugin("protections", spec, f"subject.protections[{i}]")
                for i, spec in enumerate(self.subject.protections)
            ),
            *(
                build_plugin("protections", spec, f"protections[{i}]")
                for i, spec in enumerate(self.config.protections)
            ),
        ]

    @property
    def private(self) -> PrivateTraining | None:
        return next((t for p in self.protections if (t := p.training()) is not None), None)

    @property
    def compromise(self) -> Compromise:
        return Compromise()

    @cached_property
    def device(self) -> str:
        return choose_device(self.config.device)

    @cached_property
    def network(self) -> RecordedNetwork:
        folds = self.method is not None and self.method.card.folds_adapters
        return RecordedNetwork(self.config, self.artifacts, self.base, folds)

    # What was sent, and who took part -------------------------------------------------------------

    @property
    def simulated(self) -> bool:
        return False

    @cached_property
    def card(self) -> Card:
        """What was sent, whatever a method's own card says."""
        played = self.method.card if self.method else None
        return Card(
            title=played.title if played else "The recorded federation",
            source=played.source if played else "",
            text=played.text if played else "",
            downlink=self._kinds_by_channel[Channel.DOWNLINK],
            uplink=self._kinds_by_channel[Channel.UPLINK],
            relay=self._kinds_by_channel[Channel.RELAY],
            release=self._kinds_by_channel[Channel.RELEASE],
        )

    @cached_property
    def _kinds_by_channel(self) -> dict[Channel, tuple[Kind, ...]]:
        found: dict[Channel, dict[Kind, None]] = {c: {} for c in Channel}
        for line in manifest(self.artifacts):
            kinds = [line["traffic"]] if "traffic" in line else line["kinds"]
            found[Channel(line["channel"])] |= dict.fromkeys(map(Kind, kinds))
        return {c: tuple(kinds) for c, kinds in found.items()}

    @property
    def about(self) -> About:
        told = len(self.examples.parts)
        return About(
            dataset=self.subject.title,
            clients=(
                f"what {told or 'none'} of {self.clients} clients hold was given to the auditor",
                "who answers when is what was recorded",
            ),
            model=self.subject.model.name if self.subject.model else "not stated",
        )

    @property
    def time_model(self) -> TimeModel | None:
        """Nothing is simulated."""
        return None

    @cached_property
    def participation(self) -> Participation:
        """Nobody's code is known to us, and nobody stated a law that earns credit."""
        return Participation(self.artifacts)
