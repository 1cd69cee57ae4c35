"""What an inbox holds, what can be audited from it, and what would be needed for more: ten lines."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedaudit.audit.importing.survey import Survey, identify_aggregation
from fedaudit.audit.observer.reach import ObservedTraffic
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import VERSION


def summary(inbox: Path) -> Iterator[str]:
    """Ten lines; raises UserError for an inbox that would be refused."""
    found = Survey.from_inbox(inbox)
    size = sum(p.stat().st_size for p in inbox.rglob("*.safetensors"))
    yield (
        f"recorded by: {found.recorder or 'not said'}, format version {VERSION}, "
        f"{len(found.messages):,} messages, {size / 1e6:,.1f} MB"
    )
    per_round = Counter(x["round"] for x in found.sent)
    between = f", {min(per_round)} to {max(per_round)}" if per_round else ""
    yield f"rounds in which clients sent something: {len(per_round)}{between}"
    heard = f", {min(per_round.values())} to {max(per_round.values())} messages a round" if per_round else ""
    yield f"clients heard: {len(found.heard)} of {found.clients}{heard}"
    up = found.sends(Channel.UPLINK) + found.sends(Channel.RELAY)
    for name, kinds in (("from clients", up), ("from the server", found.sends(Channel.DOWNLINK))):
        yield f"{name}: " + (", ".join(f"{k} ({n:,})" for k, n in kinds.items()) or "nothing")
    claims = ", ".join(f"{name} ({n:,} messages)" for name, n in found.filters.items())
    yield f"privacy filters that messages name: {claims or 'none'}"
    lost = f"; the first: {found.errors[0][:120]}" if found.errors else ""
    odd = f"; odd and to be set aside: {len(found.unread):,}, first {found.unread[0]}" if found.unread else ""
    yield f"what the recorder could not keep: {len(found.errors)}{lost}{odd}"
    seen = ObservedTraffic(kinds={c: tuple(map(Kind, found.sends(c))) for c in Channel})
    cards = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
    able = [n for n, c in cards.items() if not seen.missing(c, "it")]
    yield f"attacks that find something to read: {len(able)} of {len(cards)}" + (
        f": {', '.join(able)}" if able else ""
    )
    name, shown = identify_aggregation(found)
    yield f"how the server makes its model: {name or 'not seen'}; {shown}"
    needs = [
        "subject.yaml (`fedaudit init --from`)",
        "each client's examples as truth, or a canary client of yours",
    ]
    if not found.has_updates:
        needs.insert(0, "uploads: no client's update was recorded")
    yield f"for findings with intervals it needs: {'; '.join(needs)}, and examples of your own of the same kind"
