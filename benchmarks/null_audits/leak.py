"""What all leaks of the test systems have in common: how many people leak, and at which clients."""

from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from fedaudit.fl.clients.client import Client
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Share


@dataclass(frozen=True, kw_only=True)
class Leak:
    """Settings beside the method's own."""

    share: Annotated[Share, Field(description="of all people, how many leak; 0: nobody, the clean relative")] = (
        0.0
    )
    everybody: Annotated[AtLeastOne, Field(description="people whom all clients hold together")] = 1
    leakers: Annotated[tuple[AtLeastZero, ...], Field(description="the clients at which they leak")] = (3,)


def leaked(config: Any, client: Client) -> int:
    """How many of a client's people leak over the whole run: the first so many that it holds."""
    if client.index not in config.leakers:
        return 0
    wanted: int = round(config.share * config.everybody / len(config.leakers))
    return min(len(client.y), wanted)


def in_turn(config: Any, client: Client) -> range:
    """Which of them leak in this round, where a round has room for a part."""
    people = leaked(config, client)
    each = -(-people // config.rounds)
    return range(min(people, client.round * each), min(people, (client.round + 1) * each))
