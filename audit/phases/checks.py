"""What checks left: written with the evidence of attacks, read when the verdict is made."""

from fedaudit.audit.case.case import Case
from fedaudit.audit.case.run_folder import RunDir
from fedaudit.audit.checks._check import Checked
from fedaudit.audit.settings import catalog
from fedaudit.fl.runtime.errors import UserError

FILE = "checks.json"


def run_checks(case: Case) -> dict[str, Checked]:
    """What each check of audit/checks/ says of a case, by its name; one that sees nothing is there as well."""
    return {name: catalog.load("checks", name)().check(case) for name in catalog.names("checks")}


def load_checks(run: RunDir) -> Checked:
    """What all of them say, as the attack phase wrote it.

    Raises UserError where the file is missing or damaged, or one of them is not in it.
    """
    found = run.read(run.evidence / FILE, dict[str, Checked])
    if other := sorted(found.keys() ^ set(catalog.names("checks"))):
        raise UserError(
            f"{run.evidence / FILE} is not of the checks that are made here: {other[0]} is on one side alone",
            hint="run `fedaudit phase attack` again",
        )
    return Checked(
        results=[r for name in sorted(found) for r in found[name].results],
        declared=[d for name in sorted(found) for d in found[name].declared],
    )
