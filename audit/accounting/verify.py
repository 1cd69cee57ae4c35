"""The verifier: every line of a ledger against what crossed the wire, its own clip and who took part.

A ledger is what the audited party says of itself. Here stands what follows from the manifest, from the lines
themselves and from how often clients were heard; whether it is the ledger of that run, a play of the run tells
(audit/noise_audit). With an issue no bound holds. What somebody else ran stays *declared*.

    coverage     every kind that tells of clients has its line, in every round and for every sender
    observers    every line names all who read it, through the next model too
    clip         a sensitivity is no lower than what its clip lets through
    draws        sampling is credited where noise does not come and go with its client, clients were not heard
                 more often than its rate says, and the law is that of the draws (audit/accounting/draws.py)
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedaudit.audit.accounting.draws import contradictions
from fedaudit.audit.accounting.terms import is_amplifiable
from fedaudit.audit.accounting.units import Group
from fedaudit.audit.case.case import Case, Split
from fedaudit.audit.case.holders import find_overlaps, find_persons, holders, list_unknown
from fedaudit.fl.artifact import Channel
from fedaudit.fl.data.participation import Availability
from fedaudit.fl.kinds import Kind
from fedaudit.fl.ledger import EVERYONE, UNSENT, Release
from fedaudit.fl.method import Method
from fedaudit.fl.recording.recorder import is_from_client
from fedaudit.fl.runtime.errors import UserError, quote_error
from fedaudit.fl.runtime.plugin import is_shipped
from fedaudit.fl.runtime.streams import Streams
from fedaudit.fl.wire.protection import Protection

ROUNDING = 1e-9
ERROR = 1e-6  # chance that the heard clients of an honest ledger look too many
# lines of no upload
EXPLAINED = {*UNSENT, Kind.GLOBAL_MODEL, Kind.AGGREGATE}


class Issue(NamedTuple):
    """One thing that is wrong, as a sentence that names the line or what has none."""

    check: str
    what: str
    times: int = 1  # lines concerned


class KindTraffic(NamedTuple):
    """One kind that crossed in one round and direction, from the manifest."""

    round: int
    channel: Channel
    kind: Kind
    senders: int
    messages: int
    seen_by: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Verified:
    issues: tuple[Issue, ...] = ()
    declared: bool = False  # somebody else, or the method itself, made lines that nobody can hold against a run
    overlaps: frozenset[Group] = (
        frozenset()
    )  # who holds records that exist more than once, and in how many copies
    persons: frozenset[Group] = frozenset()  # who holds the records of each that the data name, and how many
    assumed: tuple[str, ...] = ()  # what bounds per record take to be so and nobody told, as phrases
    law: str = ""  # the same of bounds that are credited with a draw: somebody's own code states its law
    cohort: str = ""  # and of those towards clients: that they are not told whom they are drawn with


ONE_HOLDER = "that each record lies once, with one client"
DECLARED = Verified(declared=True, assumed=(ONE_HOLDER,))


def verify(case: Case, releases: Sequence[Release], manifest: Iterable[Mapping[str, Any]]) -> Verified:
    """What is wrong with this ledger, as far as it follows from itself and the manifest."""
    record = [dict(line) for line in manifest]
    traffic = list_traffic(record)
    central = any(p.central for p in case.protections)
    own = list_own_kinds(case.method)
    hidden = any(p.hides_single_uploads() for p in case.protections)
    issues = [
        *_check_coverage(releases, traffic, central, hidden, own),
        *_check_clips(releases),
        *_check_participation(case.clients, releases, traffic),
        *_check_missing_noise(releases, traffic),
        *_check_constant_participants(case.clients, releases, record),
    ]
    if case.simulated:
        issues += _check_draws(case.participation.availability, case.clients, case.streams, releases)
    noised = any(r.noise_multiplier for r in releases)
    return Verified(
        issues=tuple(_merge_issues(issues)),
        declared=not case.simulated or bool(own),
        overlaps=find_overlaps(holders(case.examples, case.data)) if noised else frozenset(),
        persons=find_persons(case.examples, case.data) if noised else frozenset(),
        assumed=tuple(_list_assumptions(case.simulated, case.clients, case.examples)) if noised else (),
        law=_describe_assumed_law(case.participation.availability),
        cohort=describe_hidden_cohort(case.protections),
    )


def describe_hidden_cohort(protections: Iterable[Protection]) -> str:
    """That members of a round do not know each other where secure aggregation says so: nothing here tests it."""
    if any(p.hides_single_uploads() and not p.tells_members() for p in protections):
        return "that who takes part in a round is hidden from all who do (cohort: hidden)"
    return ""


def list_traffic(manifest: Iterable[Mapping[str, Any]]) -> list[KindTraffic]:
    """What tells of clients' data, sent by them or seen by the server, from the manifest's traffic lines."""
    found = []
    for line in manifest:
        is_told = is_from_client(line) or line["channel"] == Channel.OBSERVED
        if "traffic" not in line or not is_told:
            continue
        kind = Kind(line["traffic"])
        if not kind.control_plane and kind != Kind.AGGREGATE:
            seen = tuple(line["seen_by"])
            counted = (int(line["senders"]), int(line["messages"]))
            found.append(KindTraffic(int(line["round"]), Channel(line["channel"]), kind, *counted, seen))
    return found


def list_own_kinds(method: Method | None) -> frozenset[Kind]:
    """Kinds that the method itself noises and lists, visit by visit, before they cross the wire."""
    settled = getattr(method, "list_protected_kinds", None)
    return frozenset(settled(list(Kind))) if settled else frozenset()


def _list_assumptions(simulated: bool, clients: int, examples: Split) -> Iterator[str]:
    unknown = len(list_unknown(simulated, clients, examples))
    if unknown:
        whose = "" if unknown == clients else f", of {unknown:,} clients whose data were not given"
        yield f"{ONE_HOLDER}{whose}"


def _describe_assumed_law(availability: Availability | None) -> str:
    """That clients are drawn as code from elsewhere states: tests can contradict that and never verify it."""
    if availability is None or is_shipped(availability):
        return ""
    return f"that clients are drawn as {availability.title} states, which is not code of ours"


def _merge_issues(issues: Iterable[Issue]) -> Iterator[Issue]:
    """One issue of each check and kind: the first, with their number."""
    groups: dict[str, list[Issue]] = defaultdict(list)
    for issue in issues:
        groups[issue.check].append(issue)
    for check, same in groups.items():
        more = f" (and {len(same) - 1:,} more)" if len(same) > 1 else ""
        yield Issue(check, f"{same[0].what.rstrip('.')}{more}.", len(same))


def _describe_line(r: Release) -> str:
    return f"the line of {r.kind} by {r.sender} in round {r.round}"


def _check_coverage(
    releases: Sequence[Release],
    traffic: Sequence[KindTraffic],
    central: bool,
    hidden: bool,
    settled: frozenset[Kind],
) -> Iterator[Issue]:
    found = _group_lines(releases)
    sent = {x.round for x in traffic}
    relayed = {(x.round, x.kind) for x in traffic if x.channel == Channel.RELAY}
    if settled & {x.kind for x in traffic} and not settled & {r.kind for r in releases}:
        yield Issue("coverage", "the method noises what it sends itself, and the ledger has no line of that")
    for x in traffic:
        if x.kind in settled:  # listed where it was made, which is another message
            continue
        own = found[x.round, x.kind] + (found[x.round, Kind.AGGREGATE] if central else [])
        everybody = [r for r in own if r.sender.endswith("/*")]
        named = [r for r in own if not r.sender.endswith("/*")]
        if not everybody and (len({r.sender for r in named}) < x.senders or len(named) < x.messages):
            what = f"{x.kind} crossed in round {x.round} in {x.messages:,} messages of {x.senders:,} clients"
            yield Issue("coverage", f"{what}, and the ledger has {len(named):,} lines for it")
        mean = found[x.round, Kind.GLOBAL_MODEL] if central else []
        later = {o for r in mean for o in r.observers}
        if hidden and x.senders == 1:  # a sum of one; the server pays for it by what it broadcasts
            later.add("server")
        for r in own:
            missing = {s.partition("/")[0] for s in x.seen_by} - later
            if x.channel != Channel.OBSERVED:  # what clients send reaches everybody through the next model
                missing |= {"client", "public"} - later
            missing -= {o.partition("/")[0] for o in r.observers}
            if x.channel == Channel.UPLINK and (x.round, x.kind) in relayed:  # it may be the line of a relay
                missing.discard("server")
            if missing:
                text = (
                    f"{_describe_line(r)} leaves out {', '.join(sorted(missing))}, who read it or what came of it"
                )
                yield Issue("observers", text)
    kinds = {(x.round, str(x.kind)) for x in traffic}
    crossed = {kind for _, kind in kinds}
    for r in releases:
        base = r.kind.partition(".")[0]
        if base in settled:  # noised where it was made; what crosses may be made of it
            continue
        known = (r.round, base) in kinds or base in EXPLAINED or base in crossed
        if not known or (r.round not in sent and base not in EXPLAINED):
            yield Issue("extra", f"nothing that crossed the wire explains {_describe_line(r)}")


def _check_clips(releases: Sequence[Release]) -> Iterator[Issue]:
    for r in releases:
        if not r.noise_multiplier or r.clip_norm is None or r.derived != "clip" or r.sensitivity is None:
            continue
        whole = r.unit == "record" and r.clip_of == "update"  # another record, another update
        least = r.clip_norm * (2 if r.adjacency == "replace_one" or whole else 1)
        if r.sensitivity < least * (1 - 1e-6):
            text = f"{_describe_line(r)} has sensitivity {r.sensitivity:g}, and its clip lets {least:g} through"
            yield Issue("clip", text)


def _check_participation(
    clients: int, releases: Sequence[Release], traffic: Sequence[KindTraffic]
) -> Iterator[Issue]:
    """Clients that were heard more often than the rate that lines of all clients are credited with."""
    from scipy import special  # scipy.stats takes longer to load than all else that is verified

    amplified = [r for r in releases if r.unit == "client" and is_amplifiable(r) and r.sender.endswith("/*")]
    if not amplified:
        return
    rate, rounds = min(r.sample_rate for r in amplified), {r.round for r in amplified}
    fixed = amplified[0].sampling == "fixed_without_replacement"
    heard: Counter[int] = Counter()
    for x in traffic:
        heard[x.round] = max(heard[x.round], x.senders)
    draws: dict[str, list[int]] = defaultdict(list)  # rounds that share their draw count once
    for r in amplified:
        draws[r.coin or str(r.round)].append(heard[r.round])
    most = [max(senders) for senders in draws.values()]
    if fixed and max(most) > rate * clients + ROUNDING:
        seen = f"{max(most):,} of {clients:,} clients were heard in one"
        yield Issue("draws", f"{len(rounds):,} rounds are credited with rate {rate:g}, and {seen}")
    elif not fixed and special.bdtrc(sum(most) - 1, len(most) * clients, rate) < ERROR:
        share = sum(most) / (len(most) * clients)
        seen = f"clients were heard in {share:.1%} of theirs"
        yield Issue("draws", f"{len(rounds):,} rounds are credited with rate {rate:g}, and {seen}")


def _check_constant_participants(
    clients: int, releases: Sequence[Release], record: Sequence[dict[str, Any]]
) -> Iterator[Issue]:
    """Too many clients that were heard in all rounds, or in none, for coins that are thrown anew in each."""
    from scipy import special

    coins = [
        r
        for r in releases
        if r.unit == "client"
        and is_amplifiable(r)
        and r.sampling == "poisson"
        and not r.coin
        and r.noise_multiplier
    ]
    named: dict[int, set[str]] = defaultdict(set)
    for x in record:
        if "message" in x and is_from_client(x):
            named[int(x["round"])].add(str(x["sender"]))
    # a round counts where everybody who sent in it was recorded by name
    full = {x.round for x in list_traffic(record) if x.senders == len(named[x.round])}
    rounds = sorted({r.round for r in coins} & full)
    if len(rounds) < 2:
        return
    rate = min(r.sample_rate for r in coins)
    heard = Counter(sender for t in rounds for sender in named[t])
    same = clients - sum(0 < n < len(rounds) for n in heard.values())
    alike = rate ** len(rounds) + (1 - rate) ** len(rounds)
    if special.bdtrc(same - 1, clients, alike) < ERROR:
        what = f"{same:,} of {clients:,} clients were heard in all or none of {len(rounds):,} rounds"
        yield Issue("draws", f"{_describe_line(coins[0])} has a draw of its own at rate {rate:g}, and {what}")


def _check_draws(
    availability: Availability | None, clients: int, streams: Streams, releases: Sequence[Release]
) -> Iterator[Issue]:
    """Sampling that is credited as availability states it, where its own draws contradict that."""
    hidden = [r for r in releases if {*EVERYONE} - {*r.participation_seen_by}]
    amplified = [r for r in hidden if r.unit == "client" and is_amplifiable(r)]
    if not amplified or availability is None:
        return
    try:
        rounds = 1 + max(r.round for r in releases)
        found = contradictions(availability, clients, streams, rounds)
    except Exception as error:  # somebody's own code, of which this may be too much
        if is_shipped(availability) and not isinstance(error, UserError):
            raise
        found = [f"it cannot be drawn ({type(error).__name__}: {quote_error(error)})"]
    for what in found[:1]:
        stated = f"{availability.title} is not the draw that it states"
        yield Issue("draws", f"{_describe_line(amplified[0])} is credited with sampling, and {stated}: {what}")


def _check_missing_noise(releases: Sequence[Release], traffic: Sequence[KindTraffic]) -> Iterator[Issue]:
    """Noise that a client adds to what it uploads is not there when the client is not: no credit for sampling."""
    uploaded = {(x.round, str(x.kind)) for x in traffic}
    for r in releases:
        hidden = {*EVERYONE} - {*r.participation_seen_by}
        if (
            r.unit == "client"
            and r.noise_multiplier
            and hidden
            and is_amplifiable(r)
            and (r.round, r.kind) in uploaded
        ):
            text = f"{_describe_line(r)} is credited with sampling, and its noise comes and goes with the client"
            yield Issue("draws", text)


def _group_lines(lines: Iterable[Release]) -> dict[tuple[int, str], list[Release]]:
    """Lines by round and kind; none where there is no such line."""
    groups: dict[tuple[int, str], list[Release]] = defaultdict(list)
    for r in lines:
        groups[r.round, r.kind].append(r)
    return groups
