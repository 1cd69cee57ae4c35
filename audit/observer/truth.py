"""What the auditor knows and no attack does: which images are behind which artifact."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.attacks.attack import OF_OTHERS, BatchTruth, Examples, Unseen
from fedaudit.attacks.evaluation.sums import find_client
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import behind
from fedaudit.fl.artifact import Artifact, Channel, Party, Role
from fedaudit.fl.data.dataset import Arrays, Data
from fedaudit.fl.families.drawn_batches import iterate_batches
from fedaudit.fl.families.splitting import BATCHES
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import LocalConfig
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.training.batches import has_batch_statistics, split_into_batches


class MissingTruth(UserError):
    """What a claim is about is not known to the auditor."""


class KnownTruth:
    """Truth as far as the case has it. `groups` gives the rows of data.train behind each replayed artifact.

    All methods raise MissingTruth where it is not known what a client holds.
    """

    def __init__(
        self, case: Case, artifacts: Mapping[str, Artifact], groups: Mapping[str, NDArray[np.int64]]
    ) -> None:
        self._case, self._folder, self._times = case, case.artifacts, case.time_model
        self._data, self._parts, self._artifacts, self._groups = case.data, case.examples.parts, artifacts, groups
        self.reference = images(case.data, case.examples.reference)
        self._own, self._alike = case.examples.unseen, case.simulated and not case.data.train.repeats_owners
        self.auxiliary, self.canaries = images(case.data, case.examples.auxiliary), case.data.canaries

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        """[n, C, H, W] training images of that class behind the artifact: those of the clients heard for it."""
        return np.asarray(self.find_members(artifact, label).x)

    def find_members(self, artifact: str, label: int) -> Examples:
        """The same, with their labels."""
        rows = list(self.people(artifact, label).values())
        return images(self._data, np.concatenate(rows) if rows else np.zeros(0, np.int64))

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        """Who they are: client -> rows of data.train; client -1 for those behind a replayed artifact."""
        if artifact in self._groups:
            rows = {-1: self._groups[artifact]}
        else:
            rows = self._rows_by_client(self.find_contributors(artifact))
        return {k: index[self._labels[index] == label] for k, index in rows.items()}

    @property
    def _alike_in(self) -> str:
        """What members and non-members have in common: classes, groups of other labels, or nothing."""
        if self._data.task.has_classes:
            return "classes"
        return "groups" if self._data.groups else ""

    @cached_property
    def _labels(self) -> NDArray[np.int64]:
        """[N] the group of each example, such as its class."""
        return self._data.group(self._data.train)

    def has_ground_truth(self, artifact: Artifact) -> bool:
        """Whether what somebody behind it holds is known, or nobody's examples are behind it."""
        if artifact.id in self._groups:
            return True
        if artifact.sender.index is not None and artifact.sender.role == Role.CLIENT:
            return artifact.sender.index in self._parts
        if artifact.sender.role != Role.CLIENT and artifact.id not in self._behind:
            return True  # what the server sent of its own
        clients = self.find_contributors(artifact.id)  # of a sum, or of what the server made of uploads
        return not clients or any(client in self._parts for client in clients)

    def find_contributors(self, artifact: str) -> frozenset[int]:
        """Clients whose examples a recorded artifact is made of; nobody behind a replayed one."""
        if artifact in self._groups:
            return frozenset()
        behind, client = self._behind.get(artifact), find_client(artifact)
        if behind is None and client is not None:  # solved from sums
            return frozenset({client})
        if behind is None:  # one kind of a sum
            behind = self._behind.get(f"{artifact.rpartition('/')[0]}/{Kind.AGGREGATE}")
        if behind is None:
            raise MissingTruth(
                f"nobody knows whose examples are behind {artifact}: not all uploads before it were recorded",
                hint='name the clients under "behind" in its line of the manifest (docs/artifact-format.md)',
            )
        return behind

    @cached_property
    def _behind(self) -> Mapping[str, frozenset[int]]:
        return {} if self._folder is None else behind(self._folder)

    def unseen(self, clients: Collection[int]) -> Unseen:
        """Their own examples that they did not train on; where there are none, those of the reference."""
        own = [self._own[k] for k in sorted(clients) if k in self._own]
        if own:
            return Unseen(
                images(self._data, np.concatenate(own)), "held out of the same clients' data", self._alike_in
            )
        # of one distribution, class by class, where no example has an owner: the partition saw to that
        return Unseen(self.reference, "" if self._alike else OF_OTHERS, self._alike_in)

    def find_batch(self, artifact: str) -> BatchTruth | None:
        """The examples of a batch of split learning: those of a simulated client are drawn once more.

        Features of every example are of all that the client holds, in its order. None where the client's
        examples, its training or all batches before are not known, or where it augments.
        """
        if artifact in self._groups:
            rows = self._groups[artifact]
            return BatchTruth(client=-1, rows=rows, images=images(self._data, rows))
        found = self._artifacts.get(artifact)
        if found is None or not self._case.simulated or self._case.training is None:
            return None
        end = found.sender if found.sender.role == Role.CLIENT else Party.parse(found.seen_by[0])
        own = self._parts.get(-1 if end.index is None else end.index)
        if own is None or self._data.augment != "none":
            return None
        assert end.index is not None
        if found.kind is Kind.FEATURES:
            is_whole = len(found.payload["features"]) == len(own)
            return BatchTruth(client=end.index, rows=own, images=images(self._data, own)) if is_whole else None
        batches = self._batches.get((found.round, found.kind, found.channel, end), {})
        drawn = self._draw_batches(found.round, end.index, self._case.training)
        if len(batches) != len(drawn):
            return None
        rows = own[drawn[batches[artifact]].numpy()]
        return BatchTruth(client=end.index, rows=rows, images=images(self._data, rows))

    def _draw_batches(self, round: int, client: int, training: LocalConfig) -> Sequence[Tensor]:
        """Places of the examples of each batch of a simulated client's visit."""
        if (round, client) not in self._batches_by_visit:
            sizes = split_into_batches(len(self._parts[client]), training.batch_size, joins=self._joins)
            batches = iterate_batches(self._case.streams, round, client, sizes, training.local_epochs)
            self._batches_by_visit[round, client] = list(batches)
        return self._batches_by_visit[round, client]

    @cached_property
    def _joins(self) -> bool:
        make = self._case.network.make
        return make is not None and has_batch_statistics(make())

    @cached_property
    def _batches_by_visit(self) -> dict[tuple[int, int], Sequence[Tensor]]:
        return {}

    @cached_property
    def _batches(self) -> Mapping[tuple[int, Kind, Channel, Party], Mapping[str, int]]:
        """Round, kind, channel and client -> the batches that crossed, with their places in order."""
        found = defaultdict[tuple[int, Kind, Channel, Party], dict[str, int]](dict)
        for a in self._artifacts.values():
            if a.kind in BATCHES and a.origin == "recorded":
                end = a.sender if a.sender.role == Role.CLIENT else Party.parse(a.seen_by[0])
                own = found[a.round, a.kind, a.channel, end]
                own[a.id] = len(own)
        return found

    def read_upload(self, artifact: str) -> Mapping[str, NDArray[Any]]:
        return self._artifacts[artifact].payload

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self._labels[self._part(client)], minlength=max(1, len(self._data.groups)))

    def client_examples(self, client: int) -> Examples:
        return images(self._data, self._part(client))

    def client_rows(self, client: int) -> NDArray[np.int64]:
        """Who they are, as rows of data.train."""
        return self._part(client)

    def capability(self, client: int) -> float:
        """How fast a client's device is."""
        if self._times is None:
            raise MissingTruth(
                "how fast clients are is not known, so no claim about it can be checked",
                hint="times are the simulated clock's: set federation.time_model",
            )
        return float(self._times.capability[client])

    def _part(self, client: int) -> NDArray[np.int64]:
        if client not in self._parts:
            raise MissingTruth(
                f"what client {client} holds is not known, so no claim about it can be checked",
                hint="give the client's own examples as truth",
            )
        return self._parts[client]

    def _rows_by_client(self, clients: frozenset[int]) -> dict[int, NDArray[np.int64]]:
        """What these clients hold, of those that the auditor knows."""
        if len(clients) == 1:
            (client,) = clients
            return {client: self._part(client)}
        known = {k: self._parts[k] for k in sorted(clients) if k in self._parts}
        if clients and not known:
            raise MissingTruth(
                "what the clients hold is not known, so no claim about them can be checked",
                hint="give some clients' own examples as truth",
            )
        return known


class PartialTruth(KnownTruth):
    """The same, but messages of clients of whom nothing is known have no members: nothing is tried on those."""

    def find_contributors(self, artifact: str) -> frozenset[int]:
        try:
            return super().find_contributors(artifact)
        except MissingTruth:
            return frozenset()

    def _rows_by_client(self, clients: frozenset[int]) -> dict[int, NDArray[np.int64]]:
        return super()._rows_by_client(clients) if clients & self._parts.keys() else {}


def images(data: Data, index: NDArray[np.int64]) -> Examples:
    taken: Arrays = data.train.take(index)
    are_groups = data.task.has_classes or data.is_text  # of a text what is wanted is itself
    return Examples(x=taken.x, y=data.group(taken), labels=None if are_groups else taken.y)
