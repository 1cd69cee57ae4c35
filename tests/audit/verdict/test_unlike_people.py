"""A question whose held-out people are of another distribution is open, whoever is hit and whoever is not."""

from dataclasses import replace

import pytest

from fedaudit.attacks.people import GroupCount, Share
from fedaudit.audit.verdict.people import UNLIKE
from fedaudit.audit.verdict.scene import Answers
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.questions import Question, State
from tests.audit.verdict.scenes import ALONE, answer, attempt, make_people, make_uploads

GROUP = GroupCount(name="class 3", tested=35, hits=30, luck=Share(hits=0, trials=300))


def ask(hit: int, *, is_alike: bool, harm: Harm = Harm.MEMBERSHIP, attack: str = "played_message") -> Question:
    people = replace(make_people(harm, hit=hit, groups=[GROUP] if hit else []), is_alike=is_alike)
    tried = [attempt(attack, {Kind.LOCAL_MODEL: range(3)}, people=people)]
    return answer(make_uploads(), tried, Answers(attempts=tried, shipped=ALONE))[f"{harm}.server"]


@pytest.mark.parametrize(("hit", "before"), [(0, State.CLEAR), (60, State.EXPOSED)])
def test_membership_beside_people_from_elsewhere_is_open_with_its_sentence(hit: int, before: State) -> None:
    assert ask(hit, is_alike=True).state is before
    q = ask(hit, is_alike=False)
    assert (q.state, q.at_least, q.at_most, q.groups) == (State.OPEN, 0, None, [])
    assert q.why == f"there is no limit: played_message: {UNLIKE}" and "truth/heldout" in q.why
