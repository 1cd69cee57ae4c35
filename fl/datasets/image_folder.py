"""Image folder: your own images, one folder a class: path/CLASS/anything.png.

Classes and images are in torchvision's order; hidden folders and files are left out. Images are resized to `size`
x `size`. The same fraction of every class is held out for testing, always the same files.
"""

from pathlib import Path

import numpy as np
from pydantic import Field

from fedaudit.fl.data.dataset import Arrays, Data, Dataset
from fedaudit.fl.data.images import describe_strays, list_class_folders, read_image
from fedaudit.fl.datasets._arrays import hold_out, moments
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne, ProperShare
from fedaudit.fl.runtime.settings import settings

HINT = "it needs one folder a class, each with images (.png, .jpg, ...)"


class ImageFolder(Dataset):
    title = "Images of your own"
    source = ""

    @settings
    class Config:
        path: str = Field(description="folder that holds one folder of images for each class")
        size: AtLeastOne = Field(default=32, description="height and width that images are resized to, in pixels")
        grayscale: bool = Field(default=False, description="whether images are turned to one grey channel")
        test_fraction: ProperShare = Field(
            default=0.2, description="share of every class that is held out for testing"
        )

    def load(self) -> Data:
        path = Path(self.config.path).expanduser()
        try:
            found = list_class_folders(path)
        except OSError as error:
            raise UserError(f"{path} is not a folder of images: {error}", hint=HINT) from error
        with_images = {name for _, name in found.images}
        if empty := [name for name in found.classes if name not in with_images] or not found.classes:
            what = f"{empty[0]!r} holds no image" if found.classes else "it holds no folder of a class"
            raise UserError(f"{path} is not a folder of images: {what}", hint=HINT)
        size = self.config.size
        x = np.empty((len(found.images), 1 if self.config.grayscale else 3, size, size), np.float32)
        for i, (file, _) in enumerate(found.images):
            x[i] = read_image(file, grayscale=self.config.grayscale, size=size).transpose(2, 0, 1)
        everything = Arrays(x=x, y=np.array([found.classes.index(name) for _, name in found.images], np.int64))
        train, test = hold_out(everything, self.config.test_fraction)
        mean, std = moments(train.x)
        about = f"The images of a folder. {describe_strays(found.left_out)}".strip()
        return Data(train=train, test=test, classes=found.classes, mean=mean, std=std, about=about)
