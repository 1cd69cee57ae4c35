"""Every rule against numbers from ByzFL's own code, or from a second program where it lacks the rule."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaudit.audit.settings import catalog
from fedaudit.fl.aggregation.aggregator import Averages, Combined, Context, RowRule, mean
from fedaudit.fl.aggregators._rows import scores, square_distances
from fedaudit.fl.aggregators._wrapped import build_inner
from fedaudit.fl.aggregators.krum import picks
from fedaudit.fl.aggregators.pre_aggregation import mix
from fedaudit.fl.methods.rebafl import PooledPrototypes
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.streams import Streams
from tests.fl.methods.worlds_of_methods import continues
from tests.fl.test_all_methods import method
from tests.fl.worlds import close, data, parts, run, same

X = [(1, 2, 3), (2, 1, 4), (0, 3, 2), (1, 1, 1), (3, 2, 5), (2, 4, 3), (-8, 9, -7)]  # the last is the intruder
KRUMS = [(1, 2), (-2, -3), (0, 0), (3, 1), (3, 0), (5, -4)]
RULES = [n for n in catalog.names("aggregators") if issubclass(catalog.load("aggregators", n), RowRule)]


def context(**more: Any) -> Context:
    return Context(round=3, name="model", streams=Streams(5), state=more.pop("state", {}), parameters=(), **more)


def whole(rows: torch.Tensor) -> dict[str, Any]:
    """What any rule may want to know: a change of the server's own, the model before, and its last layer."""
    size = rows.shape[1]
    bias = max(1, size // 4)
    return {
        "root": {"w": rows.mean(0)},
        "start": {"w": torch.zeros(size)},
        "head": ("w", "b"),
        "columns": {"w": slice(0, bias * (size // bias - 1)), "b": slice(size - bias, size)},
    }


def rule(name: str, **settings: Any) -> RowRule:
    cls = catalog.load("aggregators", name)
    made: RowRule = cls(cls.Config(**settings))
    return made


def combined(made: RowRule, rows: Sequence[Sequence[float]] = X, weights: Any = None, **more: Any) -> Combined:
    table = torch.tensor(rows, dtype=torch.float32)
    w = torch.ones(len(rows), dtype=torch.float64) if weights is None else torch.tensor(weights)
    return made.combine(table, w, range(len(rows)), context(**more))


def value(name: str, **settings: Any) -> list[float]:
    found: list[float] = combined(rule(name, **settings)).change.tolist()
    return found


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("norm_bound", {"norm": 1e9}, (0.142857, 3.142857, 1.571429)),  # the plain mean
        ("trimmed_mean", {"f": 0}, (0.142857, 3.142857, 1.571429)),
        ("capped_mean", {}, (0.142857, 3.142857, 1.571429)),
        ("median", {}, (1, 2, 3)),
        ("trimmed_mean", {"f": 1}, (1.2, 2.4, 2.6)),
        ("trimmed_mean", {"f": 2}, (1.333333, 2.333333, 2.666667)),
        ("geometric_median", {}, (1.066833, 2.139590, 2.871964)),
        ("centered_clipping", {"tau": 2.0, "steps": 1}, (0.424967, 1.085193, 1.027137)),
        ("centered_clipping", {"tau": 2.0, "steps": 3}, (0.977054, 2.203998, 2.333765)),
        ("krum", {}, (1, 2, 3)),
        ("multi_krum", {"m": 6}, (1.5, 2.166667, 3)),
        ("multi_krum", {"m": 4}, (1.25, 2.5, 3)),
        ("bulyan", {}, (1.333333, 1.666667, 3)),
        ("norm_bound", {"norm": 4.0}, (0.697214, 1.960917, 1.850568)),
        ("dnc", {"coordinates": 1.0}, (1.5, 2.166667, 3)),
    ],
)
def test_a_rule_gives_the_known_value(name: str, settings: dict[str, Any], expected: Sequence[float]) -> None:
    assert value(name, **settings) == pytest.approx(expected, abs=1e-6)


def test_krum_scores_bulyan_picks_and_mixed_rows_are_the_known_ones() -> None:
    distances = square_distances(torch.tensor(X, dtype=torch.float32))
    assert scores(distances, 1).tolist() == [16, 26, 27, 35, 39, 30, 845]
    assert picks(distances, 1) == [0, 1, 2, 4, 3]
    mixed = mix(torch.tensor(X, dtype=torch.float32), 1)
    assert mixed[-1].tolist() == pytest.approx([-0.333333, 3.333333, 1], abs=1e-6)


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_geometric_median_is_the_optimum_at_every_scale_and_where_it_is_an_upload(scale: float) -> None:
    rng = torch.Generator().manual_seed(3)
    for n, size in ((3, 1), (4, 2), (9, 1), (7, 2), (12, 5), (15, 20)):
        rows = torch.randn(n, size, generator=rng)
        rows[-1] *= 50
        if n % 2:
            rows = rows.round()  # ties, and uploads in the middle of the others
        rows = rows * scale
        found = combined(rule("geometric_median"), rows.tolist()).change
        least = distances_to(rows, found)
        assert all(least <= distances_to(rows, row.double()) * (1 + 1e-12) for row in rows)
        step = scale * 1e-5
        for _ in range(50):  # the sum is convex: nothing near is lower, so nothing is
            near = found + step * torch.randn(size, generator=rng).double()
            assert least <= distances_to(rows, near) * (1 + 1e-13)


def distances_to(rows: torch.Tensor, point: torch.Tensor) -> float:
    return float((rows.double() - point).norm(dim=1).sum())


def test_fltrust_weighs_by_the_cosine_with_the_servers_own_change() -> None:
    root = {"w": torch.tensor([1.0, 2.0, 3.0])}
    found = combined(rule("fltrust"), root=root)
    assert found.change.tolist() == pytest.approx([1.341131, 2.003411, 2.613537], abs=1e-6)
    assert found.kept[6] == 0
    nobody = combined(rule("fltrust"), [(-1, -2, -3)], root=root)
    assert nobody.change.tolist() == [0, 0, 0]


def test_foolsgold_gives_no_weight_to_clients_that_agree() -> None:
    rows = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, -1, 0.1), (-1, -1, 0.1)]
    found = combined(rule("foolsgold"), rows)
    assert list(found.kept.values()) == [1, 1, 1, 0, 0]
    assert found.change.tolist() == pytest.approx([1 / 3] * 3)
    # history: who agrees in the sum over rounds, though not in this one
    once = combined(rule("foolsgold"), [(0, 0, 1), (0, 5, 0), (5, 0, 0)])
    again = combined(rule("foolsgold"), [(5, 0, 0), (0, 1, 0), (0, 0, 1)], state=once.state)
    assert again.kept[1] == 1 and again.state["history"]["0"].tolist() == [5, 0, 1]


def test_krum_is_blanchards_where_three_libraries_differ() -> None:
    # ByzFL sums n - f - 1 distances: (0, 0). FLPoison does so without the square: (3, 0). The repository of
    # bucketing squares twice: (1, 2). Blanchard's rule and Flower sum n - f - 2 squared distances:
    assert combined(rule("krum"), KRUMS).change.tolist() == [3, 1]
    plain = torch.cdist(torch.tensor(KRUMS).double(), torch.tensor(KRUMS).double())
    near = plain.sort(1).values[:, 1:]
    four, three = near[:, :4], near[:, :3]
    others = {"byzfl": four.square().sum(1), "flpoison": four.sum(1), "twice": three.pow(4).sum(1)}
    assert {k: KRUMS[int(s.argmin())] for k, s in others.items()} == {
        "byzfl": (0, 0),
        "flpoison": (3, 0),
        "twice": (1, 2),
    }


def test_bulyan_selects_repeatedly_where_flower_selects_in_one_pass() -> None:
    # in one pass the five lowest scores are 0 1 2 5 3, and the result (1.333333, 2, 3.333333) as Flower's
    assert scores(square_distances(torch.tensor(X, dtype=torch.float32)), 1).argsort()[:5].tolist() == [
        0,
        1,
        2,
        5,
        3,
    ]
    assert value("bulyan")[1] == pytest.approx(1.666667, abs=1e-6)


def test_a_claim_of_a_thousand_times_as_many_examples_is_capped() -> None:
    found = combined(rule("capped_mean"), [(0.0,), (0.0,), (0.0,), (1.0,)], [10.0, 20.0, 30.0, 40000.0])
    assert found.change.tolist() == pytest.approx([30 / 90]) and found.kept[3] == 30
    assert combined(rule("capped_mean"), [(0.0,), (1.0,)], [10.0, 9000.0]).change.tolist() == [0.5]


def test_flame_leaves_out_who_points_elsewhere_and_clips_to_the_median_norm() -> None:
    rows = [(1.0, 0.01 * i) for i in range(1, 7)] + [(2.0, 0.06), (-9.0, 5.0), (-9.0, 4.0)]
    found = combined(rule("flame", noise=0.0), rows)
    assert len(found.kept) >= 5 and not {7, 8} & set(found.kept)
    norms = sorted(float(torch.tensor(r).norm()) for r in rows)
    inside = [torch.tensor(rows[i]) for i in found.kept]
    clipped = torch.stack([r * min(1.0, norms[4] / float(r.norm())) for r in inside])
    assert found.change.tolist() == pytest.approx(clipped.mean(0).tolist(), rel=1e-5)
    noised = combined(rule("flame", noise=0.5), rows).change - found.change
    assert 0 < float(noised.norm()) < 5 * norms[4]


def test_signs_are_counted_one_client_one_vote() -> None:
    found = combined(rule("sign_majority", step=0.5), [(1, -1), (9, -2), (-100, 0)])
    assert found.change.tolist() == [0.5, -0.5]
    assert combined(rule("sign_majority"), [(1, -1), (9, -2), (-100, 4)]).change.tolist() == [5.5, -5.5]


def test_centered_clipping_takes_its_median_distance_once_a_round() -> None:
    from_zero = sorted(math.dist(x, (0, 0, 0)) for x in X)[len(X) // 2]
    assert torch.equal(
        combined(rule("centered_clipping"), X).change,
        combined(rule("centered_clipping", tau=from_zero), X).change,
    )


def test_median_norm_distance_and_history_are_what_rules_fall_back_on() -> None:
    assert combined(rule("norm_bound"), [(1.0,), (2.0,), (30.0,)]).change.tolist() == pytest.approx([5 / 3])
    first = combined(rule("centered_clipping"), X)
    assert first.state["v"].tolist() == first.change.tolist()
    then = combined(rule("centered_clipping", tau=1e-9), [(100.0, 0, 0)] * 3, state=first.state)
    assert then.change.tolist() == pytest.approx(first.change.tolist(), abs=1e-6)


def test_nnm_and_bucketing_hand_on_what_they_made_to_the_rule_inside() -> None:
    far = combined(rule("nnm", f=1, rule="trimmed_mean"))
    mixed = mix(torch.tensor(X).float(), 1).tolist()
    assert far.change.tolist() == combined(rule("trimmed_mean", f=1), mixed).change.tolist()
    assert combined(rule("bucketing", s=1, rule="krum")).change.tolist() == [1, 2, 3]
    whole = combined(rule("bucketing", s=7, rule={"name": "trimmed_mean", "f": 0}))
    assert whole.change.tolist() == pytest.approx([1 / 7, 22 / 7, 11 / 7], abs=1e-6)
    assert build_inner("krum", 3).config.f == 3 and build_inner({"name": "krum", "f": 1}, 3).config.f == 1
    for wrong, words in (("mean", "must work on rows"), ("krumm", "no 'krumm'"), ("my.module:Rule", "no 'my")):
        with pytest.raises(UserError, match=words):
            rule("nnm", rule=wrong)


@pytest.mark.parametrize("name", RULES)
def test_the_order_of_the_clients_changes_nothing(name: str) -> None:
    # no ties, and sums of doubles that are exact: permuted clients give the same change, and keep the same
    rows = torch.randn(11, 40, generator=torch.Generator().manual_seed(1)).mul(256).round() / 256
    made, order = rule(name), torch.randperm(11, generator=torch.Generator().manual_seed(2))
    weights = torch.arange(11).double() + 5
    one = made.combine(rows, weights, range(11), context(**whole(rows)))
    two = made.combine(rows[order], weights[order], order.tolist(), context(**whole(rows)))
    if name == "bucketing":  # puts uploads together by their place, at random
        return
    if name == "bulyan":  # whose last pick is between equals
        before, after = picks(square_distances(rows), 2), picks(square_distances(rows[order]), 2)
        assert before[:-1] == [int(order[i]) for i in after[:-1]]
        return
    assert torch.allclose(one.change, two.change, rtol=1e-12, atol=1e-12)
    assert set(one.kept) == set(two.kept)
    assert [two.kept[k] for k in one.kept] == pytest.approx(list(one.kept.values()), rel=1e-9)


@pytest.mark.parametrize("name", RULES)
def test_equal_uploads_give_that_upload_and_few_rows_are_enough_or_refused(name: str) -> None:
    made = rule(name)
    rows = torch.tensor([[0.25, -0.5, 4.0]]).repeat(max(7, made.needs(7)), 1)
    found = made.combine(rows, torch.ones(len(rows)).double(), range(len(rows)), context(**whole(rows)))
    if name == "sign_majority":
        assert found.change.sign().tolist() == [1, -1, 1]
    elif name == "foolsgold":  # all of them agree: nobody is trusted
        assert found.change.tolist() == [0, 0, 0]
    elif name == "centered_clipping":  # draws near from 0, by the median distance at a time
        assert found.change.tolist() == pytest.approx([0.25, -0.5, 4.0])
    else:
        assert found.change.tolist() == pytest.approx(
            [0.25, -0.5, 4.0], abs=0.03 if name in ("flame", "crfl") else 1e-6
        )


@pytest.mark.parametrize("name", RULES)
def test_the_number_of_threads_and_blocks_changes_no_bit(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = torch.randn(9, 70_000, generator=torch.Generator().manual_seed(1))
    made, more = rule(name), whole(rows)
    many = made.combine(rows, torch.ones(9).double(), range(9), context(**more))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    alone = made.combine(rows, torch.ones(9).double(), range(9), context(**more))
    assert torch.equal(many.change, alone.change) and many.kept == alone.kept


# In a federation --------------------------------------------------------------------------


def test_fltrust_trains_on_the_servers_own_examples_and_is_refused_without() -> None:
    nothing = parts(data(), sizes=(7, 20, 11, 0, 42))
    with pytest.raises(UserError, match=r"examples of the server's own, and it has none") as error:
        run(method("fedavg"), aggregator=rule("fltrust"), index=nothing)  # type: ignore[arg-type]
    assert error.value.hint == "set federation.holdout.server, for instance to 0.02"
    world = {"d": data(n=100), "index": parts(data(n=80)), "aggregator": rule("fltrust")}
    found = run(method("fedavg"), **world)  # type: ignore[arg-type]
    trust = found.history[0]["kept"]["model"].values()
    assert all(0 <= w <= 1 for w in trust) and any(trust)
    assert same(found, run(method("fedavg"), workers=2, **world))  # type: ignore[arg-type]
    for name, words in (("fd", "clients of Federated distillation send none"), ("gandalf", "one model for all")):
        with pytest.raises(UserError, match=words):
            run(method(name), **world)  # type: ignore[arg-type]


def test_rules_that_compare_uploads_are_refused_where_the_server_steps_at_each() -> None:
    with pytest.raises(UserError, match="compares uploads, and FedAsync steps at every one"):
        run(method("fedasync"), aggregator=rule("median"))  # type: ignore[arg-type]
    bound = run(method("fedasync"), aggregator=rule("norm_bound", norm=1e-9))  # type: ignore[arg-type]
    assert all(torch.allclose(bound.model[k], bound.initial[k], atol=1e-6) for k in bound.model)
    free = run(method("fedasync"), aggregator=rule("norm_bound", norm=1e9))  # type: ignore[arg-type]
    assert close(free, run(method("fedasync")), tolerance=1e-6)  # type: ignore[arg-type]


def test_prototypes_have_a_rule_of_their_own_class_by_class() -> None:
    assert same(run(method("rebafl")), run(method("rebafl"), aggregator=mean()))  # type: ignore[arg-type]
    assert same(run(method("fedavg")), run(method("fedavg"), aggregator=rule("prototypes")))  # type: ignore[arg-type]
    one = run(method("rebafl"), aggregator=rule("prototypes"))  # type: ignore[arg-type]
    assert not same(one, run(method("rebafl")))  # type: ignore[arg-type]
    assert [r.get("kept") for r in one.history] == [None] * 3  # whose models are averaged is another matter
    with pytest.raises(UserError, match="Krum is no rule for prototypes"):
        rule("prototypes", rule="krum")


def test_a_class_that_too_few_clients_hold_takes_the_median_of_its_prototypes() -> None:
    trimmed = rule("prototypes", rule={"name": "trimmed_mean", "f": 1})
    pooled = PooledPrototypes(Averages(trimmed, 0, Streams(1)).prototype)
    for k, row in enumerate([0.0, 6.0]):
        pooled.add(k, {"classes": torch.tensor([2]), "features": torch.tensor([[row]])}, torch.tensor([5]))
    assert pooled.value({})["features"].tolist() == [[3.0]]


def test_a_run_under_a_rule_with_history_continues_to_the_same_bits(tmp_path: Path) -> None:
    for name in ("centered_clipping", "foolsgold"):
        made = method("fedavg")
        assert continues(lambda m=made: m, tmp_path / name, aggregator=rule(name))  # type: ignore[misc]


class Broken(RowRule):
    """Gives whatever it was made with."""

    title = "Broken rule"

    def __init__(self, change: torch.Tensor) -> None:
        super().__init__()
        self.change = change

    def combine(
        self, rows: torch.Tensor, weights: torch.Tensor, clients: Sequence[int], context: Context
    ) -> Combined:
        return Combined(change=self.change, kept=dict.fromkeys(clients, 1.0))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (torch.tensor([1.0, math.nan, 0.0]), r"shape \[3\], some of them not finite, of the uploads of round 3"),
        (torch.tensor([1.0, math.inf, 0.0]), r"shape \[3\], some of them not finite"),
        (torch.zeros(2), r"shape \[2\], all finite.*expected \[3\]"),
        (torch.zeros(3, 1), r"shape \[3, 1\]"),
    ],
)
def test_a_rule_that_makes_no_model_is_refused_by_its_name(change: torch.Tensor, words: str) -> None:
    broken, whole = Broken(change).begin(context()), Broken(torch.zeros(3)).begin(context())
    for total in (broken, whole):
        total.add(0, {"w": torch.ones(3)}, 1.0, {"w": torch.zeros(3)})
    assert whole.value()["w"].tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(UserError, match="Broken rule makes numbers of " + words):
        broken.value()
