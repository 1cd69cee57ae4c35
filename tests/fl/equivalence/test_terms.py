"""Single terms of methods equal those of public implementations, within the rounding of their type."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from torch import Tensor

from fedaudit.audit.settings import catalog
from fedaudit.fl.clients.delivery import Delivery
from fedaudit.fl.families.augmentation_plan import select_offers, shortage, solve_requests
from fedaudit.fl.families.condensation import ClassBatch, Condensing, Matcher
from fedaudit.fl.families.grouping import complementary
from fedaudit.fl.kinds import Kind
from fedaudit.fl.methods.fedmix import compute_taylor_mixup_loss
from fedaudit.fl.methods.fedmmd import compute_squared_mmd
from fedaudit.fl.runtime.plugin import configure
from fedaudit.fl.training.local import Handle
from tests.fl.equivalence.replay import NUMBERS, Case, cases
from tests.fl.worlds import TinyNet, as_delivered

Arrays = dict[str, np.ndarray]
ALL = load_file(NUMBERS / "terms.safetensors")


def tensor(value: np.ndarray) -> Tensor:
    return torch.from_numpy(value.copy())


def network(a: Arrays) -> TinyNet:
    net = TinyNet()
    net.load_state_dict({k.removeprefix("net/"): tensor(v) for k, v in a.items() if k.startswith("net/")})
    return net


def fedmmd(a: Arrays, config: Any) -> Arrays:
    x, y = tensor(a["a"]).requires_grad_(), tensor(a["b"]).requires_grad_()
    value = compute_squared_mmd(x, y)
    to_x, to_y = torch.autograd.grad(value, [x, y])
    return {"value": value.detach().numpy(), "gradient_a": to_x.numpy(), "gradient_b": to_y.numpy()}


class Given(Matcher):
    """Matches under the network it was given, on all real images."""

    def redraw(self, rng: torch.Generator) -> None:
        pass


def condensation(a: Arrays, config: Any) -> Arrays:
    image = tensor(a["image"])[None].requires_grad_()
    matcher = Given(network(a), Condensing(real_batch=100))
    found = matcher.distances([ClassBatch(tensor(a["real"]), int(a["label"][0]))], image, torch.Generator())
    [gradient] = torch.autograd.grad(found.sum(), image)
    return {"distance": found.detach().numpy(), "image_gradient": gradient[0].numpy()}


def plan(a: Arrays, config: Any) -> Arrays:
    found = np.zeros_like(a["wanted"])
    for i, n in enumerate(a["generators"]):
        mixes = a["mixes"][i, :n].T  # one column a generator
        found[i, :n] = solve_requests(mixes, shortage(a["counts"][i]), float(a["share"][i]), "pinv")
    return {"wanted": found}


def grouping(a: Arrays, config: Any) -> Arrays:
    found = np.zeros_like(a["member_of"])
    for i, groups in enumerate(a["groups"]):
        made = complementary(a["distributions"][i], a["sizes"][i].tolist(), int(groups))
        for members in made:
            # a group has the number that the public code gave the group of its first member
            found[i, list(members)] = a["member_of"][i, next(iter(members))]
    return {"member_of": found}


def offer(a: Arrays, config: Any) -> Arrays:
    found = np.full_like(a["chosen"], -1)
    for i, most in enumerate(a["most"]):
        rows = select_offers(a["own"][i], a["offers"][i], int(most))
        found[i, : len(rows)] = rows
    return {"chosen": found}


def fedmix(a: Arrays, config: Any) -> Arrays:
    net = network(a)
    x, y = tensor(a["x"]), tensor(a["y"])
    loss = compute_taylor_mixup_loss(Handle(net), x, y, tensor(a["mean"]), tensor(a["label"]), float(a["mix"][0]))
    names = [k for k, _ in net.named_parameters()]
    gradients = torch.autograd.grad(loss, list(net.parameters()))
    return {"loss": loss.detach().numpy()} | {
        f"gradient/{k}": g.numpy() for k, g in zip(names, gradients, strict=True)
    }


def qffl(a: Arrays, config: Any) -> Arrays:
    after = []
    for q in a["q"]:
        settings = {"q": float(q), "lr": float(a["rate"][0])}
        method = configure(catalog.load("methods", "qffl"), settings, "method")
        method.parameters = ("w",)
        answers = [
            Delivery(
                client=k,
                examples=1,
                message={Kind.LOCAL_MODEL: {"w": tensor(model)}, Kind.LOCAL_LOSS: {"loss": tensor(loss)}},
            )
            for k, (model, loss) in enumerate(zip(a["clients"], a["loss"][:, None], strict=True))
        ]
        before = {"model": {"w": tensor(a["before"])}}
        after.append(method.combine(before, as_delivered(answers), 0)["model"]["w"].numpy())
    return {"after": np.stack(after)}


def server(a: Arrays, config: Any) -> Arrays:
    method = configure(catalog.load("methods", "fedopt"), config, "method")
    w, found = tensor(a["start"]), []
    moments = method.moments({"w": torch.zeros_like(w)})
    for change in a["change"]:
        step = method.direction({"w": tensor(change)}, moments)
        moments = step.moments
        w = w + method.rate * step.direction["w"]
        found.append(w.numpy().copy())
    return {"after": np.stack(found)}


OURS: dict[str, Callable[[Arrays, Any], Arrays]] = {
    "fedmmd": fedmmd,
    "condensation": condensation,
    "gandalf-plan": plan,
    "gandalf-grouping": grouping,
    "gandalf-offer": offer,
    "fedmix": fedmix,
    "qffl-step": qffl,
    "server-adam": server,
    "server-yogi": server,
    "server-adagrad": server,
    "server-avgm": server,
}
CASES = cases("term")


@pytest.mark.parametrize("case", CASES, ids=[c.name for c in CASES])
def test_a_term_equals_that_of_the_public_code(case: Case) -> None:
    given = {k.removeprefix(f"{case.name}/"): v for k, v in ALL.items() if k.startswith(f"{case.name}/")}
    run = OURS.get(case.name) or OURS[case.name.rpartition("-")[0]]
    found = run(given, case.entry.get("config", {}))
    for group in case.entry["compare"]:
        names = [k for k in given if k == group or k.startswith(f"{group}/")]
        assert names
        for name in names:
            gap = np.abs(np.asarray(found[name], np.float64) - given[name]).max()
            assert gap <= case.entry["tolerance"][group], (name, gap)
