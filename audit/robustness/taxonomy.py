"""Taxonomy: what published catalogues of attacks call an adversary, for every finding about it."""

COMMON = "AI Act Art. 15(5)"
LABELS = "NIST AI 100-2 NISTAML.013 (data poisoning), MITRE ATLAS AML.T0020, OWASP ML02:2023"
MODELS = "NIST AI 100-2 NISTAML.011 (model poisoning), MITRE ATLAS AML.T0018.000, OWASP ML10:2023"
BACKDOORS = (
    "NIST AI 100-2 NISTAML.023 and .026 (backdoor and model poisoning), MITRE ATLAS AML.T0018.000 and "
    "AML.T0043.004, OWASP ML10:2023"
)
BY_DATA = ("label_flip", "condensed_poison")


def taxonomy(adversary: str, backdoor: bool) -> str:
    """One phrase; `adversary` is a plugin's name."""
    if backdoor:
        return f"{BACKDOORS}; {COMMON}"
    return f"{LABELS if adversary in BY_DATA else MODELS}; {COMMON}"
