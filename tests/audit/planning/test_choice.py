"""Which attacks run: a list as it is, `auto` what applies and fits, and nothing that never can."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.audit.cli.main import app
from fedaudit.audit.observer.reach import ObservedTraffic
from fedaudit.audit.planning.choice import (
    LEAST_SECONDS,
    AttackChoice,
    Credit,
    _fit_budget,
    choose,
    give_credits,
    rank_attacks,
    refuse_impossible,
)
from fedaudit.audit.planning.efforts import DIGITS, estimate_seconds
from fedaudit.audit.settings.config import Config, SimulatedConfig, load
from fedaudit.audit.settings.controls import Replay
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.resolve import dump, resolve
from fedaudit.audit.verdict.scene import Scene, list_questions
from fedaudit.fl.artifact import Channel
from fedaudit.fl.kinds import Kind
from fedaudit.fl.runtime.errors import UserError
from tests.audit.verdict.scenes import CARDS, DEMANDS, IMAGES

FEDERATION = {"dataset": "digits", "clients": 4}


def config(method: str, **more: Any) -> Config:
    return validate(Config, {"federation": FEDERATION, "method": method, **more}, "")


def chosen(method: str, **more: Any) -> AttackChoice:
    made = config(method, **more)
    return choose(made, SimulatedCase(made))


def refuse(made: Config) -> None:
    assert isinstance(made, SimulatedConfig)
    case = SimulatedCase(made)
    timed = made.federation.is_timed
    refuse_impossible(case.card, timed, made.attacks, made.protections, case.protections)


def names(choice: AttackChoice) -> list[str]:
    return [s.name for s in choice.specs]


def test_a_config_without_the_key_plans_all_that_applies_and_a_list_stays() -> None:
    everything = chosen("fedavg", budget=100_000)
    assert {"lira", "count_recovery"} & set(names(everything)) == {"lira"}  # FedAvg sends no counts
    assert not everything.left and "ridge" in everything.others
    assert names(chosen("fedavg", attacks=["lira"])) == ["lira"]
    assert names(chosen("fedavg", attacks=[])) == []


def test_settings_that_are_written_out_as_they_come_are_no_settings_of_ones_own() -> None:
    """As the config of a run folder has them."""
    attacks: list[Any] = ["rmia", {"name": "lira", "shadows": 4}]
    for made in (
        config("fedavg", attacks=attacks),
        validate(Config, resolve(config("fedavg", attacks=attacks)), ""),
    ):
        found = choose(made, SimulatedCase(made))
        assert found.names == {"rmia": ("rmia", False), "lira": ("lira", True)}
        assert {"rmia", "lira", "ridge"} <= set(found.shipped)


def test_an_attack_that_is_asked_for_less_is_estimated_at_less() -> None:
    attacks = [{"name": "lira", "shadows": 4, "epochs": 5, "id": "short"}, {"name": "lira", "id": "usual"}]
    seconds = chosen("fedavg", attacks=attacks).seconds
    assert seconds["short"] == pytest.approx(seconds["usual"] / 16)


def test_the_key_survives_being_written_out(tmp_path: Path) -> None:
    assert (
        resolve(config("fedavg"))["attacks"] == "auto" and resolve(config("fedavg", attacks=[]))["attacks"] == []
    )
    (tmp_path / "c.yaml").write_text(dump(resolve(config("fedavg"))))
    assert load(tmp_path / "c.yaml").attacks is None


def test_what_does_not_fit_is_left_out_with_the_reason_and_each_artifact_comes_first() -> None:
    whole = chosen("rebafl", budget=100_000)
    total = sum(whole.seconds.values())
    half = chosen("rebafl", budget=total / 120)
    assert 0 < sum(half.seconds.values()) <= total / 2
    assert set(names(half)) | set(half.left) == set(names(whole)) and not set(names(half)) & set(half.left)
    assert all("minutes has no room" in why for why in half.left.values())
    assert {"count_recovery", "prototype_collusion"} <= set(names(half))  # alone on what they read


def make_traffic(*uploads: Kind) -> ObservedTraffic:
    return ObservedTraffic(kinds={Channel.UPLINK: uploads, Channel.DOWNLINK: (Kind.GLOBAL_MODEL,)})


def credit(traffic: ObservedTraffic) -> tuple[dict[str, list[Credit]], dict[str, float]]:
    """What every attack asks of such traffic, and what it costs."""
    scene = Scene(traffic=traffic, rounds={}, gives=IMAGES)
    cards = {n: c for n, c in CARDS.items() if not traffic.missing(c, "this")}
    return give_credits(cards, list_questions(scene, DEMANDS), scene), {
        n: estimate_seconds(c.effort, DIGITS) for n, c in cards.items()
    }


def collect(credits: Mapping[str, Sequence[Credit]], names: Sequence[str], required: bool) -> int:
    """How many of the required questions, or of the others, a set of attacks asks."""
    return len({(c.question, c.kind) for n in names for c in credits[n] if c.required is required})


@pytest.mark.parametrize("kind", list(Kind), ids=str)
def test_with_room_for_the_ranked_attacks_every_question_is_asked_that_any_attack_asks(kind: Kind) -> None:
    # beside the kind a method sends models, which most attacks read, as most methods do
    credits, cost = credit(make_traffic(Kind.LOCAL_MODEL, kind))
    ranked = rank_attacks(credits, cost)
    assert set(_fit_budget(credits, cost, sum(cost[n] for n in ranked) + 1e-6, [])) == set(ranked)
    for required in (True, False):
        assert collect(credits, ranked, required) == collect(credits, list(credits), required)


@pytest.mark.parametrize(
    "kind", [Kind.LOCAL_PROTOTYPES, Kind.GRADIENT, Kind.GAN_G, Kind.CONDENSED_IMAGES], ids=str
)
def test_no_other_attack_would_earn_more_per_second_than_the_next_one(kind: Kind) -> None:
    credits, cost = credit(make_traffic(Kind.LOCAL_MODEL, kind))
    ranked = rank_attacks(credits, cost)

    def rate(before: Sequence[str], name: str, required: bool) -> float:
        more = collect(credits, [*before, name], required) - collect(credits, before, required)
        return more / max(cost[name], LEAST_SECONDS)

    for i, name in enumerate(ranked):
        before = ranked[:i]
        awaits = any(rate(before, n, True) > 0 for n in credits)  # required ones come first
        rates = {n: rate(before, n, awaits) for n in credits if n not in before}
        assert rates[name] == pytest.approx(max(rates.values())) and rates[name] > 0, name


def test_the_panel_is_taken_first_however_dear_it_is() -> None:
    credits = {
        "a": [Credit("q", Kind.LOCAL_MODEL, True)],
        "b": [Credit("q", Kind.LOCAL_MODEL, True)],
        "c": [Credit("r", Kind.LOCAL_MODEL, True)],
    }
    cost = {"a": 1.0, "b": 5.0, "c": 2.0}
    assert rank_attacks(credits, cost) == ["a", "c"]
    assert [_fit_budget(credits, cost, s, ["b"]) for s in (5.0, 6.0, 8.0)] == [["b"], ["a", "b"], ["a", "c", "b"]]
    whole = chosen("fedavg", budget=100_000)
    panel = (
        "played_message",
        "played_facts",
        "rmia",
        "model_inversion",
        "analytic",
        "hidden_images",
        "example_numbers",
    )
    seconds = sum(whole.seconds[n] for n in (*panel, "label_counts_from_update", "label_counts_from_gradient"))
    assert set(panel) <= set(names(chosen("fedavg", budget=seconds / 60 + 1e-6)))


def test_a_message_to_all_is_asked_for_each_of_its_readers_by_one_attack() -> None:
    credits, _ = credit(make_traffic(Kind.LOCAL_MODEL))
    asked = {(c.question, c.kind) for c in credits["loss_threshold"]}
    assert {("membership.server", Kind.GLOBAL_MODEL), ("membership.client", Kind.GLOBAL_MODEL)} <= asked


def test_required_questions_come_before_others() -> None:
    credits, cost = credit(make_traffic(Kind.LOCAL_MODEL, Kind.LOCAL_PROTOTYPES))
    ranked = rank_attacks(credits, cost)
    assert ranked[-1] == "prototype_linkage"  # nothing waits for linkage here


def test_uploads_that_clients_send_take_time_without_any_replay() -> None:
    none, one, ten = (
        sum(chosen("fedavg", attacks=["analytic"], replay={"updates": updates}).seconds.values())
        for updates in ([], [[n, steps, 1] for n, steps, _ in Replay().updates], Replay().updates)
    )
    assert 0 < none < one < ten < 10 * one


def test_no_time_at_all_plans_nothing() -> None:
    assert names(chosen("rebafl", budget=0)) == []


def test_more_replays_take_longer() -> None:
    few, many = (
        sum(chosen("rebafl", attacks=["ridge"], replay={"groups": n}).seconds.values()) for n in (10, 1000)
    )
    assert many > few


@pytest.mark.parametrize("path", sorted(Path("configs").glob("*.yaml")), ids=lambda p: p.stem)
def test_shipped_configs_list_nothing_that_can_never_apply(path: Path) -> None:
    made = load(path)
    refuse(made)


@pytest.mark.parametrize(
    ("more", "phrase"),
    [
        ({"attacks": ["ridge"]}, "ridge can never apply: FedAvg sends no local_prototypes"),
        (
            {"attacks": [], "protections": ["prototype_mixing"]},
            "acts on local_prototypes, and FedAvg never sends",
        ),
        (
            {
                "attacks": [],
                "protections": [{"name": "laplace", "kinds": ["label_counts"], "clip_norm": 1, "scale": 1}],
            },
            "laplace acts on label_counts",
        ),
    ],
)
def test_what_can_do_nothing_here_is_refused(more: dict[str, Any], phrase: str) -> None:
    made = config("fedavg", **more)
    with pytest.raises(UserError, match=phrase):
        refuse(made)


def test_an_attack_that_a_protection_blinds_is_not_refused() -> None:
    made = config("rebafl", attacks=["ridge"], protections=["secure_aggregation"])
    refuse(made)


def test_an_attack_on_what_a_protection_makes_of_messages_is_not_refused() -> None:
    made = config("rebafl", attacks=["sum_difference"], protections=["secure_aggregation"])
    refuse(made)
    with pytest.raises(UserError, match="sum_difference can never apply"):
        refuse(config("rebafl", attacks=["sum_difference"]))


def test_plan_says_what_runs_what_cannot_and_what_nothing_reads_and_trains_nothing(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "federation: {dataset: digits, clients: 4}\nmethod: rebafl\nattacks: [ridge]\n"
        "protections: [{name: prototype_threshold, least: 3}]\n"
    )
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "c.yaml"), "--all"])
    assert done.exit_code == 0, done.output
    assert "  ridge: Ridge inversion of prototypes, about " in done.stdout
    assert ", lira, " in done.stdout and ": it is not among the attacks of this audit" in done.stdout
    assert "  critic_score: ReBaFL sends no gan_D that the next client could read" in done.stdout
    assert "  * attribute.server: there is no limit, since the panel lacks" in done.stdout
    assert "  * reconstruction.server: to be asked by ridge; no limit without" in done.stdout
    assert "ridge (19 rounds were not recorded (setting record))" in done.stdout
    assert "can be no better than cannot tell" in done.stdout
    assert "ready is out of reach by attacks, since" in done.stdout
    assert "  prototype_membership: about" in done.stdout
    assert "held-out people, of whom luck is learned; you have" in done.stdout
    assert "3" in done.stdout.partition("attacks that will run")[0].partition("protections")[2]
    assert list(tmp_path.iterdir()) == [tmp_path / "c.yaml"]


def test_run_and_plan_refuse_the_same_before_anything_trains(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("federation: {dataset: digits}\nmethod: fedavg\nattacks: [ridge]\n")
    for command in (["plan"], ["run", "--out", str(tmp_path / "out")]):
        done = CliRunner().invoke(app, [*command, str(tmp_path / "c.yaml")])
        assert done.exit_code == 2 and "c.yaml:3: attacks[0]: ridge can never apply" in done.output
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def plan(tmp_path: Path, text: str) -> str:
    (tmp_path / "c.yaml").write_text(text)
    done = CliRunner().invoke(app, ["plan", str(tmp_path / "c.yaml"), "--all"])
    assert done.exit_code == 0, done.output
    return done.stdout


def write_npz(tmp_path: Path, x: Any) -> Path:
    y = np.arange(len(x)) % 4
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:40], y_test=y[:40])
    return tmp_path / "own.npz"


@pytest.mark.nightly
def test_a_large_network_on_colour_images_is_planned_with_what_it_leaves_open(tmp_path: Path) -> None:
    x = np.random.default_rng(0).integers(0, 256, (600, 3, 32, 32), np.uint8)
    file = write_npz(tmp_path, x)
    said = plan(
        tmp_path,
        f"federation: {{dataset: {{name: npz, path: {file}}}, clients: 10, model: resnet18}}\nmethod: fedavg\n",
    )
    for id in ("membership.server", "reconstruction.server"):
        line = next(row for row in said.splitlines() if id in row)
        assert line.startswith("  * ") and ("has no room" in line or "to be asked by" in line or "none" in line)
    assert "what nothing will attack: none" not in said and "can be no better than cannot tell" in said


def test_a_text_federation_is_planned_without_attacks_on_images(tmp_path: Path) -> None:
    file = write_npz(tmp_path, np.random.default_rng(0).integers(0, 4, (600, 20)))
    said = plan(
        tmp_path,
        f"federation: {{dataset: {{name: npz, path: {file}}}, clients: 4, model: char_lstm}}\nmethod: fedavg\n"
        "budget: 100000\n",
    )
    runs = said.partition("attacks that will run:")[2].partition("attacks that apply")[0]
    assert "loss_threshold" in runs and "inverting_gradients" not in runs and "hidden_images" in runs
    line = next(row for row in said.splitlines() if "exact_record.server" in row)
    assert "no limit without hidden_images" in line and "played_message" in line
    line = next(row for row in said.splitlines() if "reconstruction.server" in row)
    assert "token_set" in line and "inverting_gradients" not in line
