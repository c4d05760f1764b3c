"""Fit a model to a whole table, for any target. The estimators that users see add their settings and their target."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.streams import Stream
from fedhlcr._support.wording import DRAW, SWEEP
from fedhlcr.analysis.fit_comparison import compare_with_simpler, take_sample
from fedhlcr.data.hierarchy import Hierarchy
from fedhlcr.estimators.base import HierarchicalPredictor
from fedhlcr.estimators.curves import curve_columns, make_curves
from fedhlcr.estimators.parameters import (
    given_hyperparameters,
    number_or_none,
)
from fedhlcr.estimators.progress import SweepProgress
from fedhlcr.exceptions import Advice, ConvergenceWarning, FitInterruptedWarning, warn_user
from fedhlcr.model.curves import Curves, column_quantiles
from fedhlcr.model.gram import Standardization, column_means, entity_grams, layout_with
from fedhlcr.model.likelihood import likelihood_named
from fedhlcr.model.priors import CoefPriorKind, ModelSpec
from fedhlcr.posterior import AgentMemory, Draws, Posterior
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT
from fedhlcr.samplers.chain import ChainPlan, ChainResult, SamplerName, run_chain, trace_table
from fedhlcr.samplers.collapsed import LabelPrior
from fedhlcr.samplers.state import Entities


class CentralisedPredictor(HierarchicalPredictor):
    """An estimator that sees all events. A subclass has the settings."""

    sampler: SamplerName = "blocked"
    label_prior: LabelPrior = "tables"
    coef_prior: CoefPriorKind
    curves: str | Sequence[str | int]
    standardize: bool
    n_sweeps: int
    n_draws: int
    n_chains: int
    verbose: bool
    trace_: NDArray[np.void]

    @abstractmethod
    def likelihood_name(self) -> str:
        """The name of the likelihood that `fit` uses."""

    def _fit(self, X: Any, y: Any, agent: Any, entity: Any, sample_weight: Any = None, exposure: Any = None) -> Self:
        with SweepProgress(self.n_chains * self.n_sweeps, self.verbose) as progress:
            results = self._sample(self._training_events(X, y, agent, entity, sample_weight, exposure), progress)
            progress.tell("summarising")
            self._settle_clusters()
            self.set_fitted_attributes()
        self._warn(results)
        return self

    def _sample(self, hierarchy: Hierarchy, progress: SweepProgress) -> list[ChainResult]:
        """Run the chains, and set the posterior and the trace."""
        events, curves = hierarchy.events, self._make_curves(hierarchy)
        if curves is not None:
            hierarchy = replace(hierarchy, X=curves.expand(hierarchy.X))
        layout = layout_with(curves, hierarchy.X.shape[1], fit_intercept=self.fit_intercept)
        likelihood = likelihood_named(self.likelihood_name(), layout)
        shift = column_means(hierarchy) if self.fit_intercept else np.zeros(layout.n_features + 1)
        shift[layout.n_inputs : -1] = 0.0
        if likelihood.linear_spread is not None:
            shift[-1] = 0.0
        grams = entity_grams(hierarchy, layout, shift, self.thread_count())
        standardization = Standardization.from_gram(
            layout, grams.sum(axis=0), shift, scale=self.standardize, curves=curves
        )
        if likelihood.linear_spread is not None:
            standardization = standardization.with_own_target()
        entities = Entities(likelihood, hierarchy.index, standardization.rescale(layout, grams), self.thread_count())
        if likelihood.needs_events:
            entities = replace(entities, events=likelihood.events_in(events, standardization))
        progress.target_scale = float(standardization.scale[-1])
        progress.begin()
        results = self._run_chains(entities, progress)
        # a chain that was stopped before it kept a draw is used only if there is no other
        chains = [result.kept for result in results if result.kept] or [[results[-1].last]]
        self.posterior_ = Posterior(
            likelihood, standardization, Draws.from_chains(chains), AgentMemory.from_chains(entities, chains)
        )
        self.trace_ = trace_table(results, likelihood.globals_type, progress.target_scale)
        progress.tell("comparing with simpler models")
        self.comparison_ = compare_with_simpler(self.posterior_, take_sample(hierarchy))
        return results

    def _make_curves(self, hierarchy: Hierarchy) -> Curves | None:
        names = getattr(self, "feature_names_in_", None)
        columns = curve_columns(self.curves, hierarchy.X.shape[1], names)
        if not columns:
            return None
        quantiles = column_quantiles(hierarchy.X, hierarchy.weight)
        return make_curves(self.curves, columns, quantiles, names)

    def model_spec(self, entities: Entities, target_scale: float) -> ModelSpec:
        """The priors in standardised units, as the sampler takes them.

        Parameters
        ----------
        entities : the entities to fit
        target_scale : the scale that y was divided by
        """
        pooled = entities.layout.normal_equations(entities.grams.sum(axis=0))
        spread = entities.likelihood.linear_spread
        return ModelSpec.in_units(
            target_scale,
            **given_hyperparameters(self),
            coef_prior=self.coef_prior,
            target_spread=(float(np.sqrt(pooled.yy / pooled.n)) or 1.0) if spread is None else spread,
            effects=self.effects,
        )

    def _run_chains(self, entities: Entities, progress: SweepProgress) -> list[ChainResult]:
        plan = ChainPlan(
            n_sweeps=self.n_sweeps,
            n_draws=self.n_draws,
            n_clusters=number_or_none(self.n_clusters),
            max_clusters=self.max_clusters,
            sampler=self.sampler,
            label_prior=self.label_prior,
        )
        spec = self.model_spec(entities, progress.target_scale)
        results: list[ChainResult] = []
        try:
            while len(results) < self.n_chains and not any(result.interrupted for result in results):
                results.append(run_chain(entities, spec, plan, Stream(self.seed_, len(results)), progress))
        except KeyboardInterrupt:
            # between two chains, or while one was being started
            if not results:
                raise
        return results

    def _warn(self, results: list[ChainResult]) -> None:
        self._warn_of_simpler_model()
        done = len(self.trace_)
        if done < self.n_chains * self.n_sweeps:
            n_draws = len(self.posterior_.draws)
            warn_user(
                f"The fit was interrupted after {done} of {SWEEP.count(self.n_chains * self.n_sweeps)}; the model uses "
                f"the {DRAW.count(n_draws)} kept so far.",
                FitInterruptedWarning,
            )
        apart = [d for d in self.diagnostics_ if d.r_hat > R_HAT_LIMIT]
        if len(results) > 1 and apart:
            figures = ", ".join(f"{d.quantity} {d.r_hat:.2f}" for d in apart)
            warn_user(
                f"The {len(results)} chains disagree (R-hat above {R_HAT_LIMIT}: {figures}). Predictions average over "
                "all of them.",
                ConvergenceWarning,
                Advice(
                    "Run longer chains ({n_sweeps}), or fix {n_clusters}.", n_sweeps=2 * self.n_sweeps, n_clusters=None
                ),
            )
