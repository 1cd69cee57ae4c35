"""Kinds that no attack reads, and why each tells nothing that another does not.

tests/contracts/test_kinds_are_read.py holds this against every attack and every method: a kind that a card can
send is read by an attack, or stands here.
"""

from collections.abc import Mapping
from types import MappingProxyType

from fedaudit.fl.kinds import Kind

UNREAD: Mapping[Kind, str] = MappingProxyType(
    {
        Kind.GLOBAL_LOGIT_TABLE: "the mean of clients' tables, each of which the server reads by itself; a "
        "client could take out the table of the only other one",
        Kind.STALENESS: "the step of the server that a client began from: when it asked, not what it holds",
        Kind.ALLOCATION: "made by the server from class counts that attacks read as they are sent; other clients "
        "see sums of them",
        Kind.OVERSAMPLE_DECAY: "one number for everybody, from class counts that attacks read as they are sent",
        Kind.TRAIN_ORDER: "sent to clients, and made of nobody's examples",
        Kind.HEARTBEAT: "says that a client is at work, and nothing of its examples",
        Kind.ROLLBACK_REQUEST: "asks for a model once more, and says nothing of anybody's examples",
        Kind.SOFT_DEADLINE: "a time that the server sets from devices, not from examples",
    }
)
