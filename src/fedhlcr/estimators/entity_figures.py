"""Fitted attributes in the user's units: regressions of clusters and of entities, and how entities differ."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.analysis.effects import EntityDifferences, entity_differences
from fedhlcr.data.recipe import Recipe
from fedhlcr.posterior import Posterior
from fedhlcr.posterior.alignment import Alignment, mean_agent_weights, voted_labels
from fedhlcr.posterior.entity_coef import EntityCoef, entity_coef
from fedhlcr.posterior.user_units import coef_transform, to_user_units


class EntityFigures:
    """Attributes that follow from the posterior. Coefficients of entities take time, so they are computed on access."""

    posterior_: Posterior
    n_features_in_: int
    feature_means_: FloatArray
    feature_spreads_: FloatArray
    alignment_: Alignment
    recipe_: Recipe | None
    # (n_clusters_, n_coef) mean coefficients of the clusters, in standardised units
    _mean_coef: FloatArray
    # computed on first access; forgotten when the posterior changes
    _entity_coef: EntityCoef | None = None

    def forget_entity_figures(self) -> None:
        """Compute all figures of agents and entities anew when they are asked for."""
        self._entity_coef = None
        for name in ("pair_ids_", "labels_", "agent_weights_"):
            self.__dict__.pop(name, None)

    @property
    def coef_(self) -> FloatArray:
        """(n_clusters_, n_features_in_) posterior mean slopes of each cluster, in the user's units."""
        check_is_fitted(self)
        return to_user_units(self, self._mean_coef)[0]

    @property
    def intercept_(self) -> FloatArray:
        """(n_clusters_,) posterior mean intercept of each cluster."""
        check_is_fitted(self)
        return to_user_units(self, self._mean_coef)[1]

    @property
    def agent_ids_(self) -> NDArray[np.object_]:
        """(n_agents,) ids of the agents as the user wrote them, in natural order."""
        return self.posterior_.memory.entities.index.agent_ids

    @cached_property
    def pair_ids_(self) -> list[tuple[Any, Any]]:
        """The (agent id, entity id) of each entity, sorted by both. Built on first access: a million take 100 MB."""
        index = self.posterior_.memory.entities.index
        return list(zip(index.agent_ids[index.agent_of], index.entity_ids, strict=True))

    @cached_property
    def labels_(self) -> NDArray[np.int64]:
        """(n_entities,) the cluster that each entity is in most often, in the order of `pair_ids_`."""
        return voted_labels(self.posterior_.memory, self.alignment_)

    @cached_property
    def agent_weights_(self) -> FloatArray:
        """(n_agents, n_clusters_) probability of each cluster for an agent's next entity."""
        return mean_agent_weights(self.posterior_.draws, self.posterior_.memory, self.alignment_)

    @property
    def entity_coef_(self) -> FloatArray:
        """(n_entities, n_features_in_) posterior mean slopes of each entity, in the order of `pair_ids_`."""
        return self._entity_coef_in_user_units()[0]

    @property
    def entity_intercept_(self) -> FloatArray:
        """(n_entities,) posterior mean intercept of each entity."""
        return self._entity_coef_in_user_units()[1]

    @property
    def entity_coef_std_(self) -> FloatArray:
        """(n_entities, n_features_in_) posterior standard deviations of `entity_coef_`."""
        return self.entity_regressions().std[:, 1:]

    @property
    def entity_intercept_std_(self) -> FloatArray:
        """(n_entities,) posterior standard deviations of `entity_intercept_`."""
        return self.entity_regressions().std[:, 0]

    @property
    def entity_effects_(self) -> FloatArray:
        """(n_entities, 1 + n_features_in_) mean deviations from the cluster: of the level, then of each slope."""
        found = self.entity_regressions()
        transform = coef_transform(self, self.feature_means_)
        return np.asarray((found.mean - found.of_cluster) @ transform.T)

    @property
    def entity_noise_(self) -> FloatArray:
        """(n_entities,) posterior mean noise of each entity, in units of y: its standard deviation."""
        posterior = self.posterior_
        found = self.entity_differences()
        if posterior.likelihood.linear_spread is not None:
            raise AttributeError("classes and counts have no noise of their own, so there is no `entity_noise_`.")
        private = {name: values.astype(np.float64) for name, values in posterior.memory.agent_state.items()}
        scales = posterior.likelihood.entity_noise(posterior.draws.stacked, private)
        if scales is None or found is None or found.noise_range is None:
            return np.full(len(posterior.memory.entities), posterior.noise_level())
        return np.asarray(scales.mean(axis=0) * posterior.standardization.scale[-1])

    @property
    def effect_scales_(self) -> FloatArray:
        """(1 + n_features_in_,) standard deviations of `entity_effects_` in the model, within a cluster."""
        found = self.entity_differences()
        return np.zeros(1 + self.n_features_in_) if found is None else found.entity_scales

    @property
    def agent_effect_scales_(self) -> FloatArray:
        """(1 + n_features_in_,) the same for the effects of agents."""
        found = self.entity_differences()
        return np.zeros(1 + self.n_features_in_) if found is None else found.agent_scales

    @single_threaded_blas
    def entity_differences(self) -> EntityDifferences | None:
        """How much entities of one cluster differ, in the user's units; None if the model takes them as equal."""
        check_is_fitted(self)
        return entity_differences(self)

    @single_threaded_blas
    def entity_regressions(self) -> EntityCoef:
        """The coefficients of all entities in standardised units, computed once."""
        check_is_fitted(self)
        if self._entity_coef is None:
            self._entity_coef = entity_coef(self.posterior_, coef_transform(self, np.zeros(self.n_features_in_)))
        return self._entity_coef

    def _entity_coef_in_user_units(self) -> tuple[FloatArray, FloatArray]:
        return to_user_units(self, self.entity_regressions().mean)
