"""Small transformers: causal or not, padding is not there, and a language model's loss is one by hand."""

import math
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from fedaudit.fl.model import Net, initialise
from fedaudit.fl.models._transformer import rotate
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import load
from fedaudit.fl.runtime.settings import check_settings
from fedaudit.fl.runtime.streams import Streams

T = 10


def make(name: str = "tiny_gpt", **settings: Any) -> Net:
    cls = load("fedaudit.fl.models", name, Net)
    given = {"dim": 16, "heads": 2, "vocabulary": 20} | settings
    return initialise(lambda: cls((T,), 3, check_settings(cls.Config, given, "model")), Streams(4)).eval()


def text(n: int = 2, length: int = T) -> torch.Tensor:
    x = torch.randint(2, 20, (n, T), generator=torch.Generator().manual_seed(2))
    x[:, length:] = 0
    return x


@torch.no_grad()
@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_token_moves_no_prediction_before_it_and_those_after_it(positions: str) -> None:
    net, x = make(task="lm", positions=positions), text()
    other = x.clone()
    other[:, 4] = (other[:, 4] - 1) % 18 + 2
    same = (net(x) == net(other)).all(-1)
    assert same[:, :4].all() and not same[:, 4:].any()


@torch.no_grad()
def test_bert_sees_both_sides() -> None:
    net, x = make("tiny_bert"), text()
    other = x.clone()
    other[:, 0] = (other[:, 0] - 1) % 18 + 2
    one, two = net.get_submodule("blocks"), net
    assert one is not None and not torch.equal(two.states(x)[:, -1], two.states(other)[:, -1])  # type: ignore[operator]


@torch.no_grad()
@pytest.mark.parametrize("name", ["tiny_gpt", "tiny_bert"])
def test_padding_is_not_there(name: str) -> None:
    net, x = make(name), text(length=6)
    torch.testing.assert_close(net(x), net(x[:, :6]), atol=1e-6, rtol=1e-5)
    full = text()
    assert not torch.allclose(net(full), net(full[:, :6]), atol=1e-5)


@torch.no_grad()
def test_the_loss_of_a_language_model_is_the_mean_over_tokens_that_are_text() -> None:
    net, x = make(task="lm"), text(length=6)
    x[1, 4:] = 0
    logits = net(x)
    wanted = torch.cat(
        [cross_entropy(logits[0, :5], x[0, 1:6], reduction="none")]
        + [cross_entropy(logits[1, :3], x[1, 1:4], reduction="none")]
    )
    assert net.loss(x, torch.zeros(2)).item() == pytest.approx(wanted.mean().item(), rel=1e-5)
    graded = net.grade(x)
    assert graded[:, 2].tolist() == [5.0, 3.0]
    assert graded[0, 0].item() == pytest.approx(wanted[:5].sum().item(), rel=1e-5)
    hits = [
        int((logits[0, :5].argmax(-1) == x[0, 1:6]).sum()),
        int((logits[1, :3].argmax(-1) == x[1, 1:4]).sum()),
    ]
    assert graded[:, 1].tolist() == hits


@torch.no_grad()
def test_a_classifiers_loss_is_the_one_of_its_classes() -> None:
    net, x, y = make(), text(), torch.tensor([2, 0])
    assert torch.equal(net.loss(x, y), cross_entropy(net(x), y))
    with pytest.raises(NotImplementedError, match="predicts no tokens"):
        make("tiny_bert").token_losses(x)


@torch.no_grad()
def test_a_tied_head_is_the_embedding_and_an_untied_one_is_not() -> None:
    tied, untied = make(task="lm", tied=True), make(task="lm")
    h = torch.randn(1, 3, 16)
    assert torch.equal(tied.head(h), h @ tied.get_parameter("embed.weight").T)
    assert "head.weight" in untied.state_dict() and "head.weight" not in tied.state_dict()


@torch.no_grad()
def test_rotations_keep_lengths_and_depend_on_distances_alone() -> None:
    torch.manual_seed(1)
    q, k = torch.randn(1, 1, 8).expand(1, 9, 8), torch.randn(1, 1, 8).expand(1, 9, 8)
    scores = rotate(q)[0] @ rotate(k)[0].T
    assert scores[5, 3].item() == pytest.approx(scores[7, 5].item(), abs=1e-5)
    assert abs(scores[5, 3].item() - scores[5, 4].item()) > 1e-3
    torch.testing.assert_close(rotate(q).norm(dim=-1), q.norm(dim=-1))
    # the second position turns the first pair by one radian
    turned = rotate(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    assert turned[1].tolist() == pytest.approx([math.cos(1), math.sin(1)])


def test_heads_that_do_not_divide_and_images_are_refused() -> None:
    with pytest.raises(UserError, match="equal, for rotations even, width"):
        make(dim=15)
    with pytest.raises(UserError, match="tiny_bert takes token sequences"):
        cls = load("fedaudit.fl.models", "tiny_bert", Net)
        cls((1, 8, 8), 3)
