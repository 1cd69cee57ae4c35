"""Where a config comes from: a file of the user's own, or a run folder that others may have made."""

from pathlib import Path

ATTESTED = ("chain.json", "phases.json")  # beside a config: the folder is a run, and its config is not the user's


def is_run_folder(config: Path) -> bool:
    """Whether a config lies in a run folder, so that somebody else may have written it."""
    return any((config.parent / name).exists() for name in ATTESTED)
