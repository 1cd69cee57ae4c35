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
        return self in _AGAINST_PEOPLE

    @property
    def words(self) -> str:
        """When a person, or an answer of the model, counts as exposed."""
        return _WORDS[self]


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
_AGAINST_PEOPLE = frozenset(
    {
        *(Aim.EXFILTRATION, Aim.MEMBERSHIP, Aim.ATTRIBUTE, Aim.INVERSION),
        *(Aim.RECONSTRUCTION, Aim.REGURGITATION, Aim.LINKAGE),
    }
)


@dataclass(frozen=True, kw_only=True)
class ThreatModel:
    position: Position
    conduct: Conduct = Conduct.HONEST_BUT_CURIOUS
    # "architecture", "auxiliary_data", "label_counts"; the first two together allow shadow training
    knows: frozenset[str] = frozenset()
