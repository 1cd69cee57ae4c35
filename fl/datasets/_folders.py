"""Folders of images, one folder a class, read through torchvision and Pillow."""

from pathlib import Path

import numpy as np

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.images import read_image
from fedaudit.fl.datasets._arrays import images
from fedaudit.fl.runtime.errors import UserError


def read_folders(root: Path, size: int, grayscale: bool) -> tuple[Arrays, tuple[str, ...]]:
    """All images below root/CLASS/ in file order, `size` x `size`; classes in alphabetical order."""

    from fedaudit.fl.runtime.vision import torchvision

    try:
        folder = torchvision.datasets.ImageFolder(str(root))
    except OSError as error:
        raise UserError(
            f"{root} is not a folder of images: {error}",
            hint="it needs one folder a class, each with images (.png, .jpg, ...)",
        ) from error
    pixels = np.empty((len(folder.samples), size, size, 1 if grayscale else 3), dtype=np.uint8)
    for i, (path, _) in enumerate(folder.samples):
        pixels[i] = read_image(Path(path), grayscale=grayscale, size=size)
    arrays = images(pixels.transpose(0, 3, 1, 2), np.array(folder.targets))
    return arrays, tuple(folder.classes)
