"""False outputs by hand, what they do to clients that learn from them, and what a robust mean leaves."""

from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from tests.attacks.poisoning.test_adversaries import adversary
from tests.attacks.poisoning.test_in_a_federation import small
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, data, parts, run, same


class Four:
    classes = 4


def crafted(message: dict[Kind, Any], **settings: Any) -> dict[Kind, Any]:
    made = adversary("false_outputs", **settings)
    return made.craft(Four(), Reply(message=message, examples=3), {}).message  # type: ignore[arg-type]


def test_each_kind_is_forged_by_hand() -> None:
    row = torch.tensor([[1.0, 2.0, 3.0, 4.0]])
    logits = crafted({Kind.PUBLIC_LOGITS: {"index": torch.tensor([7]), "logits": row}}, factor=2.0)
    assert logits[Kind.PUBLIC_LOGITS]["logits"].tolist() == [[8.0, 2.0, 4.0, 6.0]]
    assert logits[Kind.PUBLIC_LOGITS]["index"].tolist() == [7]
    features = crafted({Kind.FEATURES: {"features": row, "labels": torch.tensor([3]), "logits": row}})
    assert features[Kind.FEATURES]["labels"].tolist() == [0]
    assert features[Kind.FEATURES]["features"].tolist() == row.tolist()
    fisher = crafted({Kind.FISHER: {"u/w": torch.tensor([2.0]), "v/w": torch.tensor([3.0])}}, factor=10.0)
    assert fisher[Kind.FISHER]["u/w"].item() == 20.0 and fisher[Kind.FISHER]["v/w"].item() == -30.0


def test_curvature_of_the_opposite_model_moves_the_others() -> None:
    assert not same(small("fedcurv", "false_outputs"), small("fedcurv"))


def means(rule: Any, lie: bool, tmp: Any) -> Any:
    """What the server sends after the first round, one of four clients lying."""
    world = run(
        method("fedmd", first_epochs=5),  # type: ignore[arg-type]
        folder=tmp,
        d=data(n=100),
        index=parts(data(n=80), skew=False),
        script=EVERYONE,
        adversary=adversary("false_outputs", clients=(4,), factor=50.0) if lie else None,
        aggregator=rule,
    )
    return next(a.payload["logits"] for a in world.artifacts if a.sender.index is None)


def test_false_logits_turn_the_mean_and_a_median_holds(tmp_path: Any) -> None:
    honest = means(None, False, tmp_path / "honest").argmax(1)
    fooled = means(None, True, tmp_path / "fooled").argmax(1)
    robust = means(Median(), True, tmp_path / "robust").argmax(1)
    assert np.mean(fooled == honest) < 0.5 < 0.8 < np.mean(robust == honest)


def test_it_is_refused_where_nothing_of_the_kind_is_sent() -> None:
    with pytest.raises(UserError, match="send none of them"):
        small("fedavg", "false_outputs")
