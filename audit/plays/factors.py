"""How far clean values of a line may move on neighbouring data, over what the line declares."""

from collections.abc import Callable, Collection

from fedaudit.fl.ledger import EACH, Release

Factor = Callable[[Release], float]  # how far a line lets clean values move, over its sensitivity


def allow_client(line: Release) -> float:
    """Of one client's message against none, or against another where the line says so."""
    return 1.0 if line.unit == "client" else float("inf")


def allow_replaced_client(line: Release) -> float:
    """Of other data of a client: twice what adding or removing it moves."""
    if line.unit != "client":
        return float("inf")
    return 1.0 if line.adjacency == "replace_one" else 2.0


def allow_replaced_clients(line: Release) -> float:
    """Of other data of all clients; what is made of several moves by more than any of them."""
    return float("inf") if line.sender.endswith("/*") else allow_replaced_client(line)


def allow_removed_record(line: Release) -> float:
    """Of one record less; of a client that stays, it changes the message."""
    return 1.0 if line.unit == "record" else allow_replaced_client(line)


def allow_examples(line: Release) -> float:
    """Of one example less of each client; what is made of several moves by more."""
    return float("inf") if line.sender.endswith("/*") else allow_removed_record(line)


def allow_replaced_record(line: Release) -> float:
    """Of one record in another's place."""
    return 1.0 if line.adjacency == "replace_one" else 2.0


def is_of_steps(line: Release) -> bool:
    """Whether it accounts for several releases within its client's work, and not for the message alone."""
    return line.count > 1 or line.coin == EACH


def is_credited(line: Release) -> bool:
    """Whether it counts on a draw that nobody sees."""
    return line.sampling in ("poisson", "fixed_without_replacement") and line.sample_rate < 1


def allow_when_drawn(rounds: Collection[int], factor: Factor) -> Factor:
    """Of a client that takes part in these rounds alone: credit for sampling says that no other shows it."""
    return lambda line: factor(line) if line.round in rounds or not is_credited(line) else 0.0
