"""fedaudit: privacy and robustness audits for federated learning.

`fedaudit.fl` runs federations and records their messages, `fedaudit.attacks` attacks what was recorded,
`fedaudit.audit` plans, accounts and judges, `fedaudit.reports` renders. Importing this package loads none of
them.
"""

from importlib import metadata

__version__ = metadata.version("fedaudit")
