"""Secure aggregation: the server reads the sum of a round's uploads and no single one.

Bonawitz et al. Practical Secure Aggregation for Privacy-Preserving Machine Learning. CCS 2017. What
that protocol achieves is simulated, not its cryptography: the method's server code gets as many uploads as
were sent, among which their sums are dealt out, and no other (fl/wire/sums.py). These sums are recorded as one
`aggregate` a round, which the server saw. Where a single client answered, the sum is that client's upload, and
the record says so.

The sum is exact and enters the ledger as released without noise: everybody who gets the next model
sees what it tells, and rounds that differ in one client can be subtracted. Methods of which kinds have no sum (a
loss, a cluster, the age of a model) are refused by their cards. No method is believed that its server needs no
more than sums: in every round it is asked (fl/clients/combining.py), and a server that makes something else of
single uploads, or reads some elsewhere than in combine(), ends the run with a sentence.
Clients agree on keys with each other, so that who takes part in a round knows who else does, and nobody's draw is
credited as secret from them; `cohort: hidden` states that they do not (anonymous channels, or a committee that
agrees in their place), which nothing here can test.
Clients are taken to be honest but curious, and the server not to collude with any of them. What travels
from client to client (relay) is not hidden.
"""

from collections.abc import Collection
from typing import Any, Literal

from pydantic import Field

from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.protection import Protection, Sending, Uploads


class SecureAggregation(Protection):
    title = "Secure aggregation"
    source = "Bonawitz et al., CCS 2017"
    enforced_by = "server"
    answers = frozenset(aim for aim in Aim if aim.is_against_people)

    @settings
    class Config:
        cohort: Literal["known", "hidden"] = Field(
            default="known",
            description="whether who takes part in a round knows who else does; hidden is taken on trust",
        )

    def describe(self) -> str:
        return (
            "secure aggregation: the server reads the sum of a round's uploads and no single one, except in a "
            "round with one upload"
            + (
                "; who takes part is stated to be hidden from all who do"
                if self.config.cohort == "hidden"
                else ""
            )
        )

    def apply(self, sending: Sending) -> None:
        """Nothing in a message changes."""

    def hides_single_uploads(self) -> bool:
        return True

    def tells_members(self) -> bool:
        return bool(self.config.cohort == "known")

    @classmethod
    def propose(cls, uploads: Uploads) -> dict[str, Any] | None:
        """Whatever clients upload is hidden in a sum."""
        return {} if uploads.kinds else None

    def refuses(self, uplink: Collection[Kind]) -> str:
        single = [k for k in uplink if k.summed is Summed.NO and k is not Kind.AGGREGATE]
        if not single:
            return ""
        return f"its server reads each client's {' and '.join(single)}, of which there is no useful sum"
