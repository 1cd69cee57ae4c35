"""One client's odd message is set aside and named; what most send oddly is a wrong statement, and is refused."""

import hashlib
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save
from safetensors.torch import load
from safetensors.torch import save as save_tensors

from fedaudit.audit.attestation.completeness import check_files
from fedaudit.audit.case.messages import read_arrivals
from fedaudit.audit.case.recorded import RecordedCase
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.evidence.files import read_result
from fedaudit.audit.importing import messages
from fedaudit.audit.importing.messages import whole_rounds
from fedaudit.audit.importing.protect_messages import copy_with_protections
from fedaudit.audit.importing.recorders.plain import Inbox
from fedaudit.audit.importing.summary import summary
from fedaudit.audit.observer.reach import Rounds, observed_rounds
from fedaudit.audit.phases.execute import execute
from fedaudit.audit.phases.import_ import ImportSources, bring
from fedaudit.audit.review.review import review
from fedaudit.audit.settings.config import Config
from fedaudit.audit.settings.errors import validate
from fedaudit.audit.settings.spec import PluginSpec
from fedaudit.fl.artifact import Channel
from fedaudit.fl.recording.recorder import MANIFEST, SET_ASIDE, lines, manifest, read, unread
from fedaudit.fl.runtime.errors import UserError
from fedaudit.reports.imported import ImportRecord
from fedaudit.reports.questions import State
from tests.audit.importing.theirs import check

Message = dict[str, dict[str, Any]]
Change = Callable[[Message], Any]
MODEL, COUNT = "local_model", "num_examples"
METHOD = {"name": "fedavg", "rounds": 3, "local_epochs": 1, "batch_size": 40, "lr": 0.5}


def write(
    folder: Path, change: Change, clients: int = 3, odd: tuple[int, ...] = (1,), rounds: Any = (1,)
) -> Path:
    """Three rounds of averaging on random labels; these clients' messages are changed in these rounds."""
    inbox, rng = Inbox(folder / "inbox"), np.random.default_rng(0)
    x, y = rng.random((clients, 40, 64)), rng.integers(0, 10, (clients, 40))
    model = {"head.weight": rng.normal(0, 0.1, (10, 64)).astype("f4"), "head.bias": np.zeros(10, "f4")}
    for t in range(3):
        inbox.message(t, "downlink", "server", ["client"], {"global_model": model})
        uploads = []
        for k in range(clients):
            scores = np.exp(x[k] @ model["head.weight"].T + model["head.bias"])
            wrong = scores / scores.sum(1, keepdims=True) - np.eye(10)[y[k]]
            uploads.append(
                {
                    "head.weight": (model["head.weight"] - 0.5 * wrong.T @ x[k] / 40).astype("f4"),
                    "head.bias": (model["head.bias"] - 0.5 * wrong.mean(0)).astype("f4"),
                }
            )
            sent: Message = {MODEL: dict(uploads[-1]), COUNT: {"count": np.array(40)}}
            if k in odd and t in rounds:
                change(sent)
            inbox.message(t, "uplink", inbox.client(f"hospital-{k}"), ["server"], sent)
        model = {n: np.mean([u[n] for u in uploads], axis=0).astype("f4") for n in model}
    return folder / "inbox"


def take(
    folder: Path, inbox: Path, model: str | None = "logreg", truth: Path | None = None, **states: Any
) -> tuple[RunDir, Config, ImportRecord]:
    subject = {
        "title": "a",
        "examples": {"classes": [str(i) for i in range(10)], "shape": [1, 8, 8]},
        "model": model,
        "method": METHOD if model else None,
    }
    settings = {"attacks": ["label_counts_from_update", "hidden_images"], "report": ["html"], "workers": 0}
    config = validate(Config, settings | {"subject": subject | states}, "test")
    found = bring(
        RunDir.create(folder / "run").path, config, ImportSources(inbox=inbox, truth=truth), lambda *_: None
    )
    return RunDir(folder / "run"), config, found


def put(array: str, value: Any, kind: str = MODEL) -> Change:
    return lambda m: m.setdefault(kind, {}).__setitem__(array, value)


def put_all(value: float, dtype: str = "f4") -> Change:
    return put("head.weight", np.full((10, 64), value, dtype))


MANY = {f"a{i}": np.zeros(1, "f4") for i in range(10_000)}
ODD: dict[str, tuple[Change, str]] = {
    "an array missing": (lambda m: m[MODEL].pop("head.bias"), "local_model lacks 'head.bias'"),
    "an array of nothing": (put("head.bias", np.zeros(0, "f4")), "holds 'head.bias' [0], and subject.model"),
    "an array of booleans": (put("head.bias", np.ones(10, bool)), "'head.bias' of its local_model is of whole"),
    "an array of whole numbers": (put("head.bias", np.ones(10, "i8")), "is of whole numbers"),
    "an array too many": (put("evil", np.zeros((2, 2), "f4")), "holds 'evil' [2, 2], and subject.model: unknown"),
    "ten thousand arrays": (
        lambda m: m[MODEL].update({f"a{i}": np.zeros(1) for i in range(10**4)}),
        "unknown to it",
    ),
    "another shape": (put("head.weight", np.zeros((64, 10), "f4")), "holds 'head.weight' [64, 10]"),
    "a number in place of an array": (put("head.bias", np.float32(1)), "holds 'head.bias' []"),
    "no number": (put_all(np.nan), "local_model/head.weight holds NaN or infinity"),
    "infinity": (put_all(np.inf), "holds NaN or infinity"),
    "too long for a length": (put_all(3e38), "holds 3e+38"),
    "too long for 32 bits": (put_all(1e300, "f8"), "holds 1e+300"),
    "a name that turns its line around": (
        put("\u202egpj", np.zeros(1, "f4")),
        "local_model holds '_gpj' [1], and",
    ),
    "a count below nothing": (put("count", np.array(-5), COUNT), "num_examples says -5 in 'count'"),
    "a count beyond everybody": (put("count", np.array(2**62), COUNT), "num_examples says 4.61169e+18"),
    "half an example": (put("count", np.array(40.5), COUNT), "num_examples says 40.5"),
    "a count of no number": (put("count", np.array(np.nan), COUNT), "num_examples/count holds NaN"),
    "a count in an array": (put("count", np.zeros((2, 2)), COUNT), "num_examples has 'count' of shape [2, 2]"),
    "a count under another name": (lambda m: m.update({COUNT: {"n": np.array(4)}}), "has no array 'count'"),
    "a class of nobody's": (
        lambda m: m.update({"proto_counts": {"classes": np.array([3, 99]), "counts": np.array([1, 1])}}),
        "proto_counts names class 99; 10 classes are stated",
    ),
    "counts of other classes": (put("counts", np.ones(7, int), "label_counts"), "'counts' of shape [7]"),
    "a kind of no arrays": (lambda m: m.update({MODEL: {}}), "local_model holds no array"),
    "images of another size": (
        put("images", np.zeros((2, 1, 5, 5), "f4"), "condensed_images"),
        "condensed_images has 'images' of shape [2, 1, 5, 5], expected [m, channels, H, W]; stated are C = 10",
    ),
    "a kind that is none": (put("x", np.zeros(3), "love_letter"), "'love_letter' is no kind"),
    "a kind of the server's": (put("head.bias", np.zeros(10, "f4"), "global_model"), "is what a server sends"),
    "a kind of other arrays": (put("w", np.zeros(3, "f4"), "model_delta"), "model_delta holds 'w' [3]"),
}
FINE: dict[str, Change] = {
    "nothing": lambda _: None,
    "half precision": put("head.bias", np.full(10, 0.1, "f2")),
    "double precision": put("head.bias", np.full(10, 0.1, "f8")),
    "zeros below zero": put("head.bias", np.full(10, -0.0, "f4")),
    "a count of no examples": put("count", np.array(0), COUNT),
    "a count with a point": put("count", np.array(40.0), COUNT),
    "a count in a list": put("count", np.array([40]), COUNT),
    "a million examples": put("count", np.array(10**6), COUNT),
    "arrays in another order": lambda m: m.update({MODEL: dict(reversed(m[MODEL].items()))}),
    "a kind of its own": put("x", np.zeros((3, 4)), "client:evil"),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_message_is_set_aside_and_named_and_the_others_are_taken_in(name: str, tmp_path: Path) -> None:
    change, phrase = ODD[name]
    inbox = write(tmp_path, change)
    run, _, found = take(tmp_path, inbox)
    (one,) = found.unread
    assert (one.sender, one.round, one.message) == ("client/1", 1, "r00001/client-1.uplink")
    assert phrase in one.why and one.why.isprintable() and len(one.why) < 500
    assert found.messages == 11 and found.clients == 3
    assert [c.text for c in found.checks if c.status == "contradicted"] == []
    assert check(found, "aggregate").status == "holds"  # of the round of which all was read
    file = f"{one.message}.safetensors"
    assert (run.artifacts / file).read_bytes() == (inbox / file).read_bytes()
    assert read_arrivals(run.artifacts) == {t: {0, 1, 2} for t in range(3)}


@pytest.mark.parametrize("name", FINE)
def test_what_can_be_read_is_read_however_unusual(name: str, tmp_path: Path) -> None:
    found = take(tmp_path, write(tmp_path, FINE[name]))[2]
    assert found.unread == [] and found.messages == 12


def test_a_type_that_numpy_has_not_is_measured_as_it_lies_there(tmp_path: Path) -> None:
    inbox = write(tmp_path, lambda message: None)
    told = [*lines(inbox)]
    for line in (line for line in told if "message" in line):
        file = inbox / f"{line['message']}.safetensors"
        short = {n: v.bfloat16() if v.is_floating_point() else v for n, v in load(file.read_bytes()).items()}
        file.write_bytes(save_tensors(short))
        line["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (inbox / MANIFEST).write_text("".join(json.dumps(line) + "\n" for line in told))
    run = take(tmp_path, inbox)[0]
    assert [*check_files(run.path, [*lines(run.artifacts)])] == []


@pytest.mark.parametrize(
    "name", ["another shape", "an array too many", "an array of booleans", "a kind that is none"]
)
def test_what_every_client_sends_in_one_way_is_a_wrong_statement(name: str, tmp_path: Path) -> None:
    inbox = write(tmp_path, ODD[name][0], odd=(0, 1, 2), rounds=range(3))
    with pytest.raises(UserError) as error:
        take(tmp_path, inbox)
    assert ODD[name][1] in error.value.sentence and "client-0" in error.value.sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["an array missing", "half an example", "a count below nothing"])
def test_what_every_client_sends_and_nobody_states_otherwise_is_not_odd(name: str, tmp_path: Path) -> None:
    found = take(tmp_path, write(tmp_path, ODD[name][0], odd=(0, 1, 2), rounds=range(3)))[2]
    assert found.unread == []


def test_a_client_whose_every_message_is_odd_is_a_client_that_was_not_read(tmp_path: Path) -> None:
    inbox = write(tmp_path, ODD["another shape"][0], odd=(2,), rounds=range(3))
    found = take(tmp_path, inbox)[2]
    assert found.clients == 3 and [u.sender for u in found.unread] == ["client/2"] * 3
    assert found.nodes["client/2"] == "hospital-2"
    assert (
        check(found, "aggregate").status == "open" and "No round was recorded" in check(found, "aggregate").text
    )


def test_of_two_clients_the_one_that_is_not_as_stated_is_odd(tmp_path: Path) -> None:
    inbox = write(tmp_path, ODD["another shape"][0], clients=2, rounds=range(3))
    assert [u.sender for u in take(tmp_path, inbox)[2].unread] == ["client/1"] * 3


def test_what_the_server_sends_is_never_odd(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox")
    inbox.message(0, "downlink", "server", ["client"], {"global_model": {"w": np.zeros(3, "f4")}})
    for k in range(3):
        inbox.message(0, "uplink", f"client/{k}", ["server"], {MODEL: {"w": np.zeros(3, "f4")}})
    with pytest.raises(UserError, match=r"r00000/server\.downlink/global_model holds 'w' \[3\]"):
        take(tmp_path, tmp_path / "inbox")


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("an array too many", "holds 'evil' [2, 2], which nobody else sends"),
        ("another shape", "holds 'head.weight' [64, 10] of numbers, and most clients send [10, 64]"),
        ("an array of booleans", "is of whole numbers"),
        ("an array missing", "lacks 'head.bias', which most clients send"),
        ("no number", "holds NaN"),
    ],
)
def test_without_a_stated_network_the_others_say_what_is_odd(name: str, phrase: str, tmp_path: Path) -> None:
    (one,) = take(tmp_path, write(tmp_path, ODD[name][0]), model=None)[2].unread
    assert phrase in one.why


def test_rows_of_features_are_as_long_as_those_of_most(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox")
    for k in range(3):
        rows = {"classes": np.arange(k + 1), "features": np.ones((k + 1, 7 if k == 1 else 8), "f4")}
        inbox.message(0, "uplink", f"client/{k}", ["server"], {"local_prototypes": rows})
    (one,) = take(tmp_path, inbox.folder, model=None)[2].unread
    assert "local_prototypes holds 'features' [7] of numbers, and most clients send [8]" in one.why


def test_layers_that_two_of_five_clients_leave_out_are_their_way_of_training(tmp_path: Path) -> None:
    inbox = write(tmp_path, ODD["an array missing"][0], clients=5, odd=(1, 3), rounds=range(3))
    assert take(tmp_path, inbox)[2].unread == []


def test_whole_numbers_of_one_client_make_no_counters_of_the_others(tmp_path: Path) -> None:
    """Where no model of the server was recorded, most clients say which arrays are counters."""
    inbox = Inbox(tmp_path / "inbox")
    for k in range(3):
        value = np.ones(3, "i8") if k == 0 else np.full(3, 0.25, "f4")
        inbox.message(0, "uplink", f"client/{k}", ["server"], {MODEL: {"w": value}})
    run, _, found = take(tmp_path, inbox.folder, model=None)
    assert [u.sender for u in found.unread] == ["client/0"]
    (line, _) = [x for x in manifest(run.artifacts) if "message" in x]
    file = f"{line['message']}.safetensors"
    assert (run.artifacts / file).read_bytes() == (inbox.folder / file).read_bytes()


def test_noise_that_is_claimed_makes_counts_that_are_none(tmp_path: Path) -> None:
    claim = [{"name": "discrete_laplace", "kinds": [COUNT], "scale": 20.0, "floor": False}]
    inbox = write(tmp_path, ODD["a count below nothing"][0])
    assert take(tmp_path, inbox, protections=claim)[2].unread == []


def test_filters_that_are_no_names_are_odd(tmp_path: Path) -> None:
    inbox = write(tmp_path, lambda _: None)
    told = [json.loads(x) for x in (inbox / MANIFEST).read_text().splitlines()]
    told[-1]["filters"] = [{"a": 1}]
    (inbox / MANIFEST).write_text("".join(json.dumps(x) + "\n" for x in told))
    (one,) = take(tmp_path, inbox)[2].unread
    assert "filters is no list of names" in one.why


def test_a_message_that_lists_nothing_and_holds_nothing_is_odd(tmp_path: Path) -> None:
    inbox = write(tmp_path, lambda _: None)
    told = [json.loads(x) for x in (inbox / MANIFEST).read_text().splitlines()]
    (inbox / f"{told[-1]['message']}.safetensors").write_bytes(save({}))
    told[-1] |= {"kinds": [], "sha256": hashlib.sha256(save({})).hexdigest()}
    (inbox / MANIFEST).write_text("".join(json.dumps(x) + "\n" for x in told))
    run, _, found = take(tmp_path, inbox)
    assert [u.why for u in found.unread] == ["r00002/client-2.uplink holds no array"]
    assert [*check_files(run.path, [*lines(run.artifacts)])] == []


def test_bfloats_of_one_client_are_read(tmp_path: Path) -> None:
    inbox = write(tmp_path, put("head.bias", np.zeros(10, "f2")))
    told = [json.loads(x) for x in (inbox / MANIFEST).read_text().splitlines()]
    line = next(x for x in told if x.get("message") == "r00001/client-1.uplink")
    path = inbox / f"{line['message']}.safetensors"
    data = path.read_bytes().replace(b'"F16"', b'"BF16"')
    data = (int.from_bytes(data[:8], "little") + 1).to_bytes(8, "little") + data[8:]
    path.write_bytes(data)
    line["sha256"] = hashlib.sha256(data).hexdigest()
    (inbox / MANIFEST).write_text("".join(json.dumps(x) + "\n" for x in told))
    run, _, found = take(tmp_path, inbox)
    assert found.unread == []
    (sent,) = [a for a in read(run.artifacts) if a.id == "r00001/client-1.uplink/local_model"]
    assert sent.payload["head.bias"].tolist() == [0] * 10


def test_what_a_recorder_could_not_keep_stays_open_unless_nothing_crossed(tmp_path: Path) -> None:
    inbox = write(tmp_path, put("head.bias", np.zeros(10, "f4")))
    with open(inbox / MANIFEST, "a") as file:
        file.write(
            '{"error":"client:records/note of client/1: TypeError","bytes":56,"round":1,"sender":"client/1"}\n'
        )
        file.write('{"error":"the answer of node 5: out of memory","bytes":0}\n')
    run, _, found = take(tmp_path, inbox)
    assert len(found.errors) == 2
    rounds = observed_rounds([*manifest(run.artifacts), *unread(run.artifacts)])
    assert rounds[Channel.UPLINK, SET_ASIDE] == Rounds(sent=frozenset({1}))


def test_a_round_with_an_unread_message_is_not_recomputed_and_the_plan_says_so(tmp_path: Path) -> None:
    inbox = write(tmp_path, ODD["no number"][0], rounds=(0,))
    run, _, _ = take(tmp_path, inbox)
    assert [r.number for r in whole_rounds(run.artifacts)] == [1]
    told = [*summary(inbox)]
    assert len(told) == 10 and any("odd and to be set aside: 1, first r00000/client-1.uplink" in x for x in told)
    assert "how the server makes its model: samples" in "\n".join(told)


def test_an_import_of_what_an_import_left_sets_the_same_aside(tmp_path: Path) -> None:
    run, _, first = take(tmp_path / "a", write(tmp_path, ODD["another shape"][0]))
    again = take(tmp_path / "b", run.artifacts)[2]
    assert again.unread == first.unread and again.messages == first.messages


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    folder = tmp_path_factory.mktemp("odd")
    run, config, _ = take(folder, write(folder, ODD["a kind that is none"][0], rounds=(2,)))
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    return run


def test_what_was_not_read_is_an_open_question_and_counted_in_the_coverage(audited: RunDir) -> None:
    result = read_result(audited.path)
    kinds = {kind for q in result.questions for kind in q.kinds}
    assert "example:unread" in kinds and {MODEL, COUNT} <= kinds
    left = [q for q in result.questions if {MODEL, "example:unread"} & set(q.kinds)]
    assert not any(q.state is State.CLEAR or q.has_limit for q in left)
    assert any("set aside unread" in q.why for q in left if MODEL in q.kinds)
    html = (audited.path / "report.html").read_text()
    assert "1 of 12 messages was not read. Unanswered: " in html
    assert "client/1, round 3: r00002/client-1" in html.replace("<wbr>", "")


@pytest.mark.parametrize("how", ["an array too many", "booleans beside it", "no number beside it"])
def test_an_image_in_a_message_that_was_set_aside_is_found(how: str, tmp_path: Path) -> None:
    """What cannot be read as what it is said to be is read as numbers, and stays open all the same."""
    beside = {"an array too many": 0.5, "booleans beside it": True, "no number beside it": np.nan}[how]
    rng = np.random.default_rng(1)
    people = {f"hospital-{k}": rng.random((40, 1, 8, 8)).astype("f4") for k in range(3)}
    (tmp_path / "truth").mkdir()
    for name, x in (people | {"own": rng.random((200, 1, 8, 8)).astype("f4")}).items():
        np.savez(tmp_path / "truth" / f"{name}.npz", x=x, y=np.arange(len(x)) % 10)

    def hide(sent: Message) -> None:
        sent[MODEL] |= {"evil": people["hospital-1"][7], "more": np.array([beside])}

    inbox = write(tmp_path, hide, rounds=range(3))
    run, config, found = take(tmp_path, inbox, truth=tmp_path / "truth")
    assert [u.sender for u in found.unread] == ["client/1"] * 3
    execute(run, config, ["attack", "account", "score", "report"], lambda *_: None, skip_finished=False)
    result = read_result(run.path)
    (hidden,) = [f for f in result.findings if f.id == "hidden_images"]
    (present,) = [e for e in hidden.evidence if e.measure == "image_present" and e.control == "none"]
    assert present.value == pytest.approx(1 / 3)  # of three clients, one of whom hides an image
    review(run, config)  # raises for evidence of what was not there to read
    asked = [q for q in result.questions if "example:unread" in q.kinds]
    assert asked and not any(q.state is State.CLEAR or q.has_limit for q in asked)


def test_the_run_folder_with_an_unread_message_is_whole(audited: RunDir) -> None:
    assert [*check_files(audited.path, [*lines(audited.artifacts)])] == []
    (line,) = unread(audited.artifacts)
    (audited.artifacts / f"{line['unread']}.safetensors").write_bytes(b"other")
    assert "is not the one that was recorded" in next(check_files(audited.path, [*lines(audited.artifacts)]))


def test_a_round_whose_counts_are_all_nothing_is_no_mean_by_counts_whatever_others_are() -> None:
    zero, one, ones = np.zeros(3), np.ones(3), np.ones(2)
    fine = messages._Round(0, zero, one, np.stack([one, one]), ones, steps=False)
    forged = messages._Round(1, one, 7 * one, np.stack([one, 2 * one]), 0 * ones, steps=False)
    assert messages.measure_means([fine])["samples"] == 0.0
    for rounds in ([fine, forged], [forged, fine]):
        found = messages.measure_means(rounds)
        assert found["samples"] == math.inf and found["uniform"] > 0.5


def test_a_copy_with_protections_keeps_what_was_set_aside_as_it_came(tmp_path: Path) -> None:
    run, config, _ = take(tmp_path, write(tmp_path, ODD["another shape"][0]))
    case = RecordedCase(config.require_recorded(), run.artifacts)
    clip = validate(PluginSpec, {"name": "quantise"}, "test")
    copy_with_protections(run.path, tmp_path / "copy", case.card, 0, [clip])
    copy = tmp_path / "copy" / "artifacts"
    assert [*unread(copy)] == [*unread(run.artifacts)] and len([*manifest(copy)]) > 12
    assert [*check_files(tmp_path / "copy", [*lines(copy)])] == []
