"""Who saw what: a part of the audit result."""

from fedaudit.reports.record import Record


class PartyExposure(Record):
    """Who saw what: one party, one artifact kind."""

    party: str  # "server", "every client", "the client itself", "public"
    kind: str
    description: str
    single_client: bool  # tells one client's contribution apart
    senders: int  # how many parties it came from
    messages: int
    bytes: int
    rounds: int
    first_round: int
    last_round: int
