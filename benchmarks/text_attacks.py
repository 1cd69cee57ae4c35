"""Attacks on texts by how much is in an update: tokens, whole texts, ranks, rounds of adapters, memory.

    python -m benchmarks.text_attacks tokens|span|adapters|ranked|rounds|memory

One client's training is played by hand on notes of invented patients (fl/datasets/notes.py) with a tiny_gpt of
256 numbers a token, two layers and 4,000 pieces, begun on Python's help pages; the attacks are those of
attacks/text/.
`memory` runs a federation of four clients, five rounds, in full and with adapters.
"""

import argparse
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedaudit.attacks import stats
from fedaudit.attacks.attack import Examples, Knowledge
from fedaudit.attacks.evaluation.span import count_law, list_pairs
from fedaudit.attacks.modality.text import Background, compare_texts, mark_tokens, strip
from fedaudit.attacks.text._language import average_lowest, score_tokens
from fedaudit.attacks.text._reading import Network, read_first, read_texts
from fedaudit.attacks.text._uploads import Change
from fedaudit.attacks.text.canary_exposure import CanaryExposure
from fedaudit.attacks.text.sequence_membership import average_tokens
from fedaudit.attacks.text.token_set import measure_moves, select_moved
from fedaudit.audit.observer.models import KnownArchitecture
from fedaudit.fl.data.dataset import Data
from fedaudit.fl.datasets.help_pages import HelpPages
from fedaudit.fl.datasets.notes import Notes
from fedaudit.fl.families.adapters import attach
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net, State, state_of
from fedaudit.fl.models.tiny_gpt import TinyGPT
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.training.pretraining import train_base

LENGTH, CUT, DIM, VOCABULARY, BASE_STEPS = 40, 25, 256, 4000, 60  # texts end after CUT tokens
NOTES_IN_ALL, BATCH = 240, 8  # of the four clients whose memory is asked, and a step's
MEMORY = (("full", 0, 1, 2e-3), ("adapters", 8, 4, 5e-3))  # rank, epochs a round, learning rate
Step = Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer]
OPTIMISERS: Mapping[str, Step] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01),
}


@cache
def load_notes(**settings: Any) -> Data:
    return Notes(Notes.Config(length=LENGTH, vocabulary=VOCABULARY, **settings)).load()


@cache
def make_base(task: str) -> State:
    """The network after some steps on public text."""
    public = HelpPages(HelpPages.Config(length=LENGTH, vocabulary=VOCABULARY)).load()
    language = make_plain("lm")
    trained = train_base(language, public.train, BASE_STEPS, 16, 0.002, Streams(0))
    own = state_of(make_plain(task))
    return own | {k: v for k, v in trained.items() if k in own and own[k].shape == v.shape and "head" not in k}


def make_plain(task: str) -> Net:
    settings = TinyGPT.Config(dim=DIM, layers=2, vocabulary=VOCABULARY, task=task)  # type: ignore[arg-type]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return TinyGPT((LENGTH,), 8, settings)


def make_net(task: str = "classify", rank: int = 0) -> Net:
    net = make_plain(task)
    net.load_state_dict(make_base(task))
    return attach(net, rank, 2.0 * rank, ["q", "v"]) if rank else net


def descend(net: Net, texts: NDArray[np.int64], labels: NDArray[np.int64], step: Step, times: int) -> Change:
    """What so many steps on all texts at once add to a network's weights; the network keeps them."""
    start = {k: v.numpy().copy() for k, v in state_of(net).items()}
    optimiser = step([*net.parameters()])
    for _ in range(times):
        optimiser.zero_grad()
        net.loss(torch.from_numpy(texts), torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    after = {k: v.numpy().copy() for k, v in state_of(net).items()}
    change = {k: after[k].astype(np.float64) - start[k] for k in start}
    return Change(
        artifact="",
        origin="recorded",
        kind=Kind.LOCAL_MODEL,
        sender=0,
        round=0,
        n=0,
        series="",
        start=start,
        change=change,
    )


def know(task: str, rank: int = 0) -> Knowledge:
    data, shape = load_notes(), (LENGTH,)
    return Knowledge(
        classes=8,
        shape=shape,
        architecture=KnownArchitecture(lambda: make_net(task, rank), data),
        schema=data.schema,
    )


def draw(number: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    data = load_notes().train
    rows = np.random.default_rng(seed).permutation(len(data))[:number]
    return np.where(np.arange(LENGTH) < CUT, data.x[rows], 0), data.y[rows]


def grade(claimed: NDArray[np.bool_], texts: NDArray[np.int64]) -> tuple[float, float]:
    """Precision and recall of a set of tokens; the end is read by a classifier, and counts."""
    true = mark_tokens(texts, VOCABULARY)
    both = int((claimed & true).sum())
    return both / max(1, int(claimed.sum())), both / int(true.sum())


def play_tokens() -> Iterator[str]:
    """Untied embedding: precision, recall, and the commonest words' recall."""
    known = Background.from_texts(load_notes().test.x, VOCABULARY)
    for number in (1, 8, 32):
        texts, labels = draw(number, number)
        true = mark_tokens(texts, VOCABULARY)
        blind = grade(known.claim_commonest(int(true.sum())), texts)[1]
        for name, times in (("sgd", 1), ("momentum", 20), ("adamw", 5)):
            change = descend(make_net(), texts, labels, OPTIMISERS[name], times)
            start = np.asarray(change.start["embed.weight"], np.float64)
            claimed = select_moved(measure_moves(change.change["embed.weight"], start), start)
            precision, recall = grade(claimed, texts)
            said = f"precision {precision:.3f} recall {recall:.3f} blind {blind:.3f}"
            yield f"{number:3} notes {name:9} {times:3} steps: {said}"


def play_span() -> Iterator[str]:
    for number in (1, 2, 4, 8, 16, 32):
        texts, labels = draw(number, number)
        change = descend(make_net(), texts, labels, OPTIMISERS["sgd"], 1)
        network = Network.from_change(change, know("classify"))
        assert network is not None
        found = read_first(network, [change])
        assert found is not None
        pairs = list_pairs(texts)
        said = read_texts(network, change, found.pairs, 64, 20_000)
        exact = int(compare_texts([strip(np.array(s)) for s in said], [strip(x) for x in texts]).exact.sum())
        precision, recall = grade(found.tokens, texts)
        yield (
            f"{number:3} notes: pairs {len(pairs)}, law {count_law(pairs)}, rank {found.rank}, "
            f"precision {precision:.3f} recall {recall:.3f}, texts exact {exact}, claimed {len(said)}"
        )


def warm(rank: int) -> Net:
    """Adapters whose B has been trained, by others, before."""
    net, (texts, labels) = make_net(rank=rank), draw(64, 99)
    descend(net, texts, labels, lambda p: torch.optim.AdamW(p, lr=1e-2), 20)
    return net


def play_adapters() -> Iterator[str]:
    """One round, q and v: precision and recall, by rank and notes."""
    for rank in (4, 8, 16, 32, 64):
        base = warm(rank)
        for number in (1, 2, 4, 8):
            texts, labels = draw(number, number)
            change = descend(copy.deepcopy(base), texts, labels, lambda p: torch.optim.SGD(p, lr=0.5), 1)
            network = Network.from_change(change, know("classify", rank))
            found = None if network is None else read_first(network, [change])
            if found is None:
                yield f"rank {rank}, {number} notes: nothing changed"
                continue
            precision, recall = grade(found.tokens, texts)
            yield (
                f"rank {rank}, {number} notes: law {count_law(list_pairs(texts))}, rank found {found.rank}, "
                f"precision {precision:.2f} recall {recall:.2f}"
            )


def play_ranked() -> Iterator[str]:
    """One round, q and v: precision at the true number of tokens, beside that of the commonest tokens."""
    known = Background.from_texts(load_notes().test.x, VOCABULARY)
    steps = {"sgd": (lambda p: torch.optim.SGD(p, lr=0.5), 1), "adamw": (OPTIMISERS["adamw"], 5)}
    for rank in (16, 4):
        base = warm(rank)
        for name, (step, times) in steps.items():
            for number in (1, 4, 16):
                texts, labels = draw(number, number)
                change = descend(copy.deepcopy(base), texts, labels, step, times)
                network = Network.from_change(change, know("classify", rank))
                found = None if network is None else read_first(network, [change])
                assert found is not None
                true = mark_tokens(texts, VOCABULARY)
                count = int(true.sum())
                ranked = float(true[np.argsort(-found.ranked, kind="stable")[:count]].mean())
                blind = float(true[known.order[:count]].mean())
                yield f"rank {rank}, {name}, {number} notes: ranked {ranked:.2f} blind {blind:.2f}"


def play_rounds() -> Iterator[str]:
    """Rank 4, q and v, B trained before; other clients' training moves the adapters between rounds."""
    for number in (1, 4, 8):
        net, (texts, labels), changes = warm(4), draw(number, number), list[Change]()
        law, found_by_round = count_law(list_pairs(texts)), []
        for round in range(12):
            changes.append(descend(net, texts, labels, lambda p: torch.optim.SGD(p, lr=0.5), 5))
            others = draw(16, 1000 + round)
            descend(net, *others, lambda p: torch.optim.AdamW(p, lr=1e-3), 2)
            if round + 1 in (1, 2, 4, 6, 8, 12):
                network = Network.from_change(changes[-1], know("classify", 4))
                assert network is not None
                found = read_first(network, changes)
                assert found is not None
                precision, recall = grade(found.tokens, texts)
                found_by_round.append(f"{round + 1}: rank {found.rank} recall {recall:.2f} ({precision:.2f})")
        yield f"{number} notes, law {law}: " + "; ".join(found_by_round)


def play_memory(cases: Sequence[tuple[str, int, int, float]] = MEMORY) -> Iterator[str]:
    """Four clients of 60 notes, five rounds: exposure by copies, and membership by loss, min-k and reference."""
    data = load_notes(patients=150, canaries=9, controls=6)
    rng, tokens, owner = np.random.default_rng(0), data.schema, data.train.owner
    assert tokens is not None and owner is not None
    secret = np.isin(owner, [c.owner for c in data.canaries if c.copies])
    chosen = [*np.flatnonzero(secret), *rng.permutation(np.flatnonzero(~secret))[: NOTES_IN_ALL - secret.sum()]]
    members, others = data.train.x[chosen], data.test.x
    parts = np.array_split(rng.permutation(len(members)), 4)
    sides = [
        Examples(x=x, y=np.zeros(len(x), np.int64)) for x in (members[~secret[chosen]], others)
    ]  # a text with a secret is told by it
    for name, rank, epochs, rate in cases:
        net = make_net("lm", rank)
        for _ in range(5):
            sent = []
            for part in parts:
                own = copy.deepcopy(net)
                optimiser = torch.optim.AdamW([p for p in own.parameters() if p.requires_grad], lr=rate)
                for _ in range(epochs):
                    for batch in np.array_split(rng.permutation(part), max(1, len(part) // BATCH)):
                        x = torch.from_numpy(members[batch])
                        optimiser.zero_grad()
                        own.loss(x, x[:, 0]).backward()  # type: ignore[no-untyped-call]
                        optimiser.step()
                sent.append(state_of(own))
            net.load_state_dict({k: torch.stack([s[k] for s in sent]).mean(0) for k in sent[0]})
        architecture = know("lm", rank).architecture
        assert architecture is not None
        model = architecture({k: v.numpy() for k, v in state_of(net).items()})
        base = architecture({k: v.numpy() for k, v in state_of(make_net("lm", rank)).items()})
        scores = [score_tokens(model, s.x.astype(np.int64)) for s in sides]
        before = [score_tokens(base, s.x.astype(np.int64)) for s in sides]
        rules: dict[str, Sequence[NDArray[np.float64]]] = {
            "loss": [average_tokens(s) for s in scores],
            "min-k": [average_lowest(s, 0.2) for s in scores],
            "reference": [average_tokens(s) - average_tokens(b) for s, b in zip(scores, before, strict=True)],
        }
        areas = {
            rule: stats.auc(m, o, groups=(np.arange(len(m)), np.arange(len(m), len(m) + len(o)))).value
            for rule, (m, o) in rules.items()
        }
        attack, exposures = CanaryExposure(), dict[int, list[float]]()
        for canary in data.canaries:
            exposures.setdefault(canary.copies, []).append(attack.rank_secret(model, tokens, canary, rng))
        said = ", ".join(f"{c} copies {np.mean(e):.1f}" for c, e in sorted(exposures.items()))
        yield f"{name}: exposure {said}; AUC " + ", ".join(f"{k} {v:.3f}" for k, v in areas.items())


PARTS = {
    "tokens": play_tokens,
    "span": play_span,
    "adapters": play_adapters,
    "ranked": play_ranked,
    "rounds": play_rounds,
    "memory": play_memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=[*PARTS])
    for part in parser.parse_args().parts:
        for line in PARTS[part]():
            print(f"{part}: {line}", flush=True)


if __name__ == "__main__":
    main()
