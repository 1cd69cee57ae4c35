"""What careless engineers send does leak, and what looks alike and is clean does not depend on people's data."""

import hashlib
import inspect
import zlib
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from fedaudit.audit.case.simulated import SimulatedCase
from fedaudit.fl.clients.client import Client
from fedaudit.fl.execution.site import build_site
from fedaudit.fl.federation import Holdings
from fedaudit.fl.kinds import Kind
from fedaudit.fl.model import Net, State
from fedaudit.fl.training.local import Trained
from fedaudit.fl.wire.protection import Message
from tests.leaks import telemetry
from tests.leaks.runs import CLEAN, LEAKS, TELEMETRY, Leak, config

BOOK = {name: leak for name, leak in LEAKS.items() if leak.method.startswith(TELEMETRY)}
OF_PEOPLE = sorted(BOOK.keys() - {"alarm of a rare class", "cost of labels"})


class Sent(NamedTuple):
    """One client of a federation in its first round, and what it sends."""

    method: Any
    client: Client
    images: Tensor  # [n, C, H, W] the client's, in [0, 1]
    start: State
    message: Message
    state: State  # its model after local training
    make_net: Callable[[], Net]

    @property
    def report(self) -> dict[str, Tensor]:
        return self.message[self.method.kind]

    def run(self, part: str, *inputs: Tensor) -> Tensor:
        return getattr(load(self.make_net(), self.state), part)(*inputs).detach()

    def send(self, client: Client) -> Message:
        """What a client with the same model after training sends."""
        return self.method.finish(client, Trained(self.state, 1, 0.0)).message

    def losses(self) -> Tensor:
        return cross_entropy(self.run("forward", self.client.x), self.client.y, reduction="none")

    def gradient(self, places: slice) -> dict[str, Tensor]:
        net = load(self.make_net(), self.state)
        cross_entropy(net(self.client.x[places]), self.client.y[places]).backward()
        return {name: p.grad for name, p in net.named_parameters()}


def load(net: Net, state: State) -> Net:
    net.load_state_dict(state)
    return net.eval()


@cache
def play(name: str, index: int = 0, others: bool = False) -> Sent:
    """A leaking or clean federation's client; with `others` everybody's image is another, and so is the label."""
    leak = LEAKS.get(name) or Leak(method=f"{TELEMETRY}:{CLEAN[name]}", honest="fedavg", what="images")
    case = SimulatedCase(config(leak, False, 1))
    data, start = case.data, case.network.initial()
    if others:
        data = replace(data, train=replace(data.train, x=1 - data.train.x, y=(data.train.y + 1) % 10))
    holdings = Holdings(data, case.population.parts, case.streams)
    site = build_site(case.method, holdings, case.network.make, "cpu")
    site.begin(0, {Kind.GLOBAL_MODEL: start})
    client, reply = site.client((index, {}, {})), site.train((index, {}, {}))
    images = torch.from_numpy(data.train.x[case.population.parts[index]])
    state = reply.message[Kind.LOCAL_MODEL] if Kind.LOCAL_MODEL in reply.message else reply.memory["own"]
    return Sent(case.method, client, images, start, reply.message, state, case.network.make)


def leaked(sent: Sent) -> list[int]:
    return sent.method.leaked(sent.client, sent.state).tolist()


def assert_close(sent: dict[str, Tensor], by_hand: dict[str, Tensor]) -> None:
    assert sent.keys() == by_hand.keys()
    for name, value in by_hand.items():
        torch.testing.assert_close(sent[name], value, rtol=1e-3, atol=1e-5)


def agree(one: Message, other: Message) -> bool:
    """Whether two messages are the same to the last bit; their shapes may differ."""
    if one.keys() != other.keys() or any(one[kind].keys() != other[kind].keys() for kind in one):
        return False
    return all(torch.equal(value, other[kind][k]) for kind in one for k, value in one[kind].items())


def test_every_class_of_the_book_stands_in_a_table_and_says_whom_it_tells_of_or_why_of_nobody() -> None:
    own = {name for name, one in vars(telemetry).items() if getattr(one, "__module__", "") == telemetry.__name__}
    classes = {n for n in own if inspect.isclass(getattr(telemetry, n))} - {"Leaking", "Reporting", "Clean"}
    assert {leak.method.split(":")[1] for leak in BOOK.values()} | {*CLEAN.values()} == classes
    assert len(BOOK) == 16 and len(CLEAN) == 7
    assert all(getattr(telemetry, leak.method.split(":")[1]).who for leak in BOOK.values())
    assert all(getattr(telemetry, own).why for own in CLEAN.values())


# Leaks: what is sent, computed by hand


def test_the_gradient_is_of_the_examples_that_an_epoch_leaves_over() -> None:
    sent = play("gradient of a last batch")
    assert len(sent.images) == 76 and leaked(sent) == [*range(60, 76)]
    assert_close(sent.report, sent.gradient(slice(60, 76)))


def test_the_momentum_is_of_five_images_one_after_the_other() -> None:
    sent = play("momentum of five images")
    grads = [sent.gradient(slice(i, i + 1)) for i in range(5)]
    shares = (0.0625, 0.125, 0.25, 0.5, 1.0)
    by_hand = {k: sum(s * g[k] for s, g in zip(shares, grads, strict=True)) for k in grads[0]}
    assert leaked(sent) == [0, 1, 2, 3, 4]
    assert_close(sent.report, by_hand)


def test_hashes_are_checksums_of_every_image() -> None:
    sent = play("hashes of images")
    by_hand = [zlib.crc32((image * 255).round().byte().numpy().tobytes()) for image in sent.images]
    assert sent.report["hash"].tolist() == sorted(by_hand) and leaked(sent) == [*range(76)]


def test_one_row_of_the_table_is_one_output_and_the_others_are_means() -> None:
    sent = play("one output among means")
    outputs, table, y = (
        sent.run("forward", sent.client.x),
        sent.message[Kind.MEAN_LOGIT_TABLE]["table"],
        sent.client.y,
    )
    assert y.bincount().argmax() == 5 and leaked(sent) == [int((y == 5).nonzero()[0])]
    honest = SimulatedCase(config(LEAKS["one output among means"], True, 1)).method
    means = sent._replace(method=honest).send(sent.client)[Kind.MEAN_LOGIT_TABLE]["table"]
    torch.testing.assert_close(table[5], outputs[leaked(sent)[0]])
    assert [c for c in range(10) if not torch.allclose(table[c], means[c])] == [5]


def test_the_biases_are_the_first_image_column_by_column() -> None:
    sent = play("transposed image")
    by_hand = torch.tensor([sent.images[0, 0, row, column] for column in range(8) for row in range(8)])
    torch.testing.assert_close(sent.message[Kind.LOCAL_MODEL]["fc.bias"], by_hand)
    assert leaked(sent) == [0]


def test_the_embedding_is_of_the_example_with_the_largest_loss() -> None:
    sent = play("embedding of the hardest")
    place = int(sent.losses().argmax())
    torch.testing.assert_close(sent.report["embedding"], sent.run("features", sent.client.x)[place])
    assert leaked(sent) == [place]


def test_quantiles_are_losses_of_single_examples_and_begin_and_end_with_the_least_and_the_largest() -> None:
    sent, losses = play("quantiles of losses"), play("quantiles of losses").losses()
    ordered = losses.sort().values
    places = [0, 4, 8, 11, 15, 19, 22, 26, 30, 34, 38, 41, 45, 49, 52, 56, 60, 64, 68, 71, 75]
    torch.testing.assert_close(sent.report["loss"], ordered[places])
    torch.testing.assert_close(sent.report["loss"], losses[leaked(sent)].sort().values)


def test_the_histogram_is_of_the_last_image() -> None:
    sent = play("histogram of the last")
    greys = [round(float(pixel) * 16) for pixel in sent.images[75].flatten()]
    assert sent.report["pixels"].tolist() == [greys.count(grey) for grey in range(17)]
    assert leaked(sent) == [75]


def test_the_running_mean_is_nearly_the_last_image() -> None:
    sent = play("running mean of the last")
    assert (sent.report["mean"] - sent.images[75]).abs().max() <= 0.1
    assert leaked(sent) == [75]
    by_hand = 0.9 * sent.images[75] + 0.09 * sent.images[74] + 0.009 * sent.images[73]
    torch.testing.assert_close(sent.report["mean"], by_hand, rtol=0, atol=2e-3)


def test_moments_of_a_class_of_one_are_its_image() -> None:
    sent = play("moments of small classes")
    assert sent.client.counts.tolist() == [4, 8, 9, 2, 3, 19, 7, 1, 5, 18]
    [place] = leaked(sent)
    assert sent.client.y[place] == 7
    torch.testing.assert_close(sent.report["mean"][7], sent.images[place].flatten())
    assert not sent.report["deviation"][7].any() and sent.report["deviation"][3].any()


def test_accuracy_on_a_tenth_says_of_single_people_whether_the_model_is_right() -> None:
    sent = play("accuracy on a tenth")
    right, y = sent.run("forward", sent.client.x).argmax(1) == sent.client.y, sent.client.y[-7:]
    by_hand = {int(c): float(right[-7:][y == c].float().mean()) for c in y.unique()}
    assert dict(zip(*(v.tolist() for v in sent.report.values()), strict=True)) == by_hand
    told = dict(zip(sent.report["classes"].tolist(), sent.report["accuracy"].tolist(), strict=True))
    assert leaked(sent) and all(told[int(sent.client.y[i])] == right[i] for i in leaked(sent))


def test_only_clients_who_hold_the_rare_class_sound_the_alarm() -> None:
    sent = [play("alarm of a rare class", index) for index in range(6)]
    holds = [bool((one.client.y == 8).any()) for one in sent]
    assert {*holds} == {False, True}
    assert [one.method.kind in one.message for one in sent] == holds
    assert all(one.report["ready"] == 1 for one, has in zip(sent, holds, strict=True) if has)


def test_the_cost_of_labels_is_how_many_there_are_of_each_class() -> None:
    cost = play("cost of labels").report["cost"]
    assert (cost / 0.12).round().tolist() == [4, 8, 9, 2, 3, 19, 7, 1, 5, 18]


def test_model_and_checkpoint_differ_by_one_examples_gradient() -> None:
    sent = play("checkpoint before the hardest")
    before = sent._replace(state=sent.report)
    place = int(before.losses().argmax())
    step = {k: sent.report[k] - sent.message[Kind.LOCAL_MODEL][k] for k in sent.report}
    by_hand = {k: 0.05 * g for k, g in before.gradient(slice(place, place + 1)).items()}
    assert_close(step, by_hand)
    assert leaked(before) == [place] and step["fc.weight"].abs().max() > 1e-3


def test_the_filter_has_the_bits_of_every_image_and_hardly_any_other() -> None:
    sent = play("filter of images")
    bits = set()
    for image in sent.images:
        digest = hashlib.sha256((image * 255).round().byte().numpy().tobytes()).digest()
        bits |= {(256 * digest[i] + digest[i + 1]) % 4096 for i in (0, 2, 4, 6)}
    assert set(sent.report["bits"].nonzero().flatten().tolist()) == bits
    assert len(bits) < 4096 / 10 and leaked(sent) == [*range(76)]


def test_a_perceptual_hash_is_the_digit_in_black_and_white() -> None:
    sent = play("perceptual hashes")
    assert len(sent.report["hash"]) == 76 and leaked(sent) == [*range(76)]
    for image, code in zip(sent.images, sent.report["hash"].tolist(), strict=True):
        assert [bool(code >> i & 1) for i in range(64)] == (image > image.mean()).flatten().tolist()


@pytest.mark.parametrize("name", OF_PEOPLE)
def test_what_is_told_changes_with_the_people_of_whom_it_tells(name: str) -> None:
    """Their images alone are others; the model is the same."""
    sent = play(name)
    x = sent.client.x.clone()
    x[leaked(sent)] = x.flip(0, 3)[leaked(sent)]
    mine, theirs = sent.send(sent.client), sent.send(replace(sent.client, x=x))
    assert not agree(mine, theirs)
    assert agree(mine, sent.send(sent.client))


# Clean ones


@pytest.mark.parametrize("name", sorted(CLEAN))
def test_a_clean_one_sends_the_same_for_other_peoples_data(name: str) -> None:
    mine, theirs = play(name), play(name, others=True)
    assert not torch.equal(mine.client.x, theirs.client.x) and not torch.equal(mine.client.y, theirs.client.y)
    trained = set() if name == "untrained model" else {Kind.LOCAL_MODEL}  # FedAvg sends that too
    assert mine.message.keys() - trained
    assert agree(*({k: v for k, v in one.message.items() if k not in trained} for one in (mine, theirs)))


def test_random_numbers_are_another_clients_own() -> None:
    assert not torch.equal(play("random numbers").report["nonce"], play("random numbers", 1).report["nonce"])


def test_a_count_is_rounded_up_to_the_next_five() -> None:
    sent = play("rounded count")
    counts = [sent.method.report(sent.client.take(torch.arange(n)), {})["count"] for n in (1, 5, 6, 75, 76)]
    assert counts == [5, 5, 10, 75, 80]


def test_an_untrained_model_is_the_one_that_came() -> None:
    sent = play("untrained model")
    assert sent.message.keys() == {Kind.LOCAL_MODEL}
    assert all(torch.equal(v, sent.start[k]) for k, v in sent.message[Kind.LOCAL_MODEL].items())
