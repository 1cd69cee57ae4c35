"""JSON: the audit result itself, validated, as every other tool should read it."""

from typing import ClassVar

from fedaudit.reports.document import Document
from fedaudit.reports.renderer import Renderer
from fedaudit.reports.result import AuditResult


class Json(Renderer):
    suffix: ClassVar[str] = "json"

    def render(self, document: Document) -> bytes:
        text = document.result.model_dump_json(indent=2)
        # a section of a user's own may have changed a field: what is written can be read back
        AuditResult.model_validate_json(text)
        return text.encode() + b"\n"
