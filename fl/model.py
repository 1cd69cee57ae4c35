"""The contract of a model: features(x) -> h, head(h) -> logits. h is the input of the last linear layer.

Prototypes, MOON's representation and the label-inference attacks all mean this h.
"""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn, stack

from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.shared_weights import SharedNames, find_shared_names
from fedaudit.fl.runtime.streams import Streams, seed_networks
from fedaudit.fl.runtime.task import Task
from fedaudit.fl.tasks.classify import Classify
from fedaudit.fl.tasks.text import Text, score_next_tokens

State = dict[str, Tensor]  # parameters and buffers by name


class Net(nn.Module):
    """Base of our models. Subclasses write features() and set `head`; `Config` holds their settings."""

    source: str = ""  # paper and section
    task: Task = Classify()  # what is wanted of it; whoever builds it for data says so
    brings_weights = False  # whether its first weights are read, and public, where others' are drawn

    @settings
    class Config:
        """No settings."""

    head: nn.Module

    def __init__(self, shape: tuple[int, ...], classes: int, config: Any = None) -> None:
        """`shape` is one example's, [C, H, W] for images and [T] for tokens."""
        super().__init__()

    @cached_property
    def shared_names(self) -> SharedNames:
        """Of its weights, those that have several names."""
        return find_shared_names(self)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        """As torch does; of weights with several names the value of the first counts."""
        others = self.shared_names.others
        firsts = {k: state_dict[f] for k, f in others.items() if k in state_dict and f in state_dict}
        return super().load_state_dict({**state_dict, **firsts}, *args, **kwargs)

    def features(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.features(x))
        return out

    def answers(self, x: Tensor) -> Tensor:
        """What its task judges: what it gives for each of x [b, ...]; of a text after each token but the last."""
        out: Tensor = self(x)
        return out

    def loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Mean loss of a batch, x [b, ...], y [b, ...], by its task; what is wanted of a text is the text."""
        return self.task.loss(self.answers(x), x if isinstance(self.task, Text) else y)

    def grade(self, x: Tensor) -> Tensor:
        """[b, 3] of each text: summed loss of its tokens, how many are the likeliest, how many; of task text."""
        logits = self(x)[:, :-1]
        losses, mask = self.token_losses(x)
        right = (logits.argmax(-1) == x[:, 1:]) & mask
        return stack([(losses * mask).sum(1), right.sum(1).to(losses), mask.sum(1).to(losses)], 1)

    def token_losses(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[b, T - 1] -log p of each token given those before it, and which are text; of task text alone."""
        if not isinstance(self.task, Text):
            raise NotImplementedError(f"{type(self).__name__} predicts no tokens")
        return score_next_tokens(self.answers(x), x)


class Adapted(Net):
    """A user's own module: its last nn.Linear is the head, what enters it are the features.

    One without an nn.Linear runs and trains; whoever asks for its head or its features gets a UserError.

    Parameters, buffers and submodules are the user's, under their own names: what crosses the wire, and what
    was recorded elsewhere, knows of no wrapping.
    """

    def __init__(self, inner: nn.Module) -> None:
        super().__init__((), 0)
        self._inner = (inner,)  # in a tuple, so that it is no submodule
        self._modules, self._parameters, self._buffers = inner._modules, inner._parameters, inner._buffers
        self._non_persistent_buffers_set = inner._non_persistent_buffers_set
        self._linear = [name for name, m in inner.named_modules() if isinstance(m, nn.Linear)]

    @property
    def head(self) -> nn.Module:  # type: ignore[override]
        inner = self._inner[0]
        if not self._linear:
            raise UserError(
                f"{type(inner).__name__} has no nn.Linear layer to take features before",
                hint="derive the model from fedaudit.fl.model.Net and write features() and head",
            )
        return inner.get_submodule(self._linear[-1]) if self._linear[-1] else inner

    def train(self, mode: bool = True) -> "Adapted":
        super().train(mode)
        self._inner[0].training = mode
        return self

    def features(self, x: Tensor) -> Tensor:
        return self.catch_features(lambda: self(x))

    def catch_features(self, run: Callable[[], object]) -> Tensor:
        """What enters the head while `run` runs the module."""
        caught: list[Tensor] = []
        hook = self.head.register_forward_pre_hook(lambda _, args: caught.append(args[0]))
        try:
            run()
        finally:
            hook.remove()
        if not caught:
            raise UserError(
                f"{type(self._inner[0]).__name__} does not use its last nn.Linear layer, {self._linear[-1]!r}",
                hint="define the layer that gives the logits last, or derive it from fedaudit.fl.model.Net",
            )
        return caught[-1]

    def forward(self, x: Tensor) -> Tensor:
        """[b, ...] -> [b, C]; raises UserError that says what the module was given where it fails."""
        inner = self._inner[0]
        try:
            out: Tensor = inner(x)
        except (UserError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            mode = "training" if inner.training else "evaluation"
            raise UserError(
                f"{type(inner).__name__} cannot compute {list(x.shape)} {str(x.dtype).removeprefix('torch.')} in "
                f"{mode} mode: {quote_error(error)}",
                hint="that is a batch of examples as fedaudit gives it: look at the module's forward()",
            ) from error
        return out


def adapt(module: nn.Module) -> Net:
    """Ours unchanged; a user's own module wrapped so that it has features and a head."""
    return module if isinstance(module, Net) else Adapted(module)


def unwrap(net: Net) -> nn.Module:
    """The module whose submodules have their own names: a user's may be called features or head."""
    return net._inner[0] if isinstance(net, Adapted) else net


def initialise(make: Callable[[], Net], streams: Streams) -> Net:
    """Build a model with weights drawn from the stream "model", leaving the global generator alone."""
    with seed_networks(streams.key("model")):
        return make()


def state_of(module: nn.Module) -> State:
    """A copy of all parameters and persistent buffers, contiguous, on the CPU."""
    return {k: v.detach().cpu().clone().contiguous() for k, v in module.state_dict().items()}


def head_names(module: Net) -> tuple[str, ...]:
    """Names in the state that belong to the head; of a user's module without one there are none."""
    if isinstance(module, Adapted) and not module._linear:
        return ()
    ids = {id(p) for p in module.head.parameters()}
    return tuple(k for k, p in module.named_parameters() if id(p) in ids)


def count(state: Mapping[str, Tensor]) -> int:
    """Number of scalars in a state."""
    return sum(v.numel() for v in state.values())
