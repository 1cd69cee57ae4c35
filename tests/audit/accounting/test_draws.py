"""Credit for sampling: none for noise that goes with its client, none for one draw in place of one each round."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from fedaudit.audit.accounting.verify import verify
from fedaudit.audit.case.case import Participation, Split
from fedaudit.fl.ledger import Release

CLIENTS = 8


@dataclass
class Case:
    """What the verifier reads of somebody else's federation of eight clients."""

    clients: int = CLIENTS
    protections: tuple[()] = ()
    simulated: bool = False
    private: Any = None
    training: Any = None
    data: Any = field(default_factory=lambda: SimpleNamespace(train=SimpleNamespace(owner=None)))
    method: Any = None
    card: Any = field(default=None)
    examples: Split = field(default_factory=Split)
    participation: Participation = field(default_factory=lambda: Participation(None))


def line(round: int, kind: str, **fields: Any) -> Release:
    told: dict[str, Any] = {
        "sender": "client/*",
        "observers": ("client", "public"),
        "participation_seen_by": ("server",),
        "mechanism": "gaussian",
        "noise_std": 1.0,
        "sensitivity": 1.0,
        "sampling": "poisson",
        "sample_rate": 0.5,
    }
    return Release(round=round, kind=kind, **(told | fields))


def record(heard: Sequence[set[int]]) -> list[dict[str, Any]]:
    """The manifest's lines of uploads: their traffic, and each by name."""
    found: list[dict[str, Any]] = []
    for t, clients in enumerate(heard):
        sent = {"round": t, "channel": "uplink", "seen_by": ["server"]}
        counted = {"sender": "client", "senders": len(clients), "messages": len(clients)}
        found.append({**sent, "traffic": "local_model", **counted})
        found += [{**sent, "message": f"{t}-{k}", "sender": f"client/{k}"} for k in sorted(clients)]
    return found


def draws(releases: list[Release], heard: Sequence[set[int]]) -> list[str]:
    issues = verify(Case(), releases, record(heard)).issues  # type: ignore[arg-type]
    return [issue.what for issue in issues if issue.check == "draws"]


FRESH = [{0, 1, 4, 7}, {1, 2, 3}, {0, 2, 5, 6, 7}, {3, 4, 5, 6}, {0, 3, 5}, {1, 2, 4, 6}]
KEPT = [{0, 1, 4, 7}] * 6


def test_the_mean_is_credited_with_fresh_draws() -> None:
    assert not draws([line(t, "global_model") for t in range(6)], FRESH)


def test_one_draw_for_all_rounds_is_not_a_draw_for_each() -> None:
    [text] = draws([line(t, "global_model") for t in range(6)], KEPT)
    assert "8 of 8 clients were heard in all or none of 6 rounds" in text


def test_one_draw_for_all_rounds_may_be_credited_as_one() -> None:
    assert not draws([line(t, "global_model", coin="rounds 0 to 5") for t in range(6)], KEPT)


@pytest.mark.parametrize("seen", [("server",), ("server", "client")])
def test_noise_on_an_upload_is_not_credited_with_sampling(seen: tuple[str, ...]) -> None:
    [text] = draws([line(t, "local_model", participation_seen_by=seen) for t in range(6)], FRESH)
    assert "comes and goes with the client" in text


def test_noise_on_an_upload_that_is_credited_with_nothing_is_right() -> None:
    everyone = ("server", "client", "public")
    assert not draws([line(t, "local_model", participation_seen_by=everyone) for t in range(6)], FRESH)
