"""A variant of an audit."""

from typing import Any

from pydantic import Field

from fedaudit.audit.settings.spec import Group, PluginSpec, Text


class Variant(Group):
    """The same audit with other protections or settings, for what each of them buys and costs."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$", description="of its folder under variants/")
    protections: tuple[PluginSpec, ...] = Field(
        default=(), max_length=50, description="in place of the audit's own"
    )
    method: dict[str, Any] = Field(default={}, description="settings of the method to change")
    attacks: tuple[Text, ...] | None = Field(
        default=None,
        description="names of the audit's attacks to repeat, and no others; null: those that can read something "
        "of what the variant sends, chosen anew",
    )
