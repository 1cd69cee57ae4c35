"""Static augmentation: clients double their rare classes with slightly altered copies, then train.

The comparison of GANDALF (sec. 4): no generators; every class with fewer examples than its client's
largest gets altered copies of its own (fl/families/augmentation_plan.py), at most as many as it has. Phase 3 is
GANDALF's. `share` is 1: as near to balance as doubling gets. It sends no image and no generator.
"""

from pydantic import Field

from fedaudit.fl.families.balancing import Balancing
from fedaudit.fl.families.visit_noise import NoiseConfig, no_noise
from fedaudit.fl.kinds import Kind
from fedaudit.fl.method import Card
from fedaudit.fl.runtime.ranges import PositiveShare
from fedaudit.fl.runtime.settings import settings


class StaticAugmentation(Balancing):
    card = Card(
        title="Static augmentation",
        needs="classes",
        source="GANDALF, sec. 4",
        text="Clients fill their rare classes with turned and shifted copies of their own images, and "
        "groups of them train the model one after the other.",
        uplink=(Kind.LOCAL_MODEL, Kind.NUM_EXAMPLES, Kind.NOISED_LABEL_DIST),
        relay=(Kind.RELAY_MODEL,),
        counts_made=True,
        collects=False,
    )

    @settings
    class Config(Balancing.Config):
        noise: NoiseConfig = Field(
            default_factory=no_noise, description="noise on what clients hand on; none by default"
        )
        share: PositiveShare = Field(
            default=1.0, description="share of the images that balance asks for which are really added"
        )
