"""The contract of a renderer: a document in, the bytes of one file out.

A renderer knows blocks and nothing of sections. The same document gives the same bytes, always.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

from fedaudit.reports.document import Document


class Renderer(ABC):
    """Subclasses set `suffix` and write `render`; the file is reports/renderers/<name>.py."""

    suffix: ClassVar[str]  # of the file, without a dot: "pdf"

    @abstractmethod
    def render(self, document: Document) -> bytes: ...
