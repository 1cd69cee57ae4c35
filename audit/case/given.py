"""Examples and networks as a caller has them, made what an attack takes: data sets, loaders, any outputs."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedaudit.audit.case.estimators import wrap_estimator
from fedaudit.audit.case.networks import count_outputs
from fedaudit.fl.data.dataset import MOST_CHANNELS, Arrays
from fedaudit.fl.runtime.errors import UserError, quote_error, suggest_name
from fedaudit.fl.runtime.task import Task, choose_task

AS_NUMBERS = (
    "fill them, and write texts as numbers, as the model's own steps do: of a pipeline of scikit-learn's give "
    "its last step, and what the steps before it make of x"
)
ENOUGH = 20  # answers of one number each, all from 0 to 1: logits are never that
Names = Sequence[str]  # of classes, in the order of the logits


def make_examples(
    name: str,
    given: Any,
    shape: tuple[int, ...] | None = None,
    classes: Names | None = None,
    *,
    task: Task | None = None,
    like: Arrays | None = None,
) -> Arrays:
    """Examples given as (x, y), or as a Dataset, a DataLoader or a list of such pairs.

    Images are [N, C, H, W] from 0 to 1 (or bytes), all others any numbers [N, ...], such as rows [N, columns];
    labels are as `task` has them, by default as their shape allows, or names of `classes`. None: no examples of
    `shape`, with labels of the shape of those `like` them. Raises UserError that names what is wrong.
    """
    if given is None:
        labels = np.zeros(0, np.int64) if like is None else like.y[:0]
        return Arrays(x=np.zeros((0, *(shape or (1, 1, 1))), np.float32), y=labels)
    try:
        x, y = (to_array(values) for values in _pair(given))
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} are no pair of examples and labels",
            hint=f"{name}=(x, y), or a Dataset or DataLoader of such pairs",
        ) from error
    x = _read_x(name, x)
    if shape is not None and x.shape[1:] != shape:
        flat = 2 in (len(shape), x.ndim - 1)
        raise UserError(
            f"{name}: examples are {list(x.shape[1:])}, and members {list(shape)}",
            hint=f"give them alike{'; images of one channel as x[:, None]' if flat else ''}",
        )
    return Arrays(x=x, y=_read_y(name, y, x, classes, task))


def _pair(given: Any) -> tuple[Any, Any]:
    """(x, y) itself, or stacked from whatever gives examples, or batches of them, one after the other."""
    if isinstance(given, tuple) and len(given) == 2:
        return given
    batched = isinstance(given, torch.utils.data.DataLoader) and given.batch_size is not None
    is_indexed = isinstance(given, torch.utils.data.Dataset) and hasattr(given, "__len__")
    every = map(given.__getitem__, range(len(given))) if is_indexed else given  # it need not end by itself
    x, y = zip(*((one, label) for one, label in every), strict=True)
    join = np.concatenate if batched else np.stack
    return join([to_array(one) for one in x]), join([to_array(label) for label in y])


def _read_x(name: str, x: NDArray[Any]) -> NDArray[np.float32]:
    if x.ndim == 4 and x.dtype == np.uint8:
        x = x / np.float32(255)
    if x.ndim == 2 and x.dtype.kind in "iub":
        x = x.astype(np.float32)
    problem, hint = "", "give images [N, channels, height, width] from 0 to 1, or rows of a table [N, columns]"
    if x.ndim == 3 and x.dtype.kind in "iu":
        problem, hint = f"{x.dtype} {list(x.shape)}", f"{hint}; of images of one channel x[:, None]"
    elif x.ndim < 2 or x.dtype.kind != "f":
        problem = f"{x.dtype} {list(x.shape)}"
        hint = AS_NUMBERS if x.ndim == 2 else hint
    elif not np.isfinite(x).all():
        problem, hint = f"{int((~np.isfinite(x)).sum()):,} numbers that are NaN or infinite", AS_NUMBERS
    elif x.ndim == 4 and x.shape[1] > MOST_CHANNELS >= x.shape[3]:
        problem, hint = f"{list(x.shape)}", "the channels seem to stand last: x.permute(0, 3, 1, 2)"
    elif x.ndim == 4 and x.size and (x.min() < 0 or x.max() > 1):
        low, high = f"{x.min():g}", f"{x.max():g}"
        problem = f"from {low} to {high}"
        hint = "give images from 0 to 1, and mean= and std= for what the model sees"
        hint = "x / 255" if x.min() >= 0 and 1 < x.max() <= 255 and x.max() > 200 else hint
        raise UserError(f"{name}: examples go {problem}", hint=hint)
    if problem:
        raise UserError(f"{name}: examples are {problem}", hint=hint)
    return x.astype(np.float32)


def _read_y(
    name: str, y: NDArray[Any], x: NDArray[Any], classes: Names | None, task: Task | None
) -> NDArray[Any]:
    if y.dtype.kind in "US" or (y.dtype == object and all(isinstance(v, str) for v in y.flat)):
        return _number_names(name, y, classes)
    n = len(x)
    if y.shape == (n, 1):
        y = y[:, 0]
    if y.dtype.kind == "f" and y.shape == (n,) and np.isin(y, (0, 1)).all():
        y = y.astype(np.int64)  # as of a loss of one logit
    is_binary = y.ndim == 2 and len(y) == n and bool(np.isin(y, (0, 1)).all())
    if task is None and is_binary and y.shape[1] > 1 and (y.sum(1) == 1).all():
        raise UserError(
            f"{name}: labels are {y.dtype} {list(y.shape)}, one of each row 1",
            hint='of one-hot labels y.argmax(1); task="several" where a row may have more',
        )
    if y.shape[:1] != (n,):
        raise UserError(f"{name}: labels are {y.dtype} {list(y.shape)}", hint=f"{n:,} labels, one an example")
    try:
        wanted = task or choose_task(y, x.shape[1:])
    except UserError as error:
        raise UserError(f"{name}: {error.sentence}", hint=error.hint) from error
    if wrong := wanted.misfit(y, n):
        raise UserError(f"{name}: labels are {wrong}", hint=f"the task is {wanted!r}: {wanted.words}")
    return y.astype(np.float32 if y.dtype.kind == "f" else np.int64)


def _number_names(name: str, y: NDArray[Any], classes: Names | None) -> NDArray[np.int64]:
    if classes is None:
        raise UserError(
            f"{name}: labels are names, and which of the model's outputs is which is not said",
            hint="classes=[...], their names in the order of the outputs; or whole numbers from 0",
        )
    return np.array([number_class(str(v), classes) for v in y.flat], np.int64)


def number_class(given: Any, classes: Names | None) -> int:
    """The number of a class that is given by its number or its name. Raises UserError."""
    if isinstance(given, str) and classes is not None:
        if given not in classes:
            raise UserError(
                f"{given!r} is none of the classes",
                hint=suggest_name(given, classes, f"there are: {', '.join(classes)}"),
            )
        return list(classes).index(given)
    try:
        return int(given)
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{given!r:.60} is no label", hint="a whole number from 0; names need classes=[...]"
        ) from error


def to_array(values: Any) -> NDArray[Any]:
    """An array of an array or a tensor; numbers that numpy has no type for become float32."""
    if isinstance(values, Sequence) and values and isinstance(values[0], Tensor):
        return np.stack([to_array(v) for v in values])
    if not isinstance(values, Tensor):
        return np.asarray(values)
    values = values.detach().cpu()
    return np.asarray(values.float() if values.dtype == torch.bfloat16 else values)


def prepare_network(net: Any, x: NDArray[np.float32], width: int, task: Task) -> tuple[nn.Module, int]:
    """A copy of float32 that answers examples x [n, ...] as the task wants, and how many numbers it gives.

    `net` stays as it is, and n is at least 1. Answers are what it gives, or stand in what it gives: named logits,
    as the only numbers [n, c], or as the only ones of `width` columns. One number an example is a column, and of
    two classes (0, z). A fitted model of scikit-learn's kind is asked for its probabilities. Raises UserError
    where none are.
    """
    net = wrap_estimator(net, task)
    if not isinstance(net, nn.Module) or isinstance(net, torch.jit.ScriptModule):
        what = "compiled by TorchScript" if isinstance(net, nn.Module) else f"a {type(net).__name__}"
        raise UserError(
            f"the model is {what}, expected a torch.nn.Module with its weights",
            hint="of a class pass an instance; weights of a file go in by load_state_dict()",
        )
    if not net.state_dict():
        raise UserError("the model has no weights", hint="pass a network that was trained")
    made, given = _copy(net).float().cpu(), torch.from_numpy(x)
    if not task.by_place:
        made.register_forward_hook(partial(_give_logits, width, task.has_classes))
    try:
        found = count_outputs(made, given, task)
        if task.has_classes:
            with torch.no_grad():
                _refuse_sigmoid(made(given))
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        raise UserError(
            f"the model refuses a batch of shape {list(x.shape)}: {quote_error(error)}",
            hint="it takes images [N, channels, height, width] or rows [N, columns], float32, and gives logits "
            f"[N, classes]{'; of images of one channel x[:, None]' if x.ndim == 3 else ''}",
        ) from error
    return made, found


def _copy(net: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(net)
    except (RuntimeError, TypeError) as error:
        raise UserError(
            f"the model cannot be copied: {quote_error(error)}",
            hint="copy.deepcopy(model) has to work, as with layers of torch.nn.utils.parametrizations",
        ) from error


def _give_logits(width: int, are_classes: bool, _: nn.Module, inputs: tuple[Any, ...], given: Any) -> Tensor:
    z: Tensor = _find_logits(given, len(inputs[0]), width)
    if z.shape in ((len(inputs[0]),), (len(inputs[0]), 1)) and width <= 2:
        z = z.reshape(-1, 1)
        z = torch.cat([torch.zeros_like(z), z], 1) if are_classes else z
    return z


def _find_logits(given: Any, examples: int, classes: int) -> Any:
    if isinstance(given, Tensor):
        return given
    named = given if isinstance(given, Mapping) else getattr(given, "__dict__", {})
    if isinstance(named.get("logits"), Tensor):
        return named["logits"]
    parts: Iterable[Any] = given if isinstance(given, tuple | list) else named.values()
    found = [v for v in parts if isinstance(v, Tensor) and v.is_floating_point() and v.shape[:1] == (examples,)]
    found = [v for v in found if v.ndim == 2] or [v for v in found if v.ndim == 1]
    wide = [v for v in found if v.ndim == 2 and v.shape[1] == classes]
    if len(found) > 1 and len(wide) != 1:
        shapes = " and ".join(str(list(v.shape)) for v in found)
        raise UserError(
            f"the model gives a {type(given).__name__} with {shapes}: which of them are the logits?",
            hint='give the logits alone, or under that name: {"logits": z, ...}',
        )
    return found[0] if len(found) == 1 else wide[0] if wide else given


def _refuse_sigmoid(z: Tensor) -> None:
    """Raise UserError where one number an example was no logit: (0, z) with every z from 0 to 1."""
    if z.shape[1] == 2 and len(z) >= ENOUGH and not z[:, 0].any() and bool(((z >= 0) & (z <= 1)).all()):
        raise UserError(
            "the model gives probabilities, from 0 to 1, expected a logit", hint="leave out the last sigmoid"
        )
