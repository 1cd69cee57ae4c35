"""Options of a simulation: which protections are tried, with which attacks, and what the audit says of them."""

from pathlib import Path
from typing import Any

import pytest

from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.evidence.variants import Variants
from fedaudit.audit.experiments.whole_audit import WholeAudit
from fedaudit.audit.planning import options
from fedaudit.audit.planning.choice import choose, choose_anew
from fedaudit.audit.settings import catalog
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.fl.artifact import Channel
from fedaudit.fl.clients.delivery import Deliveries
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.rebafl import ReBaFL
from fedaudit.fl.model import State
from fedaudit.fl.protections.dp_gaussian import DPGaussian
from fedaudit.fl.recording.recorder import read
from fedaudit.fl.runtime.tree import Tree
from fedaudit.fl.threats.threat import Aim
from fedaudit.fl.wire.protection import Uploads
from fedaudit.reports.result import AuditResult
from tests.audit.tiny import SMALL

PHASES = ["simulate", "attack", "account", "matrix", "score", "report"]
TEXT: dict[str, Any] = {
    "federation": SMALL,
    "method": {"name": "rebafl", "rounds": 2, "local_epochs": 1},
    "workers": 0,
    "replay": {"sizes": [1, 5], "clients": 2, "groups": 10},
    "attacks": ["count_recovery", {"name": "prototype_membership", "least_auxiliary": 5}],
    "noise_audit": False,
    "report": ["json"],
    "variants": "auto",
}


class Largest(ReBaFL):
    """Takes the model of the client with most examples."""

    def combine(self, state: Tree, deliveries: Deliveries, round: int) -> Tree:
        models: dict[int, State] = {}
        noted = deliveries.noting(lambda d: models.update({d.examples: d.message[Kind.LOCAL_MODEL]}))
        new: Tree = super().combine(state, noted, round)
        return new | {"model": models[max(models)]}


def silent(*_: Any) -> None:
    pass


def run(folder: Path, **changes: Any) -> tuple[RunDir, Config]:
    made, config = RunDir.create(folder), Config.model_validate(TEXT | changes)
    WholeAudit(made, config).execute(PHASES, silent)
    return made, config


def result_of(made: RunDir) -> AuditResult:
    return AuditResult.model_validate_json(made.audit.read_bytes())


@pytest.fixture(scope="module")
def optioned(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Config]:
    return run(tmp_path_factory.mktemp("options") / "run")


@pytest.mark.nightly
def test_what_is_tried_answers_attacks_that_hit_more_than_luck_has_it(optioned: tuple[RunDir, Config]) -> None:
    made, config = optioned
    result = result_of(made)
    said = [made.read_json(path) for path in made.evidence.glob("[0-9]*.json")]
    shown = {
        Aim(e["card"]["aim"]) for e in said if any(len(rows) for p in e["people"] for rows in p["hit"].values())
    }
    tried = Variants(made, config).list_variants()
    assert shown and 1 <= len(tried) <= options.MOST
    for variant in tried:
        cls = catalog.load("protections", variant.protections[0].name)
        assert cls.answers & shown
    assert [r.name for r in result.alternatives] == ["as audited", *(v.name for v in tried)]
    assert all(r.finished and r.word is not None for r in result.alternatives)


def test_attacks_are_chosen_by_what_a_variant_sends(optioned: tuple[RunDir, Config]) -> None:
    made, config = optioned
    variant = next(v for v in Variants(made, config).list_variants() if v.name == "secure-aggregation")
    names = [a.name for a in Variants(made, config).configure(variant).attacks or ()]
    # the server reads sums: those that the audited run tried read them as uploads, and one is about sums alone
    assert names == ["count_recovery", "prototype_membership", "sum_difference"]
    own = result_of(RunDir(made.path / "variants" / variant.name))
    assert [f.id for f in own.findings if f.source == "attack"] == names


def test_an_attack_that_reads_nothing_of_what_a_variant_sends_is_not_repeated() -> None:
    attacks = ["count_recovery", "prototype_difference"]  # the latter tells single uploads from each other
    made = Config.model_validate(TEXT | {"attacks": attacks, "protections": ["secure_aggregation"]})
    choice = choose(made, SimulatedCase(made))
    assert [a.name for a in choose_anew(choice, made.budget)] == ["count_recovery", "sum_difference"]


def test_auto_stays_auto_in_a_variant(optioned: tuple[RunDir, Config]) -> None:
    made, config = optioned
    auto = Config.model_validate(TEXT | {"attacks": "auto"})
    variant = Variants(made, config).list_variants()[0]
    assert Variants(made, auto).configure(variant).attacks is None


def test_an_option_that_the_federation_refuses_when_it_runs_is_one_less(tmp_path: Path) -> None:
    method = TEXT["method"] | {"name": "tests.audit.planning.test_options:Largest"}
    made, config = run(tmp_path / "run", method=method, attacks=["count_recovery"])
    result = result_of(made)
    assert "secure-aggregation" in [v.name for v in Variants(made, config).list_variants()]
    [refused] = [r for r in result.alternatives if r.name == "secure-aggregation"]
    assert not refused.finished and result.decision is not None
    assert any(r.finished for r in result.alternatives if r.name not in ("as audited", refused.name))


def test_where_nothing_is_demonstrated_nothing_is_tried(tmp_path: Path) -> None:
    made, config = run(tmp_path / "run", attacks=[])
    assert Variants(made, config).list_variants() == () and result_of(made).alternatives == []


def test_a_budget_without_room_tries_nothing_more(optioned: tuple[RunDir, Config]) -> None:
    made, config = optioned
    none = Config.model_validate(config.model_dump() | {"budget": 0})
    assert Variants(made, none).propose_variants() == ()


@pytest.mark.nightly
def test_any_number_of_workers_gives_the_same_options(optioned: tuple[RunDir, Config], tmp_path: Path) -> None:
    made, _ = optioned
    other, _ = run(tmp_path / "run", workers=2)
    assert result_of(made).alternatives == result_of(other).alternatives
    assert result_of(made).recommendation == result_of(other).recommendation
    for name in ("artifacts/manifest.jsonl", "metrics.jsonl"):
        for variant in (made.path / "variants").iterdir():
            assert (variant / name).read_bytes() == (other.path / "variants" / variant.name / name).read_bytes()


@pytest.mark.nightly
def test_a_run_that_was_stopped_among_its_options_goes_on_to_the_same_end(
    optioned: tuple[RunDir, Config], tmp_path: Path
) -> None:
    class Stopped(BaseException):
        pass

    def stop(phase: str, at: int, total: int) -> None:
        if phase == "secure-aggregation: attack":
            raise Stopped

    whole, config = optioned
    made = RunDir.create(tmp_path / "run")
    with pytest.raises(Stopped):
        WholeAudit(made, config).execute(PHASES, stop)
    assert not made.audit.exists() and (made.path / "variants").is_dir()
    WholeAudit(made, config).execute(PHASES, silent)
    assert result_of(made).alternatives == result_of(whole).alternatives
    assert result_of(made).recommendation == result_of(whole).recommendation


def test_the_last_round_keeps_which_answers_were_right(optioned: tuple[RunDir, Config]) -> None:
    made, _ = optioned
    *before, last = made.history()
    bits = "".join(f"{byte:08b}" for byte in bytes.fromhex(last["correct"]))[:20]  # of 20 test examples
    assert bits.count("1") / 20 == pytest.approx(last["accuracy"])
    assert all("correct" not in record for record in before)


def test_norms_are_those_of_the_recorded_rows(optioned: tuple[RunDir, Config]) -> None:
    made, _ = optioned
    found = read(made.artifacts, lambda x: x["channel"] == Channel.UPLINK, (Kind.LOCAL_PROTOTYPES,))
    latest = max(a.round for a in found)
    rows = sorted(
        float((row.astype("f8") ** 2).sum() ** 0.5)
        for a in found
        if a.round == latest
        for row in a.payload["features"]
    )
    norm = options._measure_norms(made.artifacts, {Kind.LOCAL_PROTOTYPES})[Kind.LOCAL_PROTOTYPES]
    middle = (rows[(len(rows) - 1) // 2] + rows[len(rows) // 2]) / 2
    assert norm == float(f"{middle:.2g}")
    assert options._measure_norms(made.artifacts, set()) == {}


def test_a_protection_is_fitted_to_the_uploads_it_is_tried_on() -> None:
    rows = Uploads(kinds=(Kind.LOCAL_PROTOTYPES,), classes=7, norms={Kind.LOCAL_PROTOTYPES: 3.0})
    assert DPGaussian.propose(rows) == {
        "kinds": ["local_prototypes"],
        "clip_norm": 3.0,
        "noise_multiplier": 0.5,
        "clip": "row",
        "most_rows": 7,
    }
    assert DPGaussian.propose(Uploads(kinds=(Kind.NUM_EXAMPLES,), classes=7, norms={})) is None


def test_every_protection_that_answers_an_aim_proposes_settings_that_are_valid() -> None:
    norms = dict.fromkeys(Kind, 2.0)
    able = [n for n in catalog.names("protections") if catalog.load("protections", n).answers]
    assert able
    for name in able:
        cls = catalog.load("protections", name)
        assert cls.answers <= set(Aim)
        settings = cls.propose(Uploads(kinds=tuple(Kind), classes=10, norms=norms))
        assert settings is not None
        catalog.settings("protections", name, settings, "here")  # raises where one is wrong
        assert cls.propose(Uploads(kinds=(), classes=10, norms={})) is None


def test_auto_resolves_and_loads_again(tmp_path: Path) -> None:
    once = resolve(Config.model_validate(TEXT))
    assert once["variants"] == "auto"
    (tmp_path / "c.yaml").write_text(dump(once))
    assert Config.model_validate(once).variants is None
