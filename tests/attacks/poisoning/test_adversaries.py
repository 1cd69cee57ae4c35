"""Every adversary against known numbers, or against what it says of itself."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from fedaudit.attacks.poisoning.alie import deviations
from fedaudit.attacks.poisoning.backdoors import stamp_images, stamp_normalised_images
from fedaudit.audit.settings import catalog
from fedaudit.fl.clients.client import Reply, count_of
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.threats.adversary import Adversary, Client, Colluded, Meeting
from fedaudit.fl.wire.protection import Message
from tests.fl.worlds import TinyNet

HONEST = [(1, 2, 3), (2, 1, 4), (0, 3, 2), (1, 1, 1), (3, 2, 5), (2, 4, 3)]
START = torch.tensor([10.0, 20.0, 30.0])


def adversary(name: str, **settings: Any) -> Adversary:
    cls = catalog.load("adversaries", name)
    if cls.card.threat.position == "server":  # nobody else is compromised
        settings.pop("clients", None)
    made: Adversary = cls(cls.Config(**settings))
    return made


def sent(change: Any) -> Message:
    return {Kind.LOCAL_MODEL: {"w": START + torch.tensor(change, dtype=torch.float32), "seen": torch.tensor(3)}}


def meeting(own: Mapping[int, Any], honest: Any = HONEST, **more: Any) -> Meeting:
    others = {10 + i: sent(h) for i, h in enumerate(honest)}
    mine = {k: sent(v) for k, v in own.items()}
    base: Message = {Kind.GLOBAL_MODEL: {"w": START, "seen": torch.tensor(1)}}
    return Meeting(
        round=0,
        own=mine,
        honest=others,
        received=dict.fromkeys((*mine, *others), base),
        before=more.pop("before", {}),
        rng=Streams(3).torch("adversary", 0),
        parameters=("w",),
        aggregate=more.pop("aggregate", None),
    )


def changes(colluded: Colluded) -> dict[int, list[float]]:
    return {k: (m[Kind.LOCAL_MODEL]["w"] - START).tolist() for k, m in colluded.messages.items()}


def forged(name: str, *, malicious: int = 1, **settings: Any) -> list[float]:
    """What one of the malicious sends against the six honest."""
    found = changes(adversary(name, **settings).collude(meeting(dict.fromkeys(range(malicious), (0, 0, 0)))))
    assert len({tuple(v) for v in found.values()}) == 1 and len(found) == malicious
    return found[0]


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("ipm", {"tau": 0.1}, (-0.15, -0.216667, -0.3)),
        ("ipm", {"tau": None}, (-12, -17.333333, -24)),  # n / m + 1 = 8
        ("alie", {"z": -1.5}, (3.073213, 3.920234, 5.121320)),  # ByzFL adds
        ("alie", {"z": 0.0}, (1.5, 2.166667, 3)),
    ],
)
def test_a_forged_change_has_the_known_value(name: str, settings: dict[str, Any], expected: Any) -> None:
    assert forged(name, **settings) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("name", "settings", "gammas"),
    [
        ("min_max", {}, (1.103429, 2.340064, 1.367190)),
        ("min_sum", {}, (1.185526, 2.505549, 1.446580)),
        ("min_sum", {"bound": "min"}, (0.249378, 0.527046, 0.304290)),
    ],
)
def test_the_factors_of_min_max_and_min_sum_are_the_known_ones(
    name: str, settings: dict[str, Any], gammas: tuple[float, ...]
) -> None:
    rows = torch.tensor(HONEST).double()
    mean = rows.mean(0)
    for direction, gamma in zip(("sd", "unit", "sign"), gammas, strict=True):
        dev = {"sd": -rows.std(0), "unit": -mean / mean.norm(), "sign": -mean.sign()}[direction]
        found = forged(name, direction=direction, **settings)
        assert found == pytest.approx((mean + gamma * dev).tolist(), abs=1e-5)


def test_min_max_is_as_far_from_somebody_as_two_honest_clients_are_apart() -> None:
    rows = torch.tensor(HONEST).double()
    for direction in ("sd", "unit", "sign"):
        far = (rows - torch.tensor(forged("min_max", direction=direction))).norm(dim=1).max()
        assert float(far) == pytest.approx(float(torch.cdist(rows, rows).max()), rel=1e-5)


def test_deviations_that_a_majority_hides() -> None:
    found = [deviations(*nm) for nm in ((25, 5), (20, 4), (50, 24), (10, 2))]
    assert found == pytest.approx([0.253347, 0.157311, 1.426077, 0], abs=1e-6)
    assert deviations(4, 3) == 0  # one honest client alone


def test_noise_has_a_chosen_length_and_each_client_its_own() -> None:
    found = changes(adversary("gaussian").collude(meeting({0: (0, 0, 0), 1: (0, 0, 0)})))
    norms = sorted(float(torch.tensor(h).float().norm()) for h in HONEST)
    for vector in found.values():
        assert float(torch.tensor(vector).norm()) == pytest.approx(10 * (norms[2] + norms[3]) / 2, rel=1e-4)
    assert found[0] != found[1]


def test_mimic_copies_one_honest_client_and_its_direction_is_fixed_after_the_warmup() -> None:
    wide = [(0, 0, 0), (0, 1, 0), (0, -1, 0), (9, 0, 0), (-9, 0, 0)]
    first = adversary("mimic").collude(meeting({0: (5, 5, 5)}, wide))
    assert changes(first)[0] in ([9, 0, 0], [-9, 0, 0])
    side = changes(first)[0][0] / 9
    turned = [(0, 90, 0), (0, -90, 0), (side, 0, 0), (-side, 0, 0)]
    again = adversary("mimic").collude(meeting({0: (5, 5, 5)}, turned, before=first.state))
    assert changes(again)[0] == [side, 0, 0]
    longer = adversary("mimic", warmup=2).collude(meeting({0: (5, 5, 5)}, turned, before=first.state))
    assert abs(changes(longer)[0][1]) == 90


def test_where_nobody_honest_is_heard_attackers_go_by_what_they_learnt() -> None:
    colluding = [n for n in catalog.names("adversaries") if adversary(n).colludes and not adversary(n).judges]
    for name in colluding:
        for honest in ((), HONEST[:1]):
            found = adversary(name).collude(meeting({0: (1, 1, 1)}, honest)).messages
            assert found and all(torch.isfinite(m[Kind.LOCAL_MODEL]["w"]).all() for m in found.values())
    alone = meeting({0: (1, 2, 3), 1: (3, 2, 1)}, (), aggregate=lambda given, draw=0, trail=None: given[0])
    assert changes(adversary("ipm", tau=1.0).collude(alone)) == {0: [-2, -2, -2], 1: [-2, -2, -2]}
    family = ({"name": "ipm", "tau": 1.0}, {"name": "ipm", "tau": 16.0})
    assert changes(adversary("adaptive", family=family).collude(alone))[0] == [-32, -32, -32]


def test_buffers_are_never_forged() -> None:
    for name in ("ipm", "gaussian", "mimic"):
        message = adversary(name).collude(meeting({0: (0, 0, 0)})).messages[0]
        assert int(message[Kind.LOCAL_MODEL]["seen"]) == 3


def test_an_attacker_with_partial_knowledge_goes_by_what_it_learnt_itself() -> None:
    own = {0: (1, 0, 0), 1: (3, 0, 0)}
    found = changes(adversary("ipm", tau=1.0, knows="own").collude(meeting(own)))
    assert found[0] == [-2, 0, 0] and found[1] == [-2, 0, 0]
    assert changes(adversary("ipm", tau=1.0).collude(meeting(own)))[0] == pytest.approx([-1.5, -13 / 6, -3])


# In a worker ------------------------------------------------------------------------------


def client(**more: Any) -> Client:
    torch.manual_seed(0)
    settings: dict[str, Any] = {
        "index": 1,
        "round": 0,
        "x": torch.rand(6, 1, 6, 6),
        "y": torch.tensor([0, 1, 2, 3, 0, 1]),
        "classes": 4,
        "message": {Kind.GLOBAL_MODEL: {"w": START}},
        "memory": {},
        "net": TinyNet(),
        "streams": Streams(5),
    }
    return Client(**(settings | more))


def crafted(name: str, message: Message, of: Client | None = None, **settings: Any) -> Message:
    made = adversary(name, **settings)
    base: Message = {Kind.GLOBAL_MODEL: {"w": START}}
    return made.craft(of or client(), Reply(message=message, examples=6), base).message


def test_the_sign_is_turned_and_scaled() -> None:
    for kind, base in ((Kind.LOCAL_MODEL, START), (Kind.MODEL_DELTA, torch.zeros(3))):
        message: Message = {kind: {"w": base + torch.tensor([1.0, -2.0, 0.5])}}
        assert (crafted("sign_flip", message, scale=2.0)[kind]["w"] - base).tolist() == [-2, 4, -1]


def test_labels_are_flipped_all_or_in_a_pair() -> None:
    assert adversary("label_flip").data(client()).y.tolist() == [3, 2, 1, 0, 3, 2]
    pair = adversary("label_flip", mode="pair", source=1, target=3).data(client())
    assert pair.y.tolist() == [0, 3, 2, 3, 0, 3]
    with pytest.raises(UserError, match="must be below 4, the number of classes"):
        adversary("label_flip", mode="pair", target=7).data(client())


def test_a_free_rider_sends_the_last_change_of_the_model_or_nothing() -> None:
    message: Message = {Kind.LOCAL_MODEL: {"w": START + 7}}
    idle = crafted("free_rider", message, mode="zero")
    assert idle[Kind.LOCAL_MODEL]["w"].tolist() == START.tolist()
    assert crafted("free_rider", message)[Kind.LOCAL_MODEL]["w"].tolist() == START.tolist()  # nothing known yet
    moved = client(before={"w": START - torch.tensor([1.0, 2.0, 3.0])})
    again = crafted("free_rider", message, moved, noise=0.0)[Kind.LOCAL_MODEL]["w"] - START
    assert again.tolist() == [1, 2, 3]
    assert crafted("free_rider", message, moved)[Kind.LOCAL_MODEL]["w"].tolist() != (START + again).tolist()


def test_prototypes_are_rolled_negated_or_one_for_all_and_counts_claimed() -> None:
    def message() -> Message:
        classes = torch.tensor([0, 2])
        features = torch.tensor([[1.0, 2.0], [3.0, 6.0]])
        counts = torch.tensor([4, 8])
        return {
            Kind.LOCAL_PROTOTYPES: {"classes": classes, "features": features},
            Kind.PROTO_COUNTS: {"classes": classes, "counts": counts},
        }

    rolled = crafted("prototype_poison", message(), mode="roll")
    assert rolled[Kind.LOCAL_PROTOTYPES]["features"].tolist() == [[3, 6], [1, 2]]
    negated = crafted("prototype_poison", message(), factor=1000.0)
    assert negated[Kind.LOCAL_PROTOTYPES]["features"].tolist() == [[-1, -2], [-3, -6]]
    assert negated[Kind.PROTO_COUNTS]["counts"].tolist() == [4000, 8000]
    one = crafted("prototype_poison", message(), mode="one")
    assert one[Kind.LOCAL_PROTOTYPES]["features"].tolist() == [[2, 4]] * 4
    for kind in (Kind.PROTO_COUNTS, Kind.LOCAL_PROTOTYPES):
        assert one[kind]["classes"].tolist() == [0, 1, 2, 3]
    assert one[Kind.PROTO_COUNTS]["counts"].tolist() == [6] * 4


def test_counts_are_inflated_or_claimed_to_be_even() -> None:
    message: Message = {Kind.NUM_EXAMPLES: count_of(6), Kind.CLASS_VOLUME: {"counts": torch.tensor([1, 0, 5, 2])}}
    found = crafted("count_inflation", message)
    assert int(found[Kind.NUM_EXAMPLES]["count"]) == 60
    assert found[Kind.CLASS_VOLUME]["counts"].tolist() == [10, 0, 50, 20]
    even = crafted("count_inflation", message, factor=1.0, balanced=True)
    assert (
        even[Kind.CLASS_VOLUME]["counts"].tolist() == [2, 2, 2, 2] and int(even[Kind.NUM_EXAMPLES]["count"]) == 6
    )


def test_condensed_images_are_mislabelled_or_triggered() -> None:
    def message() -> Message:
        images, labels = torch.zeros(2, 1, 6, 6), torch.tensor([0, 3])
        return {Kind.CONDENSED_IMAGES: {"images": images}, Kind.CONDENSED_LABELS: {"labels": labels}}

    wrong = crafted("condensed_poison", message())
    assert wrong[Kind.CONDENSED_LABELS]["labels"].tolist() == [1, 0]
    naive = crafted("condensed_poison", message(), mode="naive", target=2)
    assert naive[Kind.CONDENSED_LABELS]["labels"].tolist() == [2, 2]
    assert naive[Kind.CONDENSED_IMAGES]["images"].sum() == 2 * 9
    held = adversary("condensed_poison", mode="doorping", target=2).data(client())
    assert int((held.y != client().y).sum() + (client().y == 2).sum()) >= 3
    assert sum(bool(i[0, 2:5, 2:5].eq(1).all()) for i in held.x) == 3


def test_what_a_relay_hands_on_is_collapsed_skipped_or_made_of_triggered_images() -> None:
    message: Message = {Kind.GAN_G: {"w": START + 1}, Kind.GAN_D: {"w": START}}
    base: Message = {Kind.GAN_G: {"w": START - 5}}

    def handed(mode: str) -> list[float]:
        made = adversary("relay_poison", mode=mode)
        found: list[float] = (
            made.craft(client(), Reply(message=message, examples=1), base).message[Kind.GAN_G]["w"].tolist()
        )
        return found

    assert handed("collapse") == [0, 0, 0] and handed("skip") == (START - 5).tolist()
    assert handed("backdoor") == (START + 1).tolist()
    held = adversary("relay_poison", mode="backdoor").data(client())
    assert held.y.tolist() == [0, 0, 0, 3, 0, 1] and held.x[0, 0, 2:5, 2:5].eq(1).all()


# Backdoors --------------------------------------------------------------------------------


def test_triggers_are_where_they_should_be() -> None:
    black = torch.zeros(1, 1, 28, 28)
    patch = stamp_images(black, "patch")
    places = patch.nonzero()[:, 2:]
    assert places.amin(0).tolist() == [24, 24] and places.amax(0).tolist() == [26, 26]
    assert int(patch.sum()) == 9
    four = [stamp_images(black, "dba", part=i) for i in range(4)]
    assert torch.equal(sum(four, torch.zeros_like(black)), patch) and torch.equal(
        stamp_images(black, "dba"), patch
    )
    assert torch.equal(stamp_images(black, "edge_case"), torch.ones_like(black))
    blend = stamp_images(black, "blend")
    assert 0 < float(blend.max()) <= 0.2 and torch.equal(blend, stamp_images(black, "blend"))
    shifted = stamp_normalised_images((black - 0.4) / 0.25, (0.4,), (0.25,), "patch")
    assert torch.allclose(shifted * 0.25 + 0.4, patch, atol=1e-6)
    assert not black.any()


def test_half_of_each_batch_is_triggered_and_labelled_with_the_target() -> None:
    seen = list[tuple[Tensor, Tensor]]()

    def loss(x: Tensor, y: Tensor) -> Tensor:
        seen.append((x, y))
        return x.sum()

    of = client(rank=5)
    adversary("backdoor", target=3).loss(of, loss, of.x, of.y)
    x, y = seen[0]
    assert y.tolist() == [3, 3, 3, 3, 0, 1] and torch.equal(x[3:], of.x[3:])
    assert torch.equal(x[:3], stamp_images(of.x[:3], "patch"))
    adversary("backdoor", trigger="dba").loss(of, loss, of.x, of.y)
    assert torch.equal(seen[1][0][:3], stamp_images(of.x[:3], "dba", part=1))
    with pytest.raises(UserError, match="puts a trigger into images"):
        adversary("backdoor").data(client(x=torch.zeros(6, 80)))


@pytest.mark.parametrize(("share", "bad"), [(0.5, [0, 1, 2]), (1.0, [0, 1, 2, 3, 4, 5]), (1 / 3, [0, 1])])
def test_the_same_images_are_poisoned_in_every_round_where_images_are(share: float, bad: list[int]) -> None:
    found, of = adversary("backdoor", poisons="images", target=2, poisoned=share), client()
    held = found.data(of)
    assert [i for i in range(6) if not torch.equal(held.x[i], of.x[i])] == bad
    assert [int(held.y[i]) for i in bad] == [2] * len(bad)
    assert torch.equal(found.data(client(round=7)).x, held.x) and not torch.equal(held.x, of.x)
    assert float(found.loss(held, lambda x, y: x.sum(), held.x, held.y)) == float(held.x.sum())


def test_model_replacement_outweighs_the_others_and_can_be_cut_to_their_norm() -> None:
    own = {0: (1, 0, 0), 1: (0, 0, 2)}  # n = 8, m = 2
    assert changes(adversary("model_replacement").collude(meeting(own))) == {0: [4, 0, 0], 1: [0, 0, 8]}
    cut = changes(adversary("model_replacement", constrain=True).collude(meeting(own)))
    norms = sorted(float(torch.tensor(h).float().norm()) for h in HONEST)
    assert cut[0] == [4, 0, 0] and cut[1] == pytest.approx([0, 0, (norms[2] + norms[3]) / 2], rel=1e-5)


def test_neurotoxin_spares_the_weights_that_the_others_moved_most() -> None:
    start = {"w": torch.arange(10.0) ** 2}
    grads = {"w": torch.ones(10), "new": torch.ones(2)}
    of = client(before={"w": torch.zeros(10)})
    found = adversary("neurotoxin", spared=0.2).correct(of, grads, {}, start, {})
    assert found["w"].tolist() == [1] * 8 + [0, 0] and found["new"].tolist() == [1, 1]
    assert adversary("neurotoxin").correct(client(), grads, {}, start, {})["w"].sum() == 10
