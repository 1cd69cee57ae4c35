"""What plain words are: no name with an underscore, but those of plugins that a reader can write in a config."""

import re

from fedaudit.audit.settings import catalog

PLUGINS = {name for kind in catalog.SHELVES for name in catalog.names(kind)}


def odd(text: str) -> set[str]:
    """Words of a text that are names of code and of no plugin."""
    return set(re.findall(r"\b[A-Za-z]+_\w+", text)) - PLUGINS
