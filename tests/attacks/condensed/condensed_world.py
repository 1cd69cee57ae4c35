"""Condensed images for attack tests: as each client's message, and as replays of every size.

An image of n images is their mean in normalised space with noise of its own, which is what gradient
matching gives on average; `blank` images are noise alone.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.world import World, _classes

NOISE = 0.3


class CondensedWorld(World):
    def __init__(self, sizes: tuple[int, ...] = (1, 2, 10), blank: bool = False) -> None:
        super().__init__(sizes=())
        self.blank, rng = blank, np.random.default_rng(5)
        self.artifacts = []
        for k in range(len(self.clients)):
            own = [self.clients[k].of_class(c) for c in _classes(k)]
            images = np.stack([self.image(x, rng) for x in own])
            self.artifacts += message(f"r00003/client-{k}.uplink", k, images, _classes(k))
        for n in sizes:
            for i in range(30):
                k = i % len(self.clients)
                label = _classes(k)[i // len(self.clients) % 2]
                pool = self.clients[k].of_class(label)
                group = pool[rng.choice(len(pool), n, replace=False)]
                for init in ("noise", "real") if n == 1 else ("noise",):
                    image = self.image(group, rng) if init == "noise" else 3 * group[0] - 1
                    name = f"replay/condensed-{init}/n{n}/{i}"
                    self.groups[f"{name}/condensed_images"] = group
                    note = {"n": n, "init": init}
                    self.artifacts += message(name, k, image[None], [label], "replayed", note)

    def image(self, images: NDArray[Any], rng: np.random.Generator) -> NDArray[Any]:
        noise = rng.standard_normal(images.shape[1:])
        if self.blank:
            return noise.astype(np.float32)
        mean = images.mean(0)
        return ((mean - 0.3) / 0.4 + NOISE * noise).astype(np.float32)


def message(
    name: str,
    client: int,
    images: NDArray[Any],
    labels: list[int],
    origin: str = "recorded",
    note: dict[str, Any] | None = None,
) -> list[Artifact]:
    payloads = {Kind.CONDENSED_IMAGES: {"images": images}, Kind.CONDENSED_LABELS: {"labels": np.array(labels)}}
    return [
        Artifact(
            id=f"{name}/{kind}",
            kind=kind,
            channel=Channel.UPLINK,
            round=3,
            sender=Party.client(client),
            seen_by=("server",),
            payload=payload,
            origin=origin,
            note=note or {},
        )
        for kind, payload in payloads.items()
    ]
