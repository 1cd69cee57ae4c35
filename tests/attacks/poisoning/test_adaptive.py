"""Attackers who try what they could send: what they judge by, what they send, and what they claim of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from fedaudit.attacks.poisoning.adaptive import estimate_loss, estimate_recalls
from fedaudit.fl.aggregation.aggregator import Averages, Combined, RowRule
from fedaudit.fl.clients.client import Reply
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.tasks.classify import NO_ANSWER
from fedaudit.fl.threats.adversary import JudgedModel, Trail
from fedaudit.fl.threats.rehearsal import Rehearsal
from fedaudit.fl.wire.protect import ProtectionChain
from fedaudit.fl.wire.protection import Message
from tests.attacks.poisoning.test_adversaries import HONEST, START, adversary, changes, meeting, sent
from tests.fl.test_all_methods import method


def aggregate_by(made: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    """A server's rule, as colluding clients know it: of all changes, as rows."""
    return lambda given, draw=0, trail=None: {"w": made(torch.stack([v["w"].double() for v in given.values()]))}


def make_judged(*recalls: float | None, wrong: int = 1) -> JudgedModel:
    """One example a class, answered rightly as far as that; None: no example. Else `wrong` classes on."""
    held = {c: r for c, r in enumerate(recalls) if r is not None}
    right = torch.tensor([r >= 0.5 for r in held.values()], dtype=torch.bool)
    labels, count = torch.tensor(list(held), dtype=torch.long), len(recalls)
    return JudgedModel(
        classes=count,
        labels=labels,
        answers=labels.where(right, (labels + wrong) % count),
        chances=2 * torch.tensor(list(held.values()), dtype=torch.float64) - right.double(),
        turned=torch.zeros(len(held), dtype=torch.bool),
        turned_chances=torch.zeros(len(held), dtype=torch.float64),
    )


def test_where_nothing_tells_what_a_model_is_worth_the_adaptive_attacker_moves_the_rule_furthest() -> None:
    mean = torch.tensor(HONEST).double().mean(0)
    met = meeting({0: (0, 0, 0)}, aggregate=aggregate_by(lambda rows: rows.mean(0)))
    found = adversary("adaptive", family=("alie", {"name": "ipm", "tau": 16.0}, "min_max")).collude(met)
    assert found.member == {"name": "ipm", "tau": 16.0}
    assert changes(found)[0] == pytest.approx((-16 * mean).tolist(), rel=1e-5)
    deaf = meeting({0: (0, 0, 0)}, aggregate=aggregate_by(lambda rows: rows[1]))
    assert adversary("adaptive").collude(deaf).member == {
        "name": "ipm",
        "tau": 0.1,
    }  # nothing moves the rule: the first


def test_the_adaptive_attacker_sends_what_leaves_least_of_the_model_on_its_own_examples() -> None:
    def judge(moved: Any) -> list[JudgedModel]:  # the model is good at class 0 where w[0] grows, at 1 with w[1]
        return [make_judged(*((m["w"][:2].clamp(-1, 1) + 1) / 2).tolist()) for m in moved]

    met = replace(meeting({0: (0, 0, 0)}, aggregate=aggregate_by(lambda rows: rows.mean(0))), judge=judge)
    weak, strong = {"name": "ipm", "tau": 0.1}, {"name": "ipm", "tau": 16.0}
    for family in ((weak, strong), (strong, weak)):
        assert adversary("adaptive", family=family).collude(met).member == {"name": "ipm", "tau": 16.0}

    third = {"name": "ipm", "tau": 15.99}
    found = adversary("adaptive", family=(weak, strong, third)).collude(met)
    assert found.member == strong and found.near == [third]

    # ipm leaves 0.4 of both classes, alie all of one and nothing of the other
    def uneven(moved: Any) -> list[JudgedModel]:
        return [make_judged(0.4, 0.4) if m["w"][0] < 0 else make_judged(1.0, 0.0) for m in moved]

    met = replace(met, judge=uneven, aggregate=aggregate_by(lambda rows: rows[0]))
    for minimises, expected in (("mean", "ipm"), ("worst_class", "alie")):
        made = adversary("adaptive", family=(weak, {"name": "alie", "z": 0.5}), minimises=minimises)
        assert made.collude(met).member["name"] == expected


def test_for_classes_that_the_attackers_do_not_hold_the_models_progress_stands() -> None:
    def blind(moved: Any) -> list[JudgedModel]:
        return [make_judged(0.0, 0.0, None) for _ in moved]

    family = ({"name": "alie", "z": 0.5}, {"name": "ipm", "tau": 1.0})
    met = replace(meeting({0: (0, 0, 0)}, aggregate=aggregate_by(lambda rows: rows[0])), judge=blind)
    assert adversary("adaptive", family=family).collude(met).member == {"name": "ipm", "tau": 1.0}


def test_the_adaptive_attacker_follows_attacks_for_rounds_and_sends_what_pays_later() -> None:
    trained = list[float]()

    def train(change: Any) -> dict[int, tuple[Message, Message]]:
        """In every round the compromised client learns nothing."""
        trained.append(float(change["w"][0]))
        model = {"w": START + change["w"].float()}
        return {0: ({Kind.LOCAL_MODEL: model}, {Kind.GLOBAL_MODEL: model})}

    def judge(moved: Any) -> list[JudgedModel]:
        return [make_judged(1 + float(m["w"][0]) / 100) for m in moved]

    def rule(given: Any, draw: int = 0, trail: Any = None) -> Any:
        """Takes what client 0 sends, but long changes in the first round alone."""
        sent = given[0]["w"].double()
        return {"w": sent * float(not draw or sent[0] > -10)}

    family = ({"name": "ipm", "tau": 8.0}, {"name": "alie", "z": 6.0})  # by -12 once, or by -4.8 in every round
    met = replace(meeting({0: (0, 0, 0)}, aggregate=rule), judge=judge, train=train)
    assert (
        adversary("adaptive", family=family, ahead=0).collude(met).member == {"name": "ipm", "tau": 8.0}
        and not trained
    )
    assert adversary("adaptive", family=family, ahead=1).collude(met).member == {"name": "ipm", "tau": 8.0}
    assert adversary("adaptive", family=family, ahead=2).collude(met).member == {"name": "alie", "z": 6.0}
    assert len(trained) == 2 * (1 + 2)  # each attack, each round


def test_an_attack_is_kept_up_while_nothing_leaves_two_points_less() -> None:
    def judge(moved: Any) -> list[JudgedModel]:
        return [make_judged(1 + float(m["w"][0]) / 100) for m in moved]

    family = ({"name": "ipm", "tau": 1.0}, {"name": "ipm", "tau": 2.0}, {"name": "ipm", "tau": 4.0})
    met = replace(meeting({0: (0, 0, 0)}, aggregate=aggregate_by(lambda rows: rows[0])), judge=judge)
    found = adversary("adaptive", family=family).collude(met)
    assert found.member == {"name": "ipm", "tau": 4.0} and found.state == {"member": found.member}
    # of a honest mean of 1.5 these leave 1.5, 3 and 6 points less
    for tau, kept in ((2.0, 4.0), (1.0, 4.0)):
        again = replace(met, before={"member": {"name": "ipm", "tau": tau}})
        assert adversary("adaptive", family=family).collude(again).member["tau"] == kept
    again = replace(met, before={"member": {"name": "ipm", "tau": 1.0}})
    assert adversary("adaptive", family=family[:2]).collude(again).member["tau"] == 1.0


def test_a_rule_begins_rounds_ahead_with_what_it_remembers_of_those_before() -> None:
    seen = list[tuple[int, float]]()

    class Remembering(RowRule):
        title = "Remembers"

        def combine(self, rows: Any, weights: Any, clients: Any, context: Any) -> Combined:
            seen.append((int(context.state.get("n", 0)), float(context.start["w"][0])))
            state = {"n": context.state.get("n", 0) + 1}
            return Combined(change=rows.double().mean(0), kept=dict.fromkeys(clients, 1.0), state=state)

    known = {"model": {"n": 5}}
    averages = Averages(Remembering(), 3, Streams(1), state=known, parameters=("w",))
    tried = Rehearsal(
        averages=averages,
        state={"model": {"w": START, "seen": torch.tensor(1)}, "aggregator": known},
        workers=cast(Any, None),
        job=cast(Any, None),
        server=cast(Any, method("fedavg")),
        broadcast={},
        protections=ProtectionChain((), Streams(1), lambda _: frozenset()),
    )
    heard = {k: Reply(message=sent((0, 0, 0)), examples=1) for k in (0, 1)}
    received: dict[int, Message] = {k: {Kind.GLOBAL_MODEL: {"w": START}} for k in heard}
    moved, trail = {k: {"w": torch.tensor([1.0, 0, 0]).double()} for k in heard}, Trail()
    for _ in range(2):
        tried.aggregate(heard, received, moved, 0, trail)
    tried.aggregate(heard, received, moved)
    at = float(START[0])
    assert seen == [(5, at), (6, at + 1), (5, at)] and trail.rounds == 2 and float(trail.change["w"][0]) == 2
    assert int(tried.model["seen"]) == 1  # what is tried leaves the server as it is


def test_the_adaptive_backdoor_takes_the_most_success_at_a_bounded_loss() -> None:
    """Accuracy falls and success grows with w[0]; what stands for no attack has the honest mean's 1.5."""

    def judge(moved: Any) -> list[JudgedModel]:
        """Of each class 1,000 examples."""
        made, place = list[JudgedModel](), torch.arange(1000).repeat(2)
        for m in moved:
            bad, labels = place < 10 * float(m["w"][0].clamp(-100, 100)), torch.arange(2).repeat_interleave(1000)
            chances = torch.ones(2000, dtype=torch.float64)
            made.append(
                JudgedModel(
                    classes=2,
                    labels=labels,
                    answers=labels ^ bad.long(),
                    chances=chances,
                    turned=bad & (labels == 1),
                    turned_chances=(bad & (labels == 1)).double(),
                )
            )
        return made

    met = replace(meeting({0: (2, 0, 0)}, aggregate=aggregate_by(lambda rows: rows[0])), judge=judge)

    def send(loss: float) -> float:
        found = adversary("adaptive_backdoor", loss=loss).collude(met)
        made, claims = changes(found)[0][0], found.claims
        assert claims["loss"] == pytest.approx(0.01 * (min(made, 100) - 1.5), abs=0.001)
        assert claims["success"] == pytest.approx(0.01 * min(made, 100), abs=0.001)
        assert claims["loss"] <= claims["loss_at_most"] <= claims["loss"] + 0.05
        return made

    assert send(1.0) == pytest.approx(
        20 * float(torch.tensor(HONEST).float().norm(dim=1).quantile(0.5)), rel=1e-4
    )
    assert 6 < send(0.1) <= 11.5 and 1.5 < send(0.02) <= 3.5
    assert send(0.0) <= 1.5
    unseen = meeting({0: (2, 0, 0)}, aggregate=aggregate_by(lambda rows: rows[0]))
    assert not adversary("adaptive_backdoor").collude(unseen).messages


def test_a_rule_that_draws_at_random_is_tried_several_times() -> None:
    tried = list[int]()

    def rule(given: Any, draw: int = 0, trail: Any = None) -> Any:
        tried.append(draw)
        return {"w": torch.stack([v["w"].double() for v in given.values()])[draw % 2]}

    adversary("adaptive", family=("alie",), draws=4).collude(meeting({0: (0, 0, 0)}, aggregate=rule))
    assert tried == [0, 1, 0, 1, 2, 3]


def test_a_family_is_made_of_attacks_that_forge_changes() -> None:
    met = meeting({0: (0, 0, 0)}, aggregate=aggregate_by(lambda rows: rows.mean(0)))
    with pytest.raises(UserError, match="family takes adversaries that forge changes, and Label flip does not"):
        adversary("adaptive", family=("label_flip",)).collude(met)
    with pytest.raises(UserError, match="tau"):
        adversary("adaptive", family=({"name": "ipm", "tau": -1},)).collude(met)


def test_a_model_with_one_answer_leaves_that_class_and_one_that_errs_everywhere_leaves_less() -> None:
    """Of ten classes the attackers hold four; the others are answered as all of these are."""
    four = (0.0, 0.0, 0.0, 0.0, *(None,) * 6)
    scattered = make_judged(*four, wrong=5)
    constant = replace(scattered, answers=torch.full((4,), 7))
    assert float(estimate_recalls(constant, -1.0).mean()) == pytest.approx(0.1)
    assert float(estimate_recalls(scattered, -1.0).sum()) == 0.0
    silent = replace(scattered, answers=torch.full((4,), NO_ANSWER))
    assert float(estimate_recalls(silent, -1.0).sum()) == 0.0
    assert float(estimate_recalls(scattered, 0.5).mean()) == pytest.approx(0.3)
    nothing = make_judged(None, None)
    assert estimate_recalls(nothing, 0.25).tolist() == [0.25, 0.25]


def test_a_loss_counts_each_class_alike_and_its_interval_is_of_as_many_trials_as_that_leaves() -> None:
    labels = torch.tensor([0] * 90 + [1] * 10)
    before = replace(make_judged(1.0, 1.0), labels=labels, answers=labels)
    after = replace(before, answers=torch.zeros(100, dtype=torch.long))
    found = estimate_loss([before], [after], 0.05)
    assert found.value == pytest.approx(0.5)
    few = replace(before, labels=labels[72:], answers=labels[72:])  # 18 and 10: 25.7 trials, where it was 36
    lost = estimate_loss([few], [replace(few, answers=torch.zeros(28, dtype=torch.long))], 0.05)
    assert lost.value == pytest.approx(0.5) and lost.interval[1] > found.interval[1]
    assert estimate_loss([before], [before], 0.05).value == 0.0
    assert estimate_loss([before, after], [before, before], 0.05).value == pytest.approx(-0.25)


def test_where_a_class_is_not_held_a_backdoor_moves_the_rule_no_further_than_an_honest_client_does() -> None:
    """Nothing is lost of the one class that is held; the rule takes what client 0 sends."""

    def judge(moved: Any) -> list[JudgedModel]:
        far = [float(m["w"].norm()) for m in moved]
        one = make_judged(None, 1.0)
        return [replace(one, turned=torch.tensor([x > 8])) for x in far]

    met = replace(meeting({0: (2, 0, 0)}, aggregate=aggregate_by(lambda rows: rows[0])), judge=judge)
    made = torch.tensor(changes(adversary("adaptive_backdoor").collude(met))[0]).double()
    rows = torch.tensor(HONEST).double()
    far = (rows - rows.mean(0)).norm(dim=1).max()
    assert float((made - rows.mean(0)).norm()) <= float(far) + 1e-5
    # what no answer shows yet a probability does
    first, later = (
        replace(make_judged(1.0, 1.0), turned_chances=torch.full((2,), p, dtype=torch.float64))
        for p in (0.1, 0.2)
    )
    shy = replace(met, judge=lambda moved: [later if float(m["w"].norm()) > 8 else first for m in moved])
    assert float(torch.tensor(changes(adversary("adaptive_backdoor").collude(shy))[0]).norm()) > 8
    everywhere = replace(
        met, judge=lambda moved: [replace(j, classes=1, labels=j.labels * 0) for j in judge(moved)]
    )
    found = adversary("adaptive_backdoor", target=1).collude(everywhere)
    assert float(torch.tensor(changes(found)[0]).norm()) > 8
