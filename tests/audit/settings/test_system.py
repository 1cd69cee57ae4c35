"""The audited system in its owner's words: bounded text, days, and no code."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.audit.settings.system import SystemSettings
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.system import System as Stated
from tests.audit.tiny import TEXT


def read_config(folder: Path, system: dict[str, Any]) -> Config:
    (folder / "c.yaml").write_text(TEXT + yaml.safe_dump({"system": system}))
    return load(folder / "c.yaml")


def test_everything_may_be_left_out_and_the_report_has_a_place_for_all_of_it() -> None:
    assert SystemSettings().model_dump() == dict.fromkeys(SystemSettings.model_fields, "") | {"clients": None}
    assert list(SystemSettings.model_fields) == list(Stated.model_fields)


@pytest.mark.parametrize("day", ["2027-03-01", "'2027-03-01'"])
def test_a_day_is_iso_8601_whether_yaml_reads_it_as_a_date_or_as_text(day: str, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"{TEXT}system: {{deployment: {day}}}\n")
    config = load(tmp_path / "c.yaml")
    assert config.system.deployment == "2027-03-01"
    (tmp_path / "again.yaml").write_text(dump(resolve(config)))
    assert load(tmp_path / "again.yaml").system == config.system


def test_text_is_one_line() -> None:
    assert SystemSettings(purpose="  triage\n of patients ").purpose == "triage of patients"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, "a" * 201) for key in ("name", "purpose", "controller", "author", "data")),
        ("name", 3),
        ("deployment", "tomorrow"),
        ("deployment", "2027-02-30"),
        ("deployment", 20270301.5),
        ("clients", "patients"),
        ("owner", "somebody"),
    ],
)
def test_what_page_1_cannot_print_is_refused_by_name(key: str, value: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"c\.yaml:\d+: .*system\.{key}"):
        read_config(tmp_path, {key: value})


def test_its_text_names_no_code(tmp_path: Path) -> None:
    config = read_config(tmp_path, {"name": "ward:Model", "author": "os:system"})
    assert not {key for key, _ in config.list_code() if key.startswith("system")}
