"""What attacks on one case work with: its messages, the leaks that are planted for them, the truth."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

from fedaudit.attacks.attack import Card, Player
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.messages import is_anybody_behind, messages
from fedaudit.audit.case.messages import kinds as kinds_of
from fedaudit.audit.controls.control import plant
from fedaudit.audit.controls.lab import Lab, Replays
from fedaudit.audit.observer.truth import KnownTruth, PartialTruth
from fedaudit.audit.plays.client import player
from fedaudit.audit.settings.controls import Replay
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.method import Card as MethodCard
from fedaudit.fl.runtime.machine import processor_seconds
from fedaudit.fl.runtime.shared_pipe import make_portable
from fedaudit.fl.runtime.side_by_side import DeadPart, collect

# controls that play every client's latest message, whatever else was read
OF_LATEST = ("updates", "prototypes", "memorised", "condensed", "activations")
SILENT = "no client was heard in any round, so nothing that was sent is made of anybody's examples"


class Bench:
    """What attacks on one case work with: its messages, the planted leaks that their cards name, the truth."""

    def __init__(self, case: Case, cards: Sequence[Card], settings: Replay) -> None:
        self.case, self._scratch = case, TemporaryDirectory(prefix="fedaudit-planted-")
        self._recorded = {
            r: _read_artifacts(case.artifacts, case.card, [c for c in cards if c.rounds == r])
            for r in ("latest", "all")
        }
        controls = sorted({(c.control, c.rounds) for c in cards if c.control})
        controls = [
            c for c in controls if c[0] not in OF_LATEST or c[1] == "all" or (c[0], "all") not in controls
        ]

        def plant_one(control: tuple[str, str]) -> tuple[Replays | BaseException, float]:
            (name, rounds), began = control, processor_seconds()
            try:
                planted: Replays | BaseException = plant(name, self.lab, self._recorded[rounds], settings)
            except DeadPart:
                raise
            except (Exception, SystemExit) as error:  # its attacks fail, no other  # noqa: BLE001
                planted = make_portable(error)
            return planted, processor_seconds() - began

        self.seconds = dict[str, float]()  # of the processor, by control
        self._planted: dict[tuple[str, str], Replays] = {}
        self._errors: dict[tuple[str, str], BaseException] = {}
        for control, (planted, seconds) in zip(controls, collect(controls, plant_one), strict=True):
            self.seconds[control[0]] = self.seconds.get(control[0], 0.0) + seconds
            if isinstance(planted, Replays):
                self._planted[control] = planted
            else:
                self._errors[control] = planted
        artifacts = {a.id: a for recorded in self._recorded.values() for a in recorded}
        groups = {id: rows for planted in self._planted.values() for id, rows in planted.groups.items()}
        self.truth, self.partial_truth = (t(case, artifacts, groups) for t in (KnownTruth, PartialTruth))

    def artifacts(self, card: Card) -> list[Artifact]:
        """Recorded in the rounds that the card wants, and planted for it; raises what its control raised."""
        if error := self._errors.get(self._find_control(card)):
            raise error
        return [*self._recorded[card.rounds], *self.find_planted_leaks(card).artifacts]

    @cached_property
    def silence(self) -> str:
        """Why there is nothing to attack, as a sentence; empty where there is."""
        if self.case.artifacts is None or not self.case.simulated:
            return ""
        return "" if is_anybody_behind(self.case.artifacts) else SILENT

    @cached_property
    def lab(self) -> Lab | None:
        """The clients, to be trained once more; None where they cannot."""
        return Lab.from_case(self.case, Path(self._scratch.name))

    @cached_property
    def player(self) -> Player | None:
        """Clients that adversaries play; what they sent to one attack is not made again for another."""
        return player(self.lab, self.case.card)

    def find_planted_leaks(self, card: Card) -> Replays:
        """The leaks that the control of a card planted."""
        return self._planted.get(self._find_control(card), Replays())

    def _find_control(self, card: Card) -> tuple[str, str]:
        """Some controls play every client's latest message, whatever else was read: made once for both."""
        every = (card.control, "all")
        is_shared = card.control in OF_LATEST and (every in self._planted or every in self._errors)
        return every if is_shared else (card.control, card.rounds)


def _read_artifacts(artifacts: Path | None, card: MethodCard, cards: Sequence[Card]) -> Sequence[Artifact]:
    """What these attacks read, and what clients received, from which controls train them once more.

    An attack that needs a kind which nobody sent runs on nothing, so nothing is read for it.
    """
    if artifacts is None:
        return []
    sent = kinds_of(artifacts)
    summed = {k for k in Kind if k.summed is not Summed.NO} if Kind.AGGREGATE in sent else set[Kind]()
    cards = [c for c in cards if (sent | summed if Kind.AGGREGATE in c.reads else sent).issuperset(c.requires)]
    if not cards:
        return []
    kinds = {k for c in cards for k in (*c.reads, *c.pick_read(sent))}
    if any(c.control for c in cards):
        kinds |= set(card.downlink)
    return index(messages(artifacts, kinds, cards[0].rounds))
