"""Alternatives: what each of the plan's bought, protection or setting, and what it cost in accuracy."""

from fedaudit.reports import format as fmt
from fedaudit.reports.bound_text import label_bound
from fedaudit.reports.result import Alternative, AuditResult
from fedaudit.reports.section import Block, Card, Chart, Folded, Paragraph, Section, Table


class Protections(Section):
    card = Card(title="What each alternative changes", order=45)

    def build(self, result: AuditResult) -> list[Block]:
        rows = result.alternatives
        if not rows:
            return []
        blocks: list[Block] = [
            Paragraph(
                "Each alternative is the same federation with other protections or settings of the method. It "
                "was attacked anew and has an audit of its own. A simulation keeps seed and data; messages of a "
                "recorded federation were passed through the protections. Changes are from the audited run."
            ),
            Table(
                header=["Alternative", "Accuracy", "Change, points", "Epsilon (server)"],
                rows=[_overview(r) for r in rows],
                align="lrrl",
                widths=[4.2, 1.9, 1.9, 2],
                caption="What each alternative is; accuracy and its change in percentage points, with 95 % "
                "intervals; epsilon towards the server with its status and unit.",
            ),
            Folded("Why none, or which", [*_print_recommendation(result)]),
            *_tabulate_harms(result),
        ]
        blocks += _tabulate_costs(rows)
        blocks += [Chart(f) for f in result.figures if f.id.startswith("alternatives")]
        blocks += _tabulate_cells(result)
        return blocks


def _print_recommendation(result: AuditResult) -> list[Block]:
    return [Paragraph(result.recommendation)] if result.recommendation else []


def _tabulate_harms(result: AuditResult) -> list[Block]:
    """What each option does to every harm of page 1, and what only it shows; nothing where neither was found."""
    done = [r for r in result.alternatives if r.effects]
    risks = result.decision.risks if result.decision else []
    rows = [[f"{n}. {r.what}", *(_describe_effect(o, r.what) for o in done)] for n, r in enumerate(risks, 1)]
    new = ["; ".join(f"{e.what} ({e.severity})" for e in o.effects if e.state == "new") or "–" for o in done]
    if not done:
        return []
    table = Table(
        header=["Harm of page 1", *(o.name for o in done)],
        rows=[*rows, ["Shown only with it", *new]],
        align="l" * (1 + len(done)),
        caption="What each alternative's own audit says of every harm of page 1. Stopped: at most a "
        "tolerable number is hit, or what showed it is not sent any more. Open: neither.",
    )
    return [Folded("What becomes of every harm", [table])]


def _describe_effect(option: Alternative, what: str) -> str:
    effect = next((e for e in option.effects if e.what == what and e.state != "new"), None)
    if effect is None:
        return "–"
    if effect.state == "left":
        return f"left, {effect.severity}"
    return f"stopped, at most {effect.at_most:,} people" if effect.at_most else effect.state


def _tabulate_cells(result: AuditResult) -> list[Block]:
    """Every question of the audited run, with its state and limits under each alternative."""
    done = [r for r in result.alternatives if r.cells]
    rows = [[fmt.name_question(cell), *(_describe_cell(r, cell.id) for r in done)] for cell in result.cells]
    table = Table(
        header=["Question", *(r.name for r in done)],
        rows=rows,
        align="l" * (1 + len(done)),
        caption="Both limits of every question of the audited run, under each alternative's own attacks.",
    )
    return [Folded("Every question under each alternative", [table])] if rows else []


def _describe_cell(row: Alternative, cell: str) -> str:
    found = next((e for e in row.cells if e.cell == cell), None)
    return "–" if found is None else f"{found.state}: {found.limits}"


def _tabulate_costs(rows: list[Alternative]) -> list[Block]:
    """What each took of time and bytes, and whose answers it was made of; nothing without a clock."""
    done = [r for r in rows if r.measures]
    if not any("simulated_time" in r.measures for r in done):
        return []
    level = next((r.measures["level"] for r in done if "level" in r.measures), 0.0)

    def describe(row: Alternative) -> list[str]:
        m = row.measures
        own = {k: fmt.number(m[k]) if k in m else "–" for k in ("simulated_time", "time_to_level", "jain_index")}
        round = fmt.number(m["round_length_mean"]) if "round_length_mean" in m else "–"
        slow = fmt.percent(m["slow_devices_heard"]) if "slow_devices_heard" in m else "–"
        sent = [fmt.volume(int(m.get(f"bytes_{way}", 0))) for way in ("up", "down")]
        times = [round, own["simulated_time"], own["time_to_level"]]
        return [row.name, *times, *sent, own["jain_index"], slow]

    return [
        Table(
            header=[
                "Alternative",
                "A round",
                "All rounds",
                f"Until {fmt.percent(level)}",
                "Uplink",
                "Downlink",
                "Jain's index",
                "Slow devices",
            ],
            rows=[describe(r) for r in done],
            align="lrrrrrrr",
            widths=[1.4, 1, 1, 1.2, 1.2, 1.2, 1.1, 1.2],
            caption="Simulated time, bytes, and whose answers the model is made of. The accuracy in the fourth "
            "column is the best that all alternatives reached. Jain's index of how often clients were heard is 1 "
            "where all were heard alike and 1 / clients where one was; the last column is how much of what was "
            "heard the slower half of the devices sent, against its share of the clients.",
        )
    ]


def _overview(row: Alternative) -> list[str]:
    if not row.finished:
        return [_explain(row), "not run to the end", "", ""]
    accuracy = "not measured"
    if row.accuracy is not None:
        accuracy = fmt.estimate(row.accuracy, row.accuracy_interval, "fraction")
    change = "" if row.accuracy_change is None else fmt.points(row.accuracy_change, row.accuracy_change_interval)
    epsilon = "none: no accountant ran"
    if row.bound:
        epsilon = f"{label_bound(row.bound)}, per {row.bound.unit}" if row.bound.holds else label_bound(row.bound)
    return [_explain(row), accuracy, change, epsilon]


def _explain(row: Alternative) -> str:
    what = [*row.protections, *row.settings]
    return f"{row.name}: {'; '.join(what) or 'no protection'}"
