"""After worlds were judged: how many are right, open and wrong, and why those that are not right are not."""

from collections import Counter

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    judged = [
        (report.nodeid.split("[", 1)[-1].removesuffix("]"), *properties["judged"])
        for found in terminalreporter.stats.values()
        for report in found
        if isinstance(report, pytest.TestReport) and report.when == "call"
        if "judged" in (properties := dict(report.user_properties))
    ]
    for name, word, why in sorted(judged):
        if word != "right":
            terminalreporter.write_line(f"{name} | {word} | {why}")
    if counts := Counter(word for _, word, _ in judged):
        terminalreporter.write_line("worlds: " + ", ".join(f"{n} {word}" for word, n in counts.items()))
