"""A rule for prototypes alone."""

from fedaudit.fl.aggregation.aggregator import Aggregation, Aggregator, Context, mean
from fedaudit.fl.aggregators._wrapped import Inner, build_inner
from fedaudit.fl.runtime.errors import UserError
from fedaudit.fl.runtime.settings import settings


class Prototypes(Aggregator):
    """Prototypes: the prototypes of each class are made one by a rule of their own, and models by the mean.

    A client claims how many examples stand behind a prototype, and the mean believes it. A class has few
    prototypes, so that not every rule works on them; where fewer came than the rule needs, the median is taken.
    Of this project.
    """

    title = "Rule for prototypes"
    source = "this project"
    reads_single_uploads = False
    of_one = True

    @settings
    class Config:
        rule: Inner = "capped_mean"

        def __post_init__(self) -> None:
            if not (found := build_inner(self.rule)).by_class:
                raise UserError(
                    f"{found.title} is no rule for prototypes, of which a class has few",
                    hint="use capped_mean, median or trimmed_mean",
                    key="aggregator.rule",
                )

    @property
    def of_prototypes(self) -> Aggregator:
        return build_inner(self.config.rule)

    def begin(self, context: Context) -> Aggregation:
        return mean().begin(context)
