"""The faults that tests/fl/equivalence/faults.py puts in: one changed piece of source each."""

from typing import NamedTuple

from fedaudit.fl.runtime.plugin import find_module


class Fault(NamedTuple):
    """`methods` are those whose comparisons are made; none: all."""

    name: str
    file: str
    old: str
    new: str
    methods: tuple[str, ...] = ()


def _of(method: str, name: str, old: str, new: str, *others: str) -> Fault:
    module = find_module(("fedaudit.fl.methods",), method).removeprefix("fedaudit.").replace(".", "/")
    return Fault(f"{method}: {name}", f"{module}.py", old, new, (method, *others))


FAULTS = [
    # the loop, the mean and the round, which all methods share
    Fault(
        "momentum twice",
        "fl/training/local.py",
        "momentum, decay = config.momentum, config.weight_decay",
        "momentum, decay = min(.9, 2 * config.momentum), config.weight_decay",
    ),
    Fault(
        "no weight decay",
        "fl/training/local.py",
        "momentum, decay = config.momentum, config.weight_decay",
        "momentum, decay = config.momentum, 0.0",
    ),
    Fault(
        "one epoch too few",
        "fl/training/local.py",
        "for epoch in range(1, count_epochs(config, len(y)) + 1):",
        "for epoch in range(1, max(2, count_epochs(config, len(y)))):",
    ),
    Fault(
        "the last partial batch is dropped",
        "fl/training/local.py",
        "for batch in torch.split(permutation, sizes):",
        "for batch in list(torch.split(permutation, sizes))[: max(1, len(y) // config.batch_size)]:",
    ),
    Fault(
        "clients weighted alike where sizes count",
        "fl/clients/delivery.py",
        "mean.add(delivery.client, read_model(delivery.message), delivery.weight(weighting), start)",
        "mean.add(delivery.client, read_model(delivery.message), 1.0, start)",
    ),
    Fault(
        "a lost answer advances the client's memory",
        "fl/method.py",
        "                    tally.lost += 1  # trained, never heard; its memory stays\n",
        "                    tally.lost += 1\n                    memory[k] = reply.memory or {}\n",
    ),
    Fault(
        "a lost answer is averaged all the same",
        "fl/method.py",
        "if not federation.attendance.is_heard(t, k):",
        "if False:",
    ),
    Fault(
        "memory is never kept",
        "fl/method.py",
        '                    memory[k] = own | {"protections": kept} if kept else own\n',
        "                    pass\n",
    ),
    Fault(
        "stacked: the pull is towards nothing",
        "fl/execution/stack.py",
        "anchor = {k: v.clone() for k, v in self._params.items()}",
        "anchor = {k: 0 * v for k, v in self._params.items()}",
    ),
    Fault(
        "stacked: the first client's constants for all",
        "fl/execution/batched.py",
        "torch.stack([v.to(site.device) for v in leaves])",
        "torch.stack([leaves[0].to(site.device) for v in leaves])",
    ),
    # methods with public code
    _of("scaffold", "the sign of the correction", "return {k: g + const", "return {k: g - const", "scaffold_rs"),
    _of("scaffold", "the server's control moves at full size", "control.total / state[", "1.0 + 0 / state["),
    _of("scaffold", "c is not taken off c_k", "c - common[k].cpu() - change", "c - change", "scaffold_rs"),
    _of("scaffold", "the length forgets the rate", "length = rate * step_weight", "length = step_weight"),
    _of(
        "scaffold",
        "public code's correction goes through the momentum",
        "literal_public_code:\n            return grads",
        "lr < 0:\n            return grads",
    ),
    _of("feddyn", "the dual's sign", "g - dual[k] + alpha", "g + dual[k] + alpha"),
    _of("feddyn", "the share of clients is forgotten", "mean.total / state[", "1.0 + 0 / state["),
    _of("feddyn", "the dual starts anew in every round", 'client.memory.get("dual", zero)', "zero"),
    _of("fedprox", "mu / 2 in the gradient", "g + mu * (params", "g + mu / 2 * (params"),
    _of("moon", "near and far exchanged", "softplus((far - near)", "softplus((near - far)"),
    _of(
        "moon",
        "the previous model is the initial one",
        'client.memory.get("previous") or client.initial',
        "client.initial",
    ),
    _of("moon", "the temperature multiplies", "/ self.config.temperature", "* self.config.temperature"),
    _of("fedbabu", "the head is trained", "return not self.config.phases or any(", "return True or any("),
    _of("fedlc", "the exponent is -1/2", ".pow(-0.25)", ".pow(-0.5)"),
    _of("fednova", "the momentum's weight is forgotten", "self.config.momentum, rate * self", "0.0, rate * self"),
    _of(
        "fednova",
        "effective steps not weighted",
        "effective += weight * float(",
        "effective += mean.total * 0 + float(",
    ),
    _of("fednova", "the server's buffer starts anew", "m + gamma * before[k] if before else m", "m"),
    _of(
        "fedrs",
        "observed classes are scaled too",
        "torch.where(missing, c.alpha, 1.0)",
        "torch.full(counts.shape, c.alpha)",
        "scaffold_rs",
    ),
    _of(
        "fedrs",
        "classes with one example are missing",
        "counts < c.missing_below",
        "counts < c.missing_below + 1",
    ),
    _of("fedaws", "the margin counts twice", "(margin - (1 - unit", "(2 * margin - (1 - unit"),
    _of("fedaws", "the diagonal counts", "near.sum() - near.diagonal().sum()", "near.sum()"),
    _of("fedaws", "no momentum in spreading", "lr=lr, momentum=0.9", "lr=lr, momentum=0.0"),
    _of(
        "rebafl",
        "the prior is not mixed",
        "(1 - epsilon) * counts.double() / counts.sum() + epsilon / len(counts)",
        "counts.double().clamp(min=1e-9) / counts.sum()",
    ),
    _of("rebafl", "augmented features train the extractor", "h.detach(), y, const", "h, y, const"),
    _of(
        "rebafl",
        "the residual is not moved",
        "table[target] + strength * (h - table[y])",
        "table[target] + 0 * h",
    ),
    _of(
        "rebafl",
        "prototypes of the model before training",
        "client_prototypes(client, trained.state)",
        "client_prototypes(client, client.start)",
    ),
    _of(
        "rebafl",
        "the target is one further",
        "target = position % len(have)",
        "target = (position + 1) % len(have)",
    ),
    _of(
        "rebafl",
        "prototypes are averaged without counts",
        '{"features": row}, n, {})',
        '{"features": row}, 1, {})',
    ),
    _of("qffl", "q instead of q - 1 in the curvature", "loss ** (q - 1)", "loss ** q"),
    _of(
        "qffl",
        "the loss after training",
        'client.run("forward", client.start)',
        'client.run("forward", trained.state)',
    ),
    _of("fedrep", "the body is trained with its head untrained", "state = trained.state\n", "pass\n"),
    _of(
        "lg_fedavg",
        "the private part does not come back",
        'client.memory.get("private") or self',
        "client.round < 0 or self",
    ),
    _of("fedopt", "the sign is the other way", "(v - squared).sign()", "(squared - v).sign()"),
    Fault(
        "server moments: v starts at 0",
        "fl/methods/fedopt.py",
        "z + self.config.kappa**2",
        "z + 0",
        ("fedopt", "server"),
    ),
    Fault(
        "server moments: bias is corrected",
        "fl/methods/fedopt.py",
        "m / (second[k].sqrt() + self.config.kappa)",
        "m / (1 - beta1) / (second[k].sqrt() + self.config.kappa)",
        ("fedopt", "server"),
    ),
    _of("fedopt", "the velocity is damped", "share = 1 if", "share = 1 - beta1 if", "server"),
    _of(
        "fedmmd",
        "the diagonal's bandwidth",
        "pairs = len(joined) * (len(joined) - 1)",
        "pairs = len(joined) ** 2",
    ),
    _of(
        "fedmix", "the slope is divided by the batch", "mix * (slope * mean).sum()", "mix * (slope * mean).mean()"
    ),
    # methods with a second program
    _of(
        "flda",
        "the gate is the other way",
        "shared + logsigmoid(a), private + logsigmoid(-a)",
        "shared + logsigmoid(-a), private + logsigmoid(a)",
    ),
    _of(
        "flda",
        "the private model starts anew",
        'client.memory.get("own") or self._start_network',
        "self._start_network",
    ),
    Fault(
        "distillation: a client's own table is not taken out",
        "fl/families/distillation.py",
        "if own is not None:",
        "if False:",
        ("fd", "fedavg_fd"),
    ),
    Fault(
        "distillation: tables of the rounds before are kept",
        "fl/families/distillation.py",
        "tables: dict[str, Payload] = {}",
        'tables: dict[str, Payload] = dict(state["tables"])',
        ("fd", "fedavg_fd"),
    ),
    Fault(
        "distillation: examples without a row make the mean smaller sets",
        "fl/families/distillation.py",
        "(each * present[y]).mean()",
        "(each * present[y]).sum() / present[y].sum().clamp(min=1)",
        ("fd", "fedavg_fd"),
    ),
    Fault(
        "own models: clients start from the initial model",
        "fl/families/own_models.py",
        'client.memory.get("own") or client.initial',
        "client.initial",
        ("fd", "fedmd", "fedgkt", "fedproto"),
    ),
    _of("ifca", "the largest loss is chosen", "torch.stack(losses).argmin()", "torch.stack(losses).argmax()"),
    _of("ifca", "everybody's model in every mean", "means[chosen].add(", "means[0].add("),
    Fault(
        "power_of_choice: the smallest losses train",
        "fl/selections/power_of_choice.py",
        "(-losses[k], k)",
        "(losses[k], k)",
        ("power_of_choice",),
    ),
    _of("power_of_choice", "weighted by examples", 'default="uniform"', 'default="samples"'),
    _of(
        "seol_kim",
        "the bounded rate in place of the printed",
        '2 / np.pi if rule == "bounded"',
        "2 / np.pi if rule",
    ),
    _of("seol_kim", "delta is never raised", 'if state["rate"] > self.config.theta_over', "if False"),
    _of(
        "seol_kim",
        "batch by epochs times beta",
        "len(client.y) // self.config.updates",
        "len(client.y) // (2 * self.config.updates)",
    ),
    Fault(
        "selection: the most frequent class first",
        "fl/families/balanced_selection.py",
        'np.argsort(-room, kind="stable")',
        'np.argsort(room, kind="stable")',
        ("seol_kim",),
    ),
    Fault(
        "selection: allocations as printed",
        "fl/families/balanced_selection.py",
        "if printed else share",
        "if True else share",
        ("seol_kim",),
    ),
    Fault(
        "oversampling: decay one round late",
        "fl/families/balanced_selection.py",
        "np.exp(-decay * round)",
        "np.exp(-decay * max(0, round - 1))",
        ("seol_kim",),
    ),
    _of("fedasync", "age is forgotten", "(x + 1) ** -c.exponent", "1.0"),
    _of("fedasync", "no pull", "g + rho * (params", "g + 0 * (params"),
    _of(
        "fedasync",
        "the mixing weight is the old model's",
        "(1 - alpha) * w.double() + alpha * answer",
        "alpha * w.double() + (1 - alpha) * answer",
    ),
    _of(
        "fedbuff",
        "divided by the weights",
        "self.config.server_lr * answers.total / count",
        "self.config.server_lr",
    ),
    _of(
        "fedbuff",
        "change counted from the newest model",
        "starts.add(start, weight)",
        'starts.add(state["model"], weight)',
    ),
    Fault(
        "asynchronous: clients train the newest model",
        "fl/families/asynchronous.py",
        "{Kind.GLOBAL_MODEL: versions[str(v)],",
        "{Kind.GLOBAL_MODEL: versions[max(versions, key=int)],",
        ("fedasync", "fedbuff"),
    ),
    _of("astraea", "only filled, never thinned", "np.clip(have, low, high)", "np.maximum(have, low)"),
    Fault(
        "grouping: sizes are forgotten",
        "fl/families/grouping.py",
        "weights[left, None] * rows[left]",
        "rows[left]",
        ("astraea", "gandalf-grouping"),
    ),
    Fault(
        "relays: the second client starts from the server's model",
        "fl/families/relaying.py",
        "message, sender = content[task.source], relay",
        "message, sender = first(g, task, 0), relay",
        ("astraea",),
    ),
    Fault(
        "relays: groups weighted alike",
        "fl/families/relaying.py",
        "sum(each.values())\n            mean",
        "1.0\n            mean",
        ("astraea",),
    ),
    _of(
        "faug",
        "sizes before filling",
        "sizes[str(k)], memory[k] = _read_size(heard), reply",
        "_, memory[k] = _read_size(heard), reply",
    ),
    Fault(
        "filling: all of the gap",
        "fl/families/augmentation_plan.py",
        "np.floor(share * h + _ROUNDING)",
        "np.floor(h + _ROUNDING)",
        ("faug",),
    ),
    _of("fedcurv", "half the penalty", "scale = 2 * self.config.strength", "scale = self.config.strength"),
    _of("fedcurv", "a client's own part stays in the sums", "v - own[k].to(v) if own else v", "v"),
    _of("fedcurv", "v without the model", "u * trained.state[k] for", "u for"),
    _of("fedmd", "squared errors", "(logits - mean).abs().mean()", "(logits - mean).square().mean()"),
    _of("fedmd", "the same public examples in every round", '"public", client.round', '"public", 0'),
    _of("fedmd", "one's own examples first", "start = pupil.train(", "_ = pupil.train("),
    _of("fedgkt", "no temperature squared", "loss: Tensor = temperature**2 * each", "loss: Tensor = each"),
    _of("fedgkt", "plain momentum", "nesterov=config.server_momentum > 0", "nesterov=False"),
    _of("fedgkt", "labels alone at the server", "loss = taught + config.alpha * loss", "pass"),
    _of("fedproto", "a sum over features", ".square().mean(1)", ".square().sum(1)"),
    _of("fedproto", "classes that nobody sent pull to zero", "* have[y]).mean()", ").mean()"),
]
