"""What an inbox shows by itself: what `plan` prints, `init` writes down as seen and an import finds again."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedaudit.audit.importing.inbox import inspect
from fedaudit.audit.importing.messages import ALIKE, measure_means, whole_rounds
from fedaudit.fl.artifact import Channel, Party, Role
from fedaudit.fl.kinds import UPDATES, Kind
from fedaudit.fl.recording.recorder import is_from_client
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports import format as fmt

Lines = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Survey:
    """An inbox and its checked lines. `Survey.of` raises UserError for one that an import would refuse."""

    inbox: Path
    lines: Lines

    @classmethod
    def from_inbox(cls, inbox: Path) -> "Survey":
        return cls(inbox, inspect(inbox))

    @property
    def unread(self) -> list[str]:
        """What is odd about messages that an import would set aside."""
        return [x["why"] for x in self.lines if "unread" in x]

    @property
    def recorder(self) -> str:
        return str(next((x.get("recorder", "") for x in self.lines if "format" in x), ""))

    @cached_property
    def messages(self) -> Lines:
        return [x for x in self.lines if "message" in x]

    @cached_property
    def sent(self) -> Lines:
        """What clients sent, to the server or to each other."""
        return [x for x in self.messages if is_from_client(x)]

    @cached_property
    def rounds(self) -> list[int]:
        return sorted({x["round"] for x in self.messages})

    @property
    def heard(self) -> set[str]:
        """Clients that sent something, read or not."""
        return {x["sender"] for x in self._crossed if is_from_client(x)}

    @property
    def _crossed(self) -> Lines:
        """Messages, and those that an import would set aside."""
        return [x for x in self.lines if "message" in x or "unread" in x]

    @cached_property
    def clients(self) -> int:
        """How many there are at least: one more than the greatest number of a client."""
        named = [p for x in self._crossed for p in (x["sender"], *x.get("receivers", ()))]
        named += [x["party"] for x in self.lines if "party" in x]
        numbers = [p.index for p in map(Party.parse, named) if p.role == Role.CLIENT and p.index is not None]
        numbers += [k for x in self.messages for clients in x.get("behind", {}).values() for k in clients]
        return max(numbers, default=-1) + 1

    @property
    def nodes(self) -> dict[str, str]:
        """Party -> the node that it is."""
        return {x["party"]: x["node"] for x in self.lines if "party" in x}

    @property
    def filters(self) -> Counter[str]:
        """Privacy filters that senders name -> messages."""
        return Counter(f for x in self.sent for f in x.get("filters", ()))

    @property
    def errors(self) -> list[str]:
        return [str(x["error"]) for x in self.lines if "error" in x]

    @property
    def has_updates(self) -> bool:
        return any({*UPDATES} & {*x["kinds"]} for x in self.sent)

    def sends(self, channel: Channel) -> Counter[str]:
        """Kinds on a channel -> messages."""
        return Counter(str(Kind(k)) for x in self.messages if x["channel"] == channel for k in x["kinds"])


def identify_aggregation(found: Survey) -> tuple[str, str]:
    """How the server makes a model of uploads, as `subject.aggregation`, and what shows it; ("", why not)."""
    try:
        rounds = list(whole_rounds(found.inbox, found.lines))
    except UserError as error:
        return "", error.sentence
    if not rounds:
        return "", "no round was recorded with the model it began with, its uploads and the next model"
    ways = measure_means(rounds)
    name = next((w for w, distance in ways.items() if distance < ALIKE), "other")
    many = f"in {fmt.plural(len(rounds), 'round')}"
    what = {
        "samples": f"the mean of the uploads by numbers of {'steps' if rounds[0].steps else 'examples'}",
        "uniform": "the plain mean of the uploads",
        "other": "no mean of the recorded uploads",
    }
    return name, f"{many} the next model is {what[name]}"
