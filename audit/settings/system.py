"""The `system` key: what the owner says of the audited system, and who answers for it.

Nothing of it can be checked, so the report prints it as stated by the owner. Whatever is left out is printed as
"not stated", since a reviewer has to see that gap.
"""

import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from fedaudit.audit.settings.spec import Group


def _join_lines(value: Any) -> Any:
    """A text on one line, as page 1 prints it."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _write_date(value: Any) -> Any:
    """A day as ISO 8601; YAML reads 2027-03-01 as a date already."""
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    try:
        return datetime.date.fromisoformat(value).isoformat() if value else value
    except (TypeError, ValueError) as error:
        raise ValueError("must be a day, such as 2027-03-01") from error


Line = Annotated[str, BeforeValidator(_join_lines), Field(max_length=200)]
Day = Annotated[str, BeforeValidator(_write_date)]


class SystemSettings(Group):
    """The audited system in its owner's words. Every key may be left out."""

    name: Line = Field(default="", description="what the system is called")
    purpose: Line = Field(default="", description="what it is for")
    controller: Line = Field(default="", description="who decides why and how the data are processed")
    author: Line = Field(default="", description="who made this audit")
    deployment: Day = Field(default="", description="day on which it is to be deployed, such as 2027-03-01")
    clients: Literal["persons", "organisations", "devices"] | None = Field(
        default=None, description="what a client is; null: not stated. Of persons linkage must be answered"
    )
    data: Line = Field(default="", description="categories of data, and special categories among them")
