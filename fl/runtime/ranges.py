"""Ranges that many settings share, by name, for the fields of a plugin's Config.

A setting is one line; the schema, `fedaudit show` and the errors come from it:

    share: Share = Field(default=0.2, description="share of the examples that is held out")

A Config has a __post_init__ only for what settings forbid one another. NaN is refused by every bound. Infinity
is refused but where a field gives its own lower bound alone; its description then says what .inf means.
"""

from typing import Annotated

from pydantic import Field

AtLeastZero = Annotated[int, Field(ge=0)]
AtLeastOne = Annotated[int, Field(ge=1)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]
ProperShare = Annotated[float, Field(gt=0, lt=1)]
BelowOne = Annotated[float, Field(ge=0, lt=1)]
