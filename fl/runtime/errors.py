"""Errors a reader of the report can act on: one sentence and a hint, shown without a traceback."""


class UserError(Exception):
    """What was found, what was expected and where; `hint` says what to do next.

    `key` is the setting it is about, as a path in the config ("attacks[2].steps"); whoever knows the file adds
    its name and the line.
    """

    def __init__(self, message: str, *, hint: str = "", key: str = "") -> None:
        super().__init__(message)
        self.hint = hint
        self.key = key

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n  hint: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[object, ...]:  # keeps the hint when a worker process raises it
        return _restore_error, (type(self), self.args[0], self.hint, self.key)


def _restore_error(kind: type[UserError], message: str, hint: str, key: str) -> UserError:
    return kind(message, hint=hint, key=key)
