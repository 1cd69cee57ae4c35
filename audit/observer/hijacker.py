"""What a malicious server of split learning reads: the other half of an adversary that answers batches."""

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks.attack import Floats, Hijacker
from fedaudit.audit.case.case import KnownFederation
from fedaudit.fl.data.scale import denormalise, normalise


def find_hijacker(federation: KnownFederation, device: str) -> Hijacker | None:
    """How the run's own server reads activations; None where it follows the protocol, or nobody told."""
    server, streams, data = federation.compromise.server, federation.streams, federation.data
    if server is None or not server.answers:
        return None
    # as workers hand them to it, to the bit
    own = torch.from_numpy(data.train.x[federation.examples.spare]).to(device)
    images = denormalise(normalise(own, data), data)

    def read(activations: Floats) -> NDArray[np.float32]:
        sent = torch.from_numpy(np.ascontiguousarray(activations, np.float32)).to(device)
        return np.asarray(server.read_answered(sent, images, streams).cpu().numpy())

    return read
