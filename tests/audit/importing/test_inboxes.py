"""Every inbox of inboxes.py imports, or ends in one sentence; what is said of it agrees wherever it is said."""

import shutil
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image
from safetensors.numpy import save
from typer.testing import CliRunner

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.truth import load_truth
from fedaudit.audit.cli.main import app
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.importing.first_subject import write_first_subject
from fedaudit.audit.importing.message_file import header
from fedaudit.audit.importing.messages import whole_rounds
from fedaudit.audit.importing.summary import summary
from fedaudit.audit.importing.survey import Survey, identify_aggregation
from fedaudit.audit.observer.reach import Reach, read_traffic
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.origin import Origin
from fedaudit.audit.settings.subject import ExampleLayout, RecordedSubject
from fedaudit.fl.kinds import Kind
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.threats.threat import Position
from fedaudit.reports import format as fmt
from fedaudit.reports.imported import ImportRecord
from tests.audit.importing import framework_inboxes, odd_inboxes
from tests.audit.importing.inboxes import INBOXES, Inbox
from tests.audit.importing.theirs import check
from tests.worlds import orders

HERE = Path(__file__).parent
assert odd_inboxes.BASE and orders.NEW and framework_inboxes.NEW  # their inboxes are entered as well
IMPORTED = [name for name, one in INBOXES.items() if not one.refused]
REFUSED = [name for name, one in INBOXES.items() if one.refused]


def state(folder: Path, one: Inbox) -> dict[str, Any]:
    """What `init` writes of the inbox, with what its operator adds."""
    subject: dict[str, Any] = yaml.safe_load(
        write_first_subject(folder / "inbox", folder / "truth" if one.has_truth else None)
    )
    return subject | ({"model": one.model} if one.model else {}) | dict(one.states)


def take(folder: Path, one: Inbox, subject: Mapping[str, Any]) -> tuple[RunDir, Config, ImportRecord]:
    settings = {"attacks": ["label_counts_from_update"], "report": ["json"], "workers": 0}
    config = validate(Config, settings | {"subject": subject}, "test")
    run, truth = RunDir.create(folder / "run"), folder / "truth" if one.has_truth else None
    sources = ImportSources(inbox=folder / "inbox", subject=HERE / "x", truth=truth)
    found = bring(run.path, config.set_origin(Origin(trust=True)), sources, lambda *_: None)
    return run, config, found


@pytest.mark.sample(14)
@pytest.mark.dear("ten thousand arrays", *orders.ORDERS)
@pytest.mark.parametrize("name", IMPORTED)
def test_an_inbox_of_an_honest_federation_imports_and_nothing_is_contradicted(name: str, tmp_path: Path) -> None:
    one = INBOXES[name]
    one.write(tmp_path)
    subject = state(tmp_path, one)
    run, _, found = take(tmp_path, one, subject)
    assert [c.text for c in found.checks if c.status == "contradicted"] == []
    counters = [
        v
        for a in read(run.artifacts)
        for n, v in a.payload.items()
        if one.model == "nets:Normed" and "tracked" in n
    ]
    assert all(v.dtype.kind == "i" for v in counters)
    seen = Survey.from_inbox(tmp_path / "inbox")
    aggregation, _ = identify_aggregation(seen)
    assert aggregation == "samples" or not name.startswith("NVFlare")
    told = "\n".join(summary(tmp_path / "inbox"))
    lost = found.unread
    assert found.messages == len(seen.messages) and f"{len(seen.messages):,} messages" in told
    assert [u.why for u in lost] == seen.unread
    assert found.clients == (subject["clients"] or 0) == seen.clients and f"of {seen.clients}" in told
    assert f"the server makes its model: {aggregation or 'not seen'};" in told
    rounds = {a.round for a in read(run.artifacts) if a.from_client}
    assert lost or f"rounds in which clients sent something: {len(rounds)}" in told
    stated = [c.text for c in found.checks if c.id == "rounds"]
    assert lost or all(f"clients sent something in {fmt.plural(len(rounds), 'round')}" in x for x in stated)
    aggregate = check(found, "aggregate")
    if not lost:  # what was left out was in the server's mean
        assert len([*whole_rounds(run.artifacts)]) == len([*whole_rounds(tmp_path / "inbox")])
        assert aggregate.status == ("holds" if aggregation in ("samples", "uniform") else "open")
        assert not aggregation or subject["aggregation"] == aggregation


@pytest.mark.sample(10)
@pytest.mark.parametrize("name", REFUSED)
def test_an_inbox_that_lacks_something_ends_in_one_sentence_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    one = INBOXES[name]
    one.write(tmp_path)
    with pytest.raises(UserError) as error:
        take(tmp_path, one, state(tmp_path, one))
    assert one.refused in str(error.value.args[0]) and "\n" not in str(error.value.args[0]) and error.value.hint
    assert not (tmp_path / "run").exists()


def test_an_import_that_fails_leaves_an_earlier_one_and_one_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    one, bad = INBOXES["changes"], INBOXES["changes under the name of models"]
    one.write(tmp_path / "a")
    bad.write(tmp_path / "b")
    run, _, _ = take(tmp_path / "a", one, state(tmp_path / "a", one))
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    shutil.rmtree(tmp_path / "a" / "inbox")
    shutil.copytree(tmp_path / "b" / "inbox", tmp_path / "a" / "inbox")
    with pytest.raises(UserError, match="they look like model_delta"):
        take(tmp_path / "a", bad, state(tmp_path / "a", bad))
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()} == before
    killed = tmp_path / "b" / "run" / ".importing" / "artifacts"
    killed.mkdir(parents=True)
    (killed / "half").write_text("")
    shutil.rmtree(tmp_path / "b" / "inbox")
    shutil.rmtree(tmp_path / "b" / "truth")
    one.write(tmp_path / "b")
    run, _, _ = take(tmp_path / "b", one, state(tmp_path / "b", one))
    assert not any("half" in p.name for p in run.path.rglob("*")) and not (run.path / ".importing").exists()


def test_one_command_writes_the_subject_says_what_nobody_stated_and_audits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = INBOXES["page: arrays named by their position, as a NumPyClient's"]
    one.write(tmp_path)
    monkeypatch.chdir(HERE)
    run = tmp_path / "run"
    given = ["import", str(tmp_path / "inbox"), "--truth", str(tmp_path / "truth"), "--out", str(run)]
    (tmp_path / "audit.yaml").write_text("{attacks: [label_counts_from_update], report: [json], workers: 0}")
    given += ["--config", str(tmp_path / "audit.yaml"), "--trust-plugins"]
    told = CliRunner().invoke(app, [*given, "--model", one.model])
    result = read_result(run)
    assert result.decision is not None and told.exit_code == result.decision.word.exit_code, told.output
    assert "not stated: method: " in told.output and "not stated: model" not in told.output
    written = (tmp_path / "run" / "subject.yaml").read_text()
    marked = [x for x in written.splitlines() if x != "examples:" and not x.startswith("#")]
    assert all("# seen" in x or "# guessed" in x or "# not seen" in x or "# stated" in x for x in marked)
    labels = next(f for f in result.findings if f.id == "label_counts_from_update")
    assert any(e.measure == "label_set_exact_match" and e.value == 1 for e in labels.evidence)
    again = CliRunner().invoke(app, ["check", str(tmp_path / "run"), "--trust-plugins"])
    assert again.exit_code == told.exit_code, again.output
    bare = CliRunner().invoke(app, given)
    assert "not stated: model: " in bare.output and bare.exit_code != 2, bare.output
    both = CliRunner().invoke(app, [*given, "--model", "x:Y", "--subject", str(run / "subject.yaml")])
    assert both.exit_code == 2 and "--model belongs to an import without --subject" in both.output


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n == "checkpoints alone" else pytest.mark.nightly) for n in IMPORTED]
)
def test_it_is_audited_and_classes_of_clients_are_read(name: str, tmp_path: Path) -> None:
    one = INBOXES[name]
    one.write(tmp_path)
    run, config, _ = take(tmp_path, one, state(tmp_path, one))
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    if one.has_labels:
        labels = next(f for f in read_result(run.path).findings if f.id == "label_counts_from_update")
        assert any(e.measure == "label_set_exact_match" and e.value > 0.5 for e in labels.evidence)


def test_a_safetensors_file_whose_header_begins_like_a_pickle_is_read(tmp_path: Path) -> None:
    arrays = {"global_model/w": np.zeros(3, np.float32)}
    plain = save(arrays)
    length = int.from_bytes(plain[:8], "little")
    for wanted in (0x0280, 0x0380, 0x0480):
        head = plain[8 : 8 + length].ljust(wanted)
        path = tmp_path / f"{wanted}.safetensors"
        path.write_bytes(wanted.to_bytes(8, "little") + head + plain[8 + length :])
        assert header(path) == {"global_model/w": ("F32", (3,))}


def test_truth_is_found_whether_or_not_a_file_system_keeps_accents_apart(tmp_path: Path) -> None:
    subject = RecordedSubject(title="a", examples=ExampleLayout(classes=["a", "b"], shape=[1, 8, 8]))
    (tmp_path / "truth").mkdir()
    apart = unicodedata.normalize("NFD", "Zürich")
    np.savez(tmp_path / "truth" / f"{apart}.npz", x=np.zeros((3, 1, 8, 8), np.uint8), y=np.array([0, 1, 1]))
    found = load_truth(tmp_path / "truth", subject, {"client/4": "Zürich"})
    assert found.owner.tolist() == [4, 4, 4] and apart != "Zürich"
    with pytest.raises(UserError, match="no client of the inbox has that name"):
        load_truth(tmp_path / "truth", subject, {"client/4": "Zurich"})


def test_pictures_in_folders_say_the_shape_and_the_classes_of_a_first_subject(tmp_path: Path) -> None:
    one = INBOXES["orders: truth as folders of pictures, metrics that are words and no numbers, one example"]
    one.write(tmp_path)
    text = write_first_subject(tmp_path / "inbox", tmp_path / "truth")
    assert 'classes: ["0", "1", "2", ' in text and "# seen: folders of truth" in text and "[1, 8, 8]" in text
    Image.new("RGB", (9, 7)).save(tmp_path / "c.png")
    for path in (tmp_path / "truth").glob("*/*/*.png"):
        shutil.copy(tmp_path / "c.png", path)
    assert "shape: [3, 7, 9]" in write_first_subject(tmp_path / "inbox", tmp_path / "truth")


def test_a_server_that_reads_what_clients_hand_on_is_asked_about_it() -> None:
    line = {"traffic": "local_model", "round": 3, "channel": "relay", "sender": "client", "senders": 5}
    line |= {"messages": 5, "bytes": 50}
    open_, shut = (read_traffic([line | {"seen_by": who}]) for who in (["client", "server"], ["client"]))
    assert Reach(Position.SERVER, Kind.LOCAL_MODEL) in open_.paths
    assert Reach(Position.SERVER, Kind.LOCAL_MODEL) not in shut.paths
    assert Reach(Position.NEXT_CLIENT, Kind.LOCAL_MODEL) in shut.paths
