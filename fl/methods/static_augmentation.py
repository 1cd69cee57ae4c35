"""Static augmentation: clients double their rare classes with slightly altered copies, then train.

The comparison of GANDALF (sec. 4): no generators; every class with fewer examples than its client's
largest gets altered copies of its own (fl/families/augmentation_plan.py), at most as many as it has. Phase 3 is
GANDALF's. `share` is 1: as near to balance as doubling gets. It sends no image and no generator.
"""

from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from fedaudit.fl.families.balancing import Balancing
from fedaudit.fl.families.visit_noise import NoiseConfig, no_noise
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import PositiveShare


class StaticAugmentation(Balancing):
    card = Card(
        title="Static augmentation",
        source="GANDALF, sec. 4",
        text="Clients fill their rare classes with turned and shifted copies of their own images, and "
        "groups of them train the model one after the other.",
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.NOISED_LABEL_DIST),
        relay=(Kind.RELAY_MODEL,),
        counts_made=True,
    )

    @dataclass(frozen=True, kw_only=True)
    class Config(Balancing.Config):
        noise: Annotated[NoiseConfig, Field(description="noise on what clients hand on; none by default")] = (
            field(default_factory=no_noise)
        )
        share: Annotated[
            PositiveShare, Field(description="share of the images that balance asks for which are really added")
        ] = 1.0
