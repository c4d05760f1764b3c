"""Fit a model to a whole table, for any target."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from fedhlcr._support.streams import Stream
from fedhlcr._support.wording import DRAW, SWEEP
from fedhlcr.analysis.fit_comparison import compare_with_simpler
from fedhlcr.estimators.parameters import (
    curve_columns,
    given_hyperparameters,
    make_curves,
    model_settings,
    number_or_none,
    saved_as,
)
from fedhlcr.estimators.progress import SweepProgress
from fedhlcr.estimators.tables import TableToFit, thread_count
from fedhlcr.exceptions import Advice, ConvergenceWarning, FitInterruptedWarning, warn_user
from fedhlcr.model.choice import likelihood_of
from fedhlcr.model.curves import Curves
from fedhlcr.model.gram import Standardization, layout_with
from fedhlcr.model.likelihood import likelihood_named
from fedhlcr.model.priors import ModelSpec
from fedhlcr.posterior import AgentMemory, Draws, Posterior
from fedhlcr.posterior.diagnostics import R_HAT_LIMIT, diagnose, disagreement
from fedhlcr.posterior.fitted_model import FittedModel
from fedhlcr.samplers.chain import ChainPlan, ChainResult, run_chain, trace_table
from fedhlcr.samplers.state import EntityData
from fedhlcr.storage import scratch


class Assembled(NamedTuple):
    """What chains need to run: the units, and the entities in these units."""

    units: Standardization
    entities: EntityData


def fit_central(estimator: Any, table: TableToFit) -> FittedModel:
    """Run the chains that an estimator's parameters ask for."""
    # bars of the passes over the table come before the one of the sweeps
    units, entities = _assemble(estimator, table)
    with SweepProgress(estimator.n_chains * estimator.n_sweeps, estimator.verbose) as progress:
        progress.target_scale = float(units.scale[-1])
        progress.begin()
        results = _run_chains(estimator, entities, table.seed, progress)
        # a chain that was stopped before it kept a draw is used only if there is no other
        chains = [result.kept for result in results if result.kept] or [[results[-1].last]]
        # each step from here reads matrices or draws all over the files; the next one needs others
        scratch.release(entities.grams)
        memory = AgentMemory.from_chains(entities, chains)
        posterior = Posterior(entities.likelihood, units, Draws.from_chains(chains), memory)
        trace = trace_table(results, entities.likelihood.globals_type, progress.target_scale)
        memory.release()
        progress.tell("comparing with simpler models")
        comparison = compare_with_simpler(posterior, table.data.sample())
        quantiles = table.data.usual_quantiles()
        memory.release()
        progress.tell("summarising")
        settings = model_settings(estimator)
        model = replace(
            FittedModel.settled(saved_as(estimator), settings, table.schema, table.seed, posterior),
            feature_quantiles_=quantiles,
            comparison_=comparison,
            trace_=trace,
        )
        memory.release()
        model = replace(model, diagnostics_=diagnose(posterior))
        memory.release()
    return model


def _assemble(estimator: Any, table: TableToFit) -> Assembled:
    """Turn events into matrices, and into events in the same units where the likelihood needs them."""
    data = table.data
    n_threads = thread_count(estimator)
    curves = _make_curves(estimator, table)
    n_features = data.shape().n_features if curves is None else curves.n_features
    layout = layout_with(curves, n_features, fit_intercept=table.fits_intercept)
    likelihood = likelihood_named(likelihood_of(estimator.family, model_settings(estimator)), layout)
    shift = np.zeros(layout.n_features + 1)
    if table.fits_intercept:
        means = data.means(n_threads)
        shift[: layout.n_inputs] = means[:-1]
        shift[-1] = means[-1]
    if likelihood.linear_spread is not None:
        shift[-1] = 0.0
    raw = data.matrices(likelihood, shift, curves, n_threads)
    units = Standardization.from_gram(layout, raw.pooled, shift, scale=estimator.standardize, curves=curves)
    if likelihood.linear_spread is not None:
        units = units.with_own_target()
    entities = EntityData(likelihood, data.index, raw.in_units(units), n_threads, single=True)
    if likelihood.needs_events:
        entities = replace(entities, events=data.events(likelihood, units))
    return Assembled(units, entities)


def _make_curves(estimator: Any, table: TableToFit) -> Curves | None:
    names = table.schema.feature_names
    columns = curve_columns(estimator.curves, table.data.shape().n_features, names)
    if not columns:
        return None
    return make_curves(estimator.curves, columns, table.data.quantiles(columns), names)


def model_spec(estimator: Any, entities: EntityData, target_scale: float) -> ModelSpec:
    """The priors of an estimator in standardised units; `target_scale` is what y was divided by."""
    pooled = entities.layout.normal_equations(entities.pooled_gram)
    spread = entities.likelihood.linear_spread
    return ModelSpec.in_units(
        target_scale,
        **given_hyperparameters(estimator),
        coef_prior=estimator.coef_prior,
        target_spread=(float(np.sqrt(pooled.yy / pooled.n)) or 1.0) if spread is None else spread,
        effects=estimator.effects,
    )


def _run_chains(estimator: Any, entities: EntityData, seed: int, progress: SweepProgress) -> list[ChainResult]:
    plan = ChainPlan(
        n_sweeps=estimator.n_sweeps,
        n_draws=estimator.n_draws,
        n_clusters=number_or_none(estimator.n_clusters),
        max_clusters=estimator.max_clusters,
        sampler=getattr(estimator, "sampler", "blocked"),
        label_prior=getattr(estimator, "label_prior", "tables"),
    )
    spec = model_spec(estimator, entities, progress.target_scale)
    results: list[ChainResult] = []
    try:
        while len(results) < estimator.n_chains and not any(result.interrupted for result in results):
            results.append(run_chain(entities, spec, plan, Stream(seed, len(results)), progress))
    except KeyboardInterrupt:
        # between two chains, or while one was being started
        if not results:
            raise
    return results


def warn_of_chains(estimator: Any, model: FittedModel) -> None:
    """Warn of a fit that was interrupted, and of chains that disagree."""
    assert model.trace_ is not None
    done = len(model.trace_)
    n_sweeps = estimator.n_chains * estimator.n_sweeps
    draws = model.posterior_.draws
    if done < n_sweeps:
        warn_user(
            f"The fit was interrupted after {done} of {SWEEP.count(n_sweeps)}; the model uses the "
            f"{DRAW.count(len(draws))} kept so far.",
            FitInterruptedWarning,
        )
    n_chains = int(model.trace_["chain"].max(initial=0)) + 1
    figures = disagreement(model.diagnostics_)
    if n_chains > 1 and figures:
        warn_user(
            f"The {n_chains} chains disagree (R-hat above {R_HAT_LIMIT}: {figures}). Predictions average over all of "
            "them.",
            ConvergenceWarning,
            Advice(
                "Run longer chains ({n_sweeps}), or fix {n_clusters}.",
                n_sweeps=2 * estimator.n_sweeps,
                n_clusters=None,
            ),
        )
