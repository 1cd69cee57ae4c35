"""Evidence of membership: its intervals hold for all comparisons of a finding together."""

import numpy as np
import pytest

from fedaudit.attacks import stats
from fedaudit.attacks.evaluation import membership


@pytest.mark.parametrize(("control", "alpha"), [("none", 0.05), ("negative", 0.01)])
@pytest.mark.parametrize("looks", [1, 12])
def test_every_interval_shares_its_alpha_with_the_other_looks(control: str, alpha: float, looks: int) -> None:
    rng = np.random.default_rng(0)
    found, blind = (
        membership.score_clusters([rng.normal(shift, 1, 300)], [rng.normal(size=1000)]) for shift in (0.5, 0)
    )
    area, rate, _ = membership.evidence(found, {"blind": blind}, looks=looks, control=control)  # type: ignore[arg-type]
    for e, measured in ((area, stats.auc), (rate, lambda *scores, **k: stats.tpr_at_fpr(*scores, 0.01, **k))):
        for interval, scores in ((e.interval, found), (e.baselines[1].interval, blind)):
            expected = measured(scores.members, scores.others, alpha=alpha / looks, groups=scores.groups)
            assert expected is not None and interval == pytest.approx(expected.interval)
        assert (e.looks, e.confidence) == (looks, 1 - alpha)


def test_of_members_alone_or_of_others_alone_there_is_no_evidence() -> None:
    for m, o in ((0, 0), (3, 0), (0, 3)):
        groups = np.zeros(m, np.int64), np.zeros(o, np.int64)
        nobody = membership.Scores(
            members=np.ones(m), others=np.ones(o), member_groups=groups[0], other_groups=groups[1]
        )
        assert membership.evidence(nobody, {}) == []
