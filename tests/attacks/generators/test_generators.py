"""Critics and generators: a client's memorised images are found, untrained networks tell nothing."""

from copy import copy
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Attack, Claim, Examples, Knowledge, Unseen
from fedaudit.attacks.evaluation.matching import Matched, halves, match_members, score_pairs
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.generators._copies import closest
from fedaudit.attacks.generators.critic_score import CriticScore
from fedaudit.attacks.generators.generator_distance import GeneratorDistance
from fedaudit.attacks.modality.images import nearest
from fedaudit.audit.observer.generators import KnownGenerators
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.families.gan import GanConfig
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.plugin import configure
from tests.attacks.world import digits

SHAPE = (1, 8, 8)
STEPS, PLANTED = (400, {Kind.GAN_D: 100, Kind.GAN_G: 250})  # of the generator, to convergence or nearly
SOME = 250  # enough for what five pairs of five showed
KNOWN = KnownGenerators(SHAPE, GanConfig(width=16, latent=16, batch_size=20))


class World:
    """Digits: two clients; client 0 has 20 images and made the pair alone, client 1 has others."""

    def __init__(self, steps: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        x, y = digits()
        order = rng.permutation(len(x))
        a, r, own, other = np.split(order, [500, 1400, 1420])
        self.auxiliary, self.reference = Examples(x=x[a], y=y[a]), Examples(x=x[r], y=y[r])
        self.clients = [Examples(x=x[own], y=y[own]), Examples(x=x[other], y=y[other])]
        pair = KNOWN.train(self.clients[0], steps, rng)
        critic = artifact(Kind.GAN_D, Channel.RELAY, pair.critic, ("client/1",))
        generator = artifact(Kind.GAN_G, Channel.UPLINK, pair.generator, ("server",))
        self.artifacts = [critic, generator]
        self.knowledge = Knowledge(classes=10, shape=SHAPE, generators=KNOWN, auxiliary=self.auxiliary)

    def unseen(self, clients: object) -> Unseen:
        return Unseen(self.reference, "")

    def client_examples(self, client: int) -> Examples:
        return self.clients[client]

    def people(self, artifact: str, label: int) -> dict[int, NDArray[np.int64]]:
        return {0: self.client_rows(0)[self.clients[0].y == label]}

    def members(self, artifact: str, label: int) -> NDArray[np.float32]:
        return self.clients[0].of_class(label)

    def client_rows(self, client: int) -> NDArray[np.int64]:
        return 1000 * client + np.arange(len(self.clients[client]))


def artifact(kind: Kind, channel: Channel, payload, seen: tuple[str, ...], round: int = 3, sender: int = 0):  # type: ignore[no-untyped-def]
    return Artifact(
        id=f"{round}/{sender}/{kind}",
        kind=kind,
        channel=channel,
        round=round,
        sender=Party.client(sender),
        seen_by=seen,
        payload=payload,
    )


@cache
def world(steps: int) -> World:
    return World(steps)


def attack(kind: Kind, steps: int = 1) -> Attack:
    """`steps` of training for what the attack plants."""
    if kind == Kind.GAN_D:
        return CriticScore(CriticScore.Config(planted_steps=steps))
    few = GeneratorDistance.Config(planted_steps=steps, reference_steps=60, images=4000)
    return GeneratorDistance(few)


@cache
def claimed(kind: Kind, steps: int, planted: int = 1) -> Claim:
    w, a = world(steps), attack(kind, planted)
    view = [x for x in w.artifacts if x.kind == kind]
    assert a.not_applicable(view, w.knowledge) == ""
    return a.run(view, w.knowledge, np.random.default_rng(1))


@cache
def judged(kind: Kind, steps: int, planted: int = 1) -> list[Evidence]:
    return attack(kind).measure(claimed(kind, steps, planted), world(steps), np.random.default_rng(2))  # type: ignore[arg-type]


def one(found: list[Evidence], measure: str, control: str = "none", **condition: str) -> Evidence:
    [e] = [
        e
        for e in found
        if e.measure == measure and e.control == control and condition.items() <= e.condition.items()
    ]
    return e


PLAIN = {Kind.GAN_D: {"client": "trained last"}, Kind.GAN_G: {"score": "distance"}}
WHERE = {Kind.GAN_D: {"client": "trained last"}, Kind.GAN_G: {"score": "calibrated"}}


# Adversarial training is chaotic: a last bit that differs, as it does between processors with other vector units,
# makes another pair after 400 steps. Rates among 20 members then vary as between seeds (ten pairs on three kinds
# of kernels: critic .75 to .95, generator .10 to .50; areas .98 to 1.00 and .87 to .95, lower ends from .73), so
# what is asked here holds for each of them. Sharper figures are of many pairs: the nightly test below.
@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "least_rate", "least_area"), [(Kind.GAN_D, 0.5, 0.9), (Kind.GAN_G, 0.05, 0.8)])
def test_twenty_memorised_images_are_found(kind: Kind, least_rate: float, least_area: float) -> None:
    found = judged(kind, STEPS)
    rate, area = (one(found, m, **PLAIN[kind]) for m in ("tpr_at_fpr_0.01", "auc"))
    assert rate.trials == 20 and rate.interval is not None
    assert rate.value >= least_rate  # chance: 0.01
    assert area.value > least_area and area.interval is not None and area.interval[0] > 0.65


@pytest.mark.nightly
def test_generators_of_six_clients_that_memorised_are_found_on_average() -> None:
    rates = []
    for seed in range(6):
        w, a = World(STEPS, seed), attack(Kind.GAN_G)
        claim = a.run([x for x in w.artifacts if x.kind == Kind.GAN_G], w.knowledge, np.random.default_rng(1))
        found = a.measure(claim, w, np.random.default_rng(2))  # type: ignore[arg-type]
        rates.append(one(found, "tpr_at_fpr_0.01", **PLAIN[Kind.GAN_G]).value)
    assert np.mean(rates) > 0.2 and min(rates) >= 0.05  # .10 to .50, mean .31


@pytest.mark.parametrize("kind", [Kind.GAN_D, Kind.GAN_G])
def test_untrained_networks_tell_nothing(kind: Kind) -> None:
    area = one(judged(kind, 0), "auc", **WHERE[kind])
    assert area.interval is not None and area.interval[0] < 0.5 < area.interval[1]


@pytest.mark.nightly  # by day tests/contracts/test_attacks_at_work.py asks it of smaller worlds
@pytest.mark.parametrize("kind", [Kind.GAN_D, Kind.GAN_G])
def test_the_planted_leak_is_found(kind: Kind) -> None:
    planted = one(judged(kind, SOME, PLANTED[kind]), "auc", "positive")
    assert planted.interval is not None and planted.interval[0] > 0.6


@pytest.mark.dear("gan_D")
@pytest.mark.parametrize("kind", [Kind.GAN_D, Kind.GAN_G])
def test_the_control_is_silent(kind: Kind) -> None:
    for steps in (0, SOME):
        silent = one(judged(kind, steps), "auc", "negative")
        assert silent.interval is not None and silent.interval[0] < 0.5 < silent.interval[1]


def test_copies_are_counted_against_equally_many_held_out_images() -> None:
    copied = one(judged(Kind.GAN_G, SOME), "copied_share")
    assert copied.interval is not None and copied.interval[0] > 0.5
    control = one(judged(Kind.GAN_G, SOME), "copied_share", "negative")
    assert control.interval is not None and control.interval[0] < 0.5 < control.interval[1]
    ratio = one(judged(Kind.GAN_G, SOME), "closest_ratio")
    # How much nearer is chaotic as well. That copies are nearer is sure at the level of the interval, 95 %, at
    # which those of nobody below are no nearer: the nightly test counts how often either is wrong.
    assert ratio.interval is not None and ratio.interval[1] < 1
    for found in (judged(Kind.GAN_G, 0), judged(Kind.GAN_G, SOME)):
        silent = one(found, "closest_ratio", "negative")
        assert silent.interval is not None and silent.interval[0] < 1 < silent.interval[1]


@pytest.mark.nightly
def test_shares_of_copies_fire_as_seldom_as_they_say() -> None:
    """Where one image is near to all that is made, and where none is; 95 % intervals, 200 times."""
    rng, fired = np.random.default_rng(0), np.zeros(2)
    for i in range(200):
        d = (2, 30)[i % 2]
        made = rng.normal(size=(100, d)) + 2 * rng.normal()
        c = closest(made, rng.normal(size=(20, d)), rng.normal(size=(20, d)), rng)
        for j, (found, none) in enumerate(((c.share, 0.5), (c.ratio, 0.0))):
            reach = np.quantile(np.abs(found[1:] - none), 0.95)
            fired[j] += abs(found[0] - none) > reach
    assert (fired <= 20).all() and (fired >= 2).all()
    own = rng.normal(size=(20, 30))
    c = closest(own + 0.1 * rng.normal(size=own.shape), own, rng.normal(size=(20, 30)), rng)
    assert c.share[0] == 1 and c.ratio[0] < -1


def test_the_gallery_shows_copies_beside_their_images() -> None:
    w, a, claim = world(SOME), attack(Kind.GAN_G), claimed(Kind.GAN_G, SOME)
    [gallery] = a.galleries(claim, w)  # type: ignore[arg-type]
    made, seen, non_members = gallery.rows.values()
    assert made.shape == seen.shape == non_members.shape == (8, *SHAPE)
    assert np.square(made - seen).sum() < np.square(made - non_members).sum() / 1.5
    assert {c.name for c in a.curves(claim, w)} == {"calibrated", "distance"}  # type: ignore[arg-type]


def test_without_unseen_images_of_the_classes_there_is_nothing_to_show() -> None:
    w, a, claim = copy(world(SOME)), attack(Kind.GAN_G), claimed(Kind.GAN_G, SOME)
    w.reference = Examples(x=w.reference.x[:0], y=w.reference.y[:0])
    found = a.measure(claim, w, np.random.default_rng(0))  # type: ignore[arg-type]
    assert {e.control for e in found} == {"positive"}
    assert a.galleries(claim, w) == [] == a.curves(claim, w)  # type: ignore[arg-type]


def test_the_group_map_says_whose_images_are_behind_a_generator() -> None:
    w, a = world(0), attack(Kind.GAN_G)
    told = {"client": np.array([0, 1, 2]), "group": np.array([4, 4, 5])}
    group = artifact(Kind.GROUP_MAP, Channel.DOWNLINK, told, ("client",), 0)
    claim = a.run([w.artifacts[1], group], w.knowledge, np.random.default_rng(1))
    assert [b.tolist() for b in claim["behind"]] == [[0, 1]]


def test_the_client_before_the_last_is_told_apart() -> None:
    w, a = world(0), attack(Kind.GAN_D)
    critic = w.artifacts[0].payload
    view = [artifact(Kind.GAN_D, Channel.RELAY, critic, ("client/0", "mediator/0"), 3, 1), w.artifacts[0]]
    claim = a.run(view, w.knowledge, np.random.default_rng(1))
    assert dict(zip(claim["sender"].tolist(), claim["before"].tolist(), strict=True)) == {1: 0, 0: 1}
    older = artifact(Kind.GAN_D, Channel.RELAY, critic, ("client/1",), 2)
    claim = a.run([older, w.artifacts[0]], w.knowledge, np.random.default_rng(1))
    assert claim["round"].tolist() == [3]


@pytest.mark.parametrize("kind", [Kind.GAN_D, Kind.GAN_G])
def test_what_cannot_be_attacked_is_said_in_a_sentence(kind: Kind) -> None:
    w, a = world(0), attack(kind)
    first = artifact(kind, Channel.DOWNLINK, {}, ("client/1",))
    assert "in the recorded rounds" in a.not_applicable([first], w.knowledge)
    blind = Knowledge(classes=10, shape=SHAPE, generators=KNOWN)
    assert "auxiliary" in a.not_applicable(w.artifacts, blind)
    unknown = Knowledge(classes=10, shape=SHAPE, auxiliary=w.auxiliary)
    assert "networks are built" in a.not_applicable(w.artifacts, unknown)
    with pytest.raises(UserError, match="planted must be >= 2, got 0"):
        configure(type(a), {"planted": 0}, "attacks[0]")


def test_matched_images_have_the_members_classes() -> None:
    rng = np.random.default_rng(0)
    members = Examples(x=rng.random((60, 1, 2, 2)), y=np.repeat([0, 1, 2], [30, 20, 10]))
    non_members = Examples(x=rng.random((300, 1, 2, 2)), y=np.repeat([0, 1, 3], 100))
    m = match_members(members, non_members, rng, 30)
    counts = [np.bincount(i.y, minlength=4).tolist() for i in (m.members, m.others, m.equally_many)]
    assert counts == [[15, 10, 0, 0], [90, 60, 0, 0], [15, 10, 0, 0]]
    first, second = halves(non_members, rng)
    assert not {i.tobytes() for i in first.x} & {i.tobytes() for i in second.x}
    assert len(first) + len(second) == 300


def test_one_image_asked_of_two_generators_is_one_trial() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((200, 1, 2, 2)).astype(np.float32), np.zeros(200, np.int64)
    lot = Matched(members=Examples(x=x[:50], y=y[:50]), others=Examples(x=x[50:], y=y[50:]))
    one, two = (score_pairs([(None, lot)] * n, lambda _, i: i.x.sum((1, 2, 3))) for n in (1, 2))
    assert len(two.members) == 100 and len(np.unique(np.concatenate(two.groups))) == 200
    alone, again = (stats.auc(s.members, s.others, groups=s.groups) for s in (one, two))
    np.testing.assert_allclose(again.interval, alone.interval, atol=2e-3)
    blind = stats.auc(two.members, two.others, groups=stats.INDEPENDENT)  # as if there were twice as many
    assert np.diff(blind.interval) < 0.8 * np.diff(alone.interval)


def test_nearest_is_scipys_and_a_copy_is_at_distance_nought() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((7, 1, 3, 3)).astype(np.float32), rng.random((9, 1, 3, 3)).astype(np.float32)
    b[4] = a[2]
    found, all_ = nearest(a, b, batch=3), cdist(a.reshape(7, -1), b.reshape(9, -1))
    np.testing.assert_allclose(found.distance, all_.min(1), atol=1e-12)
    assert found.index.tolist() == all_.argmin(1).tolist() and found.distance[2] == 0
