"""What a row and a key cost in seconds, from the task times of the last batches. Ours.

A task takes ``start + per_row rows + per_key keys``. Batches are pooled, the older the lighter (``AGED``). Tasks that
take far longer than others like them (a pause, a slow machine) count little or nothing: least squares, reweighted by
Tukey's biweight, whose width begins where all tasks count and narrows step by step; narrow from the start it would
leave out the few partitions with a heavy key, which alone tell rows from keys. Seconds are compared in units of the
prior model's cost, so the fit is the same in any unit of time, and drawn to the prior, the more the less the tasks say.

A coefficient that they cannot tell stays at its prior, and ``CostFit.unsure`` names it: under a plan that makes
partitions alike all tasks have the same rows and keys, and any mixture of the two explains their times.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unskew.core.arrays.frozen import by_fields, freeze
from unskew.core.arrays.types import F64
from unskew.core.errors import ConfigError
from unskew.core.quality.measures import LinearCost

__all__ = ["COST_BATCHES", "CostFit", "TaskTimes", "fit_cost"]

COST_BATCHES = 8  # that are pooled
AGED = 0.9  # a batch
_LEAST = 8  # tasks
_DRAWN = 30.0  # the deviation of the prior, in its costs of a row or a key: a key may cost a hundred rows
_START = 0.1  # that of a task's start, in mean tasks
_SURE = 0.2  # of the larger coefficient: the deviation up to which one is told
_FINEST = 0.02  # no task is measured better than so much of a mean task
_TUKEY = 4.685  # deviations: the usual constant
_LONGEST = 1e6  # mean tasks
_LONGEST_UNIT = 1e200  # seconds
_NOTHING = 1e-12  # of the larger prior cost: a smaller one is none
_STEPS, _WIDEST = 14, 64.0  # how often weights are set anew, and the deviation that is taken at first


@dataclass(frozen=True, eq=False)
class TaskTimes:
    """Rows, distinct keys and seconds of the tasks of one batch. In Spark a task is a partition, in their order."""

    rows: F64
    keys: F64
    seconds: F64

    __reduce__ = by_fields

    def __post_init__(self) -> None:
        freeze(self, rows=np.float64, keys=np.float64, seconds=np.float64)
        for name in ("keys", "seconds"):
            if len(getattr(self, name)) != len(self.rows):
                raise ConfigError(name, f"{len(getattr(self, name))} values", f"one for each of {len(self.rows)} tasks")


@dataclass(frozen=True)
class CostFit:
    """What tasks cost: ``model``, of whose unit one takes ``unit`` seconds (0: no task was timed), after ``start``
    seconds for the task itself; by ``tasks`` tasks. ``unsure`` names the coefficients that they cannot tell.

    >>> CostFit(LinearCost(per_key=4.0), unit=0.5, unsure=("start",), tasks=64).seconds_per_key
    2.0
    """

    model: LinearCost
    unit: float = 0.0
    start: float = 0.0
    unsure: tuple[str, ...] = ("per_key", "start")
    tasks: int = 0

    @property
    def tells_keys(self) -> bool:
        """Whether the model is fitted, and not the prior."""
        return self.tasks > 0 and "per_key" not in self.unsure

    @property
    def seconds_per_row(self) -> float:
        """0 where no task was timed."""
        return self.unit * self.model.per_row

    @property
    def seconds_per_key(self) -> float:
        """As above."""
        return self.unit * self.model.per_key

    @property
    def text(self) -> str:
        """The fit in words."""
        if not self.tasks:
            return "no task times: rows and keys have the weights that are set"
        row, key = f"{self.seconds_per_row * 1e6:.3g} us", f"{self.seconds_per_key * 1e6:.3g} us"
        what = f"a row takes {row} and a key {key}, by {self.tasks:,} tasks"
        alike = "whose times do not tell rows from keys: their ratio is the one that is set"
        return what if self.tells_keys else f"{what}, {alike}"


def fit_cost(batches: Sequence[TaskTimes], prior: LinearCost | None = None) -> CostFit:
    """Fit the costs of tasks.

    Parameters
    ----------
    batches
        Task times, the latest batch last; the last ``COST_BATCHES`` count.
    prior
        The costs that are taken where tasks do not tell them; rows and keys alike where left out.

    Returns
    -------
    CostFit
        Its ``model`` is the prior itself where the times do not tell rows from keys. ``per_fragment`` stays in rows: a
        task's time does not show what merging its output will cost.

    Examples
    --------
    >>> rows, keys = np.array([900.0, 500, 100] * 4), np.array([10.0, 400, 90] * 4)
    >>> fit = fit_cost([TaskTimes(rows, keys, 2e-6 * rows + 10e-6 * keys)])
    >>> round(fit.model.per_key, 1), fit.unsure
    (5.0, ())
    """
    prior = prior or LinearCost()
    costs = np.array([prior.per_row, prior.per_key])
    largest = float(costs.max())
    relative = costs / (largest or 1.0)
    relative[relative < _NOTHING] = 0.0
    table, seconds, weight = _pooled(batches[-COST_BATCHES:])
    units = table @ relative
    timed = (units > 0) & (seconds > 0) & np.isfinite(units) & np.isfinite(seconds)
    scale = _median(seconds[timed] / units[timed], (weight * units)[timed]) if int(timed.sum()) >= _LEAST else 0.0
    if not np.finfo(float).tiny <= scale <= largest * _LONGEST_UNIT:
        return CostFit(prior)
    return _Tasks(table[timed], seconds[timed], weight[timed], relative, scale).fit(prior, largest)


def _pooled(batches: Sequence[TaskTimes]) -> tuple[F64, F64, F64]:
    """Rows and keys, seconds, and weight of each task."""
    if not batches:
        return np.zeros((0, 2)), np.zeros(0), np.zeros(0)
    age = np.arange(len(batches))[::-1]
    weight = np.repeat(AGED**age, [len(batch.rows) for batch in batches])
    table = np.stack([np.concatenate([getattr(one, name) for one in batches]) for name in ("rows", "keys")], axis=1)
    return table, np.concatenate([batch.seconds for batch in batches]), weight


class _Tasks:
    """Tasks that were timed, in the units in which they are compared: 1 is what a mean task should take. ``costs`` are
    the prior's of a row and a key, the larger one 1; such a unit takes about ``scale`` seconds."""

    def __init__(self, table: F64, seconds: F64, weight: F64, costs: F64, scale: float) -> None:
        self._weight, self._costs, self._scale = weight, costs, scale
        self._mean = float(np.average(table @ costs, weights=weight))
        with np.errstate(over="ignore"):  # beside a unit that takes next to no time
            self._seconds = np.minimum(seconds / scale / self._mean, _LONGEST)
        self._table = table / self._mean

    def fit(self, prior: LinearCost, largest: float) -> CostFit:
        """Both costs and the start, as far as the tasks tell them."""
        start, tasks = np.ones((len(self._table), 1)), len(self._table)
        costs, deviation = self._solve([self._table, start], [*self._costs, 0.0], [_DRAWN, _DRAWN, _START])
        unsure: tuple[str, ...] = ()
        if deviation[2] > _START / 2:
            unsure, start = ("start",), start[:, :0]
            costs, _ = self._solve([self._table], [*self._costs], [_DRAWN, _DRAWN])
        if self._tells(costs, deviation):
            row, key = costs[:2].tolist()
            unit = row or key
            model = LinearCost(row / unit, key / unit, prior.per_fragment)
        else:
            unsure, model = ("per_key", *unsure), prior
            units = (self._table @ self._costs)[:, np.newaxis]
            costs, _ = self._solve([units, start], [1.0, 0.0], [_DRAWN, _START])
            unit = float(costs[0]) / largest
        began = 0.0 if "start" in unsure else float(costs[-1]) * self._mean * self._scale
        return CostFit(model, unit * self._scale, began, unsure, tasks)

    def _tells(self, costs: F64, deviation: F64) -> bool:
        """Whether the cost of a key is known beside that of a row; and that of all rows beside that of all keys, for
        work that goes by the key alone."""
        rows, keys = np.average(self._table, axis=0, weights=self._weight)
        key_cost = deviation[1] <= _SURE * max(costs[0], costs[1])
        return bool(key_cost and rows * deviation[0] <= _SURE * max(rows * costs[0], keys * costs[1]))

    def _solve(self, parts: Sequence[F64], prior: Sequence[float], drawn: Sequence[float]) -> tuple[F64, F64]:
        """The coefficients, never negative, and how far each may be from the truth."""
        columns = np.hstack(parts)
        many = columns.shape[1]
        means, pull = np.array(prior[:many]), np.diag(np.array(drawn[:many]) ** -2.0)
        costs, weight, inverse = means, self._weight, np.zeros_like(pull)
        for step in range(_STEPS):
            expected = np.maximum(columns @ costs, 0.0)
            noise = (expected + 1.0) / 2.0  # partly in proportion to the task, partly the same for all
            off = np.abs(self._seconds - expected) / noise
            spread = max(1.4826 * _median(off, self._weight), _FINEST)
            trust = np.maximum(1.0 - (off / (_TUKEY * max(spread, _WIDEST * 0.5**step))) ** 2, 0.0) ** 2
            weight = self._weight * trust / (noise * spread) ** 2
            inverse = np.linalg.inv((columns.T * weight) @ columns + pull)
            costs = _positive(inverse, (columns.T * weight) @ self._seconds + pull @ means)
        told = weight * np.einsum("ij,jk,ik->i", columns, inverse, columns)
        weight[np.argmax(told)] = 0.0  # what one task alone tells may be a pause of its own
        return costs, np.sqrt(np.diag(np.linalg.inv((columns.T * weight) @ columns + pull)))


def _positive(inverse: F64, wanted: F64) -> F64:
    """The solution; coefficients below 0 are set to 0, and the others solved anew."""
    matrix, free = np.linalg.inv(inverse), np.ones(len(wanted), bool)
    while True:
        costs = np.zeros(len(wanted))
        costs[free] = np.linalg.solve(matrix[np.ix_(free, free)], wanted[free])
        if (costs >= 0.0).all():
            return costs
        free[int(np.argmin(costs))] = False


def _median(values: F64, weight: F64) -> float:
    """The value below which half of the weight is."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2.0)])
