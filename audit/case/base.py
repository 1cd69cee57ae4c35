"""The base of a federation's model: its weights after training on public text, the same for every federation.

Training one takes seconds and follows from settings alone, so it is kept in the user's cache folder under a hash
of all that it depends on. A file that does not fit the network is made anew.
"""

import contextlib
import hashlib
import inspect
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

from fedaudit.audit.settings import catalog, index
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.data.dataset import Data, read_data
from fedaudit.fl.model import Net, State, head_names, initialise, state_of
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.runtime.sharing import share_result
from fedaudit.fl.runtime.streams import Streams, seed_networks
from fedaudit.fl.training import pretraining

WHERE = "federation.base"
PUBLIC = "help_pages"
SEED, BATCH, LR = 0, 16, 0.002  # of its first weights and batches; examples of a step; the largest rate of one


@dataclass(frozen=True)
class Base:
    """A model that is trained on public text, or was here before, when its weights are asked for."""

    key: str  # under which its weights are kept
    steps: int  # of its training
    build: Callable[[], Net]  # as it is trained: a language model where it can be one
    public: Data
    left: tuple[str, ...]  # its entries that the federation's network does not begin with

    def replace_weights(self, first: State) -> State:
        """`first` with what was trained on public text in its place."""
        trained = share_result(("base", self.key), lambda: _recall(self.key, self.build) or _train(self))
        kept = {k: v for k, v in trained.items() if k not in self.left and k in first}
        return first | {k: v for k, v in kept.items() if first[k].shape == v.shape}


def describe_base(steps: int, dataset: PluginSpec, data: Data, make: "partial[Net]") -> Base:
    """The base that the network of `make` begins with; nothing is trained yet.

    It is trained as a language model where it can be one, and on the public data's classes elsewhere; its head
    is kept where it is one of the same task. Raises UserError where the public text is cut into other pieces
    than the federation's.
    """
    if make.args[0].brings_weights:
        raise UserError(
            f"{WHERE}: the network brings weights of its own, and no base is trained for it",
            hint="leave base out",
            key=WHERE,
        )
    public = load_public(dataset)
    if data.schema is None or public.schema is None or public.schema.pieces != data.schema.pieces:
        raise UserError(
            f"{WHERE}: {PUBLIC} is not cut into the pieces of {dataset.name}",
            hint="a base is for text whose vocabulary is of public text, or of the same tokenizer.json",
            key=WHERE,
        )
    cls, shape, _, config = make.args if len(make.args) == 4 else (*make.args, None)
    if config is None:
        raise UserError(
            f"{WHERE}: {cls.__name__} takes no settings, so it cannot be built for other text",
            hint="derive it from fedaudit.fl.model.Net, or leave base out",
            key=WHERE,
        )
    is_language = any(f.name == "task" for f in fields(config))
    trained_as = replace(config, task="lm") if is_language else config
    build: Callable[[], Net] = partial(make.func, cls, shape, len(public.classes), trained_as)
    skeleton = _build(build)
    same_task = is_language and getattr(config, "task", None) == "lm"
    return Base(
        key=_hash(steps, cls, trained_as, public, skeleton),
        steps=steps,
        build=build,
        public=public,
        left=() if same_task else head_names(skeleton),
    )


def load_public(dataset: PluginSpec) -> Data:
    """The public data set, with the settings of the federation's that say how text is cut."""
    cls = catalog.load("datasets", PUBLIC, WHERE)
    own = {f.name for f in fields(cls.Config)} & {"length", "vocabulary", "tokenizer"}
    given = {k: v for k, v in dataset.settings.items() if k in own}
    return share_result(("base data", cls, repr(given)), lambda: read_data(configure(cls, given, WHERE)))


def _build(build: Callable[[], Net]) -> Net:
    """The network; the weights that it draws are nobody's."""
    with seed_networks(0):
        return build()


def _train(base: Base) -> State:
    streams = Streams(SEED)
    net = initialise(base.build, streams)
    state = pretraining.train_base(net, base.public.train, base.steps, BATCH, LR, streams)
    folder = index.find_folder()
    if folder is not None:
        with contextlib.suppress(UserError, OSError):  # it can be made again
            durable.write(folder / f"base-{base.key}.safetensors", save(state))
    return state


def _recall(key: str, build: Callable[[], Net]) -> State | None:
    folder = index.find_folder()
    try:
        kept = load((folder / f"base-{key}.safetensors").read_bytes()) if folder else {}
    except (OSError, SafetensorError, ValueError):
        return None
    own = state_of(_build(build))
    fits = kept.keys() == own.keys() and all(kept[k].shape == own[k].shape for k in own)
    return {k: kept[k] for k in own} if fits else None


def _hash(steps: int, cls: type[Net], config: Any, public: Data, skeleton: Net) -> str:
    """Of all that the trained weights follow from: settings, text, network, its code and what computes it."""
    seen = hashlib.sha256()
    shapes = {k: tuple(v.shape) for k, v in skeleton.state_dict().items()}
    versions = (torch.__version__, platform.machine())
    seen.update(repr((PUBLIC, steps, SEED, BATCH, LR, cls.__qualname__, config, shapes, versions)).encode())
    for name in sorted({c.__module__ for c in cls.__mro__ if c.__module__.partition(".")[0] != "torch"}):
        if name not in ("builtins", "abc", "typing"):
            seen.update(inspect.getsource(sys.modules[name]).encode())
    seen.update(inspect.getsource(pretraining).encode())
    seen.update(public.train.x.tobytes() + public.train.y.tobytes())
    return seen.hexdigest()[:32]
