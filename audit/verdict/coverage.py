"""Coverage: of all attacks that exist, which apply to what was sent, which ran, and what nothing attacked.

One function, for a plan (no attack has run yet) and for a verdict. What counts as attacked is what an attack
really opened in this run and makes claims about: a card says only what an attack may read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedaudit.attacks.attack import Card
from fedaudit.attacks.evaluation.unread import UNREAD
from fedaudit.audit.observer.reach import Reach, Traffic
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Position
from fedaudit.reports.covered import Coverage, Covered, Untried
from fedaudit.reports.result import Finding, Outcome

_RAN = (Outcome.DEMONSTRATED, Outcome.NOT_DEMONSTRATED, Outcome.INCONCLUSIVE)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """An attack of the audit: what came of it, and which recorded kinds it opened."""

    finding: str  # its id
    card: Card
    outcome: Outcome | None  # None: it is planned, and counts as one that opens all that its card names
    opened: frozenset[Kind] = frozenset()
    reason: str = ""  # where it did not apply or failed

    @property
    def counts(self) -> bool:
        return self.outcome is None or self.outcome in _RAN

    def attacked(self, reach: Reach) -> bool:
        """Whether it told, from that position, of that kind."""
        return self.counts and _stands(self.card, reach) and self.opens(reach.kind)

    def opens(self, kind: Kind) -> bool:
        """Whether it read it and makes a claim about it."""
        return kind in self.card.targets and (self.outcome is None or kind in self.opened)

    def uses(self, kind: Kind) -> bool:
        """Whether it read it, for a claim about something else."""
        return kind in self.card.aids and (self.outcome is None or kind in self.opened)


def coverage(
    traffic: Traffic, title: str, tried: Sequence[Tried], others: Mapping[str, Card], left: Mapping[str, str]
) -> Coverage:
    """Over all attacks that exist: those `tried`, and the `others` by name.

    `left` says why one that could run did not, as a phrase; `title` is the method's, for sentences.
    """
    untried = [_untried(name, card, traffic.missing(card, title), left) for name, card in sorted(others.items())]
    applicable = [t for t in tried if t.outcome is not Outcome.NOT_APPLICABLE]
    return Coverage(
        ran=sum(t.counts for t in tried),
        applicable=len(applicable) + sum(u.applies for u in untried),
        not_applicable=len(tried) - len(applicable) + sum(not u.applies for u in untried),
        inconclusive=sum(t.outcome is Outcome.INCONCLUSIVE for t in tried),
        failed=sum(t.outcome is Outcome.FAILED for t in tried),
        untried=untried,
        artifacts=[
            _covered(reach, tried, {n: others[n] for n in (u.attack for u in untried if u.applies)})
            for reach in traffic.reaches
        ],
    )


def tried(
    findings: Sequence[Finding], cards: Mapping[str, Card], opened: Mapping[str, Sequence[str]]
) -> list[Tried]:
    """The attacks of a finished audit; `cards` and the kinds that were `opened` by the finding's id.

    Evidence of an attack that the config does not name has no card and covers nothing.
    """
    return [
        Tried(
            finding=f.id,
            card=cards[f.id],
            outcome=f.outcome,
            opened=frozenset(map(Kind, opened.get(f.id, ()))),
            reason=f.summary,
        )
        for f in findings
        if f.source == "attack" and f.id in cards
    ]


def _untried(name: str, card: Card, missing: str, left: Mapping[str, str]) -> Untried:
    why = missing or left.get(name, "it is not among the attacks of this audit")
    return Untried(attack=name, title=card.title, applies=not missing, why=why)


def _covered(reach: Reach, tried: Sequence[Tried], others: Mapping[str, Card]) -> Covered:
    """One artifact as one position reads it.

    Attacked: by an attack that read it there, whatever came of it; elsewhere: by one that read the same from
    another position; failed; not_run: attacks exist and were left out; not_applicable: those tried could not
    work; unread: nothing attacks it yet; tells_nothing: control
    plane, or nothing that another kind does not (attacks/evaluation/unread.py).
    """
    kind = reach.kind

    def row(status: str, why: str, attacks: Sequence[str] = ()) -> Covered:
        return Covered(kind=kind, party=reach.position, status=status, why=why, attacks=list(attacks))  # type: ignore[arg-type]

    if kind.control_plane or kind in UNREAD:
        return row("tells_nothing", UNREAD.get(kind, f"{kind.words}: it says nothing about anybody's examples"))
    if kind.raw:
        return row("attacked", "held against what its sender holds", [f"raw-{kind}"])  # checks/raw_samples
    if here := [t.finding for t in tried if t.attacked(reach)]:
        return row("attacked", "", here)
    if there := [t for t in tried if t.counts and t.opens(kind)]:
        places = ", ".join(dict.fromkeys(_words(t.card.threat.position) for t in there))
        return row("elsewhere", f"attacked from another place, {places}", [t.finding for t in there])
    mine = [t for t in tried if kind in t.card.targets and _stands(t.card, reach)]
    if failed := [t for t in mine if t.outcome is Outcome.FAILED]:
        return row("failed", "; ".join(f"{t.finding} failed: {t.reason}" for t in failed))
    could = {name: card for name, card in others.items() if kind in card.targets}
    if here := [name for name, card in could.items() if _stands(card, reach)]:
        return row("not_run", f"could be attacked by {', '.join(here)}")
    if mine:
        why = (f"{t.finding} {'did not open it' if t.counts else f'could not: {t.reason}'}" for t in mine)
        return row("not_applicable", "; ".join(why))
    if could:
        return row("not_run", f"could be attacked from another place by {', '.join(could)}")
    if helped := [t.finding for t in tried if t.counts and t.uses(kind)]:
        return row("unread", f"only a help to {', '.join(helped)}; nothing attacks it yet")
    return row("unread", "nothing reads it yet")


def _stands(card: Card, reach: Reach) -> bool:
    """Whether the attack is carried out from there; clients in collusion are clients."""
    position = card.threat.position
    return reach.position == (Position.CLIENT if position == Position.COLLUDING_CLIENTS else position)


def _words(position: Position) -> str:
    return position.replace("_", " ")
