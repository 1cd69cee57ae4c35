"""Who took part, by hand: Jain's index, and how much slow devices sent of their share."""

import pytest

from fedaudit.audit.case.metrics import participation, summary


def heard(*rounds: tuple[list[int], int]) -> list[dict[str, object]]:
    return [{"heard": who, "heard_slow": slow, "clients": 4, "clients_slow": 2} for who, slow in rounds]


def test_all_alike_are_one_and_one_alone_is_a_share() -> None:
    assert participation(heard(([0, 1, 2, 3], 2), ([0, 1, 2, 3], 2))) == {
        "jain_index": 1,
        "slow_devices_heard": 1,
    }
    assert participation(heard(([3], 0), ([3], 0))) == {"jain_index": 0.25, "slow_devices_heard": 0}


def test_unequal_turns() -> None:
    """Turns 3, 1, 0, 0: 16 / (4 * 10); three of four from the slow half."""
    found = participation(heard(([0, 1], 2), ([0], 1), ([0], 0)))
    assert found["jain_index"] == pytest.approx(0.4) and found["slow_devices_heard"] == pytest.approx(1.5)


def test_without_a_clock_nothing_is_said() -> None:
    assert participation([{"round": 0}]) == {} and "jain_index" not in summary([{"round": 0}])
