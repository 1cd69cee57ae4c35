"""Reading: notes which kinds an attack really opened, since its card says only what it may open."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fedaudit.attacks.evaluation.artifacts import Artifacts
from fedaudit.fl.artifact import Array, Artifact
from fedaudit.fl.kinds import Kind


class _Payload(Mapping[str, Array]):
    """A payload that notes its kind when an array is taken out of it."""

    def __init__(self, arrays: Mapping[str, Array], kind: Kind, opened: set[Kind]) -> None:
        self._arrays, self._kind, self._opened = arrays, kind, opened

    def __getitem__(self, name: str) -> Array:
        found = self._arrays[name]
        self._opened.add(self._kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._arrays)

    def __len__(self) -> int:
        return len(self._arrays)

    def __reduce__(self) -> tuple[Any, ...]:
        self._opened.add(self._kind)  # it goes to another process, which reads it there
        return dict, (dict(self._arrays),)


def watched(view: Sequence[Artifact], opened: set[Kind]) -> Artifacts:
    """The same artifacts, with an index; `opened` gains the kind of each recorded one whose content is read.

    Replayed ones are the auditor's: opening them tells nothing of what crossed the wire.
    """
    return Artifacts(
        replace(a, payload=_Payload(a.payload, a.kind, opened)) if a.origin == "recorded" else a for a in view
    )
