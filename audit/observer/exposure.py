"""Who saw what: the manifest's traffic added up by party and artifact kind."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.reports.exposed import PartyExposure

_PARTIES = {
    "server": "server",
    "client": "every selected client",
    "mediator": "mediators",
    "public": "whoever gets the model",
    "": "nobody singly (secure aggregation)",
}


def list_exposures(lines: Iterable[Mapping[str, Any]]) -> list[PartyExposure]:
    """One row a party and kind, in the order: uplink, relay, downlink, release, observed."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for line in lines:
        if "traffic" in line:
            for role in line["seen_by"] or [""]:
                groups[line["channel"], role, line["traffic"]].append(line)
    order = [Channel.UPLINK, Channel.RELAY, Channel.DOWNLINK, Channel.RELEASE, Channel.OBSERVED]
    rows = []
    for (channel, role, kind), found in sorted(
        groups.items(), key=lambda g: (order.index(Channel(g[0][0])), g[0][1])
    ):
        rounds = sorted({int(line["round"]) for line in found})
        rows.append(
            PartyExposure(
                party=_PARTIES.get(role, role),
                kind=kind,
                description=Kind(kind).words,
                single_client=channel in (Channel.UPLINK, Channel.RELAY, Channel.OBSERVED)
                and role != ""
                and kind != Kind.AGGREGATE,
                senders=max(int(line["senders"]) for line in found),
                messages=sum(int(line["messages"]) for line in found),
                bytes=sum(int(line["bytes"]) for line in found),
                rounds=len(rounds),
                first_round=rounds[0],
                last_round=rounds[-1],
            )
        )
    return rows
