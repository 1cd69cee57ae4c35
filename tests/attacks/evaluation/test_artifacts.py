"""The index gives what a search over all artifacts gives, in their order, however often it is asked."""

import itertools
import pickle

import numpy as np

from fedaudit.attacks.evaluation.artifacts import Artifacts, index, message_of
from fedaudit.fl.artifact import SERVER, Artifact, Channel, Party
from fedaudit.fl.kinds import Kind

KINDS = (Kind.GLOBAL_MODEL, Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES)
PARTIES = (SERVER, *(Party.client(k) for k in range(3)))
READERS = ("server", "client", "client/0", "client/1", "public")


def some(n: int = 400) -> list[Artifact]:
    rng = np.random.default_rng(0)
    found = []
    for i in range(n):
        kind, seen = KINDS[rng.integers(3)], rng.permutation(READERS)[: rng.integers(3)]
        found.append(
            Artifact(
                id=f"r{rng.integers(9)}/m{rng.integers(9)}/{kind}",
                kind=kind,
                channel=list(Channel)[rng.integers(2)],
                round=int(rng.integers(0, 30, endpoint=True)) // 3,
                sender=PARTIES[rng.integers(4)],
                seen_by=tuple(map(str, seen)),
                payload={"i": np.array(i)},
                origin=("recorded", "replayed")[rng.integers(2)],
            )
        )
    return found


VIEW = some()


def same(a: list[Artifact], b: list[Artifact]) -> bool:
    return [int(x.payload["i"]) for x in a] == [int(x.payload["i"]) for x in b]


def test_selected_are_those_that_a_search_gives_in_its_order() -> None:
    view = index(VIEW)
    for kind, round, sender in itertools.product(KINDS, range(12), PARTIES):
        wanted = [a for a in VIEW if (a.kind, a.round, a.sender) == (kind, round, sender)]
        assert same(view.select(kind=kind, round=round, sender=sender), wanted)
        recorded = [a for a in wanted if a.origin == "recorded"]
        first = view.find_first(kind=kind, round=round, sender=sender, origin="recorded")
        assert first is (recorded[0] if recorded else None)
    for a in VIEW:
        wanted = [b for b in VIEW if message_of(b) == message_of(a) and b.channel == a.channel]
        assert same(view.select(message=message_of(a), channel=a.channel), wanted)
    assert same(view.select(), VIEW)


def test_of_several_readers_one_is_enough_and_no_artifact_comes_twice() -> None:
    view = index(VIEW)
    for readers in itertools.permutations(READERS, 2):
        for round in range(12):
            wanted = [a for a in VIEW if a.round == round and {*readers} & {*a.seen_by}]
            assert same(view.select(round=round, seen_by=readers), wanted)
    assert view.select(seen_by=()) == []


def test_the_newest_is_that_of_a_search_for_every_reader() -> None:
    view = index(VIEW)
    for kind, round in itertools.product(KINDS, range(-1, 12)):
        for readers in (None, (), *itertools.combinations(READERS, 2), ("client/9",)):
            known = [a for a in VIEW if a.kind == kind and a.round <= round]
            known = [a for a in known if readers is None or {*readers} & {*a.seen_by}]
            assert view.newest(kind, round, readers) is max(known, key=lambda a: a.round, default=None)


def test_it_is_a_sequence_that_is_made_once() -> None:
    view = index(VIEW)
    assert index(view) is view and list(view) == VIEW and view[0] is VIEW[0] and view[-2:] == tuple(VIEW[-2:])
    assert len(view) == len(VIEW) and not index([]) and index(iter(VIEW)) == view
    assert index([]).newest(Kind.GLOBAL_MODEL, 3) is None and index([]).select(round=0) == []


def test_an_answer_can_be_changed_and_the_index_stays() -> None:
    view = index(VIEW)
    view.select(kind=Kind.LOCAL_MODEL).clear()
    assert same(view.select(kind=Kind.LOCAL_MODEL), [a for a in VIEW if a.kind == Kind.LOCAL_MODEL])


def test_another_process_gets_the_same() -> None:
    view = index(VIEW[:5])
    view.select(kind=Kind.LOCAL_MODEL)
    other = pickle.loads(pickle.dumps(view))
    assert isinstance(other, Artifacts) and same(other.select(round=1), view.select(round=1))
