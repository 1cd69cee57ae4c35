"""What an attack claims of rows stands in the report as rows; where it claims nothing, nothing is shown."""

import numpy as np

from fedaudit.attacks.evaluation.row_recovery import match_rows
from fedaudit.attacks.evidence import RowExhibit
from fedaudit.attacks.summaries.centre_rows import CentreRows
from fedaudit.attacks.summaries.sums_rows import SumsRows
from fedaudit.attacks.updates.analytic_rows import AnalyticRows
from tests.attacks.summaries.clinics import INVENTED, Clinics, centres_that_move, one_step, send, sums_that_differ

RNG = np.random.default_rng(0)


def test_a_row_that_was_read_off_an_update_is_shown_with_units_and_is_off_by_nothing() -> None:
    world, sent = one_step()
    attack = AnalyticRows()
    [shown] = attack.exhibits(attack.run(sent, world.knowledge, RNG), world)
    assert isinstance(shown, RowExhibit) and shown.title == "Rows from single units of the first layer"
    assert "Of 7 rows with a claim" in shown.caption
    assert [pair.name.split(", ")[1] for pair in shown.pairs] == ["nearest", "middle", "farthest"]
    for pair in shown.pairs:
        assert pair.claimed == pair.original and not any(pair.apart)
        assert INVENTED.columns is not None and pair.columns == INVENTED.columns.names
    assert shown.pairs[0].original[0].endswith(" years")


def test_columns_that_nobody_described_are_numbered_and_claims_of_either_sign_are_read() -> None:
    for attack, (world, sent) in ((SumsRows(), sums_that_differ()), (CentreRows(), centres_that_move())):
        claim = attack.run(sent, world.knowledge, RNG)
        [shown] = attack.exhibits({**claim, "row": -claim["row"]}, world)
        assert isinstance(shown, RowExhibit) and shown.pairs[0].columns[:2] == ("column 1", "column 2")
        assert max(max(pair.apart) for pair in shown.pairs) < 1e-9


def test_a_claim_that_is_of_nobody_is_shown_as_far_off_as_it_is() -> None:
    world = Clinics("patients", (4, 4))
    columns = np.empty(1, object)
    columns[0] = world.columns
    claim = {"columns": columns, "client": np.zeros(1, np.int64), "row": world.reference.x[:1]}
    [shown] = CentreRows().exhibits(claim, world)
    [pair] = shown.pairs  # type: ignore[assignment]
    assert 0 < np.mean(pair.apart) < 1 and pair.name == "client 0, nearest"


def test_where_nothing_is_claimed_nothing_is_shown() -> None:
    world = Clinics()
    claim = CentreRows().run([send(0, 0, {"a": np.zeros((3, 3))})], world.knowledge, RNG)
    assert not CentreRows().exhibits(claim, world)


def test_a_row_that_lacks_a_value_is_equal_to_itself() -> None:
    public = np.array([[1.0, 2.0], [3.0, 5.0], [4.0, np.nan]])
    assert match_rows(np.array([[9.0, np.nan]]), np.array([[8.0, np.nan], [9.0, np.nan]]), public).tolist() == [1]
