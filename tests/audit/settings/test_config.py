"""Configs: conversions by declared type, defaults, and a resolved form that reads back the same."""

from pathlib import Path

import pytest

from fedaudit.audit.settings.config import SimulatedConfig, load
from fedaudit.audit.settings.record import Recorded, is_recorded, keeps_last, list_kinds
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from tests.audit.tiny import HERE, TEXT

CONFIGS = Path(__file__).parents[3] / "configs"


def config(tmp_path: Path, extra: str = "", text: str = TEXT) -> SimulatedConfig:
    path = tmp_path / "c.yaml"
    path.write_text(text + extra)
    return load(path).require_simulated()


def test_everything_but_the_subject_has_a_default(tmp_path: Path) -> None:
    c = config(tmp_path)
    assert (c.seed, c.device, c.workers, c.delta) == (7, "auto", "auto", 1e-5)
    assert c.record == "last"
    assert [a.name for a in c.accountants] == ["auto"] and c.report == ("json", "html", "pdf")
    assert c.federation.holdout.auxiliary == 0.2 and c.federation.empty_round is None


def test_numbers_that_yaml_reads_as_text_are_numbers(tmp_path: Path) -> None:
    c = config(tmp_path, "delta: 1e-6\n", TEXT.replace("rounds: 2", "rounds: 2, lr: 1e-3"))
    assert c.delta == 1e-6
    assert resolve(c)["method"]["lr"] == 1e-3
    assert config(tmp_path, "", TEXT.replace("clients: 4", "clients: 1e2")).federation.clients == 100
    assert config(tmp_path, "seed: '12'\n").seed == 12


def test_a_number_stays_text_where_text_is_declared(tmp_path: Path) -> None:
    assert config(tmp_path, "title: '1e-5'\n").title == "1e-5"
    with pytest.raises(UserError, match="title must be text, got 3"):
        config(tmp_path, "title: 3\n")


def test_a_plugin_is_a_name_or_a_group(tmp_path: Path) -> None:
    c = config(
        tmp_path, "protections: [dp_gaussian, {name: dp_gaussian, clip_norm: .inf, noise_multiplier: 0}]\n"
    )
    assert [p.name for p in c.protections] == ["dp_gaussian"] * 2
    assert c.protections[0].settings == {}
    assert resolve(c)["protections"][1]["clip_norm"] == float("inf")


@pytest.mark.parametrize(
    ("text", "expected"), [("all", "all"), ("last", "last"), ("every 3", 3), ("[0, 4]", (0, 4)), ("[]", ())]
)
def test_rounds_to_record(text: str, expected: object, tmp_path: Path) -> None:
    c = config(tmp_path, f"record: {text}\n")
    assert c.record == expected
    again = config(tmp_path, "", dump(resolve(c)))
    assert again.record == expected


@pytest.mark.parametrize(
    ("record", "rounds", "last", "kinds"),
    [
        ("all", [0, 1, 2, 3, 4], False, None),
        ("last", [], True, None),
        ("model", [], True, {"global_model", "global_prototypes"}),
        (2, [0, 2, 4], True, None),
        ((1, 3), [1, 3], False, None),
    ],
)
def test_rounds_and_kinds_that_are_kept(
    record: Recorded, rounds: list[int], last: bool, kinds: set[str] | None
) -> None:
    assert [t for t in range(5) if is_recorded(record, t)] == rounds
    assert (keeps_last(record), list_kinds(record)) == (last, kinds)


def test_the_resolved_config_holds_every_setting_and_reads_back_the_same(tmp_path: Path) -> None:
    c = config(tmp_path, "protections: [{name: dp_gaussian, kinds: [local_model]}]\nworkers: 0\n")
    resolved = resolve(c)
    assert resolved["federation"]["dataset"] == {"name": f"{HERE}:TinyImages", "examples": 60}
    assert resolved["federation"]["model"] == {"name": f"{HERE}:Linear", "width": 5}
    assert resolved["method"]["rounds"] == 2 and "batch_size" in resolved["method"]
    assert resolved["protections"][0]["noise_multiplier"] == 1.0
    path = tmp_path / "again.yaml"
    path.write_text(dump(resolved))
    assert resolve(load(path)) == resolved
    assert dump(resolve(load(path))) == path.read_text()


def test_a_merge_key_may_be_overridden_but_a_key_not_repeated(tmp_path: Path) -> None:
    text = TEXT + (
        "protections:\n  - &base {name: dp_gaussian, clip_norm: 1.0}\n  - {<<: *base, clip_norm: 2.0}\n"
    )
    c = config(tmp_path, "", text)
    assert [p.settings["clip_norm"] for p in c.protections] == [1.0, 2.0]


def test_a_config_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        config(tmp_path).seed = 8  # type: ignore[misc]


def test_workers_from_the_command_line(tmp_path: Path) -> None:
    c = config(tmp_path)
    assert c.with_workers("0").workers == 0 and c.with_workers("auto").workers == "auto"
    assert c.with_workers("2").require_simulated().federation == c.federation
    with pytest.raises(UserError, match="--workers: workers must be auto"):
        c.with_workers("-3")


def test_every_plugin_a_config_names_is_found(tmp_path: Path) -> None:
    c = config(tmp_path, f"report: [json, '{HERE}:NoPlugin']\nprotections: [dp_gaussian]\n")
    places = {p.where for p in c.list_plugins()}
    assert {"method", "federation.model", "protections[0]", "report[1]"} <= places
    foreign = [p.where for p in c.list_plugins() if p.spec.foreign]
    assert foreign == [
        "federation.dataset",
        "federation.partition",
        "federation.availability",
        "federation.model",
        "report[1]",
    ]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda p: p.stem)
def test_every_config_that_ships_is_valid(path: Path) -> None:
    c = load(path)
    load_policy(c.policy)
    assert set(resolve(c)) == set(SimulatedConfig.model_fields) - {"case"}
    assert not any(p.spec.foreign for p in c.list_plugins()), "a shipped config needs nobody's own code"


TWICE = "attacks: [count_recovery, prototype_membership, {name: prototype_membership, least_auxiliary: 9}]\n"


def test_the_same_attack_twice_needs_an_id_each(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"c.yaml:9: attacks\[1\] is one of several 'prototype_membership'"
    ) as error:
        config(tmp_path, TWICE)
    assert "id: prototype_membership-2" in error.value.hint
    one = TWICE.replace("least_auxiliary", "id: second, least_auxiliary")
    with pytest.raises(UserError, match=r"attacks\[1\] is one of several"):  # the other one needs an id too
        config(tmp_path, one)
    both = one.replace(" prototype_membership,", " {name: prototype_membership, id: first},", 1)
    found = config(tmp_path, both)
    assert [a.label for a in found.attacks] == ["count_recovery", "first", "second"]
    attacks = resolve(found)["attacks"]
    assert "id" not in attacks[0] and attacks[2]["id"] == "second" and attacks[2]["least_auxiliary"] == 9
    assert [a.label for a in config(tmp_path, "", dump(resolve(found))).attacks] == [
        "count_recovery",
        "first",
        "second",
    ]
    for bad in ("first", "count_recovery", "Up/..", "''"):
        with pytest.raises(UserError, match=r"c.yaml:9: attacks\[2\]"):
            config(tmp_path, both.replace("id: second", f"id: {bad}"))


def test_what_a_variant_changes_of_the_method_is_checked_before_anything_runs(tmp_path: Path) -> None:
    text = (
        TEXT.replace("{name: fedavg, rounds: 2}", "{name: gandalf, rounds: 2}")
        + "variants:\n  - name: a\n    method: "
    )
    for right in ("{gan.local: 3}", "{gan: {local: 3}}", "{name: fedavg, lr: 0.1}", "{lr: 0.1}"):
        assert resolve(config(tmp_path, right, text))["variants"][0]["name"] == "a"
    for wrong in ("{lrr: 1}", "{gan.locall: 3}", "{gan: {local: -1}}", "{name: fedavg, gan: {}}", "{lr: -1}"):
        with pytest.raises(UserError, match=r"c\.yaml:11: .*variants\[0\]\.method"):
            resolve(config(tmp_path, wrong, text))
