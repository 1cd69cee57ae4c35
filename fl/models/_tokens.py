"""What models of token sequences share: their input is checked."""

from fedaudit.fl.runtime.errors import UserError


def sequence(model: str, shape: tuple[int, ...]) -> int:
    """The length of [T] token sequences; raises UserError where the data are something else."""
    if len(shape) != 1:
        raise UserError(
            f"{model} takes token sequences [T]; one example of this data set has shape {list(shape)}",
            hint="choose a model for images: `fedaudit list models`",
        )
    return shape[0]
