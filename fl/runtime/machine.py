"""What this process may use of the machine."""

import os
from pathlib import Path

from fedaudit.fl.runtime.errors import UserError

# Where data sets are that were downloaded once. Where nobody's home is known this is a path of no folder
DATA = Path(os.path.expanduser("~/.cache/fedaudit"))


def cores() -> int:
    """Cores this process may run on, which a container may have fewer of than the machine."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS or Windows
        return os.cpu_count() or 1


def cores_of_rank() -> int:
    """Cores of this rank of a torchrun job: those of the machine, shared by its ranks."""
    return max(1, cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def processor_seconds() -> float:
    """Seconds of processor time of this process and of those it started that ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


_is_ours = False


def own_process() -> None:
    """Say that this process runs nothing but fedaudit: a command or a worker, no program of a user's."""
    global _is_ours
    _is_ours = True


def hide_unused(device: str) -> None:
    """Hide CUDA devices from a process of ours that computes on the processor alone.

    It can be copied then (`workers.can_fork`). To be called before anything asks what devices there are, as the
    driver reads this once; later it changes nothing.
    """
    if _is_ours and device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def choose_device(wanted: str) -> str:
    """The device wanted, or CUDA where `auto` finds it; raises UserError where it is not there."""
    import torch

    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if wanted == "cuda" and not torch.cuda.is_available():
        raise UserError(
            "device is cuda, and this machine has no CUDA device that torch can use",
            hint="set device: auto, or install a CUDA build of torch",
            key="device",
        )
    return wanted
