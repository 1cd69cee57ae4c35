"""The base of all records of an audit result, and a field that several of them have."""

from dataclasses import asdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

from fedaudit.fl.threats.threat import ThreatModel


class Record(BaseModel):
    """Unknown fields are refused, infinities are kept as text by JSON."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")


class Taxon(Record):
    """What one published catalogue calls a finding."""

    catalogue: str  # "NIST AI 100-2"
    edition: str  # "E2025": ids move between editions
    ids: list[str]
    nearest: bool = False  # the catalogue has no id for it, and this is the nearest


class SealRecord(Record):
    """Who signed the audit; audit.json has none, the reports that `fedaudit seal` renders have."""

    signer: str  # SHA-256 of the public key
    at: str  # ISO 8601, UTC
    root: str  # of the chain, SHA-256
    digests: dict[str, str]  # audit.json and the released model -> SHA-256
    model: str  # the released model's file


# A set has no order of its own: written sorted, so that the same run gives the same bytes
Threat = Annotated[ThreatModel, PlainSerializer(lambda t: asdict(t) | {"knows": sorted(t.knows)})]
