"""The second programs, by the names of their methods; what is set otherwise stands after a comma."""

from collections.abc import Callable

from tests.fl.equivalence import second_rounds as rounds
from tests.fl.equivalence import second_splits as splits
from tests.fl.equivalence import second_surfaces as surfaces
from tests.fl.equivalence import second_visits as visits
from tests.fl.equivalence.second import Pair

PROGRAMS: dict[str, Callable[[], Pair]] = {
    "flda": rounds.flda,
    "fd": rounds.fd,
    "fedavg_fd": rounds.fedavg_fd,
    "ifca": rounds.ifca,
    "power_of_choice": rounds.power_of_choice,
    "seol_kim": rounds.seol_kim,
    "fedcurv": surfaces.fedcurv,
    "fedmd": surfaces.fedmd,
    "fedgkt": surfaces.fedgkt,
    "fedproto": surfaces.fedproto,
    "fedasync": visits.fedasync,
    "fedbuff": visits.fedbuff,
    "astraea": visits.astraea,
    "faug": visits.faug,
    "split_learning": splits.split_learning,
    "split_learning, a new optimiser for every batch": splits.split_learning_anew,
    "split_u_shape": splits.split_u_shape,
    "splitfed_v2": splits.splitfed_v2,
}


def name_method(program: str) -> str:
    """The method that a program is a second one of."""
    return program.partition(", ")[0]
