"""Privacy filters that senders name in their messages, and what each gives as it is configured by default.

NVFlare enters every filter into the history of what it exchanges. A name is a claim; it says nothing of
parameters.
"""

from collections.abc import Mapping

from fedaudit.reports.imported import CheckedStatement

# nvflare.app_common.filters and nvflare.app_opt.he of 2.9, with their default settings
KNOWN = {
    "SVTPrivacy": "chooses a tenth of the coordinates by the sparse vector technique with epsilon 0.1 and noises "
    "those: its epsilon is that of one threshold test of one message, so no bound for a run follows from it",
    "PercentilePrivacy": "leaves out the smallest changes, truncates the others at 0.01 and adds no noise: it is "
    "not differential privacy",
    "ExcludeVars": "leaves arrays out; what is sent is not protected",
    "HEModelEncryptor": "hides single uploads from a server without the key; the sum is not protected",
}


def filters(named: Mapping[str, int]) -> list[CheckedStatement]:
    """One check for each filter that messages name; a claim of a protection that no message names is left to
    tests of the noise."""
    found = []
    for name, times in sorted(named.items()):
        what = KNOWN.get(name, "is not known to this audit: what it gives depends on its code and settings")
        text = f"{times:,} messages say that {name} was applied. By default it {what}."
        found.append(CheckedStatement(id=f"filter-{name}", title=f"Filter {name}", status="open", text=text))
    return found
