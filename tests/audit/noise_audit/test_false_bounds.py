"""Systems that somebody wrote who had read the documentation alone, 116 of them wrong and 47 right.

At first sight, at commit f0d55b2, 58 of 76 were refuted and none of 26 right ones. Of jobs_and_relays.py,
in the commit that added them, 13 of 17 were refuted or refused, and one of 10 right ones was refuted. Of those of
rules_of_sums.py, at commit b420419, 9 of 12, and none of 3 right ones. Of those of state_outside_plays.py, at
commit bc0c6b30, 8 of 16, and none of 7 right ones.
"""

import pytest

from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.bound import Status
from tests.audit.noise_audit.unseen import System, audit_system, read_systems

SYSTEMS = read_systems()
# No play can change how a data set was made before it was read; its name says why the bound stays declared.
PREPARED = ("whitened_over_all", "copies_of_each", "cleaned_labels", "twins_nearly_alike")
# What one plugin tells another outside of the federation moves no play; its law stays declared.
DECLARED = ("answers_by_size",)
# What a client's code leaves at hand for its server is not there when a message is played in its place.
AT_HAND = ("keeps_a_copy", "bias_from_copies")
# The bound is composed over all clients that hold the record, and is right then.
COMPOSED = ("everybody_has_ten",)
# These do not start, or end in the first round: the protection says that it cannot cover what the method does.
REFUSED = (
    "trains_until_fit",
    "relays_under_central",
    "calibrates_its_head",
    "mixes_pairs",
    "adds_full_gradient",
    "weighs_by_own_counts",
    "notes_on_the_tensor",
    "reads_one_of_the_sum",
    "weighs_the_pilot",
    "forwards_a_part_of_the_noise",
)


def select(wrong: bool) -> list[System]:
    apart = (*PREPARED, *DECLARED, *AT_HAND, *COMPOSED, *REFUSED)
    return [s for s in SYSTEMS if s.wrong == wrong and s.name not in apart]


@pytest.mark.sample(2)
@pytest.mark.dear("ignores_the_wire", "repeats_the_rare", "travelling_wave", "two_shifts")
@pytest.mark.parametrize("system", select(wrong=True), ids=lambda s: s.name)
def test_a_wrong_system_leaves_no_bound(system: System) -> None:
    bounds = audit_system(system)
    assert bounds and all(b.status in (Status.REFUTED, Status.NONE) for b in bounds), bounds


@pytest.mark.sample(1)
@pytest.mark.dear("goes_on_from_relay")
@pytest.mark.parametrize("system", select(wrong=False), ids=lambda s: s.name)
def test_a_right_system_is_not_refuted(system: System) -> None:
    bounds = audit_system(system)
    assert bounds and all(b.status is Status.DECLARED for b in bounds), bounds


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s.name in REFUSED], ids=lambda s: s.name)
def test_a_method_that_a_protection_does_not_cover_is_refused(system: System) -> None:
    with pytest.raises(UserError, match=r"does not bound|cannot protect|no message can carry"):
        audit_system(system)


@pytest.mark.nightly
@pytest.mark.parametrize("system", [s for s in SYSTEMS if s.name in PREPARED], ids=lambda s: s.name)
def test_a_data_set_of_a_team_s_own_leaves_a_bound_declared_and_says_why(system: System) -> None:
    [bound] = audit_system(system)
    assert bound.status is Status.DECLARED
    assert any("how it prepares examples" in reason.sentence for reason in bound.reasons)


@pytest.mark.nightly
@pytest.mark.parametrize("system", [s for s in SYSTEMS if s.name in DECLARED], ids=lambda s: s.name)
def test_an_availability_of_a_team_s_own_leaves_a_bound_declared_and_says_so(system: System) -> None:
    [bound] = audit_system(system)
    assert bound.status is Status.DECLARED
    assert any("which is not code of ours" in reason.sentence for reason in bound.reasons)


@pytest.mark.parametrize("system", [s for s in SYSTEMS if s.name in AT_HAND], ids=lambda s: s.name)
def test_a_server_that_is_left_clean_copies_leaves_a_bound_declared_and_says_why(system: System) -> None:
    for bound in audit_system(system):
        assert bound.status is Status.DECLARED
        assert "cannot be played twice to the same numbers" in bound.reasons[0].sentence


@pytest.mark.nightly
@pytest.mark.parametrize("system", [s for s in SYSTEMS if s.name in COMPOSED], ids=lambda s: s.name)
def test_a_record_of_all_clients_costs_what_all_of_them_release(system: System) -> None:
    [bound] = audit_system(system)
    alone = {
        **system.config,
        "federation": {k: v for k, v in system.config["federation"].items() if k != "partition"},
    }
    [single] = audit_system(system._replace(config=alone))
    assert bound.epsilon > 1.5 * single.epsilon
