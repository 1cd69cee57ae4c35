"""What our own code raises ends an audit; what a plugin of others raises is a reason, said in a sentence."""

from functools import cached_property, partial

import pytest

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.noise_audit.replay import audit_bounds
from fedaudit.audit.phases.account import check_bounds
from fedaudit.fl.data.population import Population
from tests.audit.noise_audit.drawn import line_of
from tests.audit.noise_audit.systems import GAUSSIAN, make_case

OF_OTHERS = {"name": "tests.audit.wrong_protections.correct:Plain"}


class Broken(SimulatedCase):
    @cached_property
    def population(self) -> Population:
        raise RuntimeError("nobody can build it")


def test_an_error_of_our_own_code_is_no_reason_why_a_run_was_not_played() -> None:
    case = Broken(make_case(protections=[GAUSSIAN]).config)
    with pytest.raises(RuntimeError, match="nobody can build it"):
        check_bounds(partial(audit_bounds, case), [line_of(0, 0, kind="local_model")], is_ours=True)


def test_an_error_beside_a_plugin_of_others_is_said_in_a_sentence() -> None:
    case = Broken(make_case(protections=[OF_OTHERS]).config)
    checks = check_bounds(partial(audit_bounds, case), [line_of(0, 0, kind="local_model")], is_ours=False)
    assert checks and all("could not be played" in c.reason and "nobody can build it" in c.reason for c in checks)
