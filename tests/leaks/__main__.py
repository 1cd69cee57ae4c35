"""All planted leaks: python -m tests.leaks [NAME ...] [--minutes 2]. Prints which were found, and by what.

With --guard, whether the guard of a site names them before they leave.
"""

import argparse
import time

from tests.leaks.guarded import UNSEEN, check_all
from tests.leaks.runs import LEAKS, found, read_words


def print_guard(name: str) -> None:
    (alarms, uploads), (false, honest) = check_all(name), check_all(name, honest=True)
    words = f"{alarms[0].check}: {alarms[0].text}" if alarms else f"not seen: {UNSEEN.get(name, '')}"
    print(f"{name} | {len(alarms)} of {uploads} | {words} | honest: {len(false)} of {honest}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=2.0, help="budget of each audit's attacks; 2")
    parser.add_argument("--guard", action="store_true", help="what a site's guard says of each instead")
    given = parser.parse_args()
    if given.guard:
        for name in given.names or LEAKS:
            print_guard(name)
        return
    names, hits = given.names or list(LEAKS), 0
    for name in names:
        started = time.monotonic()
        by = found(name, given.minutes)
        hits += bool(by)
        words = " | ".join(read_words(name, given.minutes))
        print(
            f"{'FOUND ' if by else 'MISSED'}  {name}: {words}  ({time.monotonic() - started:.0f} s)", flush=True
        )
        for attack, (severity, words) in by.items():
            print(f"          {severity:9}{attack}: {words[:150]}", flush=True)
    print(f"{hits} of {len(names)} found")


if __name__ == "__main__":
    main()
