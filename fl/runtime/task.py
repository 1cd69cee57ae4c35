"""The contract of a task: what is wanted of a network for an example, and how far an answer is from it.

A task is a loss and the shape of labels. Whoever trains, evaluates or attacks a network asks its task, and nobody
assumes classes. Labels y are arrays whose first dimension is the examples.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import Plugin, load, name_of

Labels = NDArray[Any]


class Task(Plugin):
    """Subclasses say what labels look like, and write the loss and the score of an answer."""

    title: str
    words: ClassVar[str]  # what the network gives for an example
    separable: ClassVar[bool] = True  # the loss of a batch is the mean of a loss of each example by itself
    has_classes: ClassVar[bool] = False  # an example is of one class, whose name is in the data's `classes`
    fewest_names: ClassVar[int]  # of classes or findings, which outputs have; 0: numbers have none
    by_place: ClassVar[bool] = False  # the network answers for every place of an example, [n, width, *places]

    @abstractmethod
    def misfit(self, y: Labels, n: int) -> str:
        """What is wrong with the labels of n examples, as the end of a sentence; empty where they are right."""

    @abstractmethod
    def width(self, y: Labels) -> int:
        """How many numbers the network gives for an example, or for each place of it."""

    def fits_names(self, y: Labels, names: int) -> bool:
        """Whether so many names of classes or findings fit the labels."""
        return names in (0, self.width(y)) if self.fewest_names else not names

    @abstractmethod
    def losses(self, out: Tensor, y: Tensor) -> Tensor:
        """[n] the loss of each example, of answers [n, width, ...]."""

    def loss(self, out: Tensor, y: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
        """Of a batch: the mean is what is trained."""
        each = self.losses(out, y)
        return each.mean() if reduction == "mean" else each.sum()

    @abstractmethod
    def scores(self, out: Tensor, y: Tensor) -> Tensor:
        """[n] float32, how right each answer is, from 0 to 1."""

    def groups(self, y: Labels) -> NDArray[np.int64] | None:
        """[n] which group each example is of, from 0, by cuts that are public; None where there are none."""
        return None

    def name_groups(self, classes: tuple[str, ...]) -> tuple[str, ...]:
        """A name for each group, of data with these names of classes; none where there are no groups."""
        return ()

    @abstractmethod
    def mislabel(self, y: Labels, draws: Sequence[int], classes: int) -> Labels:
        """Wrong labels in the place of y [n, ...], by n draws from 0 to 2^64, that only memory can tell.

        Draws decide alike whose label it is: the same draw and the same y give the same wrong one.
        """

    def learn_scale(self, y: Labels) -> "Task":
        """The task with cuts and scale of labels that are public, [m, ...], where it takes any."""
        return self

    def __repr__(self) -> str:
        return name_of(type(self))


def load_task(name: str, where: str = "") -> type[Task]:
    """The class of a task by its name; raises UserError, of the key `where`, naming the nearest known one."""
    return load("fedaudit.fl.tasks", name, Task, where)


def choose_task(y: Labels, shape: tuple[int, ...]) -> Task:
    """What labels allow, of examples of this shape, channels first.

    Raises UserError where they allow several things, or none.
    """
    kind, name = y.dtype.kind, ""
    if kind in "iu" and y.ndim == 1:
        name = "classify"
    elif kind in "biu" and y.ndim == 2 and not ((y != 0) & (y != 1)).any():
        name = "several"
    elif kind == "f" and y.ndim == 1:
        name = "regression"
    elif kind in "iu" and y.ndim > 1 and y.shape[1:] == shape[1:]:
        name = "segment"
    if not name:
        pairs = kind == "f" and y.shape[1:] == (2,)
        raise UserError(
            f"labels are {y.dtype} {list(y.shape)} of examples {list(shape)}, which could be "
            + ("times and events, or two numbers" if pairs else "no task's"),
            hint="task: survival, where they are times and events"
            if pairs
            else "labels are whole numbers [N] or one a place, 0 or 1 [N, L], or real numbers [N]",
        )
    found: Task = load_task(name)()
    return found
