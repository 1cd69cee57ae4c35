"""What the auditor knows and no attack does: which images are behind which artifact."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attacks.attack import Images
from audit.subject.case import Case
from fl.artifact import SERVER, Artifact, Role
from fl.dataset import Arrays, Data
from fl.errors import UserError


class KnownTruth:
    """Truth as far as the case has it. `groups` gives the rows of data.train behind each replayed artifact.

    All methods raise UserError where nobody told what a client holds.
    """

    def __init__(
        self, case: Case, artifacts: Mapping[str, Artifact], groups: Mapping[str, NDArray[np.int64]]
    ) -> None:
        self._data, self._parts, self._artifacts, self._groups = case.data, case.parts, artifacts, groups
        self.reference = images(case.data, case.reference)
        self.auxiliary = images(case.data, case.auxiliary)

    def members(self, artifact: str, label: int) -> NDArray[Any]:
        """[n, C, H, W] training images of that class behind the artifact; all clients' for the server's."""
        index = self._groups.get(artifact)
        if index is None:
            sender = self._artifacts[artifact].sender
            assert sender == SERVER or sender.role == Role.CLIENT, f"nothing is known of {artifact}"
            index = self._everybody() if sender.index is None else self._part(sender.index)
        train = self._data.train
        chosen = index[train.y[index] == label]
        return np.asarray(train.x[chosen])

    def sent(self, artifact: str) -> Mapping[str, NDArray[Any]]:
        return self._artifacts[artifact].payload

    def label_counts(self, client: int) -> NDArray[np.int64]:
        return np.bincount(self._data.train.y[self._part(client)], minlength=len(self._data.classes))

    def client_images(self, client: int) -> Images:
        return images(self._data, self._part(client))

    def _part(self, client: int) -> NDArray[np.int64]:
        if client not in self._parts:
            raise UserError(
                f"what client {client} holds is not known, so no claim about it can be checked",
                hint="give the client's own examples as truth",
            )
        return self._parts[client]

    def _everybody(self) -> NDArray[np.int64]:
        if not self._parts:
            raise UserError(
                "what the clients hold is not known, so no claim about them can be checked",
                hint="give some clients' own examples as truth",
            )
        return np.concatenate(list(self._parts.values()))


def images(data: Data, index: NDArray[np.int64]) -> Images:
    taken: Arrays = data.train.take(index)
    return Images(x=taken.x, y=taken.y)


def shifted(images: Images) -> Images:
    """Auxiliary data of another distribution: mirrored, one pixel lower, darker and flatter.

    Deterministic, so that the only difference to the same-distribution attacker is the shift.
    """
    x = np.roll(images.x[..., ::-1], 1, axis=-2) * 0.7 + 0.1
    return Images(x=np.ascontiguousarray(x, dtype=np.float32), y=images.y)
