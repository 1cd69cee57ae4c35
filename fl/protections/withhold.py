"""Withhold: clients do not send some kinds of messages at all.

Data minimisation (GDPR, Article 5(1)(c)), as a protection on the wire: what the server can do without is not
sent. Whether it can do without is for whoever runs the federation to know, so recorded messages can be withheld;
a simulation refuses to withhold what its method sends, because its server reads that. Other kinds stay as they
are, and may tell the same. Without kinds nothing changes.
"""

from collections.abc import Collection

from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.wire.protection import Protection, Sending


class Withhold(Protection):
    title = "Kinds of messages withheld"
    source = "Regulation (EU) 2016/679, Article 5(1)(c) (data minimisation)"

    @settings
    class Config:
        kinds: tuple[Kind, ...] = Field(default=(), description="kinds of messages that are not sent")

    def describe(self) -> str:
        return f"clients send all but {', '.join(self.config.kinds) or 'nothing'}, which they keep to themselves"

    def withholds(self) -> Collection[Kind]:
        kinds: tuple[Kind, ...] = self.config.kinds
        return kinds

    def apply(self, sending: Sending) -> None:
        for kind in self.config.kinds:
            sending.message.pop(kind, None)
