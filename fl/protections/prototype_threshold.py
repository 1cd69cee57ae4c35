"""Prototype threshold: a client says nothing of a class of which it holds fewer than `least` examples.

The minimum-frequency rule for small cells in official statistics (Hundepool et al., Statistical
Disclosure Control, Wiley 2012), for prototypes: the prototype, its class and its count are withheld. A
message that is left with no class is sent without prototypes. The prototype of one example is that
example's features, so this removes the worst leak; it is no differential privacy: two releases of a
class that grew by one in between still differ by that one example, and a class that is missing is
known to be small. Other counts that a method sends (num_examples, label_counts) stay. least 1 changes
nothing.
"""

from collections.abc import Collection

from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.protection import Protection, Sending


class PrototypeThreshold(Protection):
    title = "Prototypes of small classes withheld"
    source = "Hundepool et al., Statistical Disclosure Control, 2012 (minimum frequency)"
    kinds = (Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS)
    answers = frozenset({Aim.INVERSION, Aim.MEMBERSHIP, Aim.ATTRIBUTE})
    strength = "least"

    @settings
    class Config:
        least: AtLeastOne = Field(
            default=20, description="k: examples that a class needs for its prototype to be sent"
        )

    def describe(self) -> str:
        return (
            f"prototype, label and count of a class are withheld by clients with fewer than "
            f"{self.config.least} examples of it"
        )

    def refuses(self, uplink: Collection[Kind]) -> str:
        if Kind.LOCAL_PROTOTYPES in uplink and Kind.PROTO_COUNTS not in uplink:
            return "nobody says how many examples are behind a prototype"
        return ""

    def apply(self, sending: Sending) -> None:
        sent, least = [k for k in self.kinds if k in sending.message], self.config.least
        if not sent or least == 1:
            return
        if Kind.PROTO_COUNTS not in sending.message:
            raise UserError(
                "prototype_threshold: the message does not say how many examples are behind its prototypes",
                hint="use a method that sends proto_counts",
            )
        counts = sending.message[Kind.PROTO_COUNTS]
        large = dict(zip(counts["classes"].tolist(), (counts["counts"] >= least).tolist(), strict=True))
        for kind in sent:
            payload = sending.message[kind]
            kept = [i for i, c in enumerate(payload["classes"].tolist()) if large.get(c, False)]
            if not kept:
                del sending.message[kind]
            elif len(kept) < len(payload["classes"]):
                sending.message[kind] = {name: value[kept] for name, value in payload.items()}
