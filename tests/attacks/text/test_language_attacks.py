"""Attacks on language models: min-k and exposure by hand, what is drawn out of a model, and what a fresh one
hides.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.attacks.attack import Attack
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.text._language import average_lowest, score_continuations, score_tokens
from fedaudit.attacks.text.canary_exposure import CanaryExposure, bound_few, bound_luck, compute_exposure
from fedaudit.attacks.text.regurgitation import Regurgitation
from fedaudit.attacks.text.sequence_membership import SequenceLoss, SequenceReference
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.audit.verdict.taxonomy import list_aims
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Aim
from tests.attacks.text.language_world import PIECES, LanguageWorld, learnt, make_net, untrained


def tell(attack: Attack, world: LanguageWorld) -> list[Evidence]:
    assert attack.not_applicable(world.artifacts, world.knowledge) == ""
    claim = attack.run(world.artifacts, world.knowledge, np.random.default_rng(0))
    return attack.measure(claim, world, np.random.default_rng(1))


def test_min_k_is_the_mean_of_the_least_likely_half() -> None:
    assert average_lowest(np.array([[-1.0, -5.0, -2.0, -4.0]]), 0.5).tolist() == [-4.5]
    assert average_lowest(np.array([[-1.0, -3.0, np.nan]]), 0.2).tolist() == [-3.0]


def test_exposure_of_rank_four_in_a_thousand_is_7_966_bits() -> None:
    others = np.array([3.0, 2.0, 1.5, *np.full(996, -1.0)])
    assert compute_exposure(1.0, others) == pytest.approx(7.966, abs=1e-3)
    assert compute_exposure(9.0, others) == pytest.approx(math.log2(1000))


def test_a_secret_that_a_model_knows_nothing_of_has_log2_e_bits_on_average() -> None:
    rng = np.random.default_rng(0)
    found = [compute_exposure(rng.normal(), rng.normal(size=999)) for _ in range(2000)]
    assert np.mean(found) == pytest.approx(math.log2(math.e), abs=0.1)


def test_two_secrets_at_the_top_are_exposed_by_eight_bits_at_least_and_luck_reaches_four() -> None:
    low, high = bound_few([math.log2(2000)] * 2, 2000, 0.05)
    share = 1 - 0.0125 ** (1 / 1999)  # of all secrets that may stand above one which none of 1999 stands above
    assert low == pytest.approx(-math.log2(share)) and low > 8 and high == pytest.approx(math.log2(2000))
    rng, bound = np.random.default_rng(0), bound_luck(2, 0.05)
    lucky = [np.mean([compute_exposure(*draw(rng)) for _ in range(2)]) for _ in range(4000)]
    assert bound == pytest.approx(4.02, abs=0.01)
    assert 0.015 < np.mean(np.array(lucky) > bound) < 0.035
    one = [bound_few([compute_exposure(*draw(rng))], 1000, 0.05) for _ in range(400)]
    assert all(low <= high for low, high in one)


def draw(rng: np.random.Generator) -> tuple[float, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    return float(rng.normal()), rng.normal(size=999)


@pytest.mark.nightly
def test_probabilities_of_the_next_token_add_up_to_one() -> None:
    world = learnt()
    architecture = world.knowledge.architecture
    assert architecture is not None
    model = architecture(world.artifacts[-1].payload)
    begin = world.clients[0].x[0, :3]
    texts = np.array([[*begin, v] for v in range(1, len(PIECES))])
    assert np.exp(score_tokens(model, texts)[:, -1]).sum() == pytest.approx(1, abs=1e-2)


def test_scores_are_log_probabilities_and_padding_behind_a_text_changes_none() -> None:
    world = learnt()
    architecture = world.knowledge.architecture
    assert architecture is not None
    model, texts = architecture(world.artifacts[-1].payload), world.clients[0].x[:3]
    with torch.no_grad():
        exact = torch.log_softmax(model.module().eval()(torch.from_numpy(texts)).double(), -1).numpy()
    wanted = np.take_along_axis(exact[:, :-1], texts[:, 1:, None], 2)[..., 0]
    found = score_tokens(model, texts)
    assert np.allclose(found[texts[:, 1:] != 0], wanted[texts[:, 1:] != 0], rtol=0, atol=1e-6)
    assert np.isnan(found[texts[:, 1:] == 0]).all()
    cut = score_tokens(model, np.where(np.arange(texts.shape[1]) < 4, texts, 0))
    assert np.allclose(cut[:, :3], found[:, :3], rtol=0, atol=5e-6) and np.isnan(cut[:, 3:]).all()


def continue_text(model: Any, text: list[int], length: int) -> list[int]:
    """The likeliest tokens, one after the other."""
    for _ in range(length):
        with torch.no_grad():
            logits = model.module().eval()(torch.tensor([text]))[0, -1]
        logits[0] = -torch.inf
        text = [*text, int(logits.argmax())]
    return text


def test_a_text_goes_on_as_a_model_emits_it_token_by_token() -> None:
    world = learnt()
    architecture = world.knowledge.architecture
    assert architecture is not None
    model = architecture(world.artifacts[-1].payload)
    begin = world.clients[1].x[5, :3].tolist()
    emitted = continue_text(model, begin, 3)
    other = [*emitted[:-1], 1 + emitted[-1] % (len(PIECES) - 1)]
    likeliest, odds = score_continuations(model, [emitted, other, emitted[:4]], [3, 3, 3])
    assert likeliest.tolist() == [True, False, True]
    chances = [
        score_continuations(model, [[*begin, v]], [3])[1][0] for v in range(1, len(PIECES))
    ]  # of all tokens but padding
    assert np.exp(chances).sum() == pytest.approx(1)
    assert odds[2] == pytest.approx(chances[emitted[3] - 1])


def test_a_text_counts_where_enough_of_the_drawn_continuations_are_its_own() -> None:
    world = untrained()
    architecture = world.knowledge.architecture
    assert architecture is not None
    model = architecture(world.artifacts[-1].payload)
    texts = [(1, v) for v in range(1, len(PIECES))]
    [first] = score_continuations(model, texts, [1] * len(texts))[0].nonzero()
    one, two = (Regurgitation(Regurgitation.Config(samples=4000, least=k)) for k in (1, 4000))
    assert one.find_emitted(model, texts, np.random.default_rng(0)).all()
    assert two.find_emitted(model, texts, np.random.default_rng(0)).nonzero()[0].tolist() == first.tolist()


def test_texts_come_back_out_of_a_model_that_learnt_them_and_out_of_no_other() -> None:
    quick = Regurgitation(Regurgitation.Config(samples=2, least=1))
    found = {e.place: e for e in tell(quick, learnt()) if e.control == "none"}
    assert found["model = update, origin = recorded"].value > 0.9
    assert all(e.value == 0 for e in tell(quick, untrained()) if e.control == "none")


def test_a_secret_of_one_copy_is_exposed_as_far_as_so_many_alternatives_tell() -> None:
    found = {e.place: e for e in tell(CanaryExposure(), learnt())}
    assert found["copies = 1"].value == pytest.approx(math.log2(2000))
    assert "at most 10.97" in found["copies = 1"].note
    fresh = {e.place: e for e in tell(CanaryExposure(), untrained())}
    assert fresh["copies = 1"].value < 6


def test_a_model_that_was_not_trained_tells_no_member() -> None:
    for attack in (SequenceLoss(), SequenceReference()):
        found = [e for e in tell(attack, untrained()) if e.measure == "auc" and e.control == "none"]
        assert found and all(e.interval is not None and e.interval[0] <= 0.5 for e in found)


def test_a_network_that_tells_a_class_is_no_language_model() -> None:
    world = learnt()
    known = world.knowledge
    assert isinstance(known.architecture, KnownArchitecture)
    classifier = KnownArchitecture(lambda: make_net("classify"), known.architecture._data)
    net = make_net("classify")
    view: list[Any] = [
        replace(a, payload={k: v.detach().numpy() for k, v in net.state_dict().items()})
        for a in world.artifacts[:1]
    ]
    reason = Regurgitation().not_applicable(view, replace(known, architecture=classifier))
    assert "and no tokens" in reason


def test_of_a_language_model_it_is_asked_whether_it_writes_texts_again() -> None:
    for kind in (Kind.GLOBAL_MODEL, Kind.ADAPTER):
        asked = dict(list_aims(kind, (Channel.UPLINK,), ("next tokens",)))
        assert asked[Aim.REGURGITATION]
        assert Aim.REGURGITATION not in dict(list_aims(kind, (Channel.UPLINK,), ("tokens",)))
