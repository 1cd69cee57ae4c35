"""What all leaks of the test systems have in common: how many people leak, and at which clients."""

from typing import Any

from pydantic import Field

from fedaudit.fl.clients.client import Client
from fedaudit.fl.runtime.ranges import AtLeastOne, AtLeastZero, Share
from fedaudit.fl.runtime.settings import settings


@settings
class Leak:
    """Settings beside the method's own."""

    share: Share = Field(default=0.0, description="of all people, how many leak; 0: nobody, the clean relative")
    everybody: AtLeastOne = Field(default=1, description="people whom all clients hold together")
    leakers: tuple[AtLeastZero, ...] = Field(default=(3,), description="the clients at which they leak")


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
