"""What checks left: written with the evidence of attacks, read when the verdict is made."""

from fedaudit.audit.case.case import Case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks._check import Checked, CheckResult
from fedaudit.audit.settings import catalog

FILE = "checks.json"


def run_checks(case: Case) -> Checked:
    """Everything that the checks of audit/checks/ say of a case, in the order of their names."""
    results, declared = list[CheckResult](), list[str]()
    for name in catalog.names("checks"):
        checked = catalog.load("checks", name)().check(case)
        results += checked.results
        declared += checked.declared
    return Checked(results=results, declared=declared)


def load_checks(run: RunDir) -> Checked:
    """As the attack phase wrote it; raises UserError where the file is missing or damaged."""
    return run.read(run.evidence / FILE, Checked)
