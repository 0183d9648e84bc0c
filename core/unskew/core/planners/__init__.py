"""One planner a file; ``make_planner`` finds them by name."""

from unskew.core.planners.base import Decision, Feedback, Origin, Planner
from unskew.core.planners.registry import PLANNERS, make_planner

__all__ = ["PLANNERS", "Decision", "Feedback", "Origin", "Planner", "make_planner"]
