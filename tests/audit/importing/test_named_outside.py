"""What an import read outside of its run folder is named for whoever runs it next; nothing else is opened."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fedaudit.audit.phases.import_ import list_copies
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.subject import RecordedSubject
from fedaudit.fl.runtime.errors import UserError

SUBJECT: dict[str, Any] = {
    "title": "adapters",
    "examples": {"classes": ["a", "b"], "shape": [16]},
    "clients": 2,
    "method": {"name": "fedavg", "rounds": 1},
}


def make(**changed: Any) -> Config:
    subject = SUBJECT | {k: v for k, v in changed.items() if k in RecordedSubject.model_fields}
    rest = {k: v for k, v in changed.items() if k not in RecordedSubject.model_fields}
    return validate(Config, {"subject": subject, "attacks": []} | rest, "test")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({}, {}),
        ({"model": "mlp"}, {}),
        ({"model": {"name": "hf", "path": "/models/llama"}}, {"hf": Path("/models/llama")}),
        ({"policy": "ours.yaml"}, {"policy": Path("ours.yaml")}),
    ],
)
def test_every_path_of_an_import_is_named_by_what_data_calls_it(
    changed: dict[str, Any], named: dict[str, Path]
) -> None:
    assert list_copies(make(**changed)) == named


def test_a_run_folder_opens_what_was_named_and_nothing_else(tmp_path: Path) -> None:
    config = make(model={"name": "hf", "path": str(tmp_path / "llama")})
    (tmp_path / "run").mkdir()
    file = tmp_path / "run" / "config.yaml"
    file.write_text(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True)))
    spec = config.require_recorded().subject.model
    assert spec is not None
    opened = config.set_origin(Origin(file, list_copies(config))).locate_files(spec)
    assert opened.settings["path"] == str(tmp_path / "llama")
    with pytest.raises(UserError, match="outside of"):
        config.set_origin(Origin(file, {})).locate_files(spec)
