"""Fit a model to a whole table, for any target. The estimators that users see add their settings and their target."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.streams import Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import DRAW, SWEEP
from fedhlcr.analysis.fit_comparison import compare_with_simpler
from fedhlcr.data.frames import Given
from fedhlcr.estimators.curves import curve_columns, make_curves
from fedhlcr.estimators.file_fitting import FileFitter
from fedhlcr.estimators.parameters import (
    given_hyperparameters,
    number_or_none,
)
from fedhlcr.estimators.progress import SweepProgress
from fedhlcr.estimators.seconds import timed
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.estimators.training import EventsInMemory, TrainingEvents
from fedhlcr.exceptions import Advice, ConvergenceWarning, FitInterruptedWarning, warn_user
from fedhlcr.kernels import ahead
from fedhlcr.model.curves import Curves
from fedhlcr.model.gram import Standardization, layout_with
from fedhlcr.model.likelihood import likelihood_named
from fedhlcr.model.priors import ModelSpec
from fedhlcr.posterior import AgentMemory, Draws, Posterior
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, disagreement
from fedhlcr.samplers.chain import ChainPlan, ChainResult, run_chain, trace_table
from fedhlcr.samplers.state import EntityData
from fedhlcr.settings import CoefPriorKind, LabelPrior, SamplerName
from fedhlcr.storage import scratch


class Assembled(NamedTuple):
    """What chains need to run: the units, and the entities in these units."""

    units: Standardization
    entities: EntityData


class CentralisedPredictor(FileFitter):
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

    @timed
    def _fit(self, given: Given) -> Self:
        ahead.prepare(ahead.for_fits(self.likelihood_name()))
        with SweepProgress(self.n_chains * self.n_sweeps, self.verbose) as progress:
            data = EventsInMemory(self._training_events(given))
            results = self._sample(data, self._assemble(data), progress)
        self._warn(results)
        return self

    @timed
    @single_threaded_blas
    def fit_streamed(self, data: StreamedEvents) -> Self:
        """Fit the model to a table that has been read into a work folder; see `fit_files`."""
        ahead.prepare(ahead.for_fits(self.likelihood_name()))
        self._begin_streamed(data)
        # bars of the passes over the table come before the one of the sweeps
        assembled = self._assemble(data)
        with SweepProgress(self.n_chains * self.n_sweeps, self.verbose) as progress:
            results = self._sample(data, assembled, progress)
        self.recipe_ = data.recipe
        self._warn(results)
        return self

    def _assemble(self, data: TrainingEvents) -> Assembled:
        """Turn events into matrices, and into events in the same units where the likelihood needs them."""
        curves = self._make_curves(data)
        n_features = data.shape().n_features if curves is None else curves.n_features
        layout = layout_with(curves, n_features, fit_intercept=self.fits_intercept)
        likelihood = likelihood_named(self.likelihood_name(), layout)
        shift = np.zeros(layout.n_features + 1)
        if self.fits_intercept:
            means = data.means(self.thread_count())
            shift[: layout.n_inputs] = means[:-1]
            shift[-1] = means[-1]
        if likelihood.linear_spread is not None:
            shift[-1] = 0.0
        raw = data.matrices(likelihood, shift, curves, self.thread_count())
        units = Standardization.from_gram(layout, raw.pooled, shift, scale=self.standardize, curves=curves)
        if likelihood.linear_spread is not None:
            units = units.with_own_target()
        entities = EntityData(likelihood, data.index, raw.in_units(units), self.thread_count(), single=True)
        if likelihood.needs_events:
            entities = replace(entities, events=data.events(likelihood, units))
        return Assembled(units, entities)

    def _sample(self, data: TrainingEvents, assembled: Assembled, progress: SweepProgress) -> list[ChainResult]:
        """Run the chains, and set everything that follows from their draws."""
        units, entities = assembled
        progress.target_scale = float(units.scale[-1])
        progress.begin()
        results = self._run_chains(entities, progress)
        # a chain that was stopped before it kept a draw is used only if there is no other
        chains = [result.kept for result in results if result.kept] or [[results[-1].last]]
        # each step from here reads matrices or draws all over the files; the next one needs others
        scratch.release(entities.grams)
        memory = AgentMemory.from_chains(entities, chains)
        self.posterior_ = Posterior(entities.likelihood, units, Draws.from_chains(chains), memory)
        self.trace_ = trace_table(results, entities.likelihood.globals_type, progress.target_scale)
        memory.release()
        progress.tell("comparing with simpler models")
        self.comparison_ = compare_with_simpler(self.posterior_, data.sample())
        self.feature_quantiles_ = data.usual_quantiles()
        memory.release()
        progress.tell("summarising")
        self._settle_clusters()
        memory.release()
        self.set_fitted_attributes()
        self.set_diagnostics()
        memory.release()
        return results

    def _make_curves(self, data: TrainingEvents) -> Curves | None:
        names = getattr(self, "feature_names_in_", None)
        columns = curve_columns(self.curves, data.shape().n_features, names)
        if not columns:
            return None
        return make_curves(self.curves, columns, data.quantiles(columns), names)

    def model_spec(self, entities: EntityData, target_scale: float) -> ModelSpec:
        """The priors in standardised units, as the sampler takes them.

        Parameters
        ----------
        entities : the entities to fit
        target_scale : the scale that y was divided by
        """
        pooled = entities.layout.normal_equations(entities.pooled_gram)
        spread = entities.likelihood.linear_spread
        return ModelSpec.in_units(
            target_scale,
            **given_hyperparameters(self),
            coef_prior=self.coef_prior,
            target_spread=(float(np.sqrt(pooled.yy / pooled.n)) or 1.0) if spread is None else spread,
            effects=self.effects,
        )

    def _run_chains(self, entities: EntityData, progress: SweepProgress) -> list[ChainResult]:
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
        figures = disagreement(self.diagnostics_)
        if len(results) > 1 and figures:
            warn_user(
                f"The {len(results)} chains disagree (R-hat above {R_HAT_LIMIT}: {figures}). Predictions average over "
                "all of them.",
                ConvergenceWarning,
                Advice(
                    "Run longer chains ({n_sweeps}), or fix {n_clusters}.", n_sweeps=2 * self.n_sweeps, n_clusters=None
                ),
            )
