"""Overrides: laid key by key over a config, checked whole, and refused with the name of the cell."""

import pytest

from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.merge import merge
from fedaudit.audit.settings.overrides import overridden
from fedaudit.fl.runtime.errors import UserError

BASE = {
    "federation": {"dataset": "digits", "partition": {"name": "dirichlet", "alpha": 0.3}},
    "method": {"name": "fedprox", "mu": 0.1, "lr": 0.05},
    "protections": [{"name": "secure_aggregation"}],
}


def test_a_key_written_whole_is_the_same_as_nested() -> None:
    whole = overridden(BASE, {"federation.partition.alpha": 1.0, "method.lr": 0.5}, where="a").require_simulated()
    assert whole == overridden(
        BASE, {"federation": {"partition": {"alpha": 1.0}}, "method": {"lr": 0.5}}, where="a"
    )
    assert whole.federation.partition.settings == {"alpha": 1.0}
    assert whole.method.settings == {"mu": 0.1, "lr": 0.5}


def test_nothing_changed_is_the_config_itself() -> None:
    base = Config.model_validate(BASE)
    assert overridden(base, {}, where="a") == base == overridden(BASE, where="a")


def test_a_list_is_replaced() -> None:
    assert overridden(BASE, {"protections": []}, where="a").protections == ()


def test_a_plugin_of_another_name_brings_none_of_the_old_settings() -> None:
    below = {"partition": {"name": "shards", "shards_per_client": 5}, "clients": 3}
    assert merge(below, {"partition": {"name": "iid"}})["partition"] == {"name": "iid"}
    assert merge(below, {"partition": "iid"})["partition"] == "iid"
    kept = merge(below, {"partition": {"shards_per_client": 2}})
    assert kept == {"partition": {"name": "shards", "shards_per_client": 2}, "clients": 3}
    assert merge({"method": {"lr": 1}}, {"method": {"name": "a"}})["method"] == {"lr": 1, "name": "a"}
    assert merge({"method": "a"}, {"method.lr": 1})["method"] == {"name": "a", "lr": 1}


def test_what_lies_below_is_not_changed() -> None:
    before = {"method": {"name": "a", "gan": {"cycles": 2, "local": 1}}}
    assert merge(before, {"method.gan.cycles": 6})["method"]["gan"] == {"cycles": 6, "local": 1}
    assert before == {"method": {"name": "a", "gan": {"cycles": 2, "local": 1}}}


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        ({"federation.clientz": 3}, "cell x: unknown key federation.clientz"),
        ({"federation.clients": 0}, "cell x: federation.clients must be >= 1, got 0"),
        ({"method.lrr": 3}, "cell x: unknown key method.lrr"),
        ({"method.name": "fedproxx"}, "cell x: method: no 'fedproxx'"),
        ({"federation": 3}, "cell x: federation must be"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cells_name(overrides: dict[str, object], says: str) -> None:
    with pytest.raises(UserError) as error:
        overridden(BASE, overrides, where="cell x")
    assert str(error.value).startswith(says) and error.value.hint
