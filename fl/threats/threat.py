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


class Aim(StrEnum):
    """What an adversary wants.

    Against people's data: the attacks that EDPB Opinion 28/2024 lists in paragraph 55, and linkage, by which a
    person or a client is recognised from message to message. Against the model: what it is made to do.
    """

    EXFILTRATION = "exfiltration"
    MEMBERSHIP = "membership"
    ATTRIBUTE = "attribute"
    INVERSION = "inversion"
    RECONSTRUCTION = "reconstruction"
    REGURGITATION = "regurgitation"
    LINKAGE = "linkage"
    AVAILABILITY = "availability"
    TARGETED = "targeted"
    BACKDOOR = "backdoor"
    INTEGRITY = "integrity"
    DROPOUT = "dropout"

    @property
    def is_against_people(self) -> bool:
        """Whether it is about people's data; otherwise about what the model does."""
        return self in _HARMS

    @property
    def harms(self) -> "tuple[Harm, ...]":
        """What an attack with this aim does to people, where it succeeds; nothing where it aims at the model."""
        return _HARMS.get(self, ())

    @property
    def words(self) -> str:
        """When a person, or an answer of the model, counts as exposed."""
        return _WORDS[self]


class Harm(StrEnum):
    """What can happen to people, whoever reads their data, in whatever message."""

    RECORD = "exact_record"
    RECONSTRUCTION = "reconstruction"
    MEMBERSHIP = "membership"
    DIFFUSE = "diffuse_membership"
    ATTRIBUTE = "attribute"
    CLIENT_FACT = "client_fact"
    LINKAGE = "linkage"

    @property
    def is_mild(self) -> bool:
        """Whether being exposed to it is of medium severity at most."""
        return self in (Harm.DIFFUSE, Harm.CLIENT_FACT)

    @property
    def label(self) -> str:
        """A few words."""
        return _HARM_WORDS[self][0]

    @property
    def words(self) -> str:
        """When a person, or a client, counts as hit."""
        return _HARM_WORDS[self][1]


_WORDS = {
    Aim.EXFILTRATION: "the record, or a scaled copy of it, stands in a message",
    Aim.MEMBERSHIP: "whoever has a person's record can tell that it was trained on (in a hospital: a patient), "
    "at 1 % false alarms",
    Aim.ATTRIBUTE: "a fact about a client's examples is learned; people in groups of fewer than five are exposed",
    Aim.INVERSION: "a record that singles a person out is recovered from a mean, a synthetic example or a model",
    Aim.RECONSTRUCTION: "a record that singles a person out is recovered from a change of the model",
    Aim.REGURGITATION: "a model emits the record",
    Aim.LINKAGE: "a person or message is traced to its client",
    Aim.AVAILABILITY: "an answer is lost",
    Aim.TARGETED: "an answer of the targeted class is lost",
    Aim.BACKDOOR: "an input with the trigger gets the attacker's answer",
    Aim.INTEGRITY: "an answer is lost to a false claim",
    Aim.DROPOUT: "an answer is lost while clients are away",
}
_HARMS = {
    Aim.EXFILTRATION: (Harm.RECORD,),
    Aim.MEMBERSHIP: (Harm.MEMBERSHIP, Harm.DIFFUSE),
    Aim.ATTRIBUTE: (Harm.ATTRIBUTE, Harm.CLIENT_FACT),
    Aim.INVERSION: (Harm.RECONSTRUCTION,),
    Aim.RECONSTRUCTION: (Harm.RECONSTRUCTION,),
    Aim.REGURGITATION: (Harm.RECONSTRUCTION,),
    Aim.LINKAGE: (Harm.LINKAGE,),
}
_HARM_WORDS = {
    Harm.RECORD: (
        "an exact record",
        "a value stands in what is read that is there only if the person's data are",
    ),
    Harm.RECONSTRUCTION: (
        "reconstruction",
        "what is recovered is nearer to the person's record than to all others of a gallery",
    ),
    Harm.MEMBERSHIP: ("membership", "the person scores above 99 of 100 people whose data were not used"),
    Harm.DIFFUSE: ("diffuse membership", "the person scores above 90 of 100 people whose data were not used"),
    Harm.ATTRIBUTE: (
        "an attribute of a person",
        "what is stated of the person, or of a group of fewer than five, is right",
    ),
    Harm.CLIENT_FACT: (
        "a fact about a client",
        "the classes, shares or numbers of examples that are stated of a client are right",
    ),
    Harm.LINKAGE: ("linkage", "a message or person is given to the right client"),
}


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    position: Position
    conduct: Conduct = Conduct.HONEST_BUT_CURIOUS
    # "architecture", "auxiliary_data", "label_counts"; the first two together allow shadow training
    knows: frozenset[str] = frozenset()
