"""What this process may use of the machine."""

import os


def cores() -> int:
    """Cores this process may run on, which a container may have fewer of than the machine."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        return os.cpu_count() or 1
