"""Planners decide where each key's rows go, from a histogram: KIP, Prompt, CG, Dalton, ours, and baselines.

One planner a file; ``make_planner`` makes one by name. A new planner is a file here and a line in
``registry.PLANNERS``. Begin with ``base``, which has what all of them share. How a placement becomes a plan is in
``plan.build``.
"""

from unskew.core.planners.base import Decision, Feedback, Origin, Planner
from unskew.core.planners.registry import PLANNERS, make_planner

__all__ = ["PLANNERS", "Decision", "Feedback", "Origin", "Planner", "make_planner"]
