"""Every protection: the same bytes and releases from the same stream, and the message given stays as it was."""

from typing import Any

import pytest
import torch

from fedaudit.audit.settings import catalog
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import Release
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.wire.protection import Message, Protection
from tests.fl.protections.sends import PROTOTYPES, send

NAMES = catalog.names("protections")
MODEL: Message = {Kind.LOCAL_MODEL: {"w": torch.linspace(-3, 3, 40).reshape(8, 5), "b": torch.ones(5)}}
MESSAGE: Message = {**PROTOTYPES, **MODEL}
REFERENCE: Message = {Kind.GLOBAL_MODEL: {"w": torch.zeros(8, 5), "b": torch.zeros(5)}}
# what has no default that works
GIVEN: dict[str, dict[str, Any]] = {"laplace": {"kinds": ["local_prototypes"]}}


def made(name: str) -> Protection:
    return configure(catalog.load("protections", name), GIVEN.get(name, {}), "protections[0]")


def sent(name: str, seed: int = 0) -> tuple[Message, list[Release]]:
    return send(made(name), MESSAGE, REFERENCE, seed)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_stream_gives_the_same_bytes_and_releases(name: str) -> None:
    (first, lines), (again, others) = sent(name), sent(name)
    assert lines == others and list(first) == list(again)
    for kind, payload in first.items():
        assert list(payload) == list(again[kind])
        for array, value in payload.items():
            assert value.numpy().tobytes() == again[kind][array].numpy().tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_the_message_given_is_left_as_it_was(name: str) -> None:
    before = {k: {n: v.clone() for n, v in p.items()} for k, p in MESSAGE.items()}
    sent(name)
    assert all(torch.equal(v, before[k][n]) for k, p in MESSAGE.items() for n, v in p.items())
