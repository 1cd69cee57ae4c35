"""The audited system as its owner states it, and who answers for it."""

from fedaudit.reports.record import Record


class System(Record):
    """Empty: not stated. Nothing of it was checked."""

    name: str = ""
    purpose: str = ""
    controller: str = ""
    author: str = ""  # of the audit
    deployment: str = ""  # planned, ISO 8601
    clients: str = ""  # persons, organisations or devices
    data: str = ""  # its categories
