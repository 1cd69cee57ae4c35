"""Methods follow the trajectories of public implementations, within the rounding of float32."""

import pytest

from tests.fl.equivalence.replay import Case, cases, differences, replay

CASES = cases()


def within(case: Case, found: dict[str, float]) -> bool:
    return all(found[group] <= case.entry["tolerance"][group] for group in case.entry["compare"])


@pytest.mark.sample(13)
@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
@pytest.mark.parametrize("stacked", [False, True], ids=["one by one", "stacked"])
@pytest.mark.parametrize("train_lost", [True, False], ids=["lost are trained", "lost are not"])
def test_a_method_follows_its_public_code(
    case: Case, stacked: bool, train_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = differences(case, replay(case, monkeypatch, stacked=stacked, train_lost=train_lost))
    assert within(case, found), found
