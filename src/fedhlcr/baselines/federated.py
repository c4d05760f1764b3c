"""What all federated baselines share: rounds, bytes, and settings chosen on held-out events."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from itertools import product
from numbers import Real
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr.baselines.rival import SEED, Constraints, Model, Rival, Standardized
from fedhlcr.exceptions import DataError

# Bytes of a float64 number, and of an index sent with numbers.
BYTES_PER_NUMBER = 8

Settings = dict[str, Any]
ModelT = TypeVar("ModelT", bound=Model)


class Round(NamedTuple, Generic[ModelT]):
    """The model after a round, and the bytes sent down and up, for all agents asked."""

    model: ModelT
    n_bytes: int


class FederatedRival(Rival, Generic[ModelT]):
    """A rival that learns in rounds between a server and agents.

    Every parameter that is "auto" is chosen from a grid: the values that predict a fifth of every agent's events best,
    learned from the other events. The rounds that choosing takes are not counted, as little as other starts are.

    Attributes
    ----------
    rounds_ : list of Round
    n_rounds_ : int
    bytes_per_round_ : (n_rounds_,) what travelled in each round, down to and up from all agents asked
    """

    # parameters that may be "auto", with the values tried
    _grid: ClassVar[dict[str, tuple[Any, ...]]] = {}
    _parameter_constraints: ClassVar[Constraints] = {
        "participation": [Interval(Real, 0, 1, closed="right")],
        "random_state": SEED,
    }

    @abstractmethod
    def _train(self, data: Standardized, settings: Settings) -> list[Round[ModelT]]:
        """The rounds, with these values of the parameters in the grid."""

    def staged_predict(self, X, agent=None, entity=None) -> Iterator[FloatArray]:
        """Predictions after each round; the last are those of `predict`."""
        check_is_fitted(self)
        rows = self._rows(X, agent, entity)
        return (self._predict_by(step.model, rows) for step in self.rounds_)

    def _solve(self, data: Standardized) -> ModelT:
        given = {name: getattr(self, name) for name in self._grid}
        tried = (values if given[name] == "auto" else (given[name],) for name, values in self._grid.items())
        candidates = [dict(zip(self._grid, values, strict=True)) for values in product(*tried)]
        chosen = candidates[0] if len(candidates) == 1 else self._choose(data, candidates)
        for name, value in chosen.items():
            setattr(self, f"{name}_", value)
        self.rounds_ = self._train(data, chosen)
        self.n_rounds_ = len(self.rounds_)
        self.bytes_per_round_ = np.array([step.n_bytes for step in self.rounds_])
        return self.rounds_[-1].model

    def _choose(self, data: Standardized, candidates: Sequence[Settings]) -> Settings:
        """The candidate that predicts the held-out events best."""
        train, rows, target = data.hold_out()
        if not len(target):
            names = " and ".join(f"`{name}`" for name in self._grid if getattr(self, name) == "auto")
            raise DataError(
                f"No agent has the five events it takes to choose {names}; give a number instead of 'auto'."
            )
        models = (self._train(train, settings)[-1].model for settings in candidates)
        errors = np.array([np.square(model.predict(rows) - target).mean() for model in models])
        # leave out candidates that diverged
        return candidates[int(np.argmin(np.where(np.isnan(errors), np.inf, errors)))]


class RandomCohorts:
    """Which agents are asked in each round, and whether all have been asked.

    Parameters
    ----------
    n_agents : int
    participation : share of the agents asked in each round
    """

    def __init__(self, n_agents: int, participation: float) -> None:
        self._n_asked = max(1, round(participation * n_agents))
        self._been = np.zeros(n_agents, dtype=bool)

    def ask(self, rng: np.random.Generator) -> IndexArray:
        """Positions of the agents of the next round, ascending."""
        asked = np.sort(rng.permutation(len(self._been))[: self._n_asked])
        self._been[asked] = True
        return asked

    def restart(self) -> None:
        """Forget who has been asked."""
        self._been[:] = False

    @property
    def complete(self) -> bool:
        """Whether all agents were asked since the last restart."""
        return bool(self._been.all())
