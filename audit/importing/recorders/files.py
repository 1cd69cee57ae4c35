"""A recorder as one file for another environment: a hook with the inbox that it writes to pasted in."""

import ast
from importlib.resources import files

HOOKS = ("plain", "flower", "nvflare", "checkpoints")
_IMPORT = f"from {__package__}.plain import Inbox\n"


def source(hook: str) -> str:
    """The file's text; it imports nothing of ours."""
    text = _read(hook)
    if _IMPORT not in text:
        return text
    plain = _read("plain")
    head = ast.parse(plain).body[0]  # its docstring
    return text.replace(_IMPORT, "\n".join(plain.splitlines()[head.end_lineno :]).strip() + "\n")


def _read(hook: str) -> str:
    return files(__package__).joinpath(f"{hook}.py").read_text(encoding="utf-8")
