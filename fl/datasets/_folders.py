"""Folders of images, one folder a class, read through torchvision and Pillow."""

from pathlib import Path

import numpy as np

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.datasets._arrays import images
from fedaudit.fl.runtime.errors import UserError


def read_folders(root: Path, size: int, grayscale: bool) -> tuple[Arrays, tuple[str, ...]]:
    """All images below root/CLASS/ in file order, `size` x `size`; classes in alphabetical order."""
    from PIL import Image

    from fedaudit.fl.runtime.vision import torchvision

    try:
        folder = torchvision.datasets.ImageFolder(str(root))
    except OSError as error:
        raise UserError(
            f"{root} is not a folder of images: {error}",
            hint="it needs one folder a class, each with images (.png, .jpg, ...)",
        ) from error
    mode = "L" if grayscale else "RGB"
    pixels = np.empty((len(folder.samples), size, size, len(mode)), dtype=np.uint8)
    for i, (path, _) in enumerate(folder.samples):
        try:
            with Image.open(path) as image:
                resized = image.convert(mode).resize((size, size), Image.Resampling.BILINEAR)
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise UserError(
                f"cannot read the image {path}: {error}", hint="remove it or save it again"
            ) from error
        pixels[i] = np.asarray(resized).reshape(size, size, len(mode))
    arrays = images(pixels.transpose(0, 3, 1, 2), np.array(folder.targets))
    return arrays, tuple(folder.classes)
