"""Options of a recorded federation: its messages passed through protections, and attacked anew."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.phases import import_
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, state_inbox
from fedaudit.audit.planning.options import MOST_COPIES
from fedaudit.audit.review.review import review
from fedaudit.audit.settings.config import Config, load
from fedaudit.audit.verdict.limits import SUMS_BELIEVED
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.protections.prototype_threshold import PrototypeThreshold
from fedaudit.fl.recording.recorder import manifest, read
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult
from tests.audit.importing.inboxes import INBOXES
from tests.audit.importing.test_inboxes import state, take
from tests.audit.importing.theirs import EXAMPLE, brought

PHASES = ["import", "attack", "account", "score", "report"]
NOISE = {"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 0.05}
VARIANTS = [
    {"name": "noise", "protections": [NOISE]},
    {"name": "sums", "protections": [{"name": "withhold", "kinds": ["local_loss"]}, "secure_aggregation"]},
]


def silent(*_: Any) -> None:
    pass


def with_variants(config: Config, variants: Any) -> Config:
    return Config.model_validate(config.model_dump() | {"variants": variants, "workers": 0})


@pytest.fixture(scope="module")
def optioned(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Config]:
    run, config, _ = brought(tmp_path_factory.mktemp("options"))
    config = with_variants(config, VARIANTS)
    WholeAudit(run, config).execute(PHASES, silent)
    return run, config


def result_of(run: RunDir) -> AuditResult:
    return AuditResult.model_validate_json(run.audit.read_bytes())


def uploads(run: RunDir) -> dict[tuple[int, str], dict[str, np.ndarray]]:  # type: ignore[type-arg]
    found = read(run.artifacts, lambda line: line["channel"] == Channel.UPLINK, (Kind.LOCAL_MODEL,))
    return {(a.round, str(a.sender)): dict(a.payload) for a in found}


def variant(run: RunDir, name: str) -> RunDir:
    return RunDir(run.path / "variants" / name)


@pytest.mark.nightly
def test_uploads_are_clipped_and_noised_and_broadcasts_stay(optioned: tuple[RunDir, Config]) -> None:
    run, _ = optioned
    before, after = uploads(run), uploads(variant(run, "noise"))
    assert before.keys() == after.keys()
    start = {a.round: a.payload for a in read(run.artifacts, kinds=(Kind.GLOBAL_MODEL,))}
    rest = {a.round: a.payload for a in read(variant(run, "noise").artifacts, kinds=(Kind.GLOBAL_MODEL,))}
    assert start.keys() == rest.keys()
    assert all(np.array_equal(start[t][n], rest[t][n]) for t in start for n in start[t])
    for (t, _), arrays in after.items():
        moved = np.concatenate([(v - start[t][n]).ravel() for n, v in arrays.items()])
        # a norm of at most 1 for the change, and noise of standard deviation .05 on each number
        assert np.linalg.norm(moved) == pytest.approx(np.hypot(1, 0.05 * np.sqrt(len(moved))), rel=0.25)


def test_under_secure_sums_the_server_reads_what_the_recorded_uploads_add_up_to(
    optioned: tuple[RunDir, Config],
) -> None:
    run, _ = optioned
    own = list(manifest(variant(run, "sums").artifacts))
    single = [x for x in own if "message" in x and Kind.LOCAL_MODEL in x["kinds"] and x["channel"] == "uplink"]
    assert single and all(x["seen_by"] == [] for x in single)
    sums = read(variant(run, "sums").artifacts, kinds=(Kind.AGGREGATE,))
    before = uploads(run)
    counts = read(run.artifacts, kinds=(Kind.NUM_EXAMPLES,))
    weight = {(a.round, str(a.sender)): float(a.payload["count"]) for a in counts}
    assert {a.round for a in sums} == {t for t, _ in before}
    for a in sums:
        name = next(n for n in a.payload if n.startswith("local_model/"))
        rows = [
            weight[key] * v[name.partition("/")[2]].astype("f8") for key, v in before.items() if key[0] == a.round
        ]
        assert np.allclose(a.payload[name], np.sum(rows, 0), rtol=1e-5)


def test_each_option_has_an_audit_of_its_own_and_no_accuracy_is_invented(optioned: tuple[RunDir, Config]) -> None:
    run, _ = optioned
    result = result_of(run)
    main, *rows = result.alternatives
    assert [r.name for r in rows] == ["noise", "sums"] and all(r.finished and r.word for r in rows)
    assert all(r.accuracy is None and not r.recommended and r.why_not for r in rows)
    assert result.recommendation.startswith("None recommended.")
    own = result_of(variant(run, "noise"))
    assert own.imported is not None and own.imported.checks[-1].id == "option"
    assert "passed through them here" in own.imported.checks[-1].text
    assert main.recommended is False and main.why_not == ""


def test_that_a_server_elsewhere_works_on_sums_is_believed_and_said(optioned: tuple[RunDir, Config]) -> None:
    run, _ = optioned
    assert SUMS_BELIEVED in result_of(variant(run, "sums")).limits
    assert SUMS_BELIEVED not in result_of(variant(run, "noise")).limits


def test_attacks_are_chosen_anew_for_what_a_protection_leaves(optioned: tuple[RunDir, Config]) -> None:
    run, _ = optioned
    assert "sum_difference" in {f.id for f in result_of(variant(run, "sums")).findings}
    assert "sum_difference" not in {f.id for f in result_of(variant(run, "noise")).findings}


def test_a_reviewer_finds_the_same_and_a_second_run_repeats_nothing(optioned: tuple[RunDir, Config]) -> None:
    run, config = optioned
    kept = {p: p.stat().st_mtime_ns for p in run.path.rglob("*") if p.is_file()}
    WholeAudit(run, config).execute(PHASES, silent)
    assert {p: p.stat().st_mtime_ns for p in kept} == kept
    assert review(run, config).result.alternatives == result_of(run).alternatives


def test_a_copy_that_was_cut_short_is_made_again_to_the_same_bytes(
    optioned: tuple[RunDir, Config], tmp_path: Path
) -> None:
    run, config = optioned
    shutil.copytree(run.path, tmp_path / "run")
    broken = variant(RunDir(tmp_path / "run"), "noise")
    (broken.path / "inbox.json").unlink()
    (broken.artifacts / "manifest.jsonl").write_bytes(b'{"half a li')
    WholeAudit(RunDir(tmp_path / "run"), config).execute(PHASES, silent)
    for name in ("artifacts/manifest.jsonl", "ledger.jsonl"):
        assert (broken.path / name).read_bytes() == (variant(run, "noise").path / name).read_bytes()


def test_protections_are_chosen_by_what_was_demonstrated(optioned: tuple[RunDir, Config]) -> None:
    run, config = optioned
    chosen = Variants(run, with_variants(config, "auto")).list_variants()
    assert 3 <= len(chosen) <= MOST_COPIES and len({v.name for v in chosen}) == len(chosen)
    shown = [f for f in result_of(run).findings if f.source == "attack" and f.outcome == "ran"]
    assert shown and {"secure-aggregation", "dp-gaussian"} == {v.name for v in chosen[:2]}
    rounding = next(v for v in chosen if v.name == "quantise")
    assert rounding.protections[-1].settings == {"kinds": ["local_model"], "bits": 3}


def test_thresholds_are_tried_where_counts_say_how_many_are_behind_a_prototype() -> None:
    rule = PrototypeThreshold(PrototypeThreshold.Config())
    assert rule.refuses([Kind.LOCAL_PROTOTYPES, Kind.PROTO_COUNTS]) == ""
    assert "how many examples" in rule.refuses([Kind.LOCAL_PROTOTYPES])
    one = INBOXES["page: prototypes alone"]
    with tempfile.TemporaryDirectory() as folder:
        one.write(Path(folder))
        run, config, _ = take(Path(folder), one, state(Path(folder), one))
        config = Config.model_validate(config.model_dump() | {"attacks": ["count_recovery"], "variants": "auto"})
        execute(run, config, ["attack", "account"], silent, skip_finished=True)
        assert "prototype_threshold" in {p.name for p in Variants(run, config).list_proposals()}


def test_recorded_messages_cannot_be_protected_in_place_and_clients_cannot_be_changed(tmp_path: Path) -> None:
    run, config, _ = brought(tmp_path)
    changed = Config.model_validate(config.model_dump() | {"protections": ["secure_aggregation"]})
    with pytest.raises(UserError, match="recorded messages are what they are"):
        import_.run(run, changed, silent)
    with pytest.raises(UserError, match="changes how clients train"):
        with_variants(config, [{"name": "a", "method": {"lr": 1}}])


def test_the_config_of_a_copy_can_be_loaded(optioned: tuple[RunDir, Config]) -> None:
    run, _ = optioned
    assert [p.name for p in load(variant(run, "noise").config).protections] == ["dp_gaussian"]


def test_an_import_measures_options_unless_its_config_says_otherwise() -> None:
    inbox, subject = EXAMPLE / "inbox", EXAMPLE / "subject.yaml"
    assert state_inbox(ImportSources(inbox=inbox, subject=subject), {})[0].variants is None
    assert state_inbox(ImportSources(inbox=inbox, subject=subject), {"variants": []})[0].variants == ()
