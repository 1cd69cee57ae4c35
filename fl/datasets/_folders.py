"""Folders of images, one folder a class, read through Pillow."""

from pathlib import Path

import numpy as np

from fedaudit.fl.data.dataset import Arrays
from fedaudit.fl.data.images import ClassFolders, list_class_folders, read_image
from fedaudit.fl.runtime.errors import UserError


def read_folders(root: Path, size: int, grayscale: bool) -> tuple[Arrays, ClassFolders]:
    """All images below root/CLASS/, `size` x `size`, in torchvision's order, and how they were listed.

    Raises UserError where there is no class, or a class has no image.
    """
    try:
        found = list_class_folders(root)
        filled = {name for _, name in found.images}
        if problem := next((f"{name!r} has no image" for name in found.classes if name not in filled), ""):
            raise OSError(problem)
        if not found.classes:
            raise OSError("it holds none of a class")
    except OSError as error:
        raise UserError(
            f"{root} is not a folder of images: {error}",
            hint="it needs one folder a class, each with images (.png, .jpg, ...)",
        ) from error
    x = np.empty((len(found.images), 1 if grayscale else 3, size, size), np.float32)
    for i, (path, _) in enumerate(found.images):
        x[i] = read_image(path, grayscale=grayscale, size=size).transpose(2, 0, 1)
    return Arrays(x=x, y=np.array([found.classes.index(name) for _, name in found.images], np.int64)), found
