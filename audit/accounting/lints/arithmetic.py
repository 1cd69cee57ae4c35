"""Arithmetic: whether noise in finite numbers, from a generator that is not secret, is what its proof assumes.

Proofs are about real numbers and perfect coins. Mironov, On Significance of the Least Significant Bits for
Differential Privacy, CCS 2012: which floating-point numbers a noised value can take depends on the value that
was noised, so its low-order bits can give it away. NIST SP 800-226 (Guidelines for Evaluating Differential
Privacy Guarantees, 2025) names both among the hazards of implementations: arithmetic of finite precision, and
generators that are not cryptographic.
"""

from fedaudit.audit.accounting.lint import Flaw, RunRecord, describe
from fedaudit.fl.runtime.cipher import CIPHER
from fedaudit.reports.result import Severity

CONTINUOUS = ("gaussian", "laplace")
CRYPTOGRAPHIC = (CIPHER,)
EVERY_SIMULATION = (
    "Every program that simulates noise has this; it matters where the same program is deployed, and whoever "
    "publishes the bound must state it."
)


def l16_floating_point(record: RunRecord) -> Flaw | None:
    """Continuous noise is added in floating point, whose low-order bits can tell what was noised."""
    bad = [
        r
        for r in record.noised
        if r.mechanism in CONTINUOUS
        and r.precision
        and not (r.generator in CRYPTOGRAPHIC and r.resolution)  # rounded with the noise, to a public grid
    ]
    if not bad:
        return None
    return Flaw(
        what=f"{describe(bad).capitalize()}: {_name(bad[0].mechanism)} noise in {bad[0].precision}. The bound "
        "holds for real numbers; for those sent, Mironov (CCS 2012) shows that not every value is possible after "
        "every message, and NIST SP 800-226 lists this among the hazards of implementations.",
        remedy="Draw the noise by `noise.release()`, which rounds values and noise to a public grid together, or "
        "add whole-number noise to whole numbers (`discrete_laplace` for counts); until then, state it beside "
        "the bound.",
        severity=Severity.LOW,
        reason=EVERY_SIMULATION,
    )


def l17_generator(record: RunRecord) -> Flaw | None:
    """The noise comes from a generator that is not known to be cryptographic."""
    bad = [r for r in record.noised if r.generator not in CRYPTOGRAPHIC and (r.generator or record.witnessed)]
    if not bad:
        return None
    named = bad[0].generator or "a generator that no line names"
    return Flaw(
        what=f"{describe(bad).capitalize()}: noise from {named}. The state of an ordinary generator, "
        "such as torch's or numpy's, can be computed from what it put out, and a small seed can be guessed. NIST "
        "SP 800-226 asks for a cryptographically secure generator with a secret seed.",
        remedy="Draw the noise by `noise.release()` of what a protection is given, which uses a cipher "
        f"({CIPHER}).",
        severity=Severity.LOW,
        reason=EVERY_SIMULATION,
    )


def _name(mechanism: str) -> str:
    return "Gaussian" if mechanism == "gaussian" else mechanism.replace("_", " ").capitalize()
