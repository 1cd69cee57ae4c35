"""The base of all records of an audit result, and a field that several of them have."""

from dataclasses import asdict
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

from fedaudit.fl.threats.threat import ThreatModel


class Record(BaseModel):
    """Unknown fields are refused, infinities are kept as text by JSON; costs nothing before it is used."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings", defer_build=True)


class Taxon(Record):
    """What one published catalogue calls a finding."""

    catalogue: str  # "NIST AI 100-2"
    edition: str  # "E2025": ids move between editions
    ids: list[str]
    nearest: bool = False  # the catalogue has no id for it, and this is the nearest


class SealRecord(Record):
    """Who signed what, when and by which bar: reports of `check --sign` have one, audit.json has none."""

    signer: str  # SHA-256 of the public key
    at: str  # ISO 8601, UTC, by the signer's clock
    expires: str  # the last day on which it counts, as 2027-01-31
    tool: str  # "fedaudit 0.1.0"
    verdict: str  # the word, under this policy and with these terms
    policy: str  # name and version
    policy_digest: str
    bar: str  # the lowest severity that forbids a deployment; "none": none does
    required: list[str]  # attacks that must have run, or ["none"]
    accepted: dict[str, str]  # id of a finding -> who answers for it, until when and why
    content: str  # digest of what a second run of the config has as well
    digests: dict[str, str]  # audit.json and the released model -> SHA-256
    model: str  # the released model's file


# A set has no order of its own: written sorted, so that the same run gives the same bytes
Threat = Annotated[ThreatModel, PlainSerializer(lambda t: asdict(t) | {"knows": sorted(t.knows)})]
