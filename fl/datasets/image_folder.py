"""Image folder: your own images, one folder a class: path/CLASS/anything.png.

Classes and images are in torchvision's order; hidden folders and files are left out. Images are resized to `size`
x `size`. The same fraction of every class is held out for testing, always the same files.
"""

from pathlib import Path

from pydantic import Field

from fedaudit.fl.data.dataset import Data, Dataset
from fedaudit.fl.data.images import describe_strays
from fedaudit.fl.datasets._arrays import hold_out, moments
from fedaudit.fl.datasets._folders import read_folders
from fedaudit.fl.runtime.ranges import AtLeastOne, ProperShare
from fedaudit.fl.runtime.settings import settings


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
        everything, found = read_folders(path, self.config.size, self.config.grayscale)
        train, test = hold_out(everything, self.config.test_fraction)
        mean, std = moments(train.x)
        about = f"The images of a folder. {describe_strays(found.left_out)}".strip()
        return Data(train=train, test=test, classes=found.classes, mean=mean, std=std, about=about)
