"""What an inbox holds, what can be audited from it, and what would be needed for more: ten lines."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from fedaudit.audit.importing.inbox import inspect
from fedaudit.audit.observer.reach import Traffic
from fedaudit.audit.settings import catalog
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import UPDATES, Kind


def summary(inbox: Path) -> Iterator[str]:
    """Ten lines; raises UserError for an inbox that would be refused."""
    lines = list(inspect(inbox))
    messages = [x for x in lines if "message" in x]
    up = [x for x in messages if x["channel"] == Channel.UPLINK]
    down = [x for x in messages if x["channel"] == Channel.DOWNLINK]
    head = next((x for x in lines if "format" in x), {})
    rounds = sorted({x["round"] for x in messages})
    senders = {x["sender"] for x in up}
    errors = [x for x in lines if "error" in x]
    size = sum(p.stat().st_size for p in inbox.rglob("*.safetensors"))
    yield (
        f"recorded by: {head.get('recorder', 'not said')}, format version {head.get('version', 1)}, "
        f"{len(messages):,} messages, {size / 1e6:,.1f} MB"
    )
    yield f"rounds: {len(rounds)}" + (f", {rounds[0]} to {rounds[-1]}" if rounds else "")
    per_round = Counter(x["round"] for x in up)
    heard = f", {min(per_round.values())} to {max(per_round.values())} uploads a round" if per_round else ""
    nodes = sum("party" in x for x in lines) or len(senders)
    yield f"clients heard: {len(senders)} of {nodes} nodes seen{heard}"
    for name, some in (("from clients", up), ("from the server", down)):
        kinds = Counter(k for x in some for k in x["kinds"])
        yield f"{name}: " + (", ".join(f"{k} ({n:,})" for k, n in kinds.items()) or "nothing")
    filters = Counter(f for x in up for f in x.get("filters", ()))
    claims = ", ".join(f"{name} ({n:,} messages)" for name, n in filters.items())
    yield f"privacy filters that messages name: {claims or 'none'}"
    lost = f"; the first: {errors[0]['error'][:120]}" if errors else ""
    yield f"what the recorder could not keep: {len(errors)}{lost}"
    by_channel = {c: tuple({Kind(k) for x in messages if x["channel"] == c for k in x["kinds"]}) for c in Channel}
    seen = Traffic(kinds=by_channel)
    cards = {name: catalog.load("attacks", name).card for name in catalog.names("attacks")}
    able = [n for n, c in cards.items() if not seen.missing(c, "it")]
    yield f"attacks that find something to read: {len(able)} of {len(cards)}" + (
        f": {', '.join(able)}" if able else ""
    )
    begun = {x["round"] for x in down}
    follows = sum(t + 1 in begun for t in per_round)
    yield (
        f"the server's model can be recomputed in {follows} of {len(per_round)} rounds; that needs the model "
        "before and after, and every upload"
    )
    needs = [
        "subject.yaml (`fedaudit init --from`)",
        "each client's examples as truth, or a canary client of yours",
    ]
    if not any({*UPDATES} & {*x["kinds"]} for x in up):
        needs.insert(0, "uploads: only the server's models were recorded")
    yield f"for findings with intervals it needs: {'; '.join(needs)}, and examples of your own of the same kind"
