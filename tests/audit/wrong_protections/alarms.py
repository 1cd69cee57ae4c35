"""How often correct runs alarm: python -m tests.audit.wrong_protections.alarms --count 200

Whole audits of tiny federations whose protections and draws are what they say, each with a seed of its own. The
verifier and the lints may err once in a million runs; canaries at 95 % in one of twenty.
"""

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.audit.wrong_protections.audited import Seen, audited

COINS = "availability: {name: bernoulli, p: 0.5}\n  empty_round: skip"
LASTING = "availability: {name: persistent, p: 0.5, period: 2}\n  empty_round: skip"
SIZED = "availability: {name: uniform, count: 3}"
CORRECT: dict[str, tuple[str, str]] = {  # protections, who takes part
    "local noise": ("dp_gaussian", "availability: full"),
    "local noise of some": ("{name: laplace, kinds: [local_model], clip_norm: 2.0, scale: 0.7}", COINS),
    "central noise, coins": ("central_dp", COINS),
    "central noise, coins that last": ("central_dp", LASTING),
    "central noise, a fixed number": ("central_dp", SIZED),
    "shares of noise": ("{name: dp_gaussian, contributors: 6}, secure_aggregation", "availability: full"),
    "rounding after it": ("dp_gaussian, quantise", "availability: full"),
    "private training": ("{name: dp_sgd, sample_rate: 0.2, steps: 3}", COINS),
}


def runs(count: int, canaries: int) -> list[tuple[str, Seen]]:
    """What was seen of so many correct runs, of each kind in turn."""
    found = []
    for seed in range(count):
        name = list(CORRECT)[seed % len(CORRECT)]
        protections, drawn = CORRECT[name]
        with TemporaryDirectory() as folder:
            changes = {"availability: full": drawn, "canaries: 40": f"canaries: {canaries}"}
            seen = audited(protections, Path(folder), changes, seed=1000 + seed)
        found.append((name, seen))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--canaries", type=int, default=40, help="0 leaves the audits of noise out")
    given = parser.parse_args()
    found = runs(given.count, given.canaries)
    for name in CORRECT:
        own = [seen for n, seen in found if n == name]
        by = {who: sum(bool(getattr(seen, who)) for seen in own) for who in ("verifier", "lints", "canaries")}
        print(f"{name:32} {len(own):4} runs, alarms: {by}", flush=True)
    for name, seen in found:
        if seen.named or seen.not_audited:
            print(f"{name}: {seen}")


if __name__ == "__main__":
    main()
