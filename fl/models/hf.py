"""HF: a causal language model from your own folder in Hugging Face's format, with its weights.

Wolf et al. Transformers: State-of-the-Art Natural Language Processing. EMNLP 2020 (Demos). arXiv:1910.03771. The
library builds the network that config.json describes; weights are read from *.safetensors, in single precision.
What is read of a folder, and what is refused, says fl/data/hf_folder.py. Changes: attention is computed plainly
(`eager`); a layer of GPT-2 that the library calls Conv1D is a linear layer, its weights turned round, so that
adapters can stand on it; rows of padding and of id 0 have changed places.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from fedaudit.fl.data.hf_folder import HFFolder, import_extra, open_folder
from fedaudit.fl.model import Adapted
from fedaudit.fl.models.rnns import check_sequence
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.ranges import AtLeastOne
from fedaudit.fl.runtime.settings import settings
from fedaudit.fl.runtime.strict_json import parse_json
from fedaudit.fl.tasks.text import Text

HINT = "the folder that save_pretrained(safe_serialization=True) wrote"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
DIFFERENCES = {
    "missing_keys": "its weights lack {}, which the network of config.json has",
    "unexpected_keys": "its weights have {}, which the network of config.json has not",
    "mismatched_keys": "config.json and the weights differ in the shape of {}",
}


class HF(Adapted):
    source = "arXiv:1910.03771"
    task = Text()
    brings_weights = True

    @settings
    class Config:
        path: str = Field(description="folder with config.json, *.safetensors and tokenizer.json")
        vocabulary: AtLeastOne | None = Field(
            default=None, description="number of tokens that the data are cut into; null: as many as they have"
        )

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config) -> None:
        check_sequence("hf", shape)
        folder = open_folder(config.path)
        if config.vocabulary not in (None, folder.rows):
            raise UserError(
                f"the data are cut into {config.vocabulary} pieces, and the model of {config.path} knows "
                f"{folder.rows}",
                hint=f"federation.dataset.tokenizer: {config.path}",
                key="federation.dataset.tokenizer",
            )
        longest = folder.config.get("max_position_embeddings", folder.config.get("n_positions"))
        if isinstance(longest, int) and shape[0] > longest:
            raise UserError(
                f"the model of {config.path} reads {longest} tokens, and texts have {shape[0]}",
                hint=f"federation.dataset.length: {longest}",
                key="federation.dataset.length",
            )
        super().__init__(build_network(folder))

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self._inner[0](input_ids=x, attention_mask=(x != 0).long(), use_cache=False).logits
        return out

    def features(self, x: Tensor) -> Tensor:
        return self.catch_features(lambda: self(x))

    def answers(self, x: Tensor) -> Tensor:
        out: Tensor = self(x)[:, :-1]
        return out


def build_network(folder: HFFolder) -> nn.Module:
    """The network with its weights; raises UserError where the two do not fit."""
    from fedaudit.fl.runtime.vision import torchvision  # noqa: F401  (the library imports it, where it is)

    check_files(folder.path)
    library = import_extra("transformers")
    library.utils.logging.set_verbosity_error()
    library.utils.logging.disable_progress_bar()
    given = {k: v for k, v in folder.config.items() if not k.startswith("_")}
    try:
        config = library.AutoConfig.for_model(**given)
        net, report = library.AutoModelForCausalLM.from_pretrained(
            folder.path,
            config=config,
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    except Exception as error:  # whatever the library makes of a folder
        raise UserError(f"{folder.path} holds no model that can be read: {error!s:.200}", hint=HINT) from error
    for key, what in DIFFERENCES.items():
        names = (name if isinstance(name, str) else name[0] for name in report[key])  # some with their shapes
        if found := sorted(names):
            raise UserError(f"{folder.path}: {what.format(found[0])}", hint=HINT)
    if not all(v.isfinite().all() for v in net.state_dict().values()):
        raise UserError(f"{folder.path}: weights are no finite numbers", hint=HINT)
    for name, module in list(net.named_modules()):
        if type(module).__name__ == "Conv1D":
            parent, _, own = name.rpartition(".")
            setattr(net.get_submodule(parent), own, _turn(module))
    _swap_rows(net, folder)
    return net  # type: ignore[no-any-return]


def check_files(folder: Path) -> None:
    """Raises UserError where weights lie in other files than *.safetensors of the folder itself."""
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"{folder} holds adapters, and no whole model", hint="give the folder of the base that they stand on"
        )
    index, names = folder / INDEX, {WEIGHTS}
    if index.exists() and not (folder / WEIGHTS).exists():
        try:
            names = {str(name) for name in parse_json(index.read_bytes())["weight_map"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{index} cannot be read: {error!r:.200}", hint=HINT) from error
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(f"{index} names {name!r:.80}, which is no file of weights beside it", hint=HINT)
        if not (folder / name).is_file():
            raise UserError(
                f"{folder} holds no {name}; weights in other files are not read, since opening them may run code",
                hint=HINT,
            )


def _turn(module: Any) -> nn.Linear:
    """x W + b, W [in, out], as a linear layer."""
    inputs, outputs = module.weight.shape
    layer = nn.Linear(inputs, outputs)
    layer.weight, layer.bias = nn.Parameter(module.weight.detach().T.contiguous()), module.bias
    return layer


def _swap_rows(net: Any, folder: HFFolder) -> None:
    """Padding is id 0 here."""
    embedding, head = net.get_input_embeddings(), net.get_output_embeddings()
    embedding.padding_idx = None  # that row is another token's now
    rows, other = [0, folder.padding], [folder.padding, 0]
    arrays = {id(a): a for a in (embedding.weight, head.weight, head.bias) if a is not None}
    with torch.no_grad():
        for array in arrays.values():
            array[rows] = array[other].clone()
