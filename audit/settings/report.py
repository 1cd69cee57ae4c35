"""What a report is written as, and what it may show."""

from typing import Any, Literal

from pydantic import Field, model_validator

from fedaudit.audit.settings.spec import Group, Text

Show = Literal["redacted", "reconstructions", "full"]


class ReportSettings(Group):
    """What is written, and what it may show. A list stands for its formats."""

    formats: tuple[Text, ...] = Field(default=("json", "html", "pdf"), description="formats to write")
    show: Literal["auto"] | Show = Field(
        default="auto",
        description="redacted: no picture and no name; reconstructions: what attacks drew, too; full: examples "
        "and names as well; auto: full where the data set is public or invented, redacted elsewhere",
    )

    @model_validator(mode="before")
    @classmethod
    def _formats(cls, data: Any) -> Any:
        return {"formats": data} if isinstance(data, list | tuple) else data
