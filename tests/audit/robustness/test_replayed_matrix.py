"""Uploads of a recorded round, some of them forged, through the mean and through other rules."""

import dataclasses
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.experiments.matrix import replay_round
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, state_inbox
from fedaudit.audit.robustness.matrix_findings import list_matrix_findings
from fedaudit.audit.robustness.plan import ServerRule
from fedaudit.audit.robustness.recorded_round import RecordedRound, find_round
from fedaudit.audit.robustness.replayed_matrix import configure_rule, count_replays, make_attacker, replay
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.matrix import Matrix
from fedaudit.audit.verdict.policy import load_policy
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.result import AuditResult, Severity
from fedaudit.reports.robustness import Robustness
from fedaudit.reports.section import Paragraph, Table
from fedaudit.reports.sections.robustness import RobustnessSection
from tests.audit.importing.inboxes import INBOXES, write_message
from tests.audit.importing.test_inboxes import state, take

CHANGES = ([0, 1], [1, 0], [1, 1], [2, 1], [1, 2])  # mean (1, 1), median (1, 1)
SPREAD = np.sqrt(4 / 5)  # four of them are 1 from their mean, one is 0
MEAN = ServerRule(name="mean")
MEDIAN = ServerRule(name="median", aggregator={"name": "median"})
FLIP = {"name": "sign_flip", "scale": 10.0}
POLICY = load_policy("default")
SUBJECT = {"title": "By hand", "examples": {"classes": ["a", "b"], "shape": [2]}}


def by_hand(folder: Path, *, seen_by: Any = ("server",), kind: str = "local_model") -> RecordedCase:
    start = np.array([3.0, 4.0], np.float32)
    write_message(
        folder, "r0/down", 0, "downlink", "server", ["server", "client"], {"global_model": {"w": start}}
    )
    for k, change in enumerate(CHANGES):
        sent = start + np.array(change, np.float32) if kind == "local_model" else np.array([change], np.float32)
        arrays = {"w": sent} if kind == "local_model" else {"classes": np.array([0]), "features": sent}
        write_message(folder, f"r0/c{k}", 0, "uplink", f"client/{k}", seen_by, {kind: arrays})
    return RecordedCase(Config.model_validate({"subject": SUBJECT}), folder)


def combine(here: RecordedRound, rule: ServerRule, malicious: int) -> dict[str, torch.Tensor]:
    made = configure_rule(rule, here)
    forged, _ = here.forge(make_attacker(FLIP), here.draw_clients(malicious), made)
    return dict(here.combine(made, forged))


def test_with_nobody_malicious_not_a_bit_is_another(tmp_path: Path) -> None:
    here = find_round(by_hand(tmp_path))
    forged, notes = here.forge(make_attacker(FLIP), [], configure_rule(MEAN, here))
    assert notes == {} and forged.keys() == here.messages.keys()
    for k, message in here.messages.items():
        assert all(torch.equal(v, forged[k][kind][n]) for kind, own in message.items() for n, v in own.items())
    assert torch.equal(combine(here, MEAN, 0)["w"], torch.tensor([4.0, 5.0]))


def test_one_of_five_moves_the_mean_as_far_as_computed_by_hand_and_the_median_not_at_all(tmp_path: Path) -> None:
    here = find_round(by_hand(tmp_path))
    forged, _ = here.forge(make_attacker(FLIP), here.draw_clients(1), configure_rule(MEAN, here))
    (who,) = [k for k, m in forged.items() if m is not here.messages[k]]
    length = np.linalg.norm(CHANGES[who])
    assert here.spread == pytest.approx(SPREAD)
    moved = here.measure_displacement(combine(here, MEAN, 1), combine(here, MEAN, 0))
    assert moved == pytest.approx(11 * length / 5 / SPREAD)  # from d to -10 d, a fifth of the mean
    assert here.measure_displacement(combine(here, MEDIAN, 1), combine(here, MEDIAN, 0)) == 0


def test_more_malicious_clients_contain_fewer(tmp_path: Path) -> None:
    here = find_round(by_hand(tmp_path))

    def who(malicious: int) -> set[int]:
        forged, _ = here.forge(make_attacker(FLIP), here.draw_clients(malicious), configure_rule(MEAN, here))
        return {k for k, m in forged.items() if m is not here.messages[k]}

    assert [len(who(m)) for m in range(5)] == [0, 1, 2, 3, 4]
    assert who(1) < who(2) < who(3) < who(4)


@pytest.mark.parametrize(
    ("rule", "malicious", "sentence"),
    [
        ({"name": "krum", "f": 2}, 1, "Krum as set needs 5 uploads"),
        ({"name": "bulyan"}, 1, "Bulyan as set needs 7 uploads, and the round has 5"),
        ({"name": "fltrust"}, 1, "an update of the server's own"),
        ({"name": "median"}, 5, "5 malicious clients, and 5 were heard"),
    ],
)
def test_what_a_rule_cannot_do_is_said_and_the_others_are_measured(
    rule: dict[str, Any], malicious: int, sentence: str, tmp_path: Path
) -> None:
    matrix = Matrix.model_validate({"adversaries": [FLIP], "aggregators": [rule], "malicious": [malicious]})
    made = replay(find_round(by_hand(tmp_path)), matrix, 7)
    reasons = " ".join(n.reason for n in made.not_run)
    if rule["name"] == "krum":
        assert not reasons and {d.rule for d in made.displaced} == {"mean", "krum"}
    else:
        assert sentence in reasons and {d.rule for d in made.displaced} <= {"mean"}


START = {"w": np.array([3.0, 4.0], np.float32)}
UPLOADS = [{"w": START["w"] + np.array(c, np.float32)} for c in CHANGES]
ODD: dict[str, tuple[Any, Any, Any]] = {  # start, uploads, the count that client 0 claims
    "a model of another shape": ({"w": np.zeros(5, np.float32)}, UPLOADS, 3),
    "a model that would be stretched": ({"w": np.zeros(1, np.float32)}, UPLOADS, 3),
    "parts of a model": (START, [{"w": u["w"][:1]} for u in UPLOADS], 3),
    "codes": (START, [{"w": u["w"].astype(np.int8)} for u in UPLOADS], 3),
    "bits": (START, [{"w": u["w"] > 4} for u in UPLOADS], 3),
    "counts below nothing": (START, UPLOADS[:2], -3),
    "counts of nothing": (START, UPLOADS[:2], 0),
}


@pytest.mark.parametrize("name", ODD)
def test_uploads_that_no_rule_can_compare_are_left_out_with_a_sentence(name: str, tmp_path: Path) -> None:
    start, uploads, count = ODD[name]
    write_message(tmp_path, "down", 0, "downlink", "server", ["server", "client"], {"global_model": start})
    for k, arrays in enumerate(uploads):
        claim = {"num_examples": {"count": np.array(3 if k else count)}}
        write_message(
            tmp_path, f"c{k}", 0, "uplink", f"client/{k}", ("server",), {"local_model": arrays, **claim}
        )
    case = RecordedCase(Config.model_validate({"subject": SUBJECT}), tmp_path)
    matrix = Matrix.model_validate({"adversaries": [FLIP], "aggregators": ["median"]})
    made = replay_round(partial(find_round, case), 5, matrix, 7, lambda *_: None)
    assert not made.displaced and len(made.not_run) == 1 and "round 0" in made.not_run[0].reason


def test_what_the_server_would_reject_is_in_no_aggregate(tmp_path: Path) -> None:
    write_message(tmp_path, "down", 0, "downlink", "server", ["server", "client"], {"global_model": START})
    for k, arrays in enumerate(UPLOADS):
        claim = {"num_examples": {"count": np.array(3 if k else -3)}}
        write_message(
            tmp_path, f"c{k}", 0, "uplink", f"client/{k}", ("server",), {"local_model": arrays, **claim}
        )
    here = find_round(RecordedCase(Config.model_validate({"subject": SUBJECT}), tmp_path))
    assert sorted(here.messages) == [1, 2, 3, 4]
    forged, _ = here.forge(
        make_attacker({"name": "sign_flip", "scale": 1e39}), here.draw_clients(1), configure_rule(MEAN, here)
    )
    assert len(forged) == 3 and bool(torch.isfinite(here.combine(configure_rule(MEAN, here), forged)["w"]).all())


def test_clients_weigh_alike_where_one_of_them_claims_nothing(tmp_path: Path) -> None:
    write_message(tmp_path, "down", 0, "downlink", "server", ["server", "client"], {"global_model": START})
    for k, arrays in enumerate(UPLOADS):
        claim = {"num_examples": {"count": np.array(100)}} if k else {}
        write_message(
            tmp_path, f"c{k}", 0, "uplink", f"client/{k}", ("server",), {"local_model": arrays, **claim}
        )
    here = find_round(RecordedCase(Config.model_validate({"subject": SUBJECT}), tmp_path))
    assert here.weights_in_words == "each alike"
    assert torch.equal(here.combine(configure_rule(MEAN, here), here.messages)["w"], torch.tensor([4.0, 5.0]))


def test_forgers_that_need_training_sums_and_prototypes_are_refused_with_a_sentence(tmp_path: Path) -> None:
    matrix = Matrix.model_validate({"adversaries": ["label_flip", "prototype_poison"], "aggregators": ["median"]})
    made = replay(find_round(by_hand(tmp_path / "models")), matrix, 7)
    reasons = [n.reason for n in made.not_run]
    assert any("recorded uploads are not made again" in r for r in reasons)
    assert any("forges local_prototypes" in r for r in reasons)
    made = replay(find_round(by_hand(tmp_path / "hidden", seen_by=())), matrix, 7)
    assert any("the server sees sums of them alone" in n.reason for n in made.not_run)
    assert {d.rule for d in made.displaced} == {"mean"}  # which any client can pull, summed or not
    find = partial(find_round, by_hand(tmp_path / "prototypes", kind="local_prototypes"))
    made = replay_round(find, 4, matrix, 7, lambda *_: None)
    assert made.displaced == [] and "Clients sent local_prototypes" in made.not_run[0].reason


def test_keys_of_runs_are_refused_for_a_record() -> None:
    matrix = {"adversaries": [FLIP], "seeds": [1, 2]}
    with pytest.raises(UserError, match=r"matrix\.seeds belongs to a simulated case"):
        Config.model_validate({"subject": SUBJECT, "matrix": matrix})
    with pytest.raises(UserError, match=r"matrix\.adversaries is missing: of a recorded federation attacks"):
        Config.model_validate({"subject": SUBJECT, "matrix": {"availabilities": ["bernoulli"]}})


def test_an_import_replays_where_its_config_asks_for_it() -> None:
    from tests.audit.importing.theirs import EXAMPLE

    inbox, subject = EXAMPLE / "inbox", EXAMPLE / "subject.yaml"
    sources = ImportSources(inbox=inbox, subject=subject)
    assert state_inbox(sources, {}, trust=True)[0].matrix is None
    asked = {"adversaries": [FLIP], "malicious": [1]}
    assert state_inbox(sources, {"matrix": asked}, trust=True)[0].matrix == Matrix.model_validate(asked)


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Config]:
    folder = tmp_path_factory.mktemp("replayed")
    one = INBOXES["page: BatchNorm, integer counters"]
    one.write(folder)
    run, config, _ = take(folder, one, state(folder, one))
    family = [{"name": "ipm", "tau": tau} for tau in (1.0, 6.0, 16.0)] + [{"name": "alie", "z": 8.0}]
    adaptive = {"name": "adaptive", "family": family}
    wanted = {"adversaries": [adaptive, FLIP], "aggregators": ["median"], "malicious": [1]}
    config = Config.model_validate(config.model_dump() | {"matrix": wanted, "attacks": []})
    execute(run, config, ["attack", "account", "matrix", "score"], lambda *_: None, skip_finished=True)
    return run, config


def read_result(run: RunDir) -> AuditResult:
    return AuditResult.model_validate_json(run.audit.read_bytes())


def test_an_import_has_a_verdict_on_forged_uploads_measured_on_examples_no_attacker_saw(
    audited: tuple[RunDir, Config],
) -> None:
    run, config = audited
    result = read_result(run)
    matrix = result.robustness
    assert matrix is not None and matrix.replayed is not None
    case = RecordedCase(config, run.artifacts, *run.find_truth())
    assert matrix.replayed.round == 2 and matrix.replayed.examples == len(case.examples.reference)
    found = {f.id: f for f in result.findings if f.source == "robustness"}
    mean = found["robustness-round-2-alone-mean"]
    assert mean.severity is Severity.HIGH
    planted = [c for c in matrix.planted if c.rule == "mean"]
    assert planted and planted[0].evidence[0].value > 0.05
    # what the optimising attacker nearly sent is a cell of its own, and the worst of them is what is quoted
    own = [c for c in matrix.cells if c.rule == "mean"]
    assert len(own) > 2 and f"{100 * max(c.evidence[0].value for c in own):.1f} points" in mean.summary


def test_no_sentence_claims_more_than_one_round(audited: tuple[RunDir, Config]) -> None:
    result = read_result(audited[0])
    denied = ("says nothing of further forged rounds", "more than one forged round", "costs with more rounds")
    texts = [
        t for f in result.findings if f.source == "robustness" for t in (f.title, f.summary, f.does_not_show)
    ]
    blocks = RobustnessSection().build(result)
    texts += [str(b.text) for b in blocks if isinstance(b, Paragraph)]
    texts += [b.caption for b in blocks if isinstance(b, Table)]
    assert len(texts) > 10
    for text in texts:
        for phrase in denied:
            text = text.replace(phrase, "")
        assert not re.search(r"\brounds\b|training round|slows", text), text
    assert all("round 2 alone" in f.summary for f in result.findings if f.id.startswith("robustness-"))


def test_replays_are_the_same_bytes_each_time(audited: tuple[RunDir, Config]) -> None:
    run, config = audited
    assert config.matrix is not None
    again = replay(find_round(RecordedCase(config, run.artifacts, *run.find_truth())), config.matrix, config.seed)
    kept = Robustness.model_validate_json((run.evidence / "matrix.json").read_bytes())
    assert again.model_dump_json() == kept.model_dump_json()
    assert (
        count_replays(config.matrix, 5) == 5 + 4
    )  # nobody, the idle and two attacks a rule; on the mean a planted fault


def test_where_all_uploads_are_one_and_the_same_the_model_is_measured_all_the_same(
    audited: tuple[RunDir, Config],
) -> None:
    run, config = audited
    assert config.matrix is not None
    here = find_round(RecordedCase(config, run.artifacts, *run.find_truth()))
    alike = dataclasses.replace(here, messages=dict.fromkeys(here.messages, next(iter(here.messages.values()))))
    assert alike.spread == 0
    made = replay(alike, config.matrix, config.seed)
    assert len(made.cells) >= 4 and made.planted and made.displaced == []
    (missing,) = made.not_run
    assert missing.cells == ["how far the aggregate moved"] and "one and the same" in missing.reason
    found = {f.id for f in map(POLICY.rate, list_matrix_findings(made, 0.05))}
    assert "robustness-round-2-alone-mean" in found


def test_no_spread_and_no_model_is_nothing_measured_and_not_nothing_moved(tmp_path: Path) -> None:
    here = find_round(by_hand(tmp_path))
    alike = dataclasses.replace(here, messages=dict.fromkeys(here.messages, here.messages[0]))
    made = replay(alike, Matrix.model_validate({"adversaries": [FLIP], "malicious": [1]}), 7)
    summary = POLICY.rate(list_matrix_findings(made, 0.05)[0]).summary
    assert "nothing" not in summary and "was not measured" in summary


def test_where_no_model_can_be_measured_how_far_it_moved_is_all_that_is_said(tmp_path: Path) -> None:
    one = INBOXES["no truth"]
    one.write(tmp_path)
    run, config, _ = take(tmp_path, one, state(tmp_path, one))
    wanted = {"adversaries": [FLIP], "aggregators": ["median"], "malicious": [1]}
    config = Config.model_validate(config.model_dump() | {"matrix": wanted, "attacks": []})
    execute(run, config, ["attack", "account", "matrix", "score"], lambda *_: None, skip_finished=True)
    result = read_result(run)
    assert result.robustness is not None and result.robustness.cells == []
    (found,) = [f for f in result.findings if f.source == "robustness"]
    assert found.severity is Severity.NONE and "in spreads of the recorded uploads" in found.summary
    assert "own.npz" in found.reason
    mean, median = (
        [d.spreads for d in result.robustness.displaced if d.rule == r][-1] for r in ("mean", "median")
    )
    assert mean > 3 * median > 0
