"""Errors a reader of the report can act on: one sentence and a hint, shown without a traceback."""

import difflib
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from traceback import walk_tb

_OURS = Path(__file__).parents[2]
# where code lies that no user of ours has written: ours, and that of the interpreter and of its packages
_INSTALLED = (_OURS, Path(sys.base_prefix), Path(sys.prefix))
_PLACE = "_fedaudit_place"
_LONGEST = 2000  # signs of what an error says


class UserError(Exception):
    """What was found, what was expected and where; `hint` says what to do next.

    `key` is the setting it is about, as a path in the config ("attacks[2].steps"); whoever knows the file adds
    its name and the line.
    """

    hint = key = ""  # of a subclass that does not call __init__

    def __init__(self, message: str, *, hint: str = "", key: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.key = key

    @property
    def sentence(self) -> str:
        """What it says, without the hint."""
        return str(self.args[0]) if self.args else type(self).__name__

    def __str__(self) -> str:
        return f"{self.sentence}\n  hint: {self.hint}" if self.hint else self.sentence

    def __reduce__(self) -> tuple[object, ...]:  # keeps the hint when a worker process raises it
        return _restore_error, (type(self), self.sentence, self.hint, self.key)


class BrokenPlugin(UserError):
    """A plugin gave what its contract does not allow: it was tried and failed, where others do not apply."""


# What other tools, or keys that are gone, call it, the names here of which one has to be known, and what to write
_ELSEWHERE = (
    (
        ("secagg", "secaggplus", "secure_agg", "masking"),
        ("secure_aggregation", "availability", "rounds", "protections"),
        "write `protections: [secure_aggregation]`",
    ),
    (
        ("fraction", "fraction_fit", "participation", "clients_per_round", "cohort"),
        ("availability", "rounds"),
        "who takes part is set by `federation: {availability: {name: uniform, fraction: 0.1}}`",
    ),
    (
        ("epsilon", "target_epsilon", "eps", "sigma"),
        ("noise_multiplier", "protections"),
        "noise_multiplier sets the noise; `fedaudit dp calibrate --epsilon 3 --rounds 100` finds it",
    ),
    (("learning_rate", "eta", "client_lr"), ("lr",), "write lr"),
    (("absence",), ("matrix",), "write `matrix: {availabilities: [{name: bernoulli, p: 0.3}]}`, no adversaries"),
    (("assumed",), ("adversaries",), "say it of a rule: `aggregators: [krum, {name: krum, id: krum-f0, f: 0}]`"),
    (("breakdown",), ("adversaries",), "list numbers of malicious clients: `malicious: [1, 2, 4]`"),
    (
        ("prototype_aggregator", "prototype_aggregators"),
        ("aggregator", "aggregators"),
        "a rule for prototypes is an aggregator: {name: prototypes, rule: capped_mean}",
    ),
    (("train_limit", "test_limit"), ("limit",), "write `limit: 2000`, or `limit: [2000, 500]` for tests too"),
    (("update_steps", "update_groups"), ("updates",), "write `updates: [[examples, steps, how many], ...]`"),
    (("claims",), ("policy",), "`fedaudit dp claims FILE` computes claims anew, without a run"),
    (("sections",), ("report",), "a section of your own stands in report: `report: [json, 'module:Class']`"),
    (("about",), ("classes",), "say what the data are in system.data"),
    (("epochs", "num_epochs"), ("local_epochs",), "write local_epochs"),
    (("num_clients", "n_clients"), ("clients",), "write clients"),
    (("num_rounds", "global_rounds"), ("rounds",), "write rounds"),
    (("mia", "membership", "membership_inference"), ("loss_threshold",), "write loss_threshold, or rmia"),
    (("deep_leakage", "gradient_inversion", "inversion"), ("dlg",), "write dlg, or inverting_gradients"),
)


def suggest_name(given: object, known: Iterable[str], otherwise: str = "") -> str:
    """A hint: what is written here for another tool's word, or which of the known names is the nearest.

    Capitals do not matter; where none is near, `otherwise`.
    """
    names = {str(name).lower(): str(name) for name in known}
    for words, here, hint in _ELSEWHERE:
        if str(given).lower() in words and names.keys() & set(here):
            return hint
    near = difflib.get_close_matches(str(given).lower(), names, n=1)
    return f"did you mean {names[near[0]]!r}?" if near else otherwise


def quote_error(error: BaseException) -> str:
    """What an error says, in one line and without a hint; one of somebody's own may fail in saying it."""
    try:
        text = error.sentence if isinstance(error, UserError) else " ".join(str(error).split())
    except Exception:  # noqa: BLE001
        return "it does not say what is wrong"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."


def describe_failure(error: BaseException, said: str = "") -> str:
    """Why a part of an audit came to nothing, as a phrase: an attack, a check; and in which line.

    `said` is what the error says, where somebody puts it better.
    """
    if isinstance(error, UserError):
        return error.sentence
    place = find_place(error)
    return f"{type(error).__name__}{f' in {place}' if place else ''}: {said or quote_error(error)}"


def describe_unexpected(error: BaseException) -> tuple[str, str]:
    """An error that nobody foresaw, as a sentence and a hint; of a plugin of somebody's own, with its line."""
    text = quote_error(error)
    place = find_place(error)
    where = f" in {place}" if place else ""
    hint = "and what that line was given" if place else "please report it"
    return (
        f"unexpected {type(error).__name__}{where}: {text}",
        f"`fedaudit --debug ...` shows the traceback{',' if place else ';'} {hint}",
    )


def find_place(error: BaseException) -> str:
    """File and line of somebody's own that raised an error, or called the library that did; empty if ours did."""
    if _PLACE in vars(error):
        return str(vars(error)[_PLACE])
    at = [(Path(frame.f_code.co_filename), line) for frame, line in walk_tb(error.__traceback__)]
    written = [(path, line) for path, line in at if path.is_relative_to(_OURS) or _is_own(path)]
    if not written or written[-1][0].is_relative_to(_OURS):  # ours called what raised it
        return ""
    path, line = written[-1]
    return f"{path.name}, line {line}"


def keep_place(error: BaseException) -> None:
    """Note it on the error, whose traceback stays behind where another process reads it."""
    with suppress(Exception):  # one of somebody's own may have no room for it
        vars(error)[_PLACE] = find_place(error)


def _is_own(path: Path) -> bool:
    """Whether it is a file that somebody wrote to be run by us."""
    return path.is_file() and not any(map(path.is_relative_to, _INSTALLED))


def _restore_error(kind: type[UserError], message: str, hint: str, key: str) -> UserError:
    try:
        return kind(message, hint=hint, key=key)
    except TypeError:  # a subclass that takes something else
        return UserError(message, hint=hint, key=key)
