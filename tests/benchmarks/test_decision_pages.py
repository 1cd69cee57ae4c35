"""The pages to decide by as images: two, of the size that a document can hold, and a refusal."""

from pathlib import Path

import pytest
from PIL import Image

from benchmarks.decision_pages import decision_pages
from fedaudit.fl.runtime.errors import UserError
from tests.reports.sample import result


@pytest.mark.nightly
def test_a_run_folder_gives_two_small_pages(tmp_path: Path) -> None:
    (tmp_path / "audit.json").write_text(result().model_dump_json())
    written = decision_pages(tmp_path, tmp_path / "page")
    assert [p.name for p in written] == ["page-1.png", "page-2.png"]
    for path in written:
        assert path.stat().st_size < 300_000
        with Image.open(path) as image:
            assert image.size == (794, 1123)


def test_a_folder_without_an_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no audit\.json"):
        decision_pages(tmp_path, tmp_path / "page")
    with pytest.raises(UserError, match="no run folder"):
        decision_pages(tmp_path / "none", tmp_path / "page")
