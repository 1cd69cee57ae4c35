"""The network that the federation trains; the auditor is given this file."""

from torch import Tensor, nn


class Net(nn.Module):
    """[b, 1, 8, 8] -> [b, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.fc1 = nn.Linear(8 * 4 * 4, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.max_pool2d(nn.functional.relu(self.conv(x)), 2)
        return self.fc2(nn.functional.relu(self.fc1(x.flatten(1))))
