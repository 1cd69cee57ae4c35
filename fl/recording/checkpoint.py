"""Checkpoints: where a run was, so that the same command continues it to a bit-identical result.

A checkpoint is one safetensors file, replaced atomically after the logs were flushed to the disk. It also holds
the length of every log at that moment; on restoring, logs are cut back to it, which undoes a half-finished round.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fedaudit.fl.recording.provenance import Provenance
from fedaudit.fl.runtime import tree
from fedaudit.fl.runtime.durable import Log, sync
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.tree import Tree

NAME = "state.safetensors"


@dataclass(frozen=True)
class Saved:
    """Server state and client memories before round `round`."""

    round: int
    state: Tree
    memory: dict[int, Tree]


class Checkpoints:
    """Saves to and restores from `folder`, keeping `logs` and who was heard (`provenance`) in step."""

    def __init__(self, folder: Path, logs: Mapping[str, Log], provenance: Provenance | None = None) -> None:
        self._path = folder / NAME
        self._logs = logs
        self._provenance = provenance or Provenance()
        self.finished = False

    def save(self, saved: Saved, *, finished: bool = False) -> None:
        sync(self._logs.values())  # first: a checkpoint must never say more than the disk holds
        tree.save(
            self._path,
            {
                "round": saved.round,
                "finished": finished,
                "offsets": {name: log.offset() for name, log in self._logs.items()},
                "provenance": self._provenance.state(),
                "state": saved.state,
                "memory": {str(k): m for k, m in saved.memory.items()},
            },
        )
        self.finished = finished

    def restore(self) -> Saved | None:
        """The last checkpoint, or None; either way the logs hold nothing newer."""
        if not self._path.exists():
            for log in self._logs.values():
                log.cut(0)
            return None
        saved = tree.load(self._path)
        try:
            round, state, memory = int(saved["round"]), saved["state"], saved["memory"]
            self.finished = bool(saved["finished"])
            offsets = {name: int(saved["offsets"][name]) for name in self._logs}
            self._provenance.load(saved["provenance"])
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self._path} is not a checkpoint: {error!r} is missing",
                hint="delete it to start the simulation again",
            ) from error
        for name, log in self._logs.items():
            if log.offset() < offsets[name]:
                raise UserError(
                    f"{log.path} is shorter than its checkpoint says",
                    hint="restore the file, or simulate into a new folder",
                )
            log.cut(offsets[name])
        return Saved(round, state, {int(k): m for k, m in memory.items()})


def is_finished(folder: Path) -> bool:
    """Whether the simulation whose checkpoints are in `folder` ran to its end."""
    path = folder / NAME
    return path.exists() and bool(tree.load(path).get("finished"))
