"""Every model: its published number of weights, features before the head, and the layouts it runs in."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy, leaky_relu, max_pool2d

from fedaudit.fl.model import Net, count, head_names, initialise, state_of
from fedaudit.fl.models._images import pool_then
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import load, names
from fedaudit.fl.runtime.settings import check_settings
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.layout import channels_last

OF_TEXT = ("char_lstm", "shakespeare_rnn", "tiny_gpt", "tiny_bert")
OF_NUMBERS = ("logreg", "mlp", "tab_mlp")
MNIST, CIFAR = (1, 28, 28), (3, 32, 32)
ALL = [name for name in names("fedaudit.fl.models") if name != "hf"]  # of a folder: test_hf.py
OF_CLASSES = [name for name in ALL if name != "fcn"]  # one answer an example


def net(name: str, shape: tuple[int, ...], classes: int = 10, **settings: Any) -> Net:
    cls = load("fedaudit.fl.models", name, Net)
    return initialise(lambda: cls(shape, classes, check_settings(cls.Config, settings, "model")), Streams(3))


def shape_of(name: str) -> tuple[int, ...]:
    if name in OF_TEXT:
        return (12,)
    return CIFAR if name in ("lenet_c", "cnn3", "cnn5", "tfcnn", "vgg11", "resnet18") else MNIST


def batch(shape: tuple[int, ...], n: int) -> Tensor:
    """Random images, or tokens 0 to 9."""
    generator = torch.Generator().manual_seed(1)
    if len(shape) == 1:
        return torch.randint(0, 10, (n, *shape), generator=generator)
    return torch.randn((n, *shape), generator=generator)


# Counted by hand from the papers' layers; mlp: McMahan et al. 2017
@pytest.mark.parametrize(
    ("name", "shape", "settings", "weights"),
    [
        ("lenet_f", MNIST, {}, 117_066),
        ("lenet_c", CIFAR, {}, 107_680),
        ("logreg", MNIST, {}, 7_850),
        ("mlp", MNIST, {"hidden": (200, 200)}, 199_210),
        ("cnn_w", MNIST, {}, 80_202),
        ("cnn_w", MNIST, {"padding": 2}, 215_370),
    ],
)
def test_the_number_of_weights_is_the_published_one(
    name: str, shape: tuple[int, ...], settings: dict[str, Any], weights: int
) -> None:
    assert count(state_of(net(name, shape, **settings))) == weights


@pytest.mark.parametrize(
    ("name", "shape", "classes", "weights"),
    [
        ("cnn3", CIFAR, 10, 319_242),
        ("femnist_cnn", MNIST, 62, 4_377_534),
        ("shakespeare_rnn", (80,), 80, 817_872),
        ("resnet18", CIFAR, 10, 11_173_962),
    ],
)
def test_the_number_of_weights_is_the_published_one_at_other_class_counts(
    name: str, shape: tuple[int, ...], classes: int, weights: int
) -> None:
    assert count(state_of(net(name, shape, classes))) == weights


@pytest.mark.parametrize(
    ("name", "shape", "classes", "weights"),
    [
        ("tfcnn", CIFAR, 10, 56_320),
        ("vgg11", CIFAR, 10, 9_220_480),
        ("lenet_v", MNIST, 10, 33_654),
        ("fecnn", MNIST, 62, 6_476_672),
        ("char_lstm", (80,), 81, 799_368),
    ],
)
def test_the_number_of_weights_before_the_head_is_that_of_fedrs(
    name: str, shape: tuple[int, ...], classes: int, weights: int
) -> None:
    model = net(name, shape, classes)
    head = count({k: model.state_dict()[k] for k in head_names(model)})
    assert count(state_of(model)) - head == weights
    assert len(head_names(model)) == 1  # no bias


@pytest.mark.parametrize("name", ALL)
def test_the_head_applied_to_the_features_is_the_model(name: str) -> None:
    model, x = net(name, shape_of(name)), batch(shape_of(name), 3)
    h = model.features(x)
    places = x.shape[2:] if name == "fcn" else ()
    assert h.shape == (3, next(model.head.parameters()).shape[1], *places)
    assert torch.equal(model(x), model.head(h)) and model(x).shape == (3, 10, *places)


@pytest.mark.dear("resnet18")
@pytest.mark.sample(8)
@pytest.mark.parametrize("name", OF_CLASSES)
def test_channels_last_weights_give_the_same_logits_and_gradients(name: str) -> None:
    plain, strided = net(name, shape_of(name)), net(name, shape_of(name))
    channels_last(strided)
    x, y = batch(shape_of(name), 4), torch.tensor([0, 1, 2, 3])
    torch.testing.assert_close(plain(x), strided(x), rtol=1e-4, atol=1e-5)
    for model in (plain, strided):
        cross_entropy(model(x), y).backward()
    for p, q in zip(plain.parameters(), strided.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.dear("resnet18")
@pytest.mark.sample(8)
@pytest.mark.parametrize("name", OF_CLASSES)
def test_stacked_clients_get_the_gradients_they_would_get_alone(name: str) -> None:
    model, x, y = net(name, shape_of(name)), batch(shape_of(name), 4), torch.tensor([0, 1, 2, 3])
    params = {k: p.detach() for k, p in model.named_parameters()}

    def loss(p: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
        return cross_entropy(functional_call(model, p, (x,)), y)

    together = vmap(grad(loss), in_dims=(None, 0, 0))(params, x.reshape(2, 2, *x.shape[1:]), y.reshape(2, 2))
    for i in range(2):
        alone = grad(loss)(params, x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2])
        for k in params:
            torch.testing.assert_close(together[k][i], alone[k], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        ("small_cnn", (1, 8, 8), 10),
        ("small_cnn", (1, 25, 25), 2),
        ("small_cnn", CIFAR, 47),
        ("lenet_f", CIFAR, 100),
        ("lenet_c", MNIST, 3),
        ("cnn_w", (3, 64, 48), 5),
        ("mlp", (1, 25, 25), 2),
        ("logreg", CIFAR, 10),
    ],
)
def test_other_image_shapes_and_class_counts_fit(name: str, shape: tuple[int, ...], classes: int) -> None:
    assert net(name, shape, classes)(batch(shape, 2)).shape == (2, classes)


@pytest.mark.parametrize("name", ["lenet_f", "lenet_c", "cnn_w", "cnn5", "vgg11", "lenet_v"])
def test_images_too_small_for_the_kernels_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name} cannot take images of 8 x 8 pixels"):
        net(name, (1, 8, 8))


@pytest.mark.parametrize("name", [n for n in ALL if n not in (*OF_TEXT, *OF_NUMBERS)])
def test_token_sequences_are_refused_by_models_of_images(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name} takes images .* has shape \[80\]"):
        net(name, (80,))


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_models_of_numbers_take_rows_and_volumes(name: str) -> None:
    assert net(name, (80,))(torch.zeros(2, 80)).shape == net(name, (1, 4, 4, 5))(torch.zeros(2, 1, 4, 4, 5)).shape


def test_lenet_c_follows_its_fc_layer_with_an_activation_only_when_asked() -> None:
    plain, rectified, x = (net("lenet_c", CIFAR), net("lenet_c", CIFAR, activation=True), batch(CIFAR, 8))
    h = plain.features(x)
    assert (h < 0).any()
    torch.testing.assert_close(rectified.features(x), torch.nn.functional.leaky_relu(h))


def test_lenet_f_is_the_same_network_written_with_torch_layers() -> None:
    model, x = net("lenet_f", MNIST), batch(MNIST, 2)
    nn = torch.nn
    layers = nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=1),
        nn.LeakyReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 128),
        nn.LeakyReLU(),
        nn.Linear(128, 10),
    )
    layers.load_state_dict(dict(zip(layers.state_dict(), model.state_dict().values(), strict=True)))
    torch.testing.assert_close(model(x), layers(x))


@pytest.mark.parametrize("activation", [torch.relu, leaky_relu])
def test_pooling_before_the_activation_changes_no_bit(activation: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(5, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    x[:, :, :2] = -x[:, :, :2].abs()  # windows in which ReLU leaves nothing but zeros
    after, before = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours, theirs = pool_then(activation, after), max_pool2d(activation(before), 2)
    weight = torch.randn(ours.shape, generator=torch.Generator().manual_seed(2))
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    assert torch.equal(ours, theirs)
    assert after.grad is not None and before.grad is not None
    assert torch.equal(after.grad, before.grad)


def test_mlp_refuses_having_no_hidden_layer() -> None:
    with pytest.raises(UserError, match="hidden must have at least 1 entry"):
        net("mlp", MNIST, hidden=())


@pytest.mark.parametrize("name", ["char_lstm", "shakespeare_rnn"])
def test_images_are_refused_by_models_of_token_sequences(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name} takes token sequences .* \[1, 28, 28\]"):
        net(name, MNIST)


@pytest.mark.parametrize("name", ["char_lstm", "shakespeare_rnn"])
def test_a_vocabulary_may_be_larger_than_the_classes(name: str) -> None:
    model = net(name, (12,), classes=3, vocabulary=50)
    assert model(torch.tensor([[49] * 12])).shape == (1, 3)
    with pytest.raises(IndexError):
        net(name, (12,), classes=3)(torch.tensor([[49] * 12]))


def test_the_input_that_is_always_one_is_the_bias_of_an_lstm() -> None:
    model, x = net("shakespeare_rnn", (12,)), batch((12,), 3)
    state = model.state_dict()
    theirs = torch.nn.LSTM(8, 256, num_layers=2, batch_first=True)  # its second bias stays zero
    loaded = {}
    for i, layer in enumerate(("lstm1", "lstm2")):
        weight = state[f"{layer}.weight_ih_l0"]
        loaded |= {f"weight_ih_l{i}": weight[:, :-1], f"bias_ih_l{i}": weight[:, -1]}
        loaded |= {f"weight_hh_l{i}": state[f"{layer}.weight_hh_l0"]}
        loaded |= {f"bias_hh_l{i}": torch.zeros(4 * 256)}
    theirs.load_state_dict(loaded)
    expected = theirs(torch.nn.functional.embedding(x, state["embedding.weight"]))[0][:, -1]
    torch.testing.assert_close(model.features(x), expected)


def test_fedrs_convolutions_start_he_normal_by_fan_out_with_zero_biases() -> None:
    for name in ("tfcnn", "vgg11", "fecnn"):
        for module in net(name, shape_of(name)).modules():
            if isinstance(module, torch.nn.Conv2d):
                fan_out = module.out_channels * module.kernel_size[0] ** 2
                n = module.weight.numel()
                assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=4 / n**0.5)
                assert module.bias is not None and not module.bias.any()


@pytest.mark.nightly
def test_vgg11_is_torchvisions_with_its_adaptive_pool_left_out() -> None:
    from fedaudit.fl.runtime.vision import torchvision

    model, x = net("vgg11", CIFAR), batch(CIFAR, 2)
    theirs = torchvision.models.vgg11(num_classes=10)
    theirs.features.load_state_dict(
        {k.removeprefix("convs."): v for k, v in model.state_dict().items() if k.startswith("convs.")}
    )
    torch.testing.assert_close(model.features(x), theirs.features(x).flatten(1))


def test_resnet18_with_groups_has_no_buffers_and_with_batches_has() -> None:
    assert not list(net("resnet18", CIFAR).buffers())
    assert list(net("resnet18", CIFAR, norm="batch").buffers())
    with pytest.raises(UserError, match="groups must be 1, 2, 4, 8, 16, 32 or 64, got 5"):
        net("resnet18", CIFAR, groups=5)


def test_resnet18_is_torchvisions_but_for_the_stem() -> None:
    from fedaudit.fl.runtime.vision import torchvision

    theirs = torchvision.models.resnet18(num_classes=10)
    ours = net("resnet18", CIFAR, norm="batch")
    names = {k.removeprefix("body.") for k in ours.state_dict()}
    assert {k.replace("fc.", "head.") for k in theirs.state_dict()} == names
    maps = []
    ours.body.layer1.register_forward_pre_hook(lambda _, args: maps.append(args[0].shape))
    ours(batch(CIFAR, 2))
    assert maps == [(2, 64, 32, 32)]  # nothing was thrown away before the first block
