"""Groups of a config about how much is tried: replays, the time attacks may take, the audit of noise."""

from typing import Annotated

from pydantic import Field

from fedaudit.audit.settings.spec import Group, Whole

MOST_CLIENTS = 1_000_000

Played = tuple[
    Annotated[Whole, Field(ge=1, le=256)],
    Annotated[Whole, Field(ge=1, le=1000)],
    Annotated[Whole, Field(ge=1, le=10_000)],
]


class Replay(Group):
    """Messages the auditor recomputes, for the planted leak and the curve against n."""

    sizes: tuple[Annotated[Whole, Field(ge=1, le=1_000_000)], ...] = Field(
        default=(1, 2, 5, 20, 100, 500), max_length=50, description="examples behind a prototype"
    )
    clients: Whole = Field(default=10, ge=0, le=MOST_CLIENTS, description="clients to replay")
    groups: Whole = Field(default=100, ge=1, le=100_000, description="prototypes of each size")
    updates: tuple[Played, ...] = Field(
        default=((1, 1, 10), (1, 5, 10), (2, 1, 10), (2, 5, 10), (4, 1, 10), (4, 5, 10), (8, 1, 10), (8, 5, 10)),
        max_length=400,
        description="replayed updates: [examples behind each, local steps, how many]",
    )
