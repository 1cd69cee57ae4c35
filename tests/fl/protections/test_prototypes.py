"""What is withheld below k, what mixing leaves, and what rows are clipped to."""

import math

import pytest
import torch

from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.protections.laplace import Laplace
from fedaudit.fl.protections.prototype_mixing import PrototypeMixing
from fedaudit.fl.protections.prototype_threshold import PrototypeThreshold
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.wire.protection import published_noise
from tests.fl.protections.sends import PROTOTYPES, make, send

LOCAL, COUNTS = Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS
GLOBAL = {
    Kind.GLOBAL_PROTOTYPES: {"classes": torch.tensor([7, 1]), "features": torch.tensor([[0.0, 0.0], [9.0, 9.0]])}
}


# Threshold -----------------------------------------------------------------------------------


def test_a_class_below_k_leaves_with_its_prototype_and_its_count() -> None:
    out, releases = send(make(PrototypeThreshold, least=20), PROTOTYPES)
    assert out[LOCAL]["classes"].tolist() == out[COUNTS]["classes"].tolist() == [4]
    assert out[LOCAL]["features"].tolist() == [[3.0, 4.0]] and out[COUNTS]["counts"].tolist() == [20]
    assert out[Kind.NUM_EXAMPLES] is PROTOTYPES[Kind.NUM_EXAMPLES]
    assert releases == []  # the wire lists the rest as released in clear: no bound is claimed


def test_k_itself_is_enough_and_a_client_without_such_a_class_sends_none() -> None:
    assert send(make(PrototypeThreshold, least=19), PROTOTYPES)[0][COUNTS]["classes"].tolist() == [4, 7]
    out, _ = send(make(PrototypeThreshold, least=21), PROTOTYPES)
    assert set(out) == {Kind.NUM_EXAMPLES}


def test_prototypes_whose_counts_nobody_knows_are_refused() -> None:
    with pytest.raises(UserError, match="how many examples") as error:
        send(make(PrototypeThreshold), {LOCAL: PROTOTYPES[LOCAL]})
    assert error.value.hint
    send(make(PrototypeThreshold, least=1), {LOCAL: PROTOTYPES[LOCAL]})
    send(make(PrototypeThreshold), {Kind.NUM_EXAMPLES: {"count": torch.tensor(1)}})


# Mixing --------------------------------------------------------------------------------------


def test_a_mixed_prototype_lies_between_its_own_and_the_classs_global_one() -> None:
    out, releases = send(make(PrototypeMixing, most=1.0), PROTOTYPES, GLOBAL)
    own, found = PROTOTYPES[LOCAL]["features"], out[LOCAL]["features"]
    mean = own.mean(0)  # class 4 has no global prototype
    for row, other in enumerate((torch.tensor([9.0, 9.0]), mean, torch.zeros(2))):
        share = (found[row] - own[row]) / (other - own[row])
        torch.testing.assert_close(share[0], share[1], rtol=1e-4, atol=1e-5)
        assert 0 < float(share[0]) < 1
    assert out[LOCAL]["classes"] is PROTOTYPES[LOCAL]["classes"] and releases == []


def test_the_share_is_uniform_up_to_most_and_drawn_for_each_prototype() -> None:
    from scipy import stats

    n = 2000
    message = {LOCAL: {"classes": torch.arange(n), "features": torch.ones(n, 1)}}
    reference = {Kind.GLOBAL_PROTOTYPES: {"classes": torch.arange(n), "features": torch.zeros(n, 1)}}
    out, _ = send(make(PrototypeMixing, most=0.4), message, reference)
    share = 1 - out[LOCAL]["features"].flatten().numpy()
    assert stats.kstest(share, "uniform", args=(0, 0.4)).pvalue > 1e-6


# Clipping and noise, prototype by prototype ----------------------------------------------------


def test_each_prototype_is_clipped_alone() -> None:
    row = make(DPGaussian, kinds=(LOCAL,), clip_norm=5.0, noise_multiplier=0.0, clip="row")
    out, [release, classes] = send(row, PROTOTYPES)
    found = out[LOCAL]["features"]
    torch.testing.assert_close(found[:2], PROTOTYPES[LOCAL]["features"][:2], rtol=0, atol=0)
    torch.testing.assert_close(found[2], torch.tensor([-5.0, 9.0]) * 5 / math.sqrt(106))
    assert release.sensitivity == pytest.approx(5 * math.sqrt(10))  # ten rows of norm 5
    assert classes.kind == "local_prototypes.classes"
    whole = make(DPGaussian, kinds=(LOCAL,), clip_norm=5.0, noise_multiplier=0.0)
    out, _ = send(whole, PROTOTYPES)
    assert float(out[LOCAL]["features"].norm()) == pytest.approx(5.0)


def test_more_rows_than_the_sensitivity_covers_are_refused() -> None:
    with pytest.raises(UserError, match="3 rows, most_rows is 2"):
        send(make(DPGaussian, kinds=(LOCAL,), clip="row", most_rows=2), PROTOTYPES)
    with pytest.raises(UserError, match="most_rows must be >= 1"):
        make(DPGaussian, most_rows=0)


def test_the_published_noise_of_several_protections_adds_up_in_squares() -> None:
    gaussian = make(DPGaussian, kinds=(LOCAL,), clip_norm=2.0, noise_multiplier=1.5)
    laplace = make(Laplace, kinds=(LOCAL,), clip_norm=1.0, scale=4 / math.sqrt(2))
    assert published_noise([gaussian, laplace], LOCAL) == pytest.approx(5.0)
    assert published_noise([gaussian, make(PrototypeThreshold)], Kind.LOCAL_MODEL) == 0
