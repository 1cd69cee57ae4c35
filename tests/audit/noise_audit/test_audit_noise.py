"""Noise of whole runs, played by their own code: what ships passes, what is wrong is recorded as refuted."""

from typing import Any

import numpy as np
import pytest

from fedaudit.audit.accounting.noise_records import find_claim
from fedaudit.audit.noise_audit.drawn_noise import audit_noise, draw_noise
from fedaudit.audit.noise_audit.noise_repeats import compare_answers
from fedaudit.audit.noise_audit.noise_samples import MessageRow, NoiseSample, build_rows
from fedaudit.audit.noise_audit.noise_tests import bound_below, record_tests
from fedaudit.audit.plays.run import RunPlayer
from fedaudit.audit.plays.world import Listener, Probe
from fedaudit.fl.ledger import EACH, Release
from fedaudit.reports.result import NoiseAuditRecord
from tests.audit.noise_audit.drawn import line_of
from tests.audit.noise_audit.systems import CENTRAL, GAUSSIAN, SGD, make_case

WRONG_SYSTEMS = "tests.audit.noise_audit.wrong_systems:"
PLANTED = "tests.audit.wrong_protections."
COUNTS = {"name": "discrete_laplace"}
WEIGHTED = {"method": {"name": "fedavg", "weighting": "samples"}}


def lines_of(kind: str, source: str = "", sender: str = "client/0") -> list[Release]:
    """What a ledger may say of a kind; the tests take scales from the lines of the play."""
    line = line_of(0, 0, kind=kind)
    return [Release(**{**line.__dict__, "source": source, "sender": sender})]


def records(kind: str, sender: str = "client/0", **changes: Any) -> list[NoiseAuditRecord]:
    case = make_case(**changes)
    lines = RunPlayer(case).play(Listener("server", Probe())).lines
    return audit_noise(case, [r for r in lines if r.kind == kind and r.sender == sender], 1e-5, 0.01)


RIGHT: list[tuple[str, str, dict[str, Any]]] = [
    ("local_model", "client/0", {"protections": [GAUSSIAN]}),
    ("global_model", "client/*", {"protections": [CENTRAL]}),
    ("local_model", "client/0", {"protections": [SGD]}),
    ("num_examples", "client/0", {"protections": [COUNTS], **WEIGHTED}),
    ("local_model", "client/0", {"protections": [{"name": f"{PLANTED}correct:Plain"}]}),
    ("local_model", "client/0", {"protections": [{"name": f"{PLANTED}correct:Rotated"}]}),
]


@pytest.mark.dear("local_model-client/0-changes2")
@pytest.mark.parametrize(("kind", "sender", "changes"), RIGHT)
def test_correct_noise_of_a_run_passes(kind: str, sender: str, changes: dict[str, Any]) -> None:
    (record,) = records(kind, sender, **changes)
    assert not record.refuted and not record.not_audited, record.sentence
    is_of_source = not str(changes["protections"][0]["name"]).startswith(PLANTED)
    assert len(record.checks) == (1 if is_of_source else 3)
    assert record.failure_rate == 0 if is_of_source else 0 < record.failure_rate <= 0.01


LINES = {
    "dp_sgd": {"kind": "local_model", "unit": "record", "coin": EACH, "count": 5, "sample_rate": 0.1},
    "sampled clients": {"kind": "global_model", "sender": "client/*", "sample_rate": 0.2},
}


@pytest.mark.parametrize(("name", "rounds", "z"), [("dp_sgd", 20, 0.936), ("sampled clients", 60, 1.216)])
def test_beside_the_epsilon_of_sampled_noise_stands_what_it_loses_at_least(
    name: str, rounds: int, z: float
) -> None:
    fields = line_of(0, 0).__dict__ | LINES[name] | {"sampling": "poisson", "participation_seen_by": ()}
    fields |= {"noise_std": z, "sensitivity": 1.0, "observers": ("client",)}
    lines = [Release(**(fields | {"round": t})) for t in range(rounds)]
    rng, most = np.random.default_rng(3), find_claim(lines, 1e-5).epsilon
    samples = [NoiseSample(line, "w", rng.normal(0, z, 5_000)) for line in lines]
    least = bound_below(str(fields["kind"]), samples, lines, 1e-5)
    assert least is not None and 0.95 * most < least < most < 8.01
    louder = [NoiseSample(line, "w", rng.normal(0, 2 * z, 5_000)) for line in lines]
    less = bound_below(str(fields["kind"]), louder, lines, 1e-5)
    assert less is not None and less < 0.6 * most


def test_where_no_lower_end_is_known_none_is_stated() -> None:
    line = Release(**(line_of(0, 0).__dict__ | {"sampling": "fixed_without_replacement", "sample_rate": 0.1}))
    assert bound_below("local_model", [NoiseSample(line, "w", np.ones(100))], [line], 1e-5) is None


def test_noise_that_is_not_there_has_no_least_epsilon_and_ends_nothing() -> None:
    line = line_of(0, 0)
    assert bound_below(line.kind, [NoiseSample(line, "w", np.ones(100))], [line], 1e-5) is not None
    assert bound_below(line.kind, [NoiseSample(line, "w", np.zeros(100))], [line], 1e-5) is None


WRONG = {
    "small_noise:LastRoundsFree": "amount of noise",
    "small_noise:BiasesClear": "amount of noise",
    "reused_noise:OneForAll": "noise used twice",
    "reused_noise:PublicSeed": "noise that anybody can compute",
    "wrong_law:UniformNoise": "amount of noise",
}


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_noise_of_a_plugin_is_refuted(name: str) -> None:
    (record,) = records("local_model", protections=[{"name": PLANTED + name}])
    assert record.refuted and WRONG[name] in {c.name for c in record.checks if not c.passed}
    assert WRONG[name].capitalize() in record.sentence


@pytest.mark.parametrize(("name", "refuted"), [("AnswersAtRandom", False), ("AnswersInClear", True)])
def test_answers_that_no_coin_decided_are_refuted(name: str, refuted: bool) -> None:
    line = Release(**(line_of(0, 0).__dict__ | {"kind": "cluster_id", "mechanism": "randomized_response"}))
    system = {"method": {"name": f"{WRONG_SYSTEMS}TellsABit", "rounds": 6}}
    case = make_case(protections=[{"name": WRONG_SYSTEMS + name}], **system)
    (record,) = audit_noise(case, [line], 1e-5, 0.05)
    assert (record.refuted, record.not_audited) == (refuted, ""), record.sentence
    (tested,) = [c for c in record.checks if c.name == "answers by a coin"]
    assert tested.is_tried and tested.passed != refuted


def test_answers_of_any_private_law_are_not_refuted_more_often_than_stated() -> None:
    """At epsilon 1, with 200 answers: of two, of ten, rare ones, and one and the same."""
    rng, e = np.random.default_rng(5), np.e
    held = rng.integers(0, 10, 200)

    def measure(law: np.ndarray) -> list[float]:
        chances = []
        for _ in range(100):
            ours, theirs = ([rng.choice(law.shape[1], p=law[x]) for x in held] for _ in range(2))
            measured = compare_answers(answers_of(ours), answers_of(theirs))
            chances.append(1.0 if measured is None else measured[0])
        return chances

    two = np.array([[e, 1], [1, e]])[[0] * 5 + [1] * 5] / (1 + e)
    ten = (np.ones((10, 10)) + (e - 1) * np.eye(10)) / (9 + e)
    rare = np.array([[0.98, 0.02], [1 - 0.02 * e, 0.02 * e]])[[0] * 5 + [1] * 5]
    for law in (two, ten, rare, np.ones((10, 1))):
        assert np.mean(np.array(measure(law)) < 0.05) <= 0.05
    kept = compare_answers(answers_of(held), answers_of(held))
    assert kept is not None and kept[0] < 1e-9
    flipped = np.where(rng.random(200) < 0.05, 9 - held, held)
    nearly = compare_answers(answers_of(held), answers_of(flipped))
    assert nearly is not None and nearly[0] < 1e-3


def answers_of(values: Any) -> list[MessageRow]:
    fields = line_of(0, 0).__dict__ | {"mechanism": "randomized_response", "noise_std": 1.0, "sensitivity": 1.0}
    lines = [Release(**(fields | {"round": t})) for t in range(len(values))]
    return build_rows([NoiseSample(r, "a", np.array([v])) for r, v in zip(lines, values, strict=True)])


def test_a_play_of_one_seed_draws_the_same_noise_and_of_another_other_noise() -> None:
    player, lines = RunPlayer(make_case(protections=[GAUSSIAN])), lines_of("local_model")
    ours, again, other = (draw_noise(p, lines) for p in (player, player, player.reseed()))
    assert len(ours) == 4 * 6 * 2  # rounds, clients, and the weights and biases of logreg
    assert all(np.array_equal(a.values, b.values) for a, b in zip(ours, again, strict=True))
    assert not any(np.array_equal(a.values, b.values) for a, b in zip(ours, other, strict=True))


def test_noise_that_no_play_heard_is_not_audited() -> None:
    (record,) = record_tests([], set(), lines_of("condensed"), 1e-5)
    assert record.not_audited and not record.refuted and not record.checks
    assert audit_noise(make_case(), [], 1e-5, 0.05) == []
