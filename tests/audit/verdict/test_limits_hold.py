"""Over random questions and lists of attacks: no limit below what anybody hits, and no word for sale."""

from collections.abc import Sequence

import numpy as np
import pytest

from fedaudit.attacks.people import PeopleCount, Share
from fedaudit.audit.verdict.attempts import Attempt
from fedaudit.audit.verdict.people import bound_below, list_baselines
from fedaudit.audit.verdict.scene import Answers
from fedaudit.fl.kinds import Kind
from fedaudit.reports.bound import PrivacyBound, Status
from fedaudit.reports.questions import Question, State
from tests.audit.verdict.scenes import CARDS, CLIENTS, answer, attempt, make_scene
from tests.reports.sample_bounds import make_bound

MODEL = Kind.LOCAL_MODEL
SCENE = make_scene("fedavg")
ASKED = {  # question -> its panel, and other attacks on it
    "membership.server.local_model": (["played_update"], ["loss_threshold", "gradient_cosine", "entropy"]),
    "reconstruction.server.local_model": (["analytic"], ["dlg", "idlg"]),
    "exfiltration.server.local_model": (["hidden_images"], []),
    "attribute.server.local_model": (["label_counts_from_update", "label_counts_from_gradient"], []),
}
RANKS = {State.DEMONSTRATED: 0, State.INCONCLUSIVE: 1, State.NOT_ASKED: 1, State.BOUNDED: 2}


def draw_people(rng: np.random.Generator) -> PeopleCount:
    """Everybody or a sample of 360 people, of whom luck hits some and a leak others."""
    tested = 72 if rng.random() < 0.7 else int(rng.integers(10, 72))
    rate, trials = float(rng.choice([0.002, 0.01, 0.1, 0.5])), int(rng.choice([50, 200, 400]))
    lift = float(rng.choice([0, 0, 0.03, 0.1, 0.4]))
    rows = {c: tuple(range(100 * c, 100 * c + tested)) for c in range(CLIENTS)}
    hit = {c: tuple(r for r in some if rng.random() < rate + lift) for c, some in rows.items()}
    control = Share(hits=int(rng.binomial(100, rate)), trials=100)
    return PeopleCount(
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
    return [attempt(n, {MODEL: range(3)}, people=draw_people(rng)) for n in (*panel, *some)]


def draw_bounds(rng: np.random.Generator) -> list[PrivacyBound]:
    """A verified epsilon, in two of five audits."""
    if rng.random() < 0.6:
        return []
    unit = "client" if rng.random() < 0.5 else "record"
    return [make_bound(Status.VERIFIED, float(rng.exponential(2)), unit=unit)]


def ask(id: str, tried: Sequence[Attempt], limits: Sequence[PrivacyBound]) -> Question:
    return answer(SCENE, tried, Answers(attempts=tried, shipped=CARDS, limits=limits))[id]


def check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    id = list(ASKED)[int(rng.integers(len(ASKED)))]
    tried, limits = draw_attempts(rng, id), draw_bounds(rng)
    whole = ask(id, tried, limits)
    assert whole.at_most is None or whole.at_least <= whole.at_most, (seed, whole)
    for a in tried:
        people = a.find_people(MODEL)
        assert people is not None
        hits, tested = (sum(map(len, some.values())) for some in (people.hit, people.tested))
        net = min(bound_below(hits, tested, b, 0.0001) for b in list_baselines(people.luck, people.controls))
        assert whole.at_most is None or net <= whole.at_most, (seed, a.id, whole)
    panel, others = ASKED[id]
    for name in panel:
        less = ask(id, [a for a in tried if a.name != name], limits)
        assert less.state is not State.BOUNDED and less.at_most is None, (seed, name, less)
    for name in others:
        if name not in {a.name for a in tried}:
            more = ask(id, [*tried, attempt(name, {MODEL: range(3)}, people=draw_people(rng))], limits)
            assert RANKS[more.state] <= RANKS[whole.state], (seed, name, whole, more)


@pytest.mark.parametrize("seed", range(12))
def test_no_limit_lies_below_a_hit_and_no_list_of_attacks_buys_one(seed: int) -> None:
    check(seed)


@pytest.mark.nightly
def test_no_limit_lies_below_a_hit_and_no_list_of_attacks_buys_one_in_500_audits() -> None:
    for seed in range(12, 512):
        check(seed)
