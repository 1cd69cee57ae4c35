"""One attack on one case: run on what its adversary could see, measured against the truth, and its file."""

import dataclasses
import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedaudit.attacks.attack import Attack, Claim, Knowledge
from fedaudit.attacks.evaluation.artifacts import index
from fedaudit.attacks.evidence import Assertion, ImageGallery, is_replay
from fedaudit.audit.case.png import png
from fedaudit.audit.observer.reading import Opened, watch_reading
from fedaudit.audit.observer.truth import KnownTruth, MissingTruth
from fedaudit.audit.observer.view import absent, grant_knowledge, observer, select_visible
from fedaudit.audit.phases.attack_bench import Bench
from fedaudit.audit.phases.evidence import NOTHING, card_fields
from fedaudit.fl.artifact import Artifact
from fedaudit.fl.runtime.errors import UserError, describe_failure
from fedaudit.fl.runtime.records import check_returned
from fedaudit.fl.runtime.side_by_side import DeadPart

UNMEASURED = "it ran, and this federation has nothing that its claims could be measured on"
OF_UNKNOWN_CLIENTS = "what these clients hold is not known, so no claim about it can be checked"


def attack_once(attack: Attack, name: str, bench: Bench) -> dict[str, Any]:
    """One attack's file: what it is, whose view it had, and what it came to.

    Whatever an attack raises is its own failure, never the audit's end. Raises DeadPart where a part of it dies,
    which it may not do once more.
    """
    opened: Opened = {}
    started = time.perf_counter()
    result: dict[str, Any] = {"name": name, "card": card_fields(attack.card), "observer": ""}
    result |= {"status": "ran", "reason": "", **NOTHING}
    try:
        result |= _run_and_measure(attack, name, bench, opened)
    except DeadPart:
        raise
    except UserError as error:
        result |= {"status": "not_applicable", "reason": error.sentence}
    except (Exception, SystemExit) as error:  # noqa: BLE001
        result |= {"status": "failed", "reason": describe_failure(error)}
    read = [*(k for k in attack.card.reads if k in opened), *sorted(k for k in opened if k.open)]
    return result | {
        "read": read,
        "rounds": {k: sorted(opened[k]) for k in read},
        "seconds": time.perf_counter() - started,
    }


def _run_and_measure(attack: Attack, name: str, bench: Bench, opened: Opened) -> dict[str, Any]:
    """What the file of an attack that came to its end says; `opened` gains the kinds it read."""
    card, case = attack.card, bench.case
    artifacts = bench.artifacts(card)
    who = observer(case, artifacts, card)
    view = watch_reading(select_visible(artifacts, who, card, case.participation.heard or {}), opened)
    knowledge = grant_knowledge(case, card, lambda: bench.player)
    if (
        reason := bench.silence
        or card.explain_unfit(case.data.gives)
        or absent(case.card, knowledge, artifacts, view, card)
        or attack.not_applicable(view, knowledge)
    ):
        opened.clear()
        return {"observer": str(who), "status": "not_applicable", "reason": reason}
    gradable = _select_gradable(attack, view, knowledge, bench)
    if 0 < len(gradable) < len(view) and type(attack).assertions is Attack.assertions:  # its claims have no words
        result = _record_unverified(attack, name, bench, [], gradable, knowledge, OF_UNKNOWN_CLIENTS)
    else:
        claim = attack.run(view, knowledge, case.streams.numpy("attack", name))
        try:
            result = _measure(attack, claim, bench.truth, case.streams.numpy("measure", name))
            if not result["evidence"]:
                result |= {"status": "not_applicable", "reason": UNMEASURED}
        except MissingTruth as missing:
            assertions = _ask(attack, "assertions", claim, case.data.groups)
            reason = missing.sentence
            result = _record_unverified(attack, name, bench, assertions, gradable, knowledge, reason)
    result["observer"] = str(who)
    json.dumps(result)  # raises here, where it is this attack's failure, what the file could not hold
    return result


def _measure(attack: Attack, claim: Claim, truth: KnownTruth, rng: np.random.Generator) -> dict[str, Any]:
    evidence = _ask(attack, "measure", claim, truth, rng)
    people = _ask(attack, "count_people", claim, truth, rng)
    return {
        "evidence": [dataclasses.asdict(e) for e in evidence],
        "people": [dataclasses.asdict(p) for p in people],
        "remedy": _ask(attack, "choose_remedy", claim, truth, people),
        "galleries": [_encode(g) for g in _ask(attack, "galleries", claim, truth)],
        "texts": [dataclasses.asdict(t) for t in _ask(attack, "exhibits", claim, truth)],
        "curves": [dataclasses.asdict(c) for c in _ask(attack, "curves", claim, truth)],
    }


def _ask(attack: Attack, method: str, *given: Any) -> Any:
    """What a method of it returns; raises TypeError where that is not what its contract says."""
    value = getattr(attack, method)(*given)
    check_returned(type(attack).__name__, Attack, method, value)
    return value


def _select_gradable(
    attack: Attack, view: Sequence[Artifact], knowledge: Knowledge, bench: Bench
) -> Sequence[Artifact]:
    """Messages of clients whose examples the auditor knows, and what the auditor planted; empty where the attack
    cannot run on that."""
    targets = {*attack.card.pick_targets({a.kind for a in view})}
    gradable = index(a for a in view if a.kind not in targets or bench.truth.has_ground_truth(a))
    is_enough = any(a.kind in targets for a in gradable) and not attack.not_applicable(gradable, knowledge)
    return gradable if is_enough else ()


def _record_unverified(
    attack: Attack,
    name: str,
    bench: Bench,
    assertions: Sequence[Assertion],
    gradable: Sequence[Artifact],
    knowledge: Knowledge,
    reason: str,
) -> dict[str, Any]:
    """What an attack asserts of clients that nothing is known of, and what it comes to on `gradable`."""
    case = bench.case
    result: dict[str, Any] = {"status": "unverified", "reason": reason}
    result["assertions"] = [dataclasses.asdict(a) for a in assertions if a.client not in case.examples.parts]
    if not gradable:
        return result
    try:
        claim = attack.run(gradable, knowledge, case.streams.numpy("attack", name))
        result |= _measure(attack, claim, bench.partial_truth, case.streams.numpy("measure", name))
    except DeadPart:
        raise
    except UserError:  # what is left cannot be measured
        return result
    if any(
        e["control"] == "none" and not is_replay(str(e["condition"].get("origin", "")))
        for e in result["evidence"]
    ):
        result |= {"status": "ran", "reason": ""}
    return result


def _encode(gallery: ImageGallery) -> dict[str, Any]:
    rows = {name: [png(p) for p in images] for name, images in gallery.rows.items()}
    return {"title": gallery.title, "caption": gallery.caption, "columns": list(gallery.columns), "rows": rows}
