"""The contract of every check: what clients stated or sent, held against what they hold and did.

A check needs no adversary and no baseline: what it finds is seen, not guessed, and it says how bad that is.
Scoring reads nothing but what checks left.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from fedaudit.audit.case.case import ObservedFederation
from fedaudit.audit.controls.lab import Lab
from fedaudit.fl.artifact import Channel
from fedaudit.fl.recording.recorder import manifest
from fedaudit.fl.runtime.errors import UserError, describe_failure
from fedaudit.fl.runtime.plugin import Plugin
from fedaudit.fl.runtime.records import quote
from fedaudit.fl.runtime.settings import describe_record
from fedaudit.fl.runtime.side_by_side import DeadPart
from fedaudit.fl.threats.threat import Position, ThreatModel
from fedaudit.reports.exhibits import RowTables
from fedaudit.reports.result import Finding, Outcome

SERVER = ThreatModel(position=Position.SERVER)  # who reads what checks see, where they name nobody
ENOUGH = 200  # plays with other people, from which on a kind is constant


@dataclass(frozen=True, kw_only=True)
class ConstantKind:
    """A kind whose recorded messages, of these rounds, came out the same in every play with other people."""

    kind: str
    rounds: tuple[int, ...]
    plays: int  # with different sets of other people; few of them say little, and 0 nothing

    @property
    def is_enough(self) -> bool:
        """Whether so many plays say that it is the same whoever its sender's people are."""
        return self.plays >= ENOUGH


Seen = Finding | ConstantKind | RowTables | str  # a sentence says what could not be checked


@dataclass(frozen=True, kw_only=True)
class Checked:
    """All that one check says of a federation."""

    results: Sequence[Finding] = ()
    declared: Sequence[str] = ()  # what could not be checked, in sentences
    constant: Sequence[ConstantKind] = ()
    rows: Sequence[RowTables] = ()  # clients' rows beside what was read of them


class Check(Plugin):
    """A check. Subclasses write `inspect`; a file in audit/checks/ is enough."""

    @abstractmethod
    def inspect(self, federation: ObservedFederation, lab: Lab | None) -> Iterator[Seen]:
        """What is to be seen of this federation; nothing where it has no messages.

        In `lab` its clients' code can run once more; None where that is not known.
        """

    def check(self, federation: ObservedFederation, lab: Lab | None) -> Checked:
        """All of it, or as far as it came, and why no further as a finding. Raises DeadPart where a part dies."""
        seen = list[Seen]()
        try:
            found: object = self.inspect(federation, lab)
            for one in found if isinstance(found, Iterable) else (found,):
                if not isinstance(one, Seen):
                    raise TypeError(f"inspect() must yield findings, or sentences, got {quote(one)}")
                if isinstance(one, Finding):
                    _require_sent(one, federation)
                seen.append(one)
        except DeadPart:
            raise
        except Exception as error:  # the audit goes on without it  # noqa: BLE001
            seen.append(self._describe_end(error))
        return Checked(
            results=[_name_reader(s) for s in seen if isinstance(s, Finding)],
            declared=[s for s in seen if isinstance(s, str)],
            constant=tuple(s for s in seen if isinstance(s, ConstantKind)),
            rows=tuple(s for s in seen if isinstance(s, RowTables)),
        )

    def _describe_end(self, error: Exception) -> Finding:
        name, said = type(self).__name__, describe_record(error) if isinstance(error, ValidationError) else ""
        return Finding(
            id=f"check-{name}",
            title=f"The check {name} could not be carried out",
            outcome=Outcome.FAILED,
            summary="What it saw before stands; what it would have seen is not known.",
            reason=f"{describe_failure(error, said)}.",
        )


def _require_sent(found: Finding, federation: ObservedFederation) -> None:
    """Raise UserError for a finding about kinds that nobody sends: what was not there leaked nothing."""
    if not found.artifacts or federation.artifacts is None:
        return
    sent = {str(kind) for channel in Channel for kind in getattr(federation.card, channel.value, ())}
    if {*found.artifacts} <= sent:
        return
    sent |= {kind for line in manifest(federation.artifacts) for kind in line.get("kinds", ())}
    if never := [kind for kind in found.artifacts if kind not in sent]:
        raise UserError(f"its finding {found.id!r} is about {', '.join(never)}, which nobody sent")


def _name_reader(found: Finding) -> Finding:
    return found if found.threat else found.model_copy(update={"threat": SERVER})
