"""Summary metrics over the rounds. Accuracies are fractions of the test set."""

import itertools
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedaudit.reports.result import History


def summary(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Best, final and last-50 accuracy, round variance, class dispersion, traffic and diversity.

    Drops and increases are differences of successive measured rounds (FedDC's round variance); an
    empty set gives 0. class_std is the sample standard deviation of the per-class accuracies,
    averaged over rounds: what FedDC prints as class variance.
    """
    measured = [r for r in history if r.get("accuracy") is not None]
    found: dict[str, float] = {
        "rounds": float(len(history)),
        "bytes_up": float(sum(r.get("bytes_up", 0) for r in history)),
        "bytes_down": float(sum(r.get("bytes_down", 0) for r in history)),
        "samples_used": float(sum(r.get("samples_used", 0) for r in history)),
        "participants_mean": statistics.fmean(r.get("delivered", 0) for r in history) if history else 0.0,
        "weight_diversity_last": float(history[-1].get("weight_diversity", 0.0)) if history else 0.0,
    }
    if short := sum(bool(r.get("too_few")) for r in history):
        found["rounds_too_few_uploads"] = float(short)
    lengths = [r["round_length"] for r in history if "round_length" in r]
    if lengths:
        found |= {"round_length_mean": statistics.fmean(lengths), "simulated_time": sum(lengths)}
        found["round_length_std"] = statistics.pstdev(lengths)
        found |= participation(history)
    if history and "clock" in history[-1]:  # relays and asynchronous rounds keep the time
        found["simulated_time"] = float(history[-1]["clock"])
    if not measured:
        return found
    accuracy = [float(r["accuracy"]) for r in measured]
    last = accuracy[-50:]
    found |= {
        "accuracy_best": max(accuracy),
        "accuracy_final": accuracy[-1],
        "accuracy_last50_mean": statistics.fmean(last),
        "accuracy_last50_std": statistics.pstdev(last),
    } | round_variance(accuracy)
    if by_class := [r["class_accuracy"] for r in measured if r.get("class_accuracy")]:
        found["worst_class_final"] = float(min(by_class[-1]))
    if "asr" in measured[-1]:
        found["asr_final"] = float(measured[-1]["asr"])
    spreads = [statistics.stdev(r["class_accuracy"]) for r in measured if len(r.get("class_accuracy", [])) > 1]
    if spreads:
        found["class_std"] = statistics.fmean(spreads)
        found["class_var"] = statistics.fmean(s * s for s in spreads)
    return found


def participation(history: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Jain's index of how often each client was heard, and how much of what was heard slow devices sent.

    The index is (sum x)^2 / (K sum x^2), 1 where all take part alike, 1/K where one does. The share of the slower
    half of the devices is divided by its share of the clients: 1 where it sends as much as the others.
    """
    rounds = [r for r in history if "heard" in r]
    counts = Counter(k for r in rounds for k in r["heard"])
    heard = sum(counts.values())
    if not heard or not rounds[-1]["clients_slow"]:
        return {}
    clients, squares = rounds[-1]["clients"], sum(n * n for n in counts.values())
    slow = sum(r["heard_slow"] for r in rounds) / heard
    return {
        "jain_index": heard**2 / (clients * squares),
        "slow_devices_heard": slow * clients / rounds[-1]["clients_slow"],
    }


def round_variance(accuracy: Sequence[float]) -> dict[str, float]:
    """Largest drop (negative), mean drop and mean increase between successive rounds."""
    steps = [b - a for a, b in itertools.pairwise(accuracy)]
    drops, rises = [d for d in steps if d < 0], [d for d in steps if d >= 0]
    return {
        "max_drop": min(drops, default=0.0),
        "avg_drop": statistics.fmean(drops) if drops else 0.0,
        "avg_increase": statistics.fmean(rises) if rises else 0.0,
    }


def keep_known(record: Mapping[str, Any]) -> History:
    """A round as audit.json has it; numbers that no key stands for are its `values`."""
    known = set(History.model_fields) - {"values"}
    values = {k: float(v) for k, v in record.items() if k not in known and isinstance(v, int | float)}
    return History(**{k: v for k, v in record.items() if k in known}, values=values)
