"""All planted leaks: python -m tests.leaks [NAME ...] [--minutes 2]. Prints which were found, and by what."""

import argparse
import time

from tests.leaks.runs import LEAKS, found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=2.0, help="budget of each audit's attacks; 2")
    given = parser.parse_args()
    names, hits = given.names or list(LEAKS), 0
    for name in names:
        started = time.monotonic()
        by = found(name, given.minutes)
        hits += bool(by)
        print(f"{'FOUND ' if by else 'MISSED'}  {name}  ({time.monotonic() - started:.0f} s)", flush=True)
        for attack, (severity, words) in by.items():
            print(f"          {severity:9}{attack}: {words[:150]}", flush=True)
    print(f"{hits} of {len(names)} found")


if __name__ == "__main__":
    main()
