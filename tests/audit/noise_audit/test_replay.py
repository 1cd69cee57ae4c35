"""The differential replay: wrong systems are named with their factor, right ones reach what they declare."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.case.open import open_case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit import replay
from fedaudit.audit.noise_audit.drawn_noise import NoiseOrigin, draw_noise
from fedaudit.audit.noise_audit.noise_samples import build_rows
from fedaudit.audit.noise_audit.pairs import Pair, Pairs, Side
from fedaudit.audit.noise_audit.replay import _find_other_release, audit_bounds, list_doubts
from fedaudit.audit.phases import simulate
from fedaudit.audit.plays import run as play
from fedaudit.audit.plays import world
from fedaudit.audit.plays.run import PlayLimits, RunPlayer
from fedaudit.audit.plays.world import SAME, Listener, Probe
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.tap import Payload
from tests.audit.noise_audit.systems import CENTRAL, GAUSSIAN, SGD, WRONG, check, make_case

OTHERS = "another client"
NOISED_PROTOTYPES = {"name": "noised_prototypes"}
ONE_STEP = {**SGD, "steps": 1}
COUNTS = {"name": "discrete_laplace"}
LAPLACE = {"name": "laplace", "kinds": ["local_model"], "scale": 2.0}
NETWORK = {"federation": {"model": "mlp"}}
WEIGHTED = {"method": {"name": "fedavg", "weighting": "samples"}}
SHARES = [{**GAUSSIAN, "contributors": 6}, {"name": "secure_aggregation"}]
ATTACKER = {"name": "sign_flip", "clients": [0]}  # adds no noise to what it sends
CONTROL = {**GAUSSIAN, "kinds": ["local_model", "model_delta", "control_delta"]}


def method(name: str, **settings: Any) -> dict[str, Any]:
    return {"method": {"name": name, **settings}}


def own(name: str, **settings: Any) -> dict[str, Any]:
    return {"protections": [{"name": WRONG + name, **settings}]}


RATIOS: list[tuple[str, str, float, dict[str, Any]]] = [
    (
        "a rule returns three times the mean",
        OTHERS,
        3.0,
        {"protections": [CENTRAL], "aggregator": f"{WRONG}TripledMean"},
    ),
    (
        "a rule trusts one client more than others",
        OTHERS,
        3.0,
        {"protections": [CENTRAL], "aggregator": f"{WRONG}FavoursOneClient"},
    ),
    (
        "a rule keeps momentum of clean means",
        OTHERS,
        1 + 0.9 + 0.81 + 0.729,
        {  # without sampling: where that is credited, a round that shows who was not drawn has no factor
            "protections": [CENTRAL],
            "aggregator": f"{WRONG}MomentumOfCleanMeans",
            "federation": {"availability": "full"},
        },
    ),
    (
        "each of six arrays is clipped alone",
        "server",
        6**0.5,
        {**own("ClipsEachArray"), "federation": {"model": "mlp"}},
    ),
    ("a clip overshoots", "server", 1.984, own("SoftClip")),
    (
        "the denominator counts arrivals",
        OTHERS,
        1.8,
        {
            **own("CountsArrivals"),
            **method("fedavg", rounds=16),
            "federation": {"availability": {"name": "bernoulli", "p": 0.3}},
        },
    ),
    (
        "a clip overshoots what training noised",
        "server",
        1.984,
        {"protections": [ONE_STEP, {"name": f"{WRONG}SoftClip"}]},
    ),
    ("clean momentum is in the noise", "server", 1.5, own("MomentumInNoise")),
    ("the clip is learnt from the messages", "server", 1e4, own("LearnsItsClip")),
]


@pytest.mark.dear(
    "the denominator counts arrivals",
    "a rule trusts one client more than others",
    "a rule returns three times the mean",
    "the clip is learnt from the messages",
    "a rule keeps momentum of clean means",
    "each of six arrays is clipped alone",
)
@pytest.mark.parametrize(("words", "observer", "ratio", "system"), RATIOS, ids=[r[0] for r in RATIOS])
def test_a_release_that_moves_too_far_is_refuted_with_its_factor(
    words: str, observer: str, ratio: float, system: dict[str, Any]
) -> None:
    result = check(observer, **system)
    assert result.status == "refuted"
    assert result.ratio == pytest.approx(ratio, rel=5e-4)


def test_where_sampling_is_credited_no_round_shows_a_client_that_was_not_drawn() -> None:
    system = {
        "protections": [CENTRAL],
        "aggregator": "tests.audit.noise_audit.rules_of_sums:CarriesTheAbsent",
        **method("fedavg", rounds=2),
        "federation": {"availability": {"name": "bernoulli", "p": 0.5}},
    }
    result = check(OTHERS, **system)
    assert result.status == "refuted" and result.pair.endswith("drawn at first and not again")


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["ClipsAfterNoise", "WrapsAround"])
def test_a_bound_that_comes_after_the_noise_is_none(name: str) -> None:
    result = check("server", **own(name))
    assert result.status == "refuted" and result.ratio is not None and result.ratio > 10


SPARED = 3  # draws the arm of a trial in which nothing is wrong
UNLISTED: list[tuple[str, str, dict[str, Any]]] = [
    ("FirstModelFromData", "downlink", {"protections": [GAUSSIAN]}),
    ("SlowsOnALoss", "downlink", {"protections": [GAUSSIAN]}),
    ("LossInHeartbeat", "uplink heartbeat", {"protections": [GAUSSIAN]}),
    ("ModelInRollbackRequest", "uplink rollback_request", {"protections": [GAUSSIAN]}),
    ("MaskChosenByData", "uplink", {"protections": [GAUSSIAN]}),
    (
        "PrototypesAboveALoss",
        "uplink",
        {"protections": [GAUSSIAN, NOISED_PROTOTYPES], "federation": {"model": "mlp"}},
    ),
]


@pytest.mark.dear("PrototypesAboveALoss", "LossInHeartbeat", "ModelInRollbackRequest", "SlowsOnALoss")
@pytest.mark.parametrize(("name", "place", "system"), UNLISTED, ids=[u[0] for u in UNLISTED])
def test_what_no_line_of_the_ledger_allows_is_refuted_where_it_shows(
    name: str, place: str, system: dict[str, Any]
) -> None:
    result = check("server", **method(WRONG + name), **system)
    assert result.status == "refuted" and result.ratio is None
    assert result.place.startswith(place)


@pytest.mark.parametrize("unit", ["client", pytest.param("record", marks=pytest.mark.nightly)])
def test_what_the_run_s_own_seed_spares_is_found_under_another(unit: str) -> None:
    protections = [GAUSSIAN] if unit == "client" else [SGD]
    result = check("server", unit, seed=SPARED, **method(f"{WRONG}TrialOfFirstModels"), protections=protections)
    assert result.status == "refuted" and result.place.startswith("downlink")
    assert result.pair.endswith("under another master seed")


def test_noise_that_nobody_saw_drawn_leaves_a_bound_declared() -> None:
    result = check("server", **own("OwnNoise"))
    assert result.status == "declared"
    assert result.reason == "The noise on local_model is of a generator of the team's own: its law is declared."


def test_a_release_without_a_line_is_refuted() -> None:
    result = check("server", **own("ListsEveryOther"))
    assert result.status == "refuted" and result.round == 1


FIXED = {"federation": {"availability": {"name": "uniform", "count": 3}}}
LAW_DECLARED = ("a team's own", "a team's own, to others")  # nobody saw their noise drawn
RIGHT: list[tuple[str, str, str, dict[str, Any]]] = [
    ("noise of each client", "server", "client", {"protections": [GAUSSIAN]}),
    ("in a network", "server", "client", {"protections": [GAUSSIAN], "federation": {"model": "mlp"}}),
    ("a team's own", "server", "client", own("OwnNoise")),
    ("a team's own, to others", OTHERS, "client", own("OwnNoise")),
    ("a team's own clip, noise of the run's source", "server", "client", own("HasItsNoiseDrawn")),
    ("on the mean, everybody", OTHERS, "client", {"protections": [CENTRAL]}),
    (
        "on the mean, by coins",
        OTHERS,
        "client",
        {"protections": [CENTRAL], "federation": {"availability": {"name": "bernoulli", "p": 0.5}}},
    ),
    (
        "on the mean, empty rounds drawn again",
        OTHERS,
        "client",
        {
            "protections": [CENTRAL],
            "federation": {"availability": {"name": "bernoulli", "p": 0.2}, "empty_round": "redraw"},
        },
    ),
    ("on the mean, a fixed number", OTHERS, "client", {"protections": [CENTRAL], **FIXED}),
    ("both", OTHERS, "client", {"protections": [GAUSSIAN, CENTRAL]}),
    ("both, a fixed number", OTHERS, "client", {"protections": [GAUSSIAN, CENTRAL], **FIXED}),
    ("made together", "server", "client", {"protections": SHARES}),
    (
        "Laplace",
        "server",
        "client",
        {"protections": [{"name": "laplace", "kinds": ["local_model"], "scale": 2.0}]},
    ),
    ("in training", "server", "record", {"protections": [SGD]}),
    ("in training, and of the client", "server", "client", {"protections": [ONE_STEP, GAUSSIAN]}),
    (
        "on counts",
        "server",
        "record",
        {"protections": [GAUSSIAN, COUNTS], **method("fedavg", weighting="samples")},
    ),
    (
        "on prototypes",
        "server",
        "client",
        {
            "protections": [GAUSSIAN, NOISED_PROTOTYPES],
            **method(f"{WRONG}ReBaFLWithoutCounts"),
            "federation": {"model": "mlp"},
        },
    ),
    (
        "server momentum on noised uploads",
        "server",
        "client",
        {"protections": [GAUSSIAN], **method("fedopt", server="momentum")},
    ),
    ("adaptive server", "server", "client", {"protections": [GAUSSIAN], **method("fedopt", server="adam")}),
    ("control variates", "server", "client", {"protections": [CONTROL], **method("scaffold")}),
    (
        "narrow networks",
        "server",
        "client",
        {"protections": [GAUSSIAN], **method("fjord"), "federation": {"model": "mlp"}},
    ),
    ("beside an attacker", "server", "client", {"protections": [GAUSSIAN], "adversary": ATTACKER}),
    ("in training, beside an attacker", "server", "record", {"protections": [SGD], "adversary": ATTACKER}),
    ("memory of clients", "server", "client", {"protections": [GAUSSIAN], **method("feddyn")}),
]


@pytest.mark.sample(3)
@pytest.mark.dear(
    "narrow networks",
    "on the mean, by coins",
    "in a network",
    "in training",
    "in training, beside an attacker",
    "on the mean, empty rounds drawn again",
    "on prototypes",
)
@pytest.mark.parametrize(("words", "observer", "unit", "system"), RIGHT, ids=[r[0] for r in RIGHT])
def test_a_right_system_moves_as_far_as_it_declares_and_no_further(
    words: str, observer: str, unit: str, system: dict[str, Any]
) -> None:
    result = check(observer, unit, **system)
    assert result.status == ("declared" if words in LAW_DECLARED else "verified"), result.reason
    assert result.ratio == pytest.approx(1.0, abs=5e-4)


def test_under_a_fixed_number_noise_of_single_clients_keeps_its_own_neighbours() -> None:
    result = check("server", protections=[GAUSSIAN, CENTRAL], **FIXED)
    assert result.status == "verified" and result.ratio == pytest.approx(1.0, abs=5e-4), result.reason


def test_a_count_replaced_stays_within_what_is_declared() -> None:
    counts = {**COUNTS, "adjacency": "replace_one"}
    result = check("server", "record", protections=[GAUSSIAN, counts], **WEIGHTED)
    assert result.status == "verified" and result.ratio is not None and 0.3 < result.ratio <= 1.0005


@pytest.mark.nightly
def test_what_is_sent_in_clear_leaves_no_bound() -> None:
    result = check("server", protections=[CENTRAL])
    assert result.status == "none" and "local_model" in result.reason


@pytest.mark.parametrize("protection", [GAUSSIAN, pytest.param(LAPLACE, marks=pytest.mark.nightly)])
def test_how_many_rows_a_message_has_is_released_in_clear(protection: dict[str, Any]) -> None:
    kinds = {"kinds": ["local_model", "mashed_batch"]}
    checks = audit_bounds(make_case(method={"name": "fedmix"}, protections=[{**protection, **kinds}]))
    assert {c.status for c in checks} == {"none"}
    assert all("mashed_batch.rows" in c.reason for c in checks)


def listen(system: dict[str, Any], side: Side = Side(), first: world.World | None = None) -> Listener:  # noqa: B008
    listener = Listener("server", side.probe, first, absent=side.absent)
    RunPlayer(make_case(**system)).play(listener, side.neighbour, None if side.is_honest else first)
    return listener


def test_a_forced_world_shows_the_first_one_s_values_bit_for_bit() -> None:
    system = {"protections": [GAUSSIAN]}
    first = listen(system).world
    everybody = dict.fromkeys(range(6), play.Sent((1e4,)))
    far = play.Messages({Kind.LOCAL_MODEL: 1.0}, everybody)
    second = Listener("server", far, first)
    released: list[Payload] = []
    carry = second.carry

    def keep(round, channel, sender, seen_by, message):  # type: ignore[no-untyped-def]
        carried = carry(round, channel, sender, seen_by, message)
        if channel == "release":
            released.extend(carried.values())
        return carried

    second.carry = keep  # type: ignore[method-assign]
    RunPlayer(make_case(**system)).play(second, known=first)
    [model] = [e.payload for k, e in first.events.items() if k.place == "release" and k.name != "message"]
    assert not [d for d in second.differences if d.ratio is None] and max(second.ratios.values()) > 0.4
    assert all(torch.equal(released[0][name], value) for name, value in model.items())


def test_without_forcing_a_right_system_is_accused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 1: given the same view so far, one release differs at a time."""
    add_noise = Listener.add_noise

    def unforced(self, line, clean, add):  # type: ignore[no-untyped-def]
        noised = []
        add_noise(self, line, clean, lambda c: noised.append(add(c)) or noised[-1])
        return noised[-1]

    monkeypatch.setattr(replay, "find_origin", lambda *_: NoiseOrigin())
    monkeypatch.setattr(Listener, "add_noise", unforced)
    assert check("server", protections=[GAUSSIAN]).status == "refuted"


def test_without_worst_case_messages_a_clean_momentum_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 2: what clients really send moves a release by a part of what is declared."""
    monkeypatch.setattr(Pairs, "_pair_local", lambda *_: iter(()))
    assert check("server", **own("MomentumInNoise")).status != "refuted"


@pytest.mark.nightly
def test_without_extreme_losses_a_threshold_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 3: no mild neighbour flips a threshold on a loss."""
    monkeypatch.setattr(play.Measurements, "measure", lambda self, round, client, value: value)
    assert check("server", **method(f"{WRONG}SlowsOnALoss"), protections=[GAUSSIAN]).status == "verified"


@pytest.mark.nightly
def test_without_cohorts_a_counted_denominator_moves_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 9: cohorts of one, of half and of all clients are forced."""
    monkeypatch.setattr(Pairs, "_list_first_draw", lambda self: [])  # whose round shows who was not drawn
    system = {**own("CountsArrivals"), "federation": {"availability": {"name": "bernoulli", "p": 0.9}}}
    forced = check(OTHERS, **system)
    monkeypatch.setattr(play.Messages, "choose_cohort", lambda self, round, answering: answering)
    alone = check(OTHERS, **system)
    assert forced.ratio is not None and alone.ratio is not None and forced.ratio > alone.ratio


class Drifts(Probe):
    """Noise from the process's own generator."""

    def replace_message(self, round, sender, message, reference):  # type: ignore[no-untyped-def]
        return {
            k: {n: v + torch.rand(()) if v.is_floating_point() else v for n, v in p.items()}
            for k, p in message.items()
        }


def test_a_run_that_cannot_be_played_twice_has_no_verified_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 8: the first world against itself has to drift by nothing."""
    monkeypatch.setattr(Side.__new__, "__defaults__", (SAME, Drifts(), None))
    result = check("server", protections=[GAUSSIAN])
    assert result.status == "declared" and "played twice" in result.reason


def test_a_play_that_is_not_the_run_leaves_a_bound_declared(tmp_path: Path) -> None:
    """Rule 8 once more: the first world against the run that was recorded."""
    case = make_case(protections=[GAUSSIAN], method={"rounds": 2})
    run = RunDir.create(tmp_path / "run")
    simulate.run(run, case.config, lambda *_: None)
    ran = open_case(run, case.config)
    assert isinstance(ran, SimulatedCase) and ran.artifacts is not None and RunPlayer(ran).is_whole
    honest = Listener("another client", Probe())
    RunPlayer(ran).play(honest)
    assert not [*_find_other_release(ran.artifacts, honest.world)]
    [key] = [k for k in honest.world.events if k.place == "release" and k.name != "message"]
    for value in honest.world.events[key].payload.values():
        value *= 1.03
    [doubt] = _find_other_release(ran.artifacts, honest.world)
    assert "releases another global_model than the run did" in doubt


def test_what_a_rule_opens_in_a_play_leaves_a_bound_declared() -> None:
    diary = "tests.audit.noise_audit.state_outside_plays:KeepsADiary"
    result = check(OTHERS, protections=[CENTRAL], aggregator=diary, federation={"clients": 2, "limit": 40})
    assert result.status == "declared" and "opens the file 'diary-" in result.reason


@pytest.mark.parametrize(("first", "second", "equal"), [(0.0, -0.0, False), (-0.0, -0.0, True), (1.0, 1.0, True)])
def test_values_are_equal_where_all_their_bits_are(first: float, second: float, equal: bool) -> None:
    listener = Listener("server", Probe())
    assert listener._is_equal(torch.tensor([first]), torch.tensor([second])) is equal


@pytest.mark.nightly
def test_a_record_is_tried_that_training_draws() -> None:
    """Of one client in two rounds most records are in no batch, the first of them among those."""
    system = {**method("fedavg", rounds=2), "federation": {"clients": 1, "limit": 120}}
    result = check("server", "record", protections=[{**SGD, "sample_rate": 0.05, "steps": 4}], **system)
    assert result.status == "verified" and result.ratio == pytest.approx(1.0, abs=5e-4)


def test_a_bound_of_which_no_pair_moved_anything_stays_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pairs, "pair_record", lambda _: iter([Pair("nothing", Side(), Side(), lambda _: 1.0)]))
    result = check("server", "record", protections=[SGD])
    assert result.status == "declared" and "moved" in result.reason


def test_a_run_of_which_not_everything_is_trained_is_compared_all_the_same() -> None:
    """Clients repeat their last message once a play has trained as much as it may."""
    checks = audit_bounds(make_case(protections=[GAUSSIAN]), limits=PlayLimits(work=1.0))
    assert [c.status for c in checks] == ["verified"] * 3


def test_the_noise_that_a_play_adds_is_handed_on() -> None:
    case = make_case(protections=[GAUSSIAN], federation={"availability": "full"})
    honest = Listener("server", Probe())
    player = RunPlayer(case)
    player.play(honest)
    rows = build_rows(draw_noise(player, honest.world.lines))
    assert len(rows) == 6 * 4
    noise = np.concatenate([sample.values for sample in rows[0].samples])
    assert float(noise.std()) == pytest.approx(2.0, rel=0.1)


def test_private_images_normalised_by_all_clients_mean_leave_a_bound_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_case(protections=[GAUSSIAN])
    mean = tuple(case.data.train.x.mean((0, 2, 3), dtype=np.float64).tolist())
    case.__dict__["data"] = replace(case.data, mean=mean)
    assert not [*list_doubts(case.dataset, case.data)]
    monkeypatch.setattr(type(case.dataset), "holds", "private")
    [doubt] = list_doubts(case.dataset, case.data)
    assert "as if that were public" in doubt


def test_clients_of_a_few_examples_stay_members_and_their_noised_counts_are_verified() -> None:
    few = {"clients": 3, "limit": 45}
    system = method("fedavg", rounds=1, weighting="samples")
    assert (
        check("server", "record", **system, protections=[GAUSSIAN, COUNTS], federation=few).status == "verified"
    )


def test_a_record_that_moves_another_client_s_release_is_refuted() -> None:
    system = method(f"{WRONG}LargerOfTwo", rounds=1, weighting="samples")
    result = check("server", "record", **system, protections=[GAUSSIAN, COUNTS])
    assert result.status == "refuted" and "although only data of client/0 were changed" in result.reason


def test_answers_at_random_are_declared_and_no_difference_that_nothing_allows() -> None:
    protections = [GAUSSIAN, {"name": f"{WRONG}AnswersAtRandom"}]
    result = check("server", **method(f"{WRONG}TellsABit", rounds=2), protections=protections)
    assert result.status == "declared" and "nswers at random are sent as cluster_id" in result.reason


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_replaced_record_moves_later_batches_of_its_client_as_far_as_is_declared(epochs: int) -> None:
    activations = {"name": "noised_activations", "kinds": ["smashed", "smashed_gradient"]}
    split = method("split_u_shape", rounds=1, batch_size=10, lr=0.1, local_epochs=epochs)
    relayed = {**GAUSSIAN, "kinds": ["relay_model"]}
    result = check("server", "record", **split, protections=[activations, relayed], **NETWORK)
    assert result.status == "verified" and result.ratio is not None and result.ratio > 0.5, result.reason
