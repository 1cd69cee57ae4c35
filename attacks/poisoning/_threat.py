"""Threat models that several adversaries share."""

from fedaudit.fl.threats.threat import Conduct, Position, ThreatModel

OMNISCIENT = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS, knows=frozenset({"honest_updates"}))
