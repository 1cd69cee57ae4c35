"""What a run was made with: versions and hardware, and no name of a machine or a person."""

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from fedaudit.fl.runtime.machine import cores

LIBRARIES = (
    "fedaudit",
    "torch",
    "torchvision",
    "numpy",
    "scipy",
    "scikit-learn",
    "scikit-image",
    "safetensors",
    "opacus",
    "dp-accounting",
    "pydantic",
    "matplotlib",
    "typst",
)


def environment() -> dict[str, dict[str, str]]:
    """{"versions": {...}, "hardware": {...}}, all values text."""
    return {"versions": versions(), "hardware": hardware()}


def versions() -> dict[str, str]:
    """Python and the libraries that can change a number."""
    return dict(_read_versions())


@cache
def _read_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def hardware() -> dict[str, str]:
    """Processor, cores this process may use, memory, CUDA devices."""
    import torch

    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _read_processor(),
        "cores": str(cores()),
        "memory": f"{_read_memory() / 1e9:.0f} GB" if _read_memory() else "unknown",
    }
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        found[f"cuda:{i}"] = torch.cuda.get_device_name(i)
    return found


def _read_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(li.partition(":")[2].strip() for li in lines if li.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _read_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0
