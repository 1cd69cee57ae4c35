"""Threat models: where an adversary sits, how it behaves, what it knows and what it wants.

Shared by attacks that read what crossed the wire and by adversaries that act in a federation.
"""

from dataclasses import dataclass
from enum import StrEnum


class Position(StrEnum):
    """Where the adversary sits; decides what it could see."""

    SERVER = "server"
    CLIENT = "client"  # another client: sees every broadcast
    MEDIATOR = "mediator"
    NEXT_CLIENT = "next_client"  # the next client of a relay
    # several clients: broadcasts, and what each of them sent; an attack says who they are and reads no other
    COLLUDING_CLIENTS = "colluding_clients"
    PUBLIC = "public"  # whoever gets the final model


class Conduct(StrEnum):
    HONEST_BUT_CURIOUS = "honest_but_curious"
    MALICIOUS = "malicious"


class Goal(StrEnum):
    RECONSTRUCTION = "reconstruction"
    MEMBERSHIP = "membership"
    INFERENCE = "inference"
    POISONING = "poisoning"


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    position: Position
    conduct: Conduct = Conduct.HONEST_BUT_CURIOUS
    # "architecture", "auxiliary_data", "label_counts"; the first two together allow shadow training
    knows: frozenset[str] = frozenset()
