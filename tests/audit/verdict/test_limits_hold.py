"""Over random questions and lists of attacks: no limit below what anybody hits, and no word for sale."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedaudit.attacks.people import GroupCount, PeopleCount, Share
from fedaudit.audit.verdict.people import bound_below, list_baselines
from fedaudit.audit.verdict.scene import Answers, Attempt
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import Question, State
from tests.audit.verdict.scenes import ALONE, CLIENTS, answer, attempt, make_uploads
from tests.reports.sample_bounds import make_bound

MODEL = Kind.LOCAL_MODEL
SCENE = make_uploads()
ASKED = {  # question -> its panel, and other attacks on it
    "membership.server": (["played_message"], ["loss_threshold", "lira", "entropy"]),
    "diffuse_membership.server": (["played_message"], ["loss_threshold", "lira", "entropy"]),
    "reconstruction.server": (["analytic"], ["dlg", "idlg"]),
    "exact_record.server": (["hidden_images"], []),
    "attribute.server": (["label_counts_from_update", "label_counts_from_gradient"], []),
}
RANKS = {State.EXPOSED: 0, State.OPEN: 1, State.CLEAR: 2}


def draw_people(rng: np.random.Generator, harm: Harm) -> PeopleCount:
    """Everybody or a sample of 360 people, of whom luck hits some and a leak others, some of one group most."""
    tested = 72 if rng.random() < 0.7 else int(rng.integers(10, 72))
    rate, trials = float(rng.choice([0.002, 0.01, 0.1, 0.5])), int(rng.choice([50, 200, 400]))
    lift = float(rng.choice([0, 0, 0.03, 0.1, 0.4]))
    rows = {c: tuple(range(100 * c, 100 * c + tested)) for c in range(CLIENTS)}
    hit = {c: tuple(r for r in some if rng.random() < rate + lift) for c, some in rows.items()}
    control = Share(hits=int(rng.binomial(100, rate)), trials=100)
    of_group = int(rng.integers(20, 60))
    hits = int(rng.binomial(of_group, min(1.0, rate + float(rng.choice([0, 0, 0.5])))))
    luck = Share(hits=int(rng.binomial(60, rate)), trials=60) if rng.random() < 0.7 else Share()
    group = GroupCount(name="class 3", tested=of_group, hits=hits, luck=luck)
    return PeopleCount(
        harm=harm,
        groups=(group,) * int(rng.integers(0, 2)),
        hit_means="hit",
        tested=rows,
        hit={c: some for c, some in hit.items() if some},
        held=dict.fromkeys(rows, 72),
        luck=Share(hits=int(rng.binomial(trials, rate)), trials=trials),
        controls=(control,) * int(rng.integers(0, 2)),
        planted={c: Share(hits=40 if rng.random() < 0.99 else 3, trials=40) for c in rows},
    )


def draw_attempts(rng: np.random.Generator, id: str) -> list[Attempt]:
    """The whole panel of a question, and some others."""
    panel, others = ASKED[id]
    some = [n for n in others if rng.random() < 0.5]
    return [attempt(n, {MODEL: range(3)}, people=draw_people(rng, find_harm(id))) for n in (*panel, *some)]


def find_harm(id: str) -> Harm:
    return Harm(id.partition(".")[0])


def draw_bounds(rng: np.random.Generator) -> list[PrivacyBound]:
    """A verified epsilon, in two of five audits."""
    if rng.random() < 0.6:
        return []
    unit = "client" if rng.random() < 0.5 else "record"
    return [make_bound(Status.VERIFIED, float(rng.exponential(2)), unit=unit)]


def ask(id: str, tried: Sequence[Attempt], limits: Sequence[PrivacyBound]) -> Question:
    return answer(SCENE, tried, Answers(attempts=tried, shipped=ALONE, limits=limits))[id]


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    id = list(ASKED)[int(rng.integers(len(ASKED)))]
    tried, limits = draw_attempts(rng, id), draw_bounds(rng)
    whole = ask(id, tried, limits)
    assert whole.at_most is None or whole.at_least <= whole.at_most, (seed, whole)
    for a in tried:
        people = a.find_people(find_harm(id), MODEL)
        assert people is not None
        hits, tested = (sum(map(len, some.values())) for some in (people.hit, people.tested))
        net = min(bound_below(hits, tested, b, 0.0001) for b in list_baselines(people.luck, people.controls))
        assert whole.at_most is None or net <= whole.at_most, (seed, a.id, whole)
    panel, others = ASKED[id]
    for name in panel:
        less = ask(id, [a for a in tried if a.name != name], limits)
        assert less.state is not State.CLEAR and less.at_most is None, (seed, name, less)
    for name in others:
        if name not in {a.name for a in tried}:
            more = ask(
                id, [*tried, attempt(name, {MODEL: range(3)}, people=draw_people(rng, find_harm(id)))], limits
            )
            assert RANKS[more.state] <= RANKS[whole.state], (seed, name, whole, more)


@pytest.mark.parametrize("seed", range(12))
def test_no_limit_lies_below_a_hit_and_no_list_of_attacks_buys_one(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
def test_no_limit_lies_below_a_hit_and_no_list_of_attacks_buys_one_in_500_audits() -> None:
    for seed in range(12, 512):
        check(seed)
