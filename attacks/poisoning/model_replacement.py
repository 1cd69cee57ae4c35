"""Model replacement: a backdoor, scaled up so that it outweighs everybody else in the mean.

Bagdasaryan, Veit, Hua, Estrin, Shmatikov. AISTATS 2020. arXiv:1807.00459, eq. 3: what the m compromised clients
learnt, times n / m of n heard. With `constrain` it is projected to the median honest norm after that, as against
a server that bounds norms (their constrain-and-scale, by projection and not by a term in the loss).
"""

from dataclasses import dataclass
from typing import Annotated

import torch
from pydantic import Field

from fedaudit.attacks.poisoning._backdoors import Backdoors
from fedaudit.attacks.poisoning._crowd import gathered
from fedaudit.attacks.poisoning._threat import OMNISCIENT
from fedaudit.attacks.poisoning._updates import KINDS
from fedaudit.fl.threats.adversary import Card, Colluded, Meeting


class ModelReplacement(Backdoors):
    card = Card(
        title="Model replacement",
        source="arXiv:1807.00459, eq. 3",
        does="puts the attacker's model with its backdoor in the place of everybody's",
        remedy="bound the norm of updates, and use a rule that selects or takes medians",
        threat=OMNISCIENT,
        kinds=KINDS,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Backdoors.Config):
        constrain: Annotated[bool, Field(description="whether what is sent is cut to the median honest norm")] = (
            False
        )

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gathered(meeting)
        if crowd is None:
            return Colluded(messages={})
        factor = crowd.heard / crowd.malicious

        def forge(client: int) -> torch.Tensor:
            change = crowd.own(client) * factor
            long = float(change.norm())
            cut = self.config.constrain and long > crowd.median_norm
            return change * (crowd.median_norm / long) if cut else change

        return crowd.sent(forge)
