"""A clean federation can be called ready, and the same one with too little noise or a hidden image cannot."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.evidence.phase import PHASES
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.reports.decision import Word
from fedaudit.reports.questions import State
from fedaudit.reports.result import AuditResult

CLEAN: dict[str, Any] = {
    "federation": {
        "dataset": "digits",
        "clients": 4,
        "partition": "iid",
        "availability": "full",
        "model": {"name": "mlp", "hidden": [16]},
        "holdout": {"auxiliary": 0.2, "reference": 0.4},
    },
    "method": {"name": "fedavg", "rounds": 1, "local_epochs": 1, "batch_size": 20, "weighting": "uniform"},
    "protections": [{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 30.0}],
    "record": "all",
    "attacks": ["hidden_images"],
    "workers": 0,
}


PANEL = [
    *("hidden_images", "analytic", "played_message", "played_facts", "rmia"),
    *("label_counts_from_update", "label_counts_from_gradient"),
]


HIDDEN: dict[str, Any] = {
    "attacks": PANEL,
    "protections": [{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 100.0}],
}


def audit(folder: Path, **changes: Any) -> AuditResult:
    config = validate(Config, CLEAN | changes, "test")
    run = RunDir.create(folder / "run")
    names = [p.name for p in PHASES if p.name != "report"]
    execute(run, config, names, lambda *_: None, skip_finished=True)
    return read_result(run.path)


def test_no_noise_buys_a_word_for_whoever_leaves_the_panel_out(tmp_path: Path) -> None:
    """Epsilon hides everybody, and stands in for no attack that did not run."""
    result = audit(tmp_path)
    assert result.decision is not None and result.decision.word is Word.CANNOT_TELL, result.decision
    by_id = {q.id: q for q in result.questions}
    assert by_id["exact_record.server"].next_attack == "played_message"
    membership = by_id["membership.server"]
    assert membership.is_open and "left out" in membership.why and membership.next_attack
    assert result.policy.panel == 7 and len(result.policy.panel_sha256) == 64


@pytest.mark.nightly
def test_a_federation_whose_noise_hides_everybody_is_ready_where_the_whole_panel_ran(tmp_path: Path) -> None:
    """Epsilon .03 per client leaves 3 % of what one bit about a client is guessed by, where 5 % are tolerable."""
    result = audit(tmp_path, **HIDDEN)
    assert result.decision is not None and result.decision.word is Word.READY, result.decision
    required = [q for q in result.questions if q.required]
    assert required and all(q.state is State.CLEAR and q.at_least == 0 for q in required)
    assert "Ready for these 4 clients and this run" in result.decision.sentence
    assert "by the attacks of panel 7" in result.decision.sentence


SEEDS = range(101, 111)  # named before the first run


@pytest.mark.nightly
def test_of_ten_clean_federations_with_other_clients_and_methods_at_least_six_are_ready(tmp_path: Path) -> None:
    methods: list[dict[str, Any]] = [{"name": name} for name in ("fedavg", "fedprox", "fedrs")]
    methods += [{"name": "fedopt", "server": server} for server in ("momentum", "adam")]
    words = []
    for seed in SEEDS:
        method = {**CLEAN["method"], **methods[seed % len(methods)]}
        federation = {**CLEAN["federation"], "clients": 3 + seed % 4}
        changes = HIDDEN | {"seed": seed, "method": method, "federation": federation}
        decision = audit(tmp_path / str(seed), **changes).decision
        assert decision is not None
        words.append(decision.word)
        print(seed, method["name"], federation["clients"], decision.sentence)
    assert words.count(Word.READY) >= 6 and Word.NOT_READY not in words, words


@pytest.mark.dear("an image in a bias", "too little noise")
@pytest.mark.parametrize(
    "changes",
    [
        {"protections": [{"name": "dp_gaussian", "clip_norm": 1.0, "noise_multiplier": 0.3}]},
        {"attacks": []},
        {
            "protections": [],
            "method": {**CLEAN["method"], "name": "tests.leaks.methods:ImageInBias"},
            "federation": {**CLEAN["federation"], "model": "small_cnn"},
        },
    ],
    ids=["too little noise", "nobody looked", "an image in a bias"],
)
def test_the_same_federation_with_one_thing_wrong_is_not(tmp_path: Path, changes: dict[str, Any]) -> None:
    decision = audit(tmp_path, **changes).decision
    assert decision is not None and decision.word in (Word.CANNOT_TELL, Word.NOT_READY), decision.sentence
