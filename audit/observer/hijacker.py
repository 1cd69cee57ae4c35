"""What a malicious server of split learning reads: the other half of an adversary that answers batches."""

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats, Hijacker
from fedaudit.audit.case.case import Case
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.fl.data.scale import denormalise, normalise


def find_hijacker(case: Case) -> Hijacker | None:
    """How the run's own server reads activations; None where it follows the protocol, or nobody told."""
    bad = case.compromise.server if isinstance(case, SimulatedCase) else None
    if bad is None or not bad.answers:
        return None
    # as workers hand them to it, to the bit
    own = torch.from_numpy(case.data.train.x[case.examples.spare]).to(case.device)
    images = denormalise(normalise(own, case.data), case.data)
    server, streams = bad, case.streams

    def read(activations: Floats) -> NDArray[np.float32]:
        sent = torch.from_numpy(np.ascontiguousarray(activations, np.float32)).to(case.device)
        return np.asarray(server.read_answered(sent, images, streams).cpu().numpy())

    return read
