"""Condensation for adversaries: images of their own, condensed as the clients of the federation do.

Implements fedaudit.attacks.attack.Condenser with the settings of the run, and sends the result through the run's
protections. Which process condenses which group changes no number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.attacks.attack import Examples
from fedaudit.audit.case.case import ClientCode
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.families.condensation import ClassBatch, Condensing, condense
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.methods.feddc_condense import FedDCCondense, condensing
from fedaudit.fl.model import Net, initialise
from fedaudit.fl.runtime.side_by_side import collect
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.layout import channels_last
from fedaudit.fl.wire.protection import Message, Protection
from fedaudit.fl.wire.wire import Wire

_TOGETHER = 12  # groups that share their random networks, few enough that all cores have some


@dataclass(frozen=True, kw_only=True)
class AuxiliaryCondenser:
    """Condenses with the settings of the run and behind its protections; one image a group."""

    card: Card
    settings: Condensing
    protections: Sequence[Protection]
    make: Callable[[], Net]
    data: Data
    device: str = "cpu"

    def __call__(self, groups: Sequence[Examples], seed: int) -> NDArray[np.float32]:
        """[groups, C, H, W] as sent; see fedaudit.attacks.attack.Condenser. Groups must not be empty."""
        site = CondensingSite(self.make, self.data, self.settings, seed, self.device)
        jobs = [(i, list(groups[i : i + _TOGETHER])) for i in range(0, len(groups), _TOGETHER)]
        made = torch.cat([torch.from_numpy(images) for images in collect(jobs, site.condense)])
        sent = [self._send(x, int(g.y[0]), seed, i) for i, (x, g) in enumerate(zip(made, groups, strict=True))]
        return np.stack(sent)

    def _send(self, image: Tensor, label: int, seed: int, number: int) -> NDArray[np.float32]:
        """What arrives of an image [1, C, H, W]; [C, H, W]."""
        streams = Streams(Streams(seed).key("sent", number))
        wire = Wire(self.card, streams, self.protections)
        message: Message = {
            Kind.CONDENSED_IMAGES: {"images": image},
            Kind.CONDENSED_LABELS: {"labels": torch.tensor([label])},
        }
        arrived = wire.uplink(0, message, 0, {})
        if arrived is None or Kind.CONDENSED_IMAGES not in arrived:
            return np.full(tuple(image.shape[1:]), np.nan, np.float32)
        return np.asarray(arrived[Kind.CONDENSED_IMAGES]["images"][0].numpy(), np.float32)


class CondensingSite:
    """The network that images are condensed with."""

    def __init__(self, make: Callable[[], Net], data: Data, settings: Condensing, seed: int, device: str) -> None:
        self._device, self._data, self._settings, self._streams = device, data, settings, Streams(seed)
        self._net = initialise(make, self._streams)
        channels_last(self._net)
        self._net.to(device)

    def condense(self, job: tuple[int, list[Examples]]) -> NDArray[np.float32]:
        """[m, 1, C, H, W] of the m groups that begin at number `job[0]`."""
        number, groups = job
        cells = [
            ClassBatch(
                normalise(torch.from_numpy(np.ascontiguousarray(g.x)).to(self._device), self._data), int(g.y[0])
            )
            for g in groups
        ]
        made = condense(self._net, cells, self._settings, self._streams.torch("condense", number))
        return np.asarray(made.cpu())


def condenser(
    clients: ClientCode, card: Card, protections: Sequence[Protection], data: Data
) -> AuxiliaryCondenser | None:
    """The run's condensation; None where the method condenses nothing."""
    method, make = clients.method, clients.network.make
    if not isinstance(method, FedDCCondense) or make is None:
        return None
    return AuxiliaryCondenser(
        card=card,
        settings=replace(condensing(method.config), images_per_class=1),
        protections=protections,
        make=make,
        data=data,
        device=clients.device,
    )
