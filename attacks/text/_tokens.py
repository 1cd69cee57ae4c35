"""Tokens claimed of messages, beside the texts behind them and beside adversaries who read nothing.

A message is a trial, however many texts stand behind it; a series of one client's messages that are read
together is one as well. Blind adversaries claim in the same trials: as many of the commonest tokens of
auxiliary text as the attack claims or there are, whichever is more; random auxiliary texts, as many as stand
behind the message; and what the same attack claimed of another message. A person is one text: hit where a rare
token is claimed that no other text behind the message has, or the text itself.

Claim, [k] a trial: artifact, origin, sender, round, n (texts behind a replayed one, 0: not known), messages
(read together), rank, tokens bool [k, V], ranked float64 [k, V] (NaN: nothing to rank), full bool [k];
sentences int64 [s, T] and sentence_of [s], the trial each is claimed of; classes, vocabulary and end (the token
that ends a text; 0: none) [].
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedaudit.attacks.attack import Attack, Claim, Knowledge, Truth
from fedaudit.attacks.evaluation.artifacts import list_senders
from fedaudit.attacks.evaluation.built import BuiltOnce
from fedaudit.attacks.evaluation.counting import CountedPeople, KindOfMessages, gather_people, split_kinds
from fedaudit.attacks.evaluation.judging import Judge
from fedaudit.attacks.evaluation.sums import SEVERAL
from fedaudit.attacks.evaluation.trials import (
    Bucket,
    Trial,
    collect_places,
    count_looks,
    find_members,
    hash_images,
    median_size,
    size_range,
)
from fedaudit.attacks.evidence import (
    REPLAYED,
    UNPROTECTED,
    Baseline,
    Evidence,
    RowExhibit,
    TextExhibit,
    TextPair,
    is_replay,
)
from fedaudit.attacks.modality.images import fingerprints
from fedaudit.attacks.modality.text import (
    COMMON_TOKENS,
    PADDING,
    RANDOM_TEXT,
    Background,
    Likeness,
    Overlap,
    align_texts,
    compare_texts,
    draw_texts,
    mark_claimed,
    mark_tokens,
    strip,
    write_pair,
)
from fedaudit.attacks.people import PeopleCount
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.kinds import Kind
from fedaudit.fl.threats.threat import Harm

Values = NDArray[np.float64]
Mask = NDArray[np.bool_]
WRONG = "what was claimed of another message"
FIRST = 3  # texts that are shown whatever is claimed of them
HIT = "a rare token that no other text behind the message has, or the whole text, is claimed"


@dataclass(frozen=True, kw_only=True)
class TokenReading:
    """What was claimed of one message, or of several of one sender."""

    artifact: str
    kind: Kind
    origin: str
    sender: int
    round: int
    tokens: Mask  # [V]
    n: int = 0
    messages: int = 1
    rank: int = 0
    ranked: Values | None = None  # [V]
    full: bool = False  # the span is all there is: nothing can be claimed
    sentences: Sequence[tuple[int, ...]] = ()


def make_claim(
    readings: Sequence[TokenReading],
    view: Sequence[Artifact],
    kinds: Sequence[Kind],
    vocabulary: int,
    knowledge: Knowledge,
) -> dict[str, NDArray[Any]]:
    """The claim as the head of this file says; `vocabulary`: how many tokens the network knows."""
    none, schema = np.full(vocabulary, np.nan), np.empty(1, object)
    schema[0] = knowledge.schema
    end = PADDING if knowledge.schema is None else knowledge.schema.end
    tokens = np.array([r.tokens for r in readings], np.bool_).reshape(len(readings), vocabulary)
    tokens[:, [PADDING, end]] = False  # they are in every text
    said = [(i, s) for i, r in enumerate(readings) for s in r.sentences]
    longest = max((len(s) for _, s in said), default=1)
    return {
        "artifact": np.array([r.artifact for r in readings]),
        "kind": np.array([r.kind.value for r in readings]),
        "origin": np.array([r.origin for r in readings]),
        "sender": np.array([r.sender for r in readings], np.int64),
        "round": np.array([r.round for r in readings], np.int64),
        "n": np.array([r.n for r in readings], np.int64),
        "messages": np.array([r.messages for r in readings], np.int64),
        "rank": np.array([r.rank for r in readings], np.int64),
        "full": np.array([r.full for r in readings], np.bool_),
        "tokens": tokens,
        "ranked": np.array([none if r.ranked is None else r.ranked for r in readings]).reshape(-1, vocabulary),
        "sentences": np.array([[*s, *[0] * (longest - len(s))] for _, s in said], np.int64).reshape(-1, longest),
        "sentence_of": np.array([i for i, _ in said], np.int64),
        **list_senders(view, *kinds),
        "classes": np.array(knowledge.classes),
        "vocabulary": np.array(vocabulary),
        "end": np.array(end),
        "schema": schema,
    }


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenTrial(Trial):
    """One message of which tokens are claimed, and the texts behind it."""

    artifact: str
    claimed: Mask  # [V]
    sentences: Sequence[tuple[int, ...]]
    ranked: Values  # [V]
    texts: Sequence[tuple[int, ...]]
    true: Mask
    owners: NDArray[np.int64]  # of each text, its client and row
    rows: NDArray[np.int64]
    held_out: Sequence[Mask]  # tokens of texts that nobody trained on, one each
    held_marks: Sequence[bytes]  # fingerprints of these texts
    guessed: Sequence[tuple[int, ...]]  # random auxiliary texts
    messages: int

    @property
    def number(self) -> int:
        """How many tokens a baseline claims."""
        return max(int(self.claimed.sum()), int(self.true.sum()))


class TokenAttack(Attack):
    """Base class: a subclass sets `card` and writes `run`, whose claim is that of make_claim."""

    def measure(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[Evidence]:
        world = self._trials(claim, truth)
        looks = count_looks(world.buckets)
        return [e for b in world.buckets for e in world.judge(b, looks, rng)] + world.judge_silent(rng)

    def count_people(self, claim: Claim, truth: Truth, rng: np.random.Generator) -> list[PeopleCount]:
        return self._trials(claim, truth).count_people()

    def exhibits(self, claim: Claim, truth: Truth) -> list[TextExhibit | RowExhibit]:
        return self._trials(claim, truth).show_texts()

    @cached_property
    def _trials(self) -> "BuiltOnce[TokenTrials]":
        return BuiltOnce(lambda claim, truth, _: TokenTrials(claim, truth))


@dataclass
class TokenTrials:
    """The trials of a claim: what is judged, and whom the claims hit."""

    claim: Claim
    truth: Truth
    background: Background = field(init=False)
    trials: list[TokenTrial] = field(init=False)

    def __post_init__(self) -> None:
        self._end = int(self.claim["end"])
        self.background = Background.from_texts(
            self.truth.auxiliary.x.astype(np.int64), int(self.claim["vocabulary"]), self._end
        )
        rng = np.random.default_rng(0)
        made = [self._make_trial(i, rng) for i in range(len(self.claim["artifact"]))]
        self.trials = [t for t in made if t is not None]

    def _make_trial(self, row: int, rng: np.random.Generator) -> TokenTrial | None:
        """None where the texts behind a message are not known."""
        claim, vocabulary = self.claim, int(self.claim["vocabulary"])
        artifact, labels = str(claim["artifact"][row]), range(int(claim["classes"]))
        if find_members(self.truth, artifact, labels) is None:
            return None
        behind, owners, rows = gather_people(self.truth, artifact, labels)
        texts = behind.x.astype(np.int64)
        sender = int(claim["sender"][row])
        clients = self.truth.find_contributors(artifact) if sender == SEVERAL else [sender]
        unseen = self.truth.unseen(clients).images
        marks = hash_images(behind.x)
        held_out = {
            mark: x.astype(np.int64)
            for mark, x in zip(fingerprints(unseen.x), unseen.x, strict=True)
            if mark not in marks
        }
        auxiliary = self.truth.auxiliary.x.astype(np.int64)
        return TokenTrial(
            row=row,
            origin=str(claim["origin"][row]),
            client=sender,
            n=len(texts),
            image_hashes=marks,
            artifact=artifact,
            claimed=claim["tokens"][row],
            sentences=[strip(s, self._end) for s in claim["sentences"][claim["sentence_of"] == row]],
            ranked=claim["ranked"][row],
            texts=[strip(x, self._end) for x in texts],
            true=mark_tokens(texts, vocabulary, self._end),
            owners=owners,
            rows=rows,
            held_out=[mark_tokens(x, vocabulary, self._end) for x in held_out.values()],
            held_marks=list(held_out),
            guessed=draw_texts(auxiliary, len(texts), rng, self._end),
            messages=int(claim["messages"][row]),
        )

    @cached_property
    def buckets(self) -> list[Bucket[TokenTrial]]:
        """By origin, about as many texts, and how many messages were read together; of each sender its latest."""
        latest: dict[tuple[str, int], int] = {}
        for t in self.trials:
            if t.origin == "recorded":
                key = t.origin, t.client
                latest[key] = max(latest.get(key, -1), int(self.claim["round"][t.row]))
        chosen = [
            t
            for t in self.trials
            if t.origin != "recorded" or int(self.claim["round"][t.row]) == latest[t.origin, t.client]
        ]
        places = collect_places(chosen, lambda t: (t.origin, size_range(t.origin, t.n)))
        return [self._make_bucket(places[where]) for where in sorted(places)]

    def _make_bucket(self, trials: Sequence[TokenTrial]) -> Bucket[TokenTrial]:
        origin, n = trials[0].origin, median_size(t.n for t in trials)
        planted = origin in (REPLAYED, UNPROTECTED) and n == 1
        rounds = median_size(t.messages for t in trials)
        return Bucket(
            trials=trials,
            condition={"n": n, **({"messages": rounds} if rounds > 1 else {}), "origin": origin},
            control="positive" if planted else "none",
            note="made by the auditor: what the attack can do" if is_replay(origin) else "",
        )

    def judge(self, b: Bucket[TokenTrial], looks: int, rng: np.random.Generator) -> list[Evidence]:
        """Rare tokens, all tokens, whole texts, and the order of tokens, beside the baselines."""
        judge, vocabulary = b.judge(looks), int(self.claim["vocabulary"])
        claims = {
            "": [t.claimed for t in b.trials],
            COMMON_TOKENS: [self.background.claim_commonest(t.number) for t in b.trials],
            RANDOM_TEXT: [_mark(t.guessed, vocabulary) for t in b.trials],
            WRONG: [self._find_other(t).claimed for t in b.trials if self._find_other(t) is not t],
        }
        if len(claims[WRONG]) < len(b.trials):
            del claims[WRONG]
        overlaps = {
            name: [
                Overlap.from_claim(c, t.true, self.background.rare) for c, t in zip(some, b.trials, strict=True)
            ]
            for name, some in claims.items()
        }

        def state(measure: str, of: dict[str, list[Any]], note: str = "") -> list[Evidence]:
            """Trials without such tokens say nothing."""
            able = [i for i, value in enumerate(of[""]) if value is not None]
            if not able:
                return []
            values = {name: np.array([some[i] for i in able], np.float64) for name, some in of.items()}
            own = values.pop("")
            notes = "; ".join(filter(None, (note, b.note)))
            return [
                judge.judge_values(
                    measure,
                    own,
                    values,
                    rng,
                    groups=b.clients[able],
                    bounds=(0, 1),
                    is_blind_bounded=True,
                    note=notes,
                )
            ]

        judge = replace(judge, note="")
        found = state(
            "rare_token_recall",
            {name: [o.rare_recall for o in some] for name, some in overlaps.items()},
            "tokens in less than one auxiliary text in a hundred",
        )
        found += state("token_f1", {name: [o.f1 for o in some] for name, some in overlaps.items()})
        found += state("token_recall", {name: [o.recall for o in some] for name, some in overlaps.items()})
        found += state("token_precision", {name: [o.precision for o in some] for name, some in overlaps.items()})
        if any(t.sentences for t in self.trials):
            likeness = self._compare_sentences(b)
            number = f"{sum(len(t.sentences) for t in b.trials)} claimed of {sum(t.n for t in b.trials)} texts"
            exact = {name: [x.exact.mean() for x in some] for name, some in likeness.items()}
            found += state("exact_text", exact, number)
            found += state("rouge_l", {name: [x.rouge_l.mean() for x in some] for name, some in likeness.items()})
        if any(np.isfinite(t.ranked).any() for t in b.trials):
            found += state("ranked_token_precision", self._order_tokens(b), "as many tokens as there are")
        return found

    def _compare_sentences(self, b: Bucket[TokenTrial]) -> dict[str, list[Likeness]]:
        found = {
            "": [compare_texts(t.sentences, t.texts) for t in b.trials],
            RANDOM_TEXT: [compare_texts(t.guessed, t.texts) for t in b.trials],
        }
        others = [self._find_other(t) for t in b.trials]
        if all(o is not t for o, t in zip(others, b.trials, strict=True)):
            found[WRONG] = [compare_texts(o.sentences, t.texts) for o, t in zip(others, b.trials, strict=True)]
        return found

    def _order_tokens(self, b: Bucket[TokenTrial]) -> dict[str, list[float | None]]:
        """Precision of the first tokens of the attack's order, and of the commonest, as many as there are."""
        found: dict[str, list[float | None]] = {"": [], COMMON_TOKENS: []}
        for t in b.trials:
            number = int(t.true.sum())
            if not np.isfinite(t.ranked).any() or not number:
                found[""].append(None)
            else:
                order = np.argsort(-np.nan_to_num(t.ranked, nan=-np.inf), kind="stable")
                found[""].append(float(t.true[order[:number]].mean()))
            found[COMMON_TOKENS].append(float(t.true[self.background.order[:number]].mean()) if number else 0.0)
        return found

    def judge_silent(self, rng: np.random.Generator) -> list[Evidence]:
        """Rare tokens of texts that nobody trained on, in the place of the members': claimed as often as any
        other.
        """
        values, chances, clients = [], [], []
        for t in self.trials:
            strange = self.background.rare & ~t.true
            own = [h & strange for h in t.held_out[: t.n]]
            if any(h.any() for h in own):
                values.append(float(np.mean([t.claimed[h].mean() for h in own if h.any()])))
                chances.append(float(t.claimed[strange].mean()))
                clients.append(t.client)
        if not values:
            return []
        judge = Judge(control="negative", note="rare tokens of texts that nobody trained on")
        groups = np.array(clients)
        interval = judge.bound_mean(np.array(values), rng, groups=groups, bounds=(0, 1))
        blind = [Baseline(name="any other rare token", value=float(np.mean(chances)))]
        return [judge.state("rare_token_recall", float(np.mean(values)), len(values), interval, blind)]

    def show_texts(self) -> list[TextExhibit | RowExhibit]:
        """Some texts of clients above what is claimed of them: the first, then the best, median and worst."""
        schema = self.claim["schema"][0]
        shown = list[tuple[float, str, TextPair]]()
        for t in (t for b in self.buckets if b.control == "none" and b.origin == "recorded" for t in b.trials):
            given = compare_texts(t.sentences, t.texts)
            for i, text in enumerate(t.texts):
                if t.sentences:
                    marked = align_texts(t.sentences[given.claim[i]] if given.claim[i] >= 0 else (), text)
                else:
                    marked = mark_claimed(text, t.claimed)
                score = float(np.mean([m in ("right", "elsewhere") for _, m in marked])) if marked else 0.0
                name = f"client {t.client}, text {i + 1}" if t.client != SEVERAL else f"sum, text {i + 1}"
                shown.append((score, name, write_pair(name, text, marked, schema)))
        if not shown:
            return []
        order = sorted(range(len(shown)), key=lambda i: (-shown[i][0], i))
        chosen = dict.fromkeys([*range(min(FIRST, len(shown))), order[0], order[len(order) // 2], order[-1]])
        caption = (
            f"The first {min(FIRST, len(shown))} of {len(shown)} texts, then the one that is read best, the "
            "median and the worst."
        )
        what = (
            "Texts read from what clients sent"
            if any(t.sentences for t in self.trials)
            else ("Words read from what clients sent; their order is not claimed")
        )
        return [TextExhibit(title=what, caption=caption, pairs=[shown[i][2] for i in chosen])]

    def _find_other(self, trial: TokenTrial) -> TokenTrial:
        """Another message of the same origin that shares no text, of another client where there is one."""
        others = [t for t in self.trials if t.origin == trial.origin and t.is_apart(trial)]
        others = [t for t in others if t.client != trial.client] or others
        return others[trial.row % len(others)] if others else trial

    def count_people(self) -> list[PeopleCount]:
        """Whom the claims hit, over all that was read."""
        return [count for part in split_kinds(self.claim) for count in self._count_kind(part)]

    def _count_kind(self, part: KindOfMessages) -> list[PeopleCount]:
        found, lucky = CountedPeople(HIT, Harm.RECONSTRUCTION, part.kind), dict[tuple[int, bytes], bool]()
        behind: dict[int, set[int]] = {}
        for t in self.trials:
            if part.recorded[t.row]:
                hit = self._find_hit(t)
                for k in np.unique(t.owners).tolist():
                    own = t.owners == k
                    found.test(k, t.rows[own], t.rows[own & hit])
                behind.setdefault(t.client, set()).update(t.owners.tolist())
                for mark, held in zip(t.held_marks, t.held_out, strict=True):
                    is_hit = bool((held & self.background.rare & ~t.true & t.claimed).any())
                    lucky[t.client, mark] = lucky.get((t.client, mark), False) or is_hit
            elif t.n == 1 and t.origin == REPLAYED:
                found.plant(t.client, float(self._find_hit(t)[0]), 1)
        for (sender, text), is_hit in lucky.items():
            found.luck(float(is_hit), 1, person=text, clients=behind[sender])
        for client in part.senders:
            if not found.holds(client):
                found.hold_at_least(client, len(self.truth.client_examples(client)))
        return found.people(self.truth)

    def _find_hit(self, t: TokenTrial) -> Mask:
        """Of each text behind a message, whether the claim names it."""
        vocabulary = len(self.background.holding)
        each = np.array([_mark([text], vocabulary) for text in t.texts])
        alone = each & (each.sum(axis=0) == 1) & self.background.rare & t.claimed
        exact = compare_texts(t.sentences, t.texts).exact
        return np.asarray(alone.any(axis=1) | exact)


def _mark(texts: Sequence[tuple[int, ...]], vocabulary: int) -> Mask:
    found = np.zeros(vocabulary, np.bool_)
    for text in texts:
        found |= mark_tokens(np.array(text, np.int64), vocabulary)
    return found
