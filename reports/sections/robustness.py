"""Robustness: what compromised clients do to the model under each rule, and what the rules cost."""

from bisect import bisect_right
from collections.abc import Sequence
from math import inf

from fedaudit.attacks.evidence import Evidence
from fedaudit.reports import format as fmt
from fedaudit.reports.result import AuditResult, Finding
from fedaudit.reports.robustness import LEAST_SEEDS, DefenceCost, MatrixCell, ReplayedRound, Robustness
from fedaudit.reports.section import (
    Bar,
    Block,
    Bullets,
    Card,
    Cell,
    Chart,
    Code,
    Folded,
    Heading,
    Paragraph,
    Pictures,
    Section,
    Table,
)
from fedaudit.reports.sections._not_run import tabulate_failures

MOST_COLUMNS = 6
ON_PAPER = 100  # cells whose folders are printed
MEASURES = {  # measure -> its words, a table each
    "accuracy_drop": "Accuracy drop, points",
    "worst_class_drop": "Drop of the worst class, whichever that is, points",
    "worst_client_drop": "Drop of the honest clients served worst (tenth percentile, own classes), points",
    "asr": "Attack success, percent",
    "durability": "Rounds after the attackers left until the backdoor works half as often; + where it still did "
    "at the end.",
}
MARK = "\u25b6 "  # before the worst cell of a rule, which is framed
TINTS = (0.02, 0.05, 0.1, 0.2, 0.5)  # drops, and shares beyond the control, from which a cell is one shade darker


class RobustnessSection(Section):
    card = Card(title="Attacks on the model", order=47)

    def build(self, result: AuditResult) -> list[Block]:
        matrix = result.robustness
        if matrix is None:
            return []
        if matrix.replayed is None and not matrix.costs:
            return [Paragraph("No recorded round could be replayed with forged uploads."), *_rest(matrix)]
        blocks: list[Block] = [Paragraph(_introduction(matrix))]
        blocks += _displaced(matrix)
        if not matrix.costs:
            return [*blocks, *_rest(matrix)]
        blocks += [Heading("What a rule costs without any attack"), _costs(matrix.costs)]
        if matrix.bypassed:
            listed = "; ".join(f"{', '.join(titles)} in {s}" for s, titles in matrix.bypassed.items())
            blocks.append(
                Paragraph(
                    "What clients apply themselves binds honest ones alone. Malicious clients left out, in all "
                    f"cells: {listed}. What the server applies binds everybody."
                )
            )
        blocks += _price(matrix, result)
        settings = list(dict.fromkeys(c.setting for c in matrix.cells))
        blocks += _tell_setting(settings[0], matrix, result) if settings else []
        if more := settings[1:]:
            rest = [b for setting in more for b in _tell_setting(setting, matrix, result)]
            blocks.append(Folded(fmt.plural(len(more), "more setting"), rest))
        blocks += _plot_triggers(matrix)
        if moved := [f for f in result.figures if f.id.startswith("robustness-prototypes-")]:
            blocks += [Heading("What forged prototypes move"), *map(Chart, moved)]
        blocks += [Heading("Where rules break"), _breakdown(matrix)]
        if told := [found for tell in (_sorted_out, _stealth, _too_few) if (found := tell(matrix.cells))]:
            blocks.append(Folded("Whom rules left out, and how well attackers hid", told))
        blocks += [*_certificates(matrix), *_data_certificates(matrix)]
        if matrix.advice:
            blocks += [Heading("What kept most accuracy here"), Bullets(matrix.advice)]
        blocks += _pitfalls([f for f in result.findings if f.id.startswith("lint-R")])
        return [*blocks, *_rest(matrix)]


def _tell_setting(setting: str, matrix: Robustness, result: AuditResult) -> list[Block]:
    """Attacks on every rule in one setting, by how many clients are malicious, and where rules break."""
    here = [c for c in matrix.cells if c.setting == setting]
    by_share = [[c for c in here if c.malicious == m] for m in dict.fromkeys(c.malicious for c in here)]
    blocks = [block for cells in by_share for block in _attacks(setting, cells, matrix)]
    return blocks + [Chart(f) for f in result.figures if f.id == f"robustness-breakdown-{setting}"]


def _introduction(matrix: Robustness) -> str:
    if (one := matrix.replayed) is not None:
        return _introduce_replay(matrix, one)
    seeds = f"{fmt.plural(len(matrix.seeds), 'seed')} ({', '.join(map(str, matrix.seeds))})"
    return (
        f"Each attack was run against each rule of the server, with {matrix.clients} clients and {seeds}. A run "
        "is compared with the same rule and seed with nobody malicious, test image by test image. Drops are in "
        "percentage points, below zero where accuracy rose; intervals share their confidence over all "
        "attacks on a rule. Always answering the most frequent class is right in "
        f"{fmt.percent(matrix.chance)}."
    )


def _introduce_replay(matrix: Robustness, one: ReplayedRound) -> str:
    """What was replayed, and what the numbers are."""
    text = (
        f"One round alone: the {fmt.plural(one.heard, 'upload')} that were recorded in round {one.round} went "
        "through each rule of the server, as they were and with some of them replaced by forged ones. Nobody "
        "trained on what came out, so this says nothing of further forged rounds; nor is anything in it that the "
        "server does after the rule. A rule that remembers what clients sent before begins with nothing, and the "
        f"mean weighs clients {one.weights}. "
    )
    if one.why:
        return (
            f"{text}No model was measured: {one.why}. How far what the rule makes has moved is in spreads of the "
            "recorded uploads: the root of the mean squared distance from their mean."
        )
    return (
        f"{text}Both models answered {fmt.plural(one.examples, 'example')} of the auditor's that no attacker "
        "went by; drops are in percentage points, below zero where accuracy rose, and their intervals are over "
        "these examples. Always answering the most frequent class is right in "
        f"{fmt.percent(matrix.chance)}."
    )


def _displaced(matrix: Robustness) -> list[Block]:
    """How far each rule's result moved, attacks down and rules across."""
    if not matrix.displaced:
        return []
    blocks: list[Block] = [Heading("How far forged uploads move what a rule makes")]
    rules = list(dict.fromkeys(d.rule for d in matrix.displaced))
    found = {(d.title, d.malicious, d.rule): d.spreads for d in matrix.displaced}
    rows = list(dict.fromkeys((d.title, d.malicious) for d in matrix.displaced))
    for start in range(0, len(rules), MOST_COLUMNS):
        part = rules[start : start + MOST_COLUMNS]
        blocks.append(
            Table(
                header=["Attack", "Malicious", *part],
                rows=[
                    [t, str(m), *(f"{found[t, m, r]:.2f}" if (t, m, r) in found else "not run" for r in part)]
                    for t, m in rows
                ],
                align="lr" + "r" * len(part),
                widths=[2.6, 1, *([1.4] * len(part))],
                caption="Distance from what the rule makes of the recorded uploads, in spreads of these uploads.",
            )
        )
    return blocks


def _costs(costs: Sequence[DefenceCost]) -> Block:
    return Table(
        header=["Setting", "Rule", "Accuracy", "Worst class", "Cost, points", "To the worst class", "Severity"],
        rows=[
            [
                c.setting,
                c.rule,
                fmt.percent(c.accuracy),
                fmt.percent(c.worst_class),
                *(([_points(e) for e in c.evidence] + ["", ""])[:2]),
                c.severity,
            ]
            for c in costs
        ],
        align="llrrlll",
        widths=[2, 2, 1.2, 1.3, 2, 2.2, 1.2],
        caption="With nobody malicious: accuracy, that of the worst class, and what the rule costs beside the "
        "mean. A rule that assumes f malicious clients assumes them here as well.",
    )


def _price(matrix: Robustness, result: AuditResult) -> list[Block]:
    """What a defence costs in privacy: what it must read, and what was found in just that."""
    if not any(n.kinds for n in matrix.needs):
        return []
    rows = []
    for needed in matrix.needs:
        against = _against(result, needed.kinds)
        found = [f for f in result.findings if f.id in against]
        shown = [f"{f.id} ({f.severity.value})" for f in found if f.is_demonstrated]
        told = ", ".join(shown) or (f"nothing by {fmt.plural(len(found), 'attack')}" if found else "not attacked")
        kinds = ", ".join(k.replace("_", " ") for k in needed.kinds)
        rows.append([needed.rule, kinds or "sums alone", "no" if kinds else "yes", told if kinds else ""])
    return [
        Heading("What a rule costs in privacy"),
        Table(
            header=[
                "Rule",
                "Must read of each client",
                "Secure aggregation",
                "What the server learned from that",
            ],
            rows=rows,
            align="llll",
            widths=[1.6, 2.2, 1.3, 3.2],
            caption="A rule that reads single uploads rules out secure aggregation, and with it the server keeps "
            "whatever the attacks of this audit found in them, by the ids of their findings.",
        ),
    ]


def _against(result: AuditResult, kinds: Sequence[str]) -> set[str]:
    """Ids of findings by attacks on these kinds, as the server reads them."""
    return {
        name
        for q in result.questions
        if q.observer == "server" and set(kinds) & set(q.kinds)
        for name in q.findings
    }


def _attacks(setting: str, cells: Sequence[MatrixCell], matrix: Robustness) -> list[Block]:
    """Attacks down, rules across; some rules at a time, so that the cells keep their intervals."""
    rules = list(dict.fromkeys(c.rule for c in cells))
    titles = list(dict.fromkeys(c.title for c in cells))
    who = f"{cells[0].malicious} of {fmt.plural(matrix.clients, 'client')} malicious"
    blocks: list[Block] = [Heading(f"{setting}, {who}")]
    for measure, words in MEASURES.items():
        rows = [t for t in titles if any(c.title == t and c.find(measure) for c in cells)]
        for start in range(0, len(rules), MOST_COLUMNS) if rows else ():
            part = rules[start : start + MOST_COLUMNS]
            blocks.append(
                Table(
                    header=["Attack", *part],
                    rows=[[t, *(_cell(cells, t, rule, measure) for rule in part)] for t in rows],
                    align="l" * (1 + len(part)),
                    widths=[2.2, *([2.0] * len(part))],
                    caption=words if measure == "durability" else _caption(words, measure),
                )
            )
    return blocks


def _caption(words: str, measure: str) -> str:
    return (
        f"{words}, with its interval, and the severity that the cell has by itself. A frame and {MARK.strip()} "
        f"mark what hurt a rule most; shades are darker from {', '.join(f'{100 * t:g}' for t in TINTS)} on."
        + (" After it the strongest control." if measure == "asr" else "")
    )


def _cell(cells: Sequence[MatrixCell], title: str, rule: str, measure: str) -> str | Cell:
    own = [(c, e) for c in cells if c.rule == rule and (e := c.find(measure))]
    found = next(((c, e) for c, e in own if c.title == title), None)
    if found is None:
        return "not run"
    cell, e = found
    if measure == "durability":
        return Cell(text=f"{e.value:g}{'+' if 'still' in e.note else ''}")
    worst = len(own) > 1 and e.value > 0 and e.value == max(other.value for _, other in own)
    control = f"; control {100 * e.strongest.value:.1f}" if measure == "asr" and e.strongest else ""
    beyond = e.value - (e.strongest.value if measure == "asr" and e.strongest else 0.0)
    return Cell(
        text=f"{MARK if worst else ''}{_points(e)}{control} {cell.severity.lower()}".strip(),
        tint=bisect_right(TINTS, beyond),  # type: ignore[arg-type]  # there are five
        ring=worst,
    )


def _points(e: Evidence) -> str:
    return fmt.points(e.value, e.interval)


def _breakdown(matrix: Robustness) -> Block:
    rows = []
    for b in matrix.breakdown:
        least = sorted({inf if x is None else x for x in b.least})  # of the seeds; none is more than any
        ends = ["none of these" if x == inf else str(x) for x in dict.fromkeys((least[0], least[-1]))]
        rows.append([b.setting, b.family, ", ".join(map(str, b.tried)), " to ".join(ends)])
    return Table(
        header=["Setting", "Rule", "Malicious clients tried", "Fewest that break it"],
        rows=rows,
        align="llll",
        caption="The fewest malicious clients, of those tried, that leave less than nine tenths of the clean "
        "accuracy, with the strongest attack on the rule.",
    )


def _sorted_out(cells: Sequence[MatrixCell]) -> Block | None:
    rows = [
        [c.setting, c.rule, c.title, str(c.malicious), _points(found), _points(dropped)]
        for c in cells
        if (found := c.find("malicious_found")) and (dropped := c.find("honest_dropped"))
    ]
    if not rows:
        return None
    return Table(
        header=["Setting", "Rule", "Attack", "Malicious", "Malicious dropped, %", "Honest dropped, %"],
        rows=rows,
        align="lllrll",
        widths=[1.6, 1.5, 2.2, 1, 2, 2],
        caption="Whom a rule drops or weighs below half, of all that were heard in all rounds; rules that never "
        "say whom they kept are missing.",
    )


def _stealth(cells: Sequence[MatrixCell]) -> Block | None:
    """One row an attack, under the plain mean, which lets through whatever is sent."""
    rows = [
        [c.setting, c.title, str(c.malicious), f"{norm.value:.2f}", f"{cosine.value:.2f}"]
        for c in cells
        if c.rule == "mean" and (norm := c.find("norm_rank")) and (cosine := c.find("cosine_rank"))
    ]
    if not rows:
        return None
    return Table(
        header=["Setting", "Attack", "Malicious", "Honest changes that are shorter", "Further from the others"],
        rows=rows,
        align="llrrr",
        widths=[1.6, 2.6, 1, 1.8, 1.8],
        caption="Where forged changes stand among the honest of their round, under the mean, as shares; 0.5 is "
        "the middle. What stands near 0 or 1 can be recognised by its length, or by its direction.",
    )


def _too_few(cells: Sequence[MatrixCell]) -> Block | None:
    short = {(c.setting, c.rule): e for c in cells if (e := c.find("rounds_too_few"))}
    if not short:
        return None
    return Table(
        header=["Setting", "Rule", "Rounds with too few clients, %"],
        rows=[[setting, rule, f"{100 * e.value:.0f}"] for (setting, rule), e in short.items()],
        align="lll",
        caption="Rounds in which fewer clients were heard than the rule needs; the setting too_few of the rule "
        "says what becomes of them.",
    )


def _plot_triggers(matrix: Robustness) -> list[Block]:
    return [Heading("What a backdoor does"), *map(Pictures, matrix.triggered)] if matrix.triggered else []


def _certificates(matrix: Robustness) -> list[Block]:
    heading = Heading("What the noise certifies against any attack")
    if not matrix.certificates:
        why = f": {matrix.uncertified}" if matrix.uncertified else ""
        return [heading, Paragraph(f"Nothing is certified{why}.")]
    rows: list[list[str | Cell]] = []
    for c in matrix.certificates:
        verdict = "too few seeds to say" if c.above is None else "above: broken" if c.above > 0 else "within"
        bars = (
            Bar(c.clean, f"honest {100 * c.clean:.1f}"),
            Bar(c.measured, f"measured {fmt.points(c.measured, c.interval)}"),
            Bar(c.ceiling, f"at most {100 * c.ceiling:.1f}"),
        )
        rows.append([c.setting, f"{c.title}, {c.malicious}", c.score, Cell(bars=bars), verdict])
    return [
        heading,
        Table(
            header=["Setting", "Attack, malicious", "Score", "Honest, measured, certified, %", "Verdict"],
            rows=rows,
            align="lllll",
            widths=[1.5, 1.8, 1, 3.2, 1.1],
            caption="The most that any attack of so many clients can reach on average over trainings, by the "
            "noise that the ledger lists, from the upper end of what was measured with the same clients honest. "
            f"A measured score is held against it from {LEAST_SEEDS} seeds on.",
        ),
    ]


def _data_certificates(matrix: Robustness) -> list[Block]:
    """By length of the trigger, how many answers poisoned data cannot turn."""
    if not (matrix.data_certificates or matrix.data_uncertified):
        return []
    blocks: list[Block] = [Heading("What is certified against poisoned data")]
    if matrix.data_certificates:
        lengths = [length for length, _ in matrix.data_certificates[0].certified[:-1]]
        rows = [
            [
                f"{c.setting}, {c.rule}",
                f"{c.malicious} of {matrix.clients}, {fmt.percent(c.share)}, x {c.scale:g}",
                c.images,
                f"{100 * c.right:.1f}",
                *(f"{100 * share:.1f}" for _, share in c.certified[:-1]),
                f"{100 * c.certified[-1][1]:.1f} ({c.certified[-1][0]:.2g})",
            ]
            for c in matrix.data_certificates
        ]
        blocks.append(
            Table(
                header=[
                    "Setting, rule",
                    "Clients, of each batch, sent",
                    "Test images",
                    "Right, %",
                    *("labels alone" if not length else f"length {length:g}" for length in lengths),
                    "the attack's",
                ],
                rows=rows,
                align="lll" + "r" * (len(lengths) + 2),
                widths=[1.7, 1.8, 1.7, 0.8, *([0.9] * (len(lengths) + 1))],
                caption="Images that the model of a run with nobody malicious answers rightly, and the share "
                "that it would answer the same if, in any one round, so many clients, whichever, had trained on "
                "poisoned data, with all draws the same: of each batch that part moved by at most the length "
                "(l2, of pixels in [0, 1]; last, that of the attack's trigger) and labelled at will, and what "
                "they sent multiplied. Nothing is certified of other forgeries or of more rounds. Proved for "
                "linear models, without an error level.",
            )
        )
    blocks += [
        Paragraph(f"No answer is certified: {why} ({'; '.join(places)}).")
        for why, places in matrix.data_uncertified.items()
    ]
    return blocks


def _pitfalls(lints: Sequence[Finding]) -> list[Block]:
    if not lints:
        return []
    return [
        Heading("What this matrix leaves out"),
        Bullets([f"*{f.id.removeprefix('lint-')}*: {f.summary} {f.remedy}" for f in lints]),
    ]


def _rest(matrix: Robustness) -> list[Block]:
    blocks: list[Block] = []
    if matrix.not_run:
        blocks += [
            Heading("Not run"),
            tabulate_failures(
                matrix.not_run, "Cells", "Cells that came to no end. They count neither for nor against."
            ),
        ]
    if matrix.cells and matrix.replayed is None:
        blocks += [
            Paragraph("Each cell is a run folder of its own inside this run's; what the first was set to:"),
            Code(f"fedaudit show {matrix.cells[0].folders[0]}/config.yaml"),
            Folded("The folder of every cell", [_folders(matrix)], on_paper=len(matrix.cells) <= ON_PAPER),
        ]
    return blocks


def _folders(matrix: Robustness) -> Table:
    return Table(
        header=["Setting", "Rule", "Attack", "Malicious", "Folder"],
        rows=[
            [c.setting, c.rule, c.title, str(c.malicious), Cell(note=", ".join(c.folders))] for c in matrix.cells
        ],
        align="lllrl",
        widths=[1.3, 1.3, 1.8, 0.9, 4],
        caption="Where the runs of each cell lie.",
    )
