"""Reading: notes what an attack really opened, of which rounds, since its card says only what it may open."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedaudit.attacks.evaluation.artifacts import Artifacts
from fedaudit.attacks.evaluation.sums import is_sum
from fedaudit.fl.artifact import Array, Artifact
from fedaudit.fl.kinds import Kind

Opened = dict[Kind, set[int]]  # kind -> rounds of the messages that were opened


class _Payload(Mapping[str, Array]):
    """A payload that notes its kind and round when an array is taken out of it."""

    def __init__(self, arrays: Mapping[str, Array], kind: Kind, round: int, opened: Opened) -> None:
        self._arrays, self._kind, self._round, self._opened = arrays, kind, round, opened

    def __getitem__(self, name: str) -> Array:
        found = self._arrays[name]
        self._opened.setdefault(self._kind, set()).add(self._round)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        self._opened.setdefault(self._kind, set()).add(
            self._round
        )  # it goes to another process, which reads it there
        return dict, (dict(self._arrays),)


def watch_reading(view: Sequence[Artifact], opened: Opened) -> Artifacts:
    """The same artifacts, with an index; `opened` gains kind and round of each recorded one that is read.

    Replayed ones are the auditor's: opening them tells nothing of what crossed the wire.
    """
    return Artifacts(
        replace(a, payload=_Payload(a.payload, _name_kind(a), a.round, opened)) if a.origin == "recorded" else a
        for a in view
    )


def _name_kind(artifact: Artifact) -> Kind:
    """What crossed the wire: a sum, where the artifact was opened from one."""
    return Kind.AGGREGATE if is_sum(artifact) else artifact.kind
