"""fedaudit: privacy and robustness audits for federated learning.

`fedaudit.fl` runs federations and records their messages, `fedaudit.attacks` attacks what was recorded,
`fedaudit.audit` plans, accounts and judges, `fedaudit.reports` renders. Importing this loads none of them.
"""


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("fedaudit")
    raise AttributeError(f"module 'fedaudit' has no attribute {name!r}")
