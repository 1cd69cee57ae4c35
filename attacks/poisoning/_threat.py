"""Threat models that several adversaries share."""

from fl.threat import Conduct, Position, ThreatModel

OMNISCIENT = ThreatModel(position=Position.CLIENT, conduct=Conduct.MALICIOUS, knows=frozenset({"honest_updates"}))
