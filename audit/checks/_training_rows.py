"""How many examples a client's code trains on, counted where they enter its network, whatever its card says.

A method may say that its clients count what they made or repeated (`counts_made`). Then the number that a client
sends is not how many examples it holds, and the auditor lets its code train once more, one pass, and counts the
rows that reach the first layer with weights.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import nn

from fedaudit.audit.controls.lab import Lab, find_received_message
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.training.local import count_epochs


class ReplayedClient(NamedTuple):
    """What a client's code states when it runs once more, and how many examples it trains on in a pass."""

    stated: int
    rows: int


def count_training_rows(lab: Lab | None, recorded: Sequence[Artifact], sent: Artifact) -> ReplayedClient | None:
    """Of the sender of `sent` in its round; None where that cannot be played: no code, or nothing to train from.

    `recorded` must hold the broadcasts of that round.
    """
    before = find_received_message(recorded, sent)
    if lab is None or Kind.GLOBAL_MODEL not in before or sent.sender.index is None or lab.private is not None:
        return None
    once = replace(lab.method.config, local_epochs=1)
    if count_epochs(once, 1) > 1:
        return None  # it makes as many passes as its steps need
    method = type(lab.method)(once)
    lab, rows = replace(lab, method=method), [0]
    first = next((m for m in lab.net.modules() if [*m.parameters(recurse=False)]), None)
    if first is None:
        return None

    def count(_: nn.Module, given: tuple[torch.Tensor, ...]) -> None:
        rows[0] += len(given[0]) if torch.is_grad_enabled() and lab.net.training else 0

    hook = first.register_forward_pre_hook(count)
    try:
        reply = lab.train(sent.sender.index, sent.round, before)
    except (KeyError, NotImplementedError):  # it needs what only a whole round gives it
        return None
    finally:
        hook.remove()
    stated = reply.message.get(Kind.NUM_EXAMPLES)
    return None if stated is None or not rows[0] else ReplayedClient(int(stated["count"]), rows[0])
