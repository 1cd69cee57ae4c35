"""Every model: features and head have the declared shapes for grey and colour images, or data are refused."""

import pytest
import torch

from fedaudit.audit.settings import catalog
from fedaudit.fl.model import Net, initialise
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams

OF_FILES = ["hf"]  # its own tests build it: tests/fl/models/test_hf.py
OF_NUMBERS = ["logreg", "mlp", "tab_mlp"]  # of any shape
OF_PLACES = ["fcn"]  # an answer for each place of an example
NAMES = [name for name in catalog.names("models") if name not in OF_FILES]
SHAPES = [(1, 32, 32), (3, 32, 32), (12,)]


@pytest.mark.sample(24)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_logits_are_the_head_of_the_features_or_the_data_are_refused(name: str, shape: tuple[int, ...]) -> None:
    cls = catalog.load("models", name)
    are_tokens = len(shape) == 1 and name not in OF_NUMBERS
    x = torch.zeros((2, *shape), dtype=torch.int64 if are_tokens else torch.float32)
    try:
        net: Net = initialise(lambda: cls(shape, 7), Streams(3)).eval()
        with torch.no_grad():
            features = net.features(x)
    except UserError as error:
        assert error.hint and str(list(shape)) in str(error)
        return
    places = shape[1:] if name in OF_PLACES else ()
    with torch.no_grad():
        assert features.shape == (2, features.shape[1], *places) and features.isfinite().all()
        assert torch.equal(net.head(features), net(x)) and net(x).shape == (2, 7, *places)


@pytest.mark.parametrize("name", NAMES)
def test_every_model_takes_images_of_one_channel_and_of_three_or_token_sequences(name: str) -> None:
    cls, taken = catalog.load("models", name), []
    for shape in SHAPES:
        try:
            initialise(lambda shape=shape: cls(shape, 7), Streams(3))  # type: ignore[misc]
            taken.append(shape)
        except UserError:
            continue
    assert taken in (SHAPES[:2], SHAPES[2:], SHAPES)  # all: numbers of any shape
    assert cls.source
