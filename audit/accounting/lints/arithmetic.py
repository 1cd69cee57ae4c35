"""Arithmetic: whether noise in finite numbers, from a generator that is not secret, is what its proof assumes.

Proofs are about real numbers and perfect coins. Mironov, On Significance of the Least Significant Bits for
Differential Privacy, CCS 2012: which floating-point numbers a noised value can take depends on the value that
was noised, so its low-order bits can give it away. NIST SP 800-226 (Guidelines for Evaluating Differential
Privacy Guarantees, 2025) names both among the hazards of implementations: arithmetic of finite precision, and
generators that are not cryptographic.
"""

from fedaudit.audit.accounting.lint import Flaw, RunRecord, listed

CONTINUOUS = ("gaussian", "laplace")
HALF = ("float16", "bfloat16")


def l16_floating_point(record: RunRecord) -> Flaw | None:
    """Continuous noise is added in floating point, whose low-order bits can tell what was noised."""
    bad = [r for r in record.noised if r.mechanism in CONTINUOUS and r.precision and r.precision not in HALF]
    if not bad:
        return None
    return Flaw(
        what=f"{listed(bad).capitalize()}: {_named(bad[0].mechanism)} noise in {bad[0].precision}. The bound "
        "holds for real numbers; for those sent, Mironov (CCS 2012) shows that not every value is possible after "
        "every message, and NIST SP 800-226 lists this among the hazards of implementations.",
        remedy="Add discrete noise to whole numbers (`discrete_laplace` for counts), or round what is sent to a "
        "grid far coarser than single precision; until then, state it beside the bound.",
        count=len(bad),
    )


def l17_generator(record: RunRecord) -> Flaw | None:
    """The noise comes from a generator that is not cryptographic."""
    if not record.noised or not record.generator:
        return None
    return Flaw(
        what=f"{listed(record.noised).capitalize()}: noise from {record.generator}, whose state can be computed "
        "from enough of what it put out, and whose seed is in the configuration of a simulation. NIST SP 800-226 "
        "asks for a cryptographically secure generator with a secret seed.",
        remedy="A simulation needs noise that can be repeated, and tells nobody anything by it; a deployment "
        "draws its noise from the operating system's generator or a stream cipher.",
        count=len(record.noised),
    )


def l18_half_precision(record: RunRecord) -> Flaw | None:
    """Noise is carried in half precision, which leaves few values for it to take."""
    bad = [r for r in record.noised if r.precision in HALF]
    if not bad:
        return None
    return Flaw(
        what=f"{listed(bad).capitalize()}: {_named(bad[0].mechanism)} noise in {bad[0].precision}, of some "
        "thousand values where single precision has millions; which of them occur tells what was noised.",
        remedy="Add the noise in double precision, and round what is sent once, afterwards.",
        count=len(bad),
    )


def _named(mechanism: str) -> str:
    return "Gaussian" if mechanism == "gaussian" else mechanism.replace("_", " ").capitalize()
