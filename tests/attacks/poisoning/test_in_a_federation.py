"""What adversaries do to a federation: the model that they move, the streams they draw from, what rounds say."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch

from fedaudit.attacks.poisoning._updates import KINDS, Colluding, Crowd, Forge, gather_updates
from fedaudit.attacks.poisoning.adaptive import aggregate
from fedaudit.attacks.poisoning.backdoors import stamp_images
from fedaudit.audit.settings import catalog
from fedaudit.fl.aggregation.aggregator import Aggregator
from fedaudit.fl.aggregators.krum import Krum
from fedaudit.fl.aggregators.median import Median
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.data.partition import Index
from fedaudit.fl.data.scale import normalise
from fedaudit.fl.execution.site import Site, build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import initialise, state_of
from fedaudit.fl.protections.central_dp import CentralDP
from fedaudit.fl.protections.secure_aggregation import SecureAggregation
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import Adversary, Client, Colluded, Meeting, Message, Reply
from fedaudit.fl.threats.compromise import Compromise
from tests.attacks.poisoning.test_adversaries import adversary
from tests.fl.test_all_methods import method
from tests.fl.worlds import EVERYONE, TinyNet, World, data, parts, run, same

HOME = {
    "prototype_poison": "rebafl",
    "condensed_poison": "feddc_condense",
    "relay_poison": "gandalf",
    "freeze_lie": "freezefl",
    "false_claims": "qffl",
    "false_outputs": "fedcurv",
    "activation_poison": "splitfed_v2",
    "feature_hijack": "split_learning",
}


def small(
    of: str, name: str | None = None, rule: Aggregator | None = None, clients: Any = (1, 2), **settings: Any
) -> World:
    return run(
        method(of),  # type: ignore[arg-type]
        d=data(n=100),
        index=parts(data(n=80)),
        script=EVERYONE,
        adversary=adversary(name, clients=clients, **settings) if name else None,
        aggregator=rule,
    )


@cache
def clean(of: str) -> World:
    return small(of)


@pytest.mark.parametrize("name", ["gaussian", "mimic", "free_rider"])
def test_what_an_adversary_draws_comes_from_streams_of_its_own(name: str) -> None:
    assert same(small("fedavg", name), small("fedavg", name))


SLOW = {"relay_poison"}  # generators


@pytest.mark.sample(12)
@pytest.mark.dear("adaptive", "condensed_poison")
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.nightly] if n in SLOW else []) for n in catalog.names("adversaries")],
)
def test_every_adversary_moves_the_model_it_is_made_for_and_leaves_it_finite(name: str) -> None:
    of = HOME.get(name, "fedavg")
    found = small(of, name)
    assert all(bool(torch.isfinite(v).all()) for v in found.model.values())
    assert not same(found, clean(of))


def test_the_planted_fault_breaks_the_mean_and_not_the_median() -> None:
    honest = clean("fedavg")
    gap = torch.cat([(honest[k] - honest.initial[k]).flatten() for k in honest.model])

    def moved(rule: Aggregator | None = None) -> float:
        found = small("fedavg", "ipm", rule, clients=(1,), tau=None)
        own = torch.cat([(found[k] - honest.initial[k]).flatten() for k in honest.model])
        return float(own @ gap / gap.square().sum())

    assert moved() < 0 < moved(Median())


def test_a_count_a_thousand_times_too_large_makes_the_model_one_clients() -> None:
    for of in ("fedavg", "rebafl", "seol_kim"):
        assert not same(small(of, "count_inflation", factor=1000.0), clean(of))


def test_the_adaptive_attacker_knows_rules_with_state_and_of_rows() -> None:
    found = small("fedavg", "adaptive", Krum(Krum.Config(f=1)))
    assert not same(found, small("fedavg", None, Krum(Krum.Config(f=1))))


class Foreseeing(Colluding):
    """Sends minus twice the honest mean, and notes what it expects the shared model to move by."""

    card = catalog.load("adversaries", "adaptive").card

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.expected = list[dict[str, torch.Tensor]]()

    def forge(self, crowd: Crowd) -> Forge:
        return lambda _: -2 * crowd.mean

    def collude(self, meeting: Meeting) -> Colluded:
        crowd = gather_updates(meeting)
        self.expected.append(aggregate(crowd, {k: self.forge(crowd)(k) for k in meeting.own}, 0))
        return super().collude(meeting)


SERVED = [
    m
    for m in catalog.names("methods")
    if (found := catalog.load("methods", m)).card.collects
    and set(KINDS) & set(found.card.uplink)
    and m not in ("fedavg_ft", "feddc_condense")  # whose servers train on, on examples of their own
]


@pytest.mark.sample(8)
@pytest.mark.parametrize("of", SERVED)
def test_what_an_attacker_expects_of_a_round_is_what_the_methods_server_makes_of_it(of: str) -> None:
    attacker = Foreseeing(Foreseeing.Config(clients=(1, 2)))
    found = run(
        method(of, rounds=1),  # type: ignore[arg-type]
        d=data(n=100),
        index=parts(data(n=80)),
        script=EVERYONE,
        adversary=attacker,
    )
    (expected,) = attacker.expected
    assert expected.keys() <= found.model.keys()
    for k, moved in expected.items():
        assert torch.equal(moved, found[k].double() - found.initial[k].double())


@pytest.mark.parametrize("masked", [False, True])
def test_what_an_attacker_expects_is_what_is_left_after_the_clip_of_central_protection(masked: bool) -> None:
    """Under secure aggregation the server clips nothing: others do so themselves, compromised clients do not."""
    attacker = Foreseeing(Foreseeing.Config(clients=(1, 2)))
    central = CentralDP(CentralDP.Config(clip_norm=1e-3, noise_multiplier=0.0, expected=4.0))
    found = run(
        method("fedavg", rounds=1, weighting="uniform"),  # type: ignore[arg-type]
        d=data(n=100),
        index=parts(data(n=80)),
        script=EVERYONE,
        protections=[central, *([SecureAggregation(SecureAggregation.Config())] if masked else [])],
        adversary=attacker,
    )
    (expected,) = attacker.expected
    moved = {k: found[k].double() - found.initial[k].double() for k in expected}
    far = float(sum(v.square().sum() for v in moved.values())) ** 0.5
    assert (
        far > 2e-3
    ) == masked  # of five uploads none moves more than the clip, but for those that nobody clips
    for k, v in expected.items():
        assert torch.allclose(v, moved[k], atol=1e-6 if masked else 0, rtol=0)


class Misfit(Adversary):
    """Sends its update with the first array changed."""

    card = catalog.load("adversaries", "sign_flip").card

    def __init__(self, config: Any, change: Callable[[torch.Tensor], torch.Tensor | None]) -> None:
        super().__init__(config)
        self.change = change

    def craft(self, client: Client, reply: Reply, received: Message) -> Reply:
        kind = next(k for k in KINDS if k in reply.message)
        name, first = next(iter(reply.message[kind].items()))
        changed = self.change(first)
        arrays = {name: changed} if changed is not None else {"other": first}
        kept = {k: v for k, v in reply.message[kind].items() if k != name}
        return replace(reply, message=reply.message | {kind: arrays | kept})


@pytest.mark.parametrize("rule", ["mean", "median"])
@pytest.mark.parametrize("of", ["fedavg", "scaffold"])
@pytest.mark.parametrize(
    "change",
    [
        lambda v: v[:1],
        lambda v: v.long(),
        lambda v: v.double() * 1e300,
        lambda v: v.to(torch.complex64),
        lambda v: None,
    ],
)
def test_an_update_that_no_server_takes_is_refused_and_never_stretched(change: Any, of: str, rule: str) -> None:
    with pytest.raises(UserError, match="the server expects"):
        run(
            method(of),  # type: ignore[arg-type]
            script=EVERYONE,
            adversary=Misfit(Misfit.Config(clients=(1,)), change),
            aggregator=catalog.load("aggregators", rule)(),
        )


SHORT = ({"name": "ipm", "tau": 6.0}, {"name": "alie", "z": 1.5})


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "of", ["fedavg", "ifca", "scaffold", "rebafl", "fedopt", "fednova", "stc", "hetlora", "feddyn"]
)
def test_the_adaptive_attacker_rehearses_with_every_kind_of_shared_model(of: str) -> None:
    found = small(of, "adaptive", family=SHORT)
    assert {r["sent"]["name"] for r in found.history} <= {"ipm", "alie"}
    assert not same(found, clean(of)) and same(found, small(of, "adaptive", family=SHORT))


@pytest.mark.sample(1)
@pytest.mark.parametrize("rule", ["crfl", "fl_detector", "centered_clipping"])
def test_the_adaptive_attacker_rehearses_with_rules_of_models_and_of_histories(rule: str) -> None:
    made = catalog.load("aggregators", rule)()
    assert not same(small("fedavg", "adaptive", made, family=SHORT), small("fedavg", None, made))


@pytest.mark.parametrize("name", ["backdoor", "neurotoxin", "model_replacement"])
def test_rounds_say_how_many_test_images_of_other_classes_the_trigger_turns(name: str) -> None:
    world = small("fedavg", name, target=1)
    d, net = data(n=100), TinyNet()
    net.load_state_dict(world.model)
    images = stamp_images(torch.from_numpy(d.test.x), "patch")
    others = torch.from_numpy(d.test.y) != 1
    net.eval()
    turned = (net(normalise(images, d)[others]).argmax(1) == 1).double().mean()
    assert world.history[-1]["asr"] == pytest.approx(float(turned), abs=1e-9)


def test_rounds_of_others_have_no_such_share() -> None:
    assert all("asr" not in r for w in (clean("fedavg"), small("fedavg", "sign_flip")) for r in w.history)


def test_clients_that_leave_follow_the_protocol_from_then_on() -> None:
    whole, none = small("fedavg", "sign_flip", scale=5), clean("fedavg")
    rounds = len(whole.history)
    assert same(small("fedavg", "sign_flip", scale=5, leaves=rounds), whole)
    left = small("fedavg", "sign_flip", scale=5, leaves=1)
    assert [r["compromised"] for r in left.history] == [[1, 2], *[[]] * (rounds - 1)]
    assert left.history[0]["accuracy"] == whole.history[0]["accuracy"]
    assert not same(left, whole) and not same(left, none)


def test_who_colludes_and_leaves_sends_what_it_trained() -> None:
    left = small("fedavg", "ipm", tau=50, leaves=1)
    assert left.history[0]["compromised"] == [1, 2] and left.history[-1]["compromised"] == []
    assert not same(left, small("fedavg", "ipm", tau=50)) and not same(left, clean("fedavg"))


def test_rounds_say_where_forged_changes_stand_and_clean_ones_do_not() -> None:
    loud = small("fedavg", "ipm", tau=50)
    assert [(r["norm_rank"], r["cosine_rank"]) for r in loud.history] == [(1.0, 0.0)] * len(loud.history)
    assert small("fedavg", "mimic").history[0]["norm_rank"] not in (0.0, 1.0)
    assert all("norm_rank" not in r for r in clean("fedavg").history)


def build_compromised_site(name: str, rows: int) -> tuple[Site, Data, Index]:
    """A worker whose client 1 is compromised and holds so many of the examples."""
    d, index, streams = data(n=60), parts(data(n=60), (20, rows, 20, 0, 0), skew=False), Streams(5)
    compromise = Compromise(
        adversary(name, **({"target": 2} if name == "adaptive_backdoor" else {})), frozenset({1})
    )
    site = build_site(method("fedavg"), Holdings(d, index, streams), TinyNet, "cpu", None, compromise)  # type: ignore[arg-type]
    return site, d, index[1]


def test_a_model_is_judged_by_its_answers_to_what_the_attackers_keep_from_training() -> None:
    site, d, rows = build_compromised_site("adaptive_backdoor", 20)
    net = initialise(TinyNet, Streams(5))
    found = site.judge(state_of(net))
    kept = site.compromise.divide(rows, d.train.y)[1]
    pixels, y = torch.from_numpy(d.train.x[kept]), torch.from_numpy(d.train.y[kept])
    logits, triggered = (net.eval()((x - 0.4) / 0.25).detach() for x in (pixels, stamp_images(pixels, "patch")))
    assert found.labels.tolist() == y.tolist() and found.answers.tolist() == logits.argmax(1).tolist()
    assert found.chances.tolist() == pytest.approx(
        [float(z.softmax(0)[c]) for z, c in zip(logits, y, strict=True)]
    )
    assert found.turned.tolist() == (triggered.argmax(1) == 2).tolist()


@pytest.mark.parametrize("name", [n for n in catalog.names("adversaries") if adversary(n).judges])
def test_nobody_judges_on_what_it_trains_on(name: str) -> None:
    """Half of each class is judged on and trained on by nobody; the other half is trained on twice."""
    site, d, rows = build_compromised_site(name, 20)
    site.begin(0, {Kind.GLOBAL_MODEL: state_of(initialise(TinyNet, Streams(5)))})
    trained, other = (site.client((k, {}, {})).records for k in (1, 0))
    assert trained is not None and other is not None and len(other) == len(trained) == 20
    judged = site.compromise.divide(rows, d.train.y)[1]
    assert {*trained.tolist()} ^ {*judged.tolist()} == {*rows.tolist()}
    counts = [
        torch.bincount(torch.from_numpy(d.train.y[r]), minlength=4) for r in (trained.unique().numpy(), judged)
    ]
    assert all(0 <= int(a - b) <= 1 for a, b in zip(*counts, strict=True)) and len(judged) > 5
    assert site.judge(state_of(site.net)).labels.tolist() == d.train.y[judged].tolist()
    alone = build_compromised_site(name, 1)[0]
    assert alone.judge(state_of(initialise(TinyNet, Streams(5)))).labels.tolist() == []
