"""Errors a reader of the report can act on: one sentence and a hint, shown without a traceback."""


class UserError(Exception):
    """What was found, what was expected and where; `hint` says what to do next."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message}\n  hint: {self.hint}" if self.hint else message

    def __reduce__(self) -> tuple[object, ...]:  # keeps the hint when a worker process raises it
        return _rebuild, (type(self), self.args[0], self.hint)


def _rebuild(kind: type[UserError], message: str, hint: str) -> UserError:
    return kind(message, hint=hint)
