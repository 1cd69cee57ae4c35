"""Tiny BERT: a small transformer whose tokens see those before and after them; it tells a text's class.

After Devlin et al. BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding. NAACL 2019.
arXiv:1810.04805. Changes: much smaller, pre-norm without biases, no segment embedding, no pre-training on masked
tokens, and the mean over a text's tokens stands for it in the place of a first token [CLS].
"""

from torch import Tensor

from fedaudit.fl.models._transformer import Transformer, TransformerConfig
from fedaudit.fl.runtime.settings import settings


class TinyBERT(Transformer):
    source = "arXiv:1810.04805"
    causal = False

    @settings
    class Config(TransformerConfig):
        pass

    def __init__(self, shape: tuple[int, ...], classes: int, config: Config | None = None) -> None:
        super().__init__(shape, classes, config or self.Config(), "classify", False)

    def pool(self, h: Tensor, mask: Tensor) -> Tensor:
        share = mask / mask.sum(1, keepdim=True).clamp(min=1)
        return (h * share[..., None]).sum(1)
