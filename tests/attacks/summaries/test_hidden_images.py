"""An image that stands among numbers is found whatever its scale, place and writing; among noise nobody's is."""

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

from fedaudit.attacks.attack import OF_OTHERS, Unseen
from fedaudit.attacks.evaluation.counting import find_strangers
from fedaudit.attacks.evaluation.ranking import compare_by_class
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evidence import Evidence
from fedaudit.attacks.summaries._reading import Reader, SentNumbers, write
from fedaudit.attacks.summaries._stretches import EXACT, fits
from fedaudit.attacks.summaries._where import Segment, choose_remedy, find_place
from fedaudit.attacks.summaries.hidden_images import HiddenImages, find_alike
from fedaudit.fl.artifact import Artifact, Channel, Party
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm
from tests.attacks.world import World

WORLD = World(sizes=(), clients=10)
IMAGES = WORLD.client_examples(0).x[:20]


def noise(seed: int, n: int = 1000) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(0, 0.1, n).astype(np.float32)


def in_values(numbers: NDArray[np.float32], image: NDArray[np.float32]) -> None:
    numbers[500 : 500 + image.size] = 2 - 0.3 * image.ravel()


def in_low_bits(numbers: NDArray[np.float32], image: NDArray[np.float32]) -> None:
    grey, bits = np.rint(16 * image.ravel()).astype(np.uint32), numbers.view(np.uint32)
    bits[70 : 70 + len(grey)] = (bits[70 : 70 + len(grey)] & ~np.uint32(31)) | grey


def in_signs(numbers: NDArray[np.float32], image: NDArray[np.float32]) -> None:
    numbers[: image.size] = np.where(image.ravel() > 0.5, -0.0, 0.0)


def in_whole_signs(numbers: NDArray[np.float32], image: NDArray[np.float32]) -> None:
    numbers[: image.size] = np.where(np.rint(image.ravel()) > 0, -0.1, 0.1)


@pytest.mark.parametrize(("hide", "least"), [(in_values, 0.999), (in_low_bits, 0.999), (in_signs, 0.85)])
def test_a_hidden_image_fits_and_the_others_do_not_as_well(hide: object, least: float) -> None:
    numbers = noise(0)
    hide(numbers, IMAGES[3])  # type: ignore[operator]
    found = fits(numbers, IMAGES)
    assert found.argmax() == 3 and found[3] > least and found.max() <= 1
    assert fits(noise(0), IMAGES).max() < 0.7


@pytest.mark.parametrize("width", [0, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("way", ["rounded", "cut off"])
def test_a_whole_image_is_all_but_exact_in_whatever_it_is_written(width: int, way: str) -> None:
    """In last bits and in signs (width 0): what is left of it in so few grey levels is what is sent."""
    if width == 0 and way == "cut off":
        return
    levels, image = 2 ** max(1, width), np.float64(IMAGES[3]).ravel()
    grey = np.rint(image * (levels - 1)) if way == "rounded" else np.minimum(image * levels, levels - 1)
    numbers = noise(0)
    some = numbers[70 : 70 + image.size]
    if width:
        bits = some.view(np.uint32)
        bits[:] = (bits & ~np.uint32(levels - 1)) | grey.astype(np.uint32)
    else:
        some[:] = np.where(grey > 0, -1, 1) * np.abs(some)
    found = fits(numbers, IMAGES)
    assert found[3] >= EXACT
    assert np.delete(found, 3).max() < EXACT


def test_an_image_of_few_pixels_is_told_from_chance_or_not_at_all() -> None:
    """Of 4 x 4 pixels, numbers take after thousands in sign or in two last bits; in four bits after none."""
    few = WORLD.client_examples(0).x[:10, :, ::2, ::2]
    small = np.concatenate([np.roll(few, shift, axis=-1) for shift in range(4)])
    like = np.where(np.random.default_rng(3).random((1000, 1, 4, 4)) < 0.5, 1.0, 0.0).astype(np.float32)
    assert fits(noise(0), np.concatenate([small, like])).max() < EXACT
    for image in few:
        numbers = noise(0)
        grey, bits = np.rint(15 * image.ravel()).astype(np.uint32), numbers.view(np.uint32)
        bits[70:86] = (bits[70:86] & ~np.uint32(15)) | grey
        assert fits(numbers, image[None])[0] >= EXACT


def test_where_nothing_tells_candidates_apart_members_are_first_as_often_as_they_are_many() -> None:
    """Of constant numbers nothing fits; the classes of members and others differ in size."""
    hits, chances = [], []
    rng = np.random.default_rng(0)
    for _ in range(300):
        y, other = rng.permutation([0, 0, 0, 0, 1]), rng.permutation([0, 1, 1, 1, 1, 1, 1, 1, 0, 0])
        first = compare_by_class(np.zeros(5), np.zeros(10), y, other)
        hits.append(first.hit)
        chances.append(first.chance)
    assert np.mean(hits) == pytest.approx(np.mean(chances), abs=1e-9)


def test_numbers_that_are_all_alike_or_too_few_hold_no_image() -> None:
    assert not fits(np.zeros(500, np.float32), IMAGES).any()
    assert not fits(noise(0, 63), IMAGES).any()
    assert np.isfinite(fits(np.full(100, np.nan, np.float32), IMAGES)).all()


def sent(hide: object, kind: Kind = Kind.PROXIES) -> list[Artifact]:
    found = []
    for k in range(10):
        numbers = noise(k)
        if hide is not None:
            hide(numbers, WORLD.client_examples(k).x[0])  # type: ignore[operator]
        like = replace(
            WORLD.artifacts[0], id=f"client-{k}.", kind=kind, channel=Channel.UPLINK, sender=Party.client(k)
        )
        found.append(replace(like, payload={"rows": numbers}))
    return found


def judged(view: list[Artifact], measure: str = "named") -> dict[str, Evidence]:
    attack = HiddenImages()
    claim = attack.run(view, WORLD.knowledge, np.random.default_rng(0))
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    return {e.control: e for e in found if e.measure == measure}


@pytest.mark.parametrize("hide", [in_values, in_low_bits, in_signs])
def test_clients_that_hide_an_image_are_found_in_every_way_of_writing(hide: object) -> None:
    found = judged(sent(hide))["none"]
    assert found.value == 1 and found.interval is not None and found.strongest is not None
    assert found.interval[0] > found.strongest.value + 0.05


def test_one_client_that_hides_one_is_enough_where_it_stands_all_but_exactly() -> None:
    silent, loud = sent(None), sent(in_values)
    found = judged([*loud[:1], *silent[1:]], "image_present")["none"]
    assert found.value == 0.1 and found.interval is not None and found.strongest is not None
    assert found.interval[0] > found.strongest.value == 0
    assert judged(silent, "image_present")["none"].value == 0
    assert judged(silent, "image_present")["positive"].value == 1


@pytest.mark.parametrize("row", [0, -1])
def test_whoever_of_a_client_s_people_stands_there_is_found(row: int) -> None:
    """However few of them a message may name."""
    loud = sent(None)
    numbers = noise(0)
    in_values(numbers, WORLD.client_examples(0).x[row])
    attack = HiddenImages(HiddenImages.Config(members=2))
    claim = attack.run(
        [replace(loud[0], payload={"rows": numbers}), *loud[1:]], WORLD.knowledge, np.random.default_rng(0)
    )
    found = attack.measure(claim, WORLD, np.random.default_rng(1))
    assert next(e.value for e in found if (e.measure, e.control) == ("image_present", "none")) == 0.1


def test_an_image_in_what_a_model_changed_by_is_read_as_one_in_the_model() -> None:
    # the model that was sent out hides it from who looks at the model alone
    received = replace(WORLD.artifacts[0], payload={"rows": 10 * noise(99)})
    assert received.kind == Kind.GLOBAL_MODEL
    hidden = [
        replace(a, kind=Kind.LOCAL_MODEL, payload={"rows": 10 * noise(99) + a.payload["rows"]})
        for a in sent(in_values)
    ]
    assert judged([received, *hidden], "image_present")["none"].value == 1
    assert judged(hidden, "image_present")["none"].value == 0


PIECE = 16  # pixels a round


def over_rounds(k: int, places: list[int] | None = None) -> list[NDArray[np.float32]]:
    """Four messages; in each a quarter of the client's image at the place of that round, in order."""
    image, messages = WORLD.client_examples(k).x[0].ravel(), [noise(100 * k + t) for t in range(4)]
    for t, at in enumerate(places or []):
        messages[t][at : at + PIECE] = 3 * image[t * PIECE : (t + 1) * PIECE]
    return messages


def rounds_of(messages: list[list[NDArray[np.float32]]]) -> list[Artifact]:
    like = sent(None)
    return [
        replace(like[k], id=f"client-{k}.{t}", round=t, payload={"rows": numbers})
        for k, each in enumerate(messages)
        for t, numbers in enumerate(each)
    ]


def test_an_image_in_pieces_at_one_place_in_successive_rounds_is_put_together() -> None:
    found = rounds_of([over_rounds(k, [40 * k] * 4) for k in range(10)])
    assert judged(found, "image_present")["none"].value == 1
    elsewhere = rounds_of([over_rounds(k, [10, 30, 50, 70]) for k in range(10)])  # the card says so
    assert judged(elsewhere, "image_present")["none"].value == 0
    assert judged(rounds_of([over_rounds(k) for k in range(10)]), "image_present")["none"].value == 0


@pytest.mark.sample(1)
@pytest.mark.parametrize("round", [0, 1, 2])
def test_an_image_in_an_earlier_round_than_the_last_is_found(round: int) -> None:
    messages = [over_rounds(k) for k in range(10)]
    in_values(messages[4][round], WORLD.client_examples(4).x[0])
    assert judged(rounds_of(messages), "image_present")["none"].value == 0.1


@pytest.mark.sample(1)
@pytest.mark.parametrize("hide", [in_low_bits, in_whole_signs])
@pytest.mark.parametrize("round", [0, 1])
def test_bits_and_signs_of_earlier_rounds_are_read_as_well(hide: object, round: int) -> None:
    messages = [over_rounds(k) for k in range(10)]
    hide(messages[4][round], WORLD.client_examples(4).x[0])  # type: ignore[operator]
    assert judged(rounds_of(messages), "image_present")["none"].value == 0.1


def test_messages_of_other_lengths_are_read_one_by_one() -> None:
    messages = [over_rounds(k) for k in range(10)]
    in_values(messages[4][1], WORLD.client_examples(4).x[0])
    messages[4][1] = messages[4][1][:700]
    assert judged(rounds_of(messages), "image_present")["none"].value == 0.1


def test_noise_holds_nobodys_image() -> None:
    found = judged(sent(None))
    for e in (found["none"], found["negative"]):
        assert e.interval is not None and e.strongest is not None
        assert e.interval[0] <= e.strongest.value
    assert found["positive"].value >= 0.9


def test_where_nothing_but_whole_numbers_is_sent_it_does_not_apply() -> None:
    silent = [replace(a, kind=Kind.NUM_EXAMPLES) for a in sent(None)]
    assert "no client sends" in HiddenImages().not_applicable(silent, WORLD.knowledge)


def test_every_example_of_every_client_is_asked_about_and_a_hidden_one_is_hit() -> None:
    silent, loud = sent(None), sent(in_values)
    attack = HiddenImages()
    claim = attack.run([*loud[:1], *silent[1:]], WORLD.knowledge, np.random.default_rng(0))
    (people,) = attack.count_people(claim, WORLD, np.random.default_rng(1))
    assert {k: len(rows) for k, rows in people.tested.items()} == dict(people.held)
    assert dict(people.held) == {k: len(WORLD.client_examples(k)) for k in range(10)}
    first = WORLD.people("client-0.", int(WORLD.client_examples(0).y[0]))[0][0]
    assert people.hit == {0: (first,)}
    assert (
        people.luck.hits == 0 and 1600 < people.luck.trials < 1800
    )  # held out, or another client's of its classes
    assert all(share.hits == share.trials >= 6 for share in people.planted.values()) and len(people.planted) == 10


def test_where_few_are_held_out_people_of_other_clients_show_that_no_copy_is_there_by_chance() -> None:
    """One record of each client stands in what it sends, and ten people are held out."""
    few = World(sizes=(), clients=10)
    few.reference = few.reference.only(np.arange(10))
    attack = HiddenImages()
    claim = attack.run(sent(in_values), few.knowledge, np.random.default_rng(0))
    (people,) = attack.count_people(claim, few, np.random.default_rng(1))
    assert sum(map(len, people.hit.values())) == 10 and people.luck.hits == 0
    assert people.luck.trials > sum(map(len, people.tested.values()))
    alone = find_strangers(few, {1}, few.client_examples(1), 100, np.random.default_rng(0))
    assert not len(alone)  # nobody's own record tells of chance


def count_hits(messages: dict[Kind, NDArray[np.float32]]) -> dict[Kind | None, Mapping[int, tuple[int, ...]]]:
    """Of the first client, which sends these; by kind."""
    first = sent(None)[0]
    view = [
        replace(first, id=f"r00000/client-0.uplink/{kind}", kind=kind, payload={"a": numbers})
        for kind, numbers in messages.items()
    ]
    attack = HiddenImages()
    claim = attack.run(view, WORLD.knowledge, np.random.default_rng(0))
    counted = attack.count_people(claim, WORLD, np.random.default_rng(1))
    assert {p.harm for p in counted} == {Harm.RECORD}
    return {p.kind: p.hit for p in counted}


def test_an_image_counts_in_the_kind_of_message_in_which_it_stands() -> None:
    first = WORLD.people("client-0.", int(WORLD.client_examples(0).y[0]))[0][0]
    for hide in (in_values, in_low_bits):
        loud = noise(0)
        hide(loud, WORLD.client_examples(0).x[0])
        found = count_hits({Kind.GRADIENT: noise(1), Kind.LOCAL_PROTOTYPES: loud})
        assert found == {Kind.GRADIENT: {}, Kind.LOCAL_PROTOTYPES: {0: (first,)}}


def test_an_image_across_messages_of_two_kinds_counts_in_both_together() -> None:
    first, pixels = WORLD.people("client-0.", int(WORLD.client_examples(0).y[0]))[0][0], IMAGES[0].ravel()
    halves = np.r_[noise(0), pixels[:30]], np.r_[pixels[30:], noise(1)]
    found = count_hits(dict(zip((Kind.GRADIENT, Kind.LOCAL_PROTOTYPES), halves, strict=True)))
    assert found == {Kind.GRADIENT: {}, Kind.LOCAL_PROTOTYPES: {}, None: {0: (first,)}}


def remedy(payload: dict[str, NDArray[np.float32]], kind: Kind = Kind.LOCAL_MODEL) -> str:
    """For the first client, which sends this; the others send noise."""
    silent = sent(None, kind)
    view = [replace(silent[0], payload=payload), *silent[1:]]
    attack = HiddenImages()
    claim = attack.run(view, WORLD.knowledge, np.random.default_rng(0))
    people = attack.count_people(claim, WORLD, np.random.default_rng(1))
    return attack.choose_remedy(claim, WORLD, people)


def test_a_row_of_a_layer_that_reads_pixels_is_no_doing_of_the_clients_code() -> None:
    weight = noise(0, 20 * 64).reshape(20, 64)
    weight[7] = -0.01 * WORLD.client_examples(0).x[3].ravel()
    said = remedy({"conv.bias": noise(1, 5), "first.weight": weight})
    assert "first.weight" in said and "raw pixels" in said and "aggregate" in said and "code writes" not in said


def test_an_image_where_none_belongs_is_looked_for_in_the_code() -> None:
    image = WORLD.client_examples(0).x[3].ravel()
    weight = noise(0, 20 * 64).reshape(20, 64)
    weight.ravel()[10:74] = image  # across two rows
    for payload in ({"first.weight": weight}, {"head.bias": np.concatenate([noise(0, 9), image])}):
        assert remedy(payload) == HiddenImages.card.remedy
    assert "code writes" in HiddenImages.card.remedy
    bits = noise(0)
    in_low_bits(bits, WORLD.client_examples(0).x[3])
    assert remedy({"head.bias": bits}) == HiddenImages.card.remedy


def test_images_that_are_sent_as_images_are_to_be_averaged() -> None:
    image = WORLD.client_examples(0).x[3].ravel()
    assert "mashed" in remedy({"x": np.stack([image, noise(0, 64)])}, Kind.MASHED_BATCH)


def test_an_image_that_is_planted_in_a_mean_of_ten_is_a_tenth_of_it() -> None:
    """Whoever writes it is averaged with nine others, among whose numbers it is no exact copy any more."""
    image, reader = WORLD.client_examples(0).x[0], Reader(SentNumbers(noise(0), 1, 1000), [])

    def fit(senders: int) -> float:
        return float(reader.fit_planted(image, image[None], senders, np.random.default_rng(1))[0, 0])

    assert fit(1) >= EXACT > fit(10)


def test_what_is_planted_in_a_model_is_in_what_it_changed_by_as_well() -> None:
    layout = [
        Segment(kind=Kind.LOCAL_MODEL, name="w", shape=(1000,), begin=b, end=b + 1000, is_change=b > 0)
        for b in (0, 1000)
    ]
    own = SentNumbers(np.r_[noise(0), np.zeros(1000, np.float32)], 1, 2000, layout)
    image = WORLD.client_examples(0).x[0]
    found = write(own, own.find_again(), image, 10, np.random.default_rng(1))
    best = [float(fits(numbers, image[None])[0]) for numbers in found]
    assert len(best) == 2 and max(best) > 0.9 > min(best)


def test_where_no_stretch_is_as_long_as_an_image_nothing_is_planted_and_nothing_fits() -> None:
    image, rng = WORLD.client_examples(0).x[0], np.random.default_rng(1)
    reader = Reader(SentNumbers(noise(0), 1, 1000), [])
    again = np.where(np.arange(1000) % 2, np.arange(1000), -1)  # every other number is a change
    vars(reader)["_again"] = again
    assert write(reader.sent, again, image, 1, rng) == []
    assert not reader.fit_planted(image, image[None], 1, rng).any()


def test_batches_of_one_name_and_of_unequal_length_are_no_changes_of_each_other() -> None:
    """A client of split learning sends activations batch by batch, and the last batch is shorter."""
    found = []
    for k in range(10):
        for i, size in enumerate((640, 640, 256)):
            numbers = noise(10 * k + i, size)
            if i == 1 and k < 3:
                numbers[: IMAGES[0].size] = WORLD.client_examples(k).x[0].ravel()
            found.append(replace(sent(None)[k], id=f"r00003/client-{k}.uplink.{i}/smashed", kind=Kind.SMASHED))
            found[-1] = replace(found[-1], payload={"activations": numbers.reshape(-1, 64)})
    assert {control: e.value for control, e in judged(found, "image_present").items()} == {
        "none": 0.3,
        "positive": 1.0,
        "negative": 0.0,
    }


def mix(rng: np.random.Generator, hidden: float = 0.0) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Rows of weights that mixtures of many people's images changed, and somebody in the first, so visibly."""
    x = WORLD.auxiliary.x.reshape(len(WORLD.auxiliary.x), -1)
    weights = rng.normal(0.02 * (WORLD.auxiliary.y[:, None] % 3 - 1), 0.02, (len(x), 20))
    rows = (weights.T @ x / len(x)).astype(np.float32)
    rows[0] += hidden * IMAGES[3].ravel()
    return rows.ravel(), IMAGES


def find(hidden: float, seed: int) -> list[int]:
    """Who is found in a sum of nine hundred people's, of some candidates and some of those people."""
    numbers, images = mix(np.random.default_rng(seed), hidden)
    reader = Reader.from_message(SentNumbers(numbers, 1, len(numbers)), SEVERAL, WORLD.auxiliary, 900)
    candidates = np.concatenate([images, WORLD.auxiliary.x])
    least = reader.find_least(reader.fit(WORLD.reference.x), len(candidates))
    return np.flatnonzero((reader.fit(candidates) >= least).any(axis=0)).tolist()


def test_a_row_of_a_sum_that_one_image_makes_is_no_doing_of_the_clients_code() -> None:
    """Honest training leaves it there too: an image that alone reaches a unit is what its row changes by."""
    for begin, names_layer in ((0, True), (10, False)):
        numbers, images = mix(np.random.default_rng(0))
        numbers[begin : begin + 64] += np.float32(0.02) * images[3].ravel()
        layout = [Segment(kind=Kind.AGGREGATE, name="first.weight", shape=(20, 64), begin=0, end=len(numbers))]
        sent = SentNumbers(numbers, 1, len(numbers), layout)
        first = Reader.from_message(sent, SEVERAL, WORLD.auxiliary, 900).find_stretch(images[3])
        assert first == begin
        assert ("first.weight" in choose_remedy([find_place(layout, first, 64)], "code")) == names_layer


@pytest.mark.parametrize("hidden", [0.02, 0.005])
def test_a_diluted_image_is_told_from_what_everybody_s_images_make_of_a_sum(hidden: float) -> None:
    numbers, images = mix(np.random.default_rng(0), hidden)
    assert fits(numbers, images).max() < EXACT
    assert find(hidden, seed=0) == [3]


def test_mixtures_in_which_nobody_s_image_stands_hold_nobody() -> None:
    """Neither those of whom they are made, nor others; by chance one message in a thousand does."""
    assert not [seed for seed in range(8) if find(0.0, seed)]


class Strangers(World):
    """The auditor's images are of people who write otherwise than the clients'."""

    def unseen(self, clients: Collection[int]) -> Unseen:
        return Unseen(self.reference, OF_OTHERS)


def test_a_style_that_held_out_people_do_not_have_is_no_image_in_a_sum() -> None:
    """Of an honest sum of theirs; whoever the auditor's own people are like is looked for, and nobody else."""
    x = WORLD.auxiliary.x.copy()
    x[::20, :, ::7, ::7] = 1  # one in twenty marks the corners
    weights = np.random.default_rng(0).normal(0, 0.02, (len(x), 20))
    rows = (weights.T @ x.reshape(len(x), -1) / len(x)).astype(np.float32).ravel()
    hits, strangers = {}, Strangers(sizes=(), clients=10)
    for truth in (WORLD, strangers):
        known = find_alike(truth, truth.unseen([0]))
        reader = Reader.from_message(SentNumbers(rows, 1, len(rows)), SEVERAL, known, len(x))
        least = reader.find_least(reader.fit(WORLD.reference.x), len(x))
        hits[truth] = int((reader.fit(x) >= least).any(axis=0).sum())
    assert hits[WORLD] > 0 and hits[strangers] == 0


def test_whoever_was_looked_for_before_fits_as_well_as_before() -> None:
    """Those of many images are found beside new ones, in whatever order they are asked about."""
    numbers = noise(3, 3000)
    in_values(numbers[2000:], IMAGES[4])
    reader = Reader(SentNumbers(numbers, 3, 1000), [])
    first, again = reader.fit(IMAGES[:8]), reader.fit(IMAGES[[9, 4, 2, 4]])
    assert first[0].argmax() == 4 and first[0, 4] >= EXACT
    assert again[0].tolist() == [again[0, 0], first[0, 4], first[0, 2], first[0, 4]]
    fresh = Reader(SentNumbers(numbers, 3, 1000), [])
    assert np.allclose(fresh.fit(IMAGES[[9]])[0], again[0, 0], atol=1e-6)


def test_a_row_of_a_table_is_told_from_all_others_and_a_mean_is_nobody_s() -> None:
    """Columns have other units, so that every row is all but exactly like every other at some scale."""
    rows = load_breast_cancer().data.astype(np.float32)[:60]
    assert fits(rows.mean(axis=0), rows).max() > EXACT
    numbers = np.concatenate([noise(0, 100), rows.mean(axis=0), 2 * rows[7] - 1, noise(1, 100)])
    layout = [Segment(kind=Kind.GRADIENT, name="w", shape=numbers.shape, begin=0, end=len(numbers))]
    reader = Reader(SentNumbers(numbers, 1, len(numbers), layout), [], rows)
    assert np.flatnonzero(reader.fit(rows)[0]).tolist() == [7]
    assert reader.tell_kinds(rows, reader.fit(rows)[0] > 0)[Kind.GRADIENT].nonzero()[0].tolist() == [7]
