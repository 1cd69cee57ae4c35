"""Behind secure aggregation a server has sums alone: other uploads with the same sums give it the same."""

import numpy as np
import pytest
import torch

from fedaudit.fl.kinds import Kind, Summed
from fedaudit.fl.method import Method
from fedaudit.fl.model import State
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime import plugin
from fedaudit.fl.wire.check import explain_refusal
from fedaudit.fl.wire.protection import Protection, Sending
from tests.fl.test_all_methods import method
from tests.fl.worlds import World, close, data, parts, run

DATA, HELD = data(n=100), parts(data(n=80), (30, 40), skew=False)
BOTH = sorted(set.intersection(*(set(DATA.train.y[rows].tolist()) for rows in HELD)))  # classes of both clients
HIDES = SecureAggregation()


class Masked(Protection):
    """What one client adds to its upload another subtracts, as masks of secure aggregation do."""

    title, source = "masked", "test"

    def describe(self) -> str:
        return "masked"

    def apply(self, sending: Sending) -> None:
        sign = 1.0 if sending.sender.index == 0 else -1.0
        message = sending.message
        count = float(message.get(Kind.NUM_EXAMPLES, {}).get("count", torch.tensor(1)))
        behind = message.get(Kind.PROTO_COUNTS, {})
        for kind, payload in list(message.items()):
            weight = count if kind.summed is Summed.WEIGHTED else 1.0
            changed = {}
            for name, value in payload.items():
                drawn = torch.Generator().manual_seed(sum(map(ord, f"{sending.round}{kind}{name}")))
                if kind is Kind.LABEL_COUNTS:
                    changed[name] = value.clone()
                    changed[name][BOTH[0]] += int(sign)
                elif not value.is_floating_point() or kind.about:
                    changed[name] = value
                elif kind.summed in (Summed.BY_CLASS, Summed.BY_CLASS_WEIGHTED):
                    changed[name] = value.clone()
                    for row, c in enumerate(payload["classes"].tolist()):
                        n = dict(zip(*(x.tolist() for x in behind.values()), strict=True))[c] if behind else 1
                        mask = torch.randn(value.shape[1], generator=torch.Generator().manual_seed(c))
                        changed[name][row] += sign * mask * (c in BOTH) / n
                else:
                    mask = torch.randn(value.shape, generator=drawn)
                    if kind is Kind.MEAN_LOGIT_TABLE:
                        mask *= torch.tensor([[float(c in BOTH)] for c in range(len(mask))])
                    changed[name] = value + (sign / weight) * mask.to(value.dtype)
            message[kind] = changed


def train(name: str, *protections: Protection) -> World:
    script = [([0, 1], [0, 1])]
    return run(method(name, rounds=2), protections=protections, script=script, d=DATA, index=HELD)  # type: ignore[arg-type]


def read_outcome(world: World) -> State:
    """The model; where clients have models of their own alone, how good these are."""
    return world.model or {str(i): torch.tensor(h["accuracy"]) for i, h in enumerate(world.history)}


def list_summable() -> list[str]:
    cards = {n: plugin.load("fedaudit.fl.methods", n, Method).card for n in plugin.names("fedaudit.fl.methods")}
    return [n for n, card in cards.items() if card.uplink and not HIDES.refuses(card.uplink)]


@pytest.mark.parametrize("name", list_summable())
def test_a_server_behind_secure_aggregation_needs_the_sums_alone(name: str) -> None:
    card = plugin.load("fedaudit.fl.methods", name, Method).card
    plain, masked = (read_outcome(train(name, *protections)) for protections in ((), (Masked(),)))
    assert np.isfinite(sum(float(v.double().sum()) for v in masked.values()))
    assert close(plain, masked, 1e-3) is (explain_refusal(HIDES, card, card.uplink) == "")
