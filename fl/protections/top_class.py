"""Top classes: of each row of outputs only the likeliest classes are marked, all others count alike.

What is left of logits in label-only exchange, such as DS-FL's hard labels and the label-only answers against
membership inference (Choquette-Choo et al., ICML 2021, arXiv:2007.14321). Of each row of outputs the `keep`
largest become the mean of all that are kept in the message, and the others the mean of all others, so that a
server that averages logits reads them in their own scale. How sure a model is of a single example no longer
shows; two numbers of the message do. With as many as there are classes nothing changes. It promises no
differential privacy.
"""

import torch
from pydantic import Field

from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.protection import Protection, Sending


class TopClass(Protection):
    title = "Likeliest classes alone"
    source = "after arXiv:2007.14321"
    kinds = (Kind.PUBLIC_LOGITS, Kind.FEATURES)
    answers = frozenset({Aim.ATTRIBUTE, Aim.MEMBERSHIP})

    @settings
    class Config:
        keep: AtLeastOne = Field(
            default=1, description="classes of each row that are marked; all changes nothing"
        )

    def describe(self) -> str:
        return (
            f"of each row of outputs the likeliest {self.config.keep} of the classes, all at one number, and the "
            "others at another"
        )

    def apply(self, sending: Sending) -> None:
        for kind in self.kinds:
            payload = sending.message.get(kind, {})
            logits = payload.get("logits")
            if logits is None or not logits.numel() or self.config.keep >= logits.shape[1]:
                continue
            marked = torch.zeros_like(logits, dtype=torch.bool)
            marked.scatter_(1, logits.topk(self.config.keep, 1).indices, True)
            high, low = logits[marked].double().mean(), logits[~marked].double().mean()
            sending.message[kind] = payload | {"logits": torch.where(marked, high, low).to(logits.dtype)}
