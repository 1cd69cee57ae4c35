"""Consent: what a config would run or fetch happens once its user agreed to exactly that, by its digest.

What a folder contains never decides whether it may; nor does who is said to have made it. A consent is a file in
the user's own cache folder whose name is the digest, so that it holds in every command, and for nothing else. It
is taken back by removing that file.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Final

from fedaudit.audit.settings.index import find_folder
from fedaudit.fl.runtime import durable
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.foreign import digest_code, find_whole

DIGEST = re.compile(r"[0-9a-f]{64}")
_agreed = set[str]()  # by this process, which may have no folder to keep it in


class UnconsentedError(UserError):
    """Something waits for the user's word: `digest` is what the word is given to."""

    def __init__(self, what: str, digest: str, key: str = "") -> None:
        hint = "read it, then add --trust-plugins (in Python trust_plugins=True), or agree to it by this line:"
        super().__init__(what, hint=hint, key=key)
        self.digest = digest

    @property
    def line(self) -> str:
        """The command that keeps the consent."""
        return f"fedaudit tools trust {self.digest}"

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.line}"


# Who asks the user; a program that has no terminal asks nobody
ASK: Final = ContextVar[Callable[[UnconsentedError], bool]]("ASK", default=lambda error: False)


def require_code(file: Path, key: str) -> None:
    """Raise UnconsentedError for code to which the user does not agree; a package is one piece of code."""
    whole = find_whole(file)
    _require(f"{key} names code that is not installed: {whole} would run here", digest_code(whole), key)


def require_download(name: str, folder: object, key: str) -> None:
    """Raise UnconsentedError for a download into that folder to which the user does not agree."""
    digest = hashlib.sha256(f"download {name} into {folder}".encode()).hexdigest()
    _require(f"{key} would download {name} into {folder}", digest, key)


def _require(what: str, digest: str, key: str) -> None:
    kept = find_kept()
    if digest in _agreed or (kept is not None and (kept / digest).is_file()):
        return
    error = UnconsentedError(what, digest, key)
    if not ASK.get()(error):
        raise error
    with contextlib.suppress(UserError):  # where it cannot be kept, it holds for this process
        keep(digest, what)


def keep(digest: str, what: str) -> Path | None:
    """Keep a consent, with what it was said to be for. Returns its file; None where the system has no place.

    Raises UserError for what is no digest.
    """
    if not DIGEST.fullmatch(digest):
        raise UserError(
            f"{digest!r:.80} is no SHA-256 digest", hint="64 hexadecimal digits, as they were printed"
        )
    _agreed.add(digest)
    folder = find_kept()
    if folder is None:
        return None
    durable.write(folder / digest, f"{what}\n".encode())
    return folder / digest


def find_kept() -> Path | None:
    """The folder of consents; None where the system names no place."""
    folder = find_folder()
    return folder / "trusted" if folder else None
