"""A stream's settings are refused where they are made, as a ``ConfigError`` that says what is allowed."""

from __future__ import annotations

import pytest

from unskew.core.errors import ConfigError
from unskew.core.planners import make_planner
from unskew.core.stream_spec import StreamSpec, check_name


@pytest.mark.parametrize("own", ["name", "partitions", "seed", "weights"])
def test_a_parameter_cannot_have_the_name_of_a_setting(own: str) -> None:
    """It would be given twice to whatever makes the planner."""
    with pytest.raises(ConfigError, match=f"parameters.{own}.*a stream has its own {own}"):
        StreamSpec(4, "kip", parameters={own: 5})


@pytest.mark.parametrize("weights", [(5e-324, 1e308), (1.0, 1e7), (5e-324, 1.0)])
def test_weights_too_far_apart_are_refused_without_a_warning(weights: tuple[float, ...]) -> None:
    """However far: the ratio of some is beyond a double."""
    with pytest.raises(ConfigError, match="1e6"):
        StreamSpec(2, "hash", weights=weights)


@pytest.mark.parametrize("weight", [5e-324, 1e-310, 1.7e308])
def test_weights_may_be_any_size_if_they_are_alike(weight: float) -> None:
    """Only their ratio means anything."""
    assert make_planner("hash", 2, weights=[weight, weight]).algorithm.common.even


@pytest.mark.parametrize("name", [".", ".."])
def test_names_that_mean_a_folder_in_an_address_are_refused(name: str) -> None:
    """Over HTTP such a stream could be neither seen nor deleted."""
    with pytest.raises(ConfigError, match=r"not \. and \.\."):
        check_name("stream", name)
    assert check_name("stream", f"{name}/x") == f"{name}/x"
