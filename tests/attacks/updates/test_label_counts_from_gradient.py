"""The labels of a batch are read off its gradient: one exactly, fifty nearly so, a wrong batch never."""

from dataclasses import replace
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from fedaudit.attacks.attack import Examples
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.updates.label_counts_from_gradient import LabelCountsFromGradient
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from tests.attacks.updates.updates import Updates
from tests.attacks.world import Architecture


class Batches(Updates):
    """Replayed gradients of batches drawn from all clients, at the untrained global model."""

    def __init__(self, sizes: tuple[int, ...] = (1, 50), each: int = 40) -> None:
        super().__init__()
        rng = np.random.default_rng(3)
        x = np.concatenate([c.x for c in self.clients])
        y = np.concatenate([c.y for c in self.clients])
        self.batches: dict[str, Examples] = {}
        self.view = [a for a in self.artifacts if a.kind == Kind.GLOBAL_MODEL]
        net = Architecture()(self.view[0].payload).module().requires_grad_(True)
        names = [k for k, _ in net.named_parameters()]
        for n in sizes:
            for i in range(each):
                share = rng.dirichlet(np.full(10, 0.3))[y]
                rows = rng.choice(len(y), n, replace=False, p=(share + 1e-6) / (share + 1e-6).sum())
                loss = cross_entropy(net(torch.from_numpy(x[rows])), torch.from_numpy(y[rows]))
                grads = torch.autograd.grad(loss, list(net.parameters()))
                name = f"replay/gradient{n}/{i}"
                self.batches[name] = Examples(x=x[rows], y=y[rows])
                self.view.append(
                    Artifact(
                        id=name,
                        kind=Kind.GRADIENT,
                        channel=Channel.UPLINK,
                        round=0,
                        sender=Party.client(i % 10),
                        seen_by=("server",),
                        origin="replayed",
                        payload={k: g.numpy() for k, g in zip(names, grads, strict=True)},
                        note={"n": n},
                    )
                )

    def members(self, artifact: str, label: int) -> NDArray[np.float32]:
        return self.batches[artifact].of_class(label)


@cache
def world() -> Batches:
    return Batches()


@cache
def judged() -> list[Evidence]:
    attack, rng = LabelCountsFromGradient(), np.random.default_rng(0)
    return attack.measure(attack.run(world().view, world().knowledge, rng), world(), rng)


def one(measure: str, n: int, rule: str) -> Evidence:
    wanted = {"n": n, "steps": 1, "origin": "replayed", "rule": rule}
    return next(e for e in judged() if e.measure == measure and e.condition == wanted)


def test_one_label_is_exact_by_either_rule_and_is_the_planted_leak() -> None:
    for rule in ("bias", "row sums"):
        found = one("count_exact_match", 1, rule)
        assert found.value == 1 and found.control == "positive"
        assert max(b.value for b in found.baselines) < 0.4


def test_fifty_labels_are_exact_at_an_untrained_model() -> None:
    found = one("count_exact_match", 50, "bias")
    assert found.value >= 0.95 and found.trials == 40
    assert found.interval is not None and found.interval[0] > 0.8
    assert one("count_overlap", 50, "row sums").value > 0.6  # LLG, without auxiliary images


def test_claims_against_another_batch_are_wrong() -> None:
    controls = [e for e in judged() if e.control == "negative"]
    assert len(controls) == 4 and all(e.value < 0.2 for e in controls)


def test_intervals_are_corrected_for_rules_and_sizes() -> None:
    assert one("count_exact_match", 50, "bias").looks == 4


def test_without_auxiliary_images_llg_is_left() -> None:
    knowledge = replace(world().knowledge, auxiliary=None)
    claim = LabelCountsFromGradient().run(world().view, knowledge, np.random.default_rng(0))
    assert np.array_equal(claim["counts"][:, 0], claim["counts"][:, 1])


def test_an_upload_of_one_step_says_what_its_gradient_says() -> None:
    # 0.05 is the public rate; the label is that of the gradient's planted batch
    start, gradient = world().view[0], world().view[1]
    moved = {k: v - 0.05 * gradient.payload[k] for k, v in start.payload.items()}
    upload = replace(gradient, kind=Kind.LOCAL_MODEL, payload=moved, note={"batch": 1, "steps": 1})
    attack, rng = LabelCountsFromGradient(), np.random.default_rng(0)
    a, b = (attack.run([start, x], world().knowledge, rng) for x in (upload, gradient))
    assert np.array_equal(a["counts"], b["counts"])


def test_recorded_uploads_of_many_steps_are_judged_by_the_whole_client() -> None:
    found = LabelCountsFromGradient()
    clients = Updates()  # three epochs of 60 examples in batches of ten
    rng = np.random.default_rng(0)
    claim = found.run(clients.artifacts, clients.knowledge, rng)
    assert claim["counts"].sum(axis=2).tolist() == [[60, 60]] * 10 and claim["steps"][0] == 18
    evidence = found.measure(claim, clients, rng)
    overlap = next(e for e in evidence if e.measure == "count_overlap")
    assert overlap.control == "none" and overlap.value > 0.5 > overlap.baselines[0].value


def test_without_a_model_or_a_last_layer_it_does_not_apply() -> None:
    attack = LabelCountsFromGradient()
    lonely = [a for a in world().view if a.kind == Kind.GRADIENT]
    assert "model it started from" in attack.not_applicable(lonely, world().knowledge)
    headless = [
        replace(a, payload={k: v for k, v in a.payload.items() if "head" not in k})
        if a.kind == Kind.GRADIENT
        else a
        for a in world().view
    ]
    assert "last layer" in attack.not_applicable(headless, world().knowledge)
    assert attack.not_applicable(world().view, world().knowledge) == ""
