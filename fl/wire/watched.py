"""What a server may look at that no message brought: a simulation has it at hand, and remembers who reads it."""

from collections.abc import Iterator, Sequence
from typing import Any

from fedaudit.fl.data.partition import Index


class MeasuredValues(dict[str, float]):
    """What clients' training measured, which never crossed the wire: it is remembered if anybody reads it."""

    read = False

    def __getitem__(self, name: str) -> float:
        self.read = True
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read = True
        return super().get(name, default)

    def __iter__(self) -> Iterator[str]:
        self.read = True
        return super().__iter__()

    def items(self) -> Any:
        self.read = True
        return super().items()

    def values(self) -> Any:
        self.read = True
        return super().values()


class Rows(Sequence[Index]):
    """Each client's rows: whether a server looked at them is remembered. How many clients there are is free."""

    def __init__(self, parts: Sequence[Index]) -> None:
        self._parts, self.read = parts, False

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, client: Any) -> Any:
        self.read = True
        return self._parts[client]
