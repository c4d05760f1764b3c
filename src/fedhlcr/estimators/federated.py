"""Fit a model by a federation in this process, for any target; the estimators that users see add their settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.streams import ReservedChain, Stream
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr._support.wording import AGENT, DRAW, ROUND
from fedhlcr.analysis.fit_comparison import Sample, compare_with_simpler, take_sample
from fedhlcr.data.events import EventStore
from fedhlcr.data.frames import Given
from fedhlcr.data.hierarchy import EntityIndex, Hierarchy
from fedhlcr.engines.in_process import InProcessEngine
from fedhlcr.engines.ray import RayCluster
from fedhlcr.estimators.curves import curve_columns, make_curves
from fedhlcr.estimators.file_fitting import FileFitter
from fedhlcr.estimators.parameters import federation_settings, wanted_likelihood
from fedhlcr.estimators.private import check_private, settle_privately, simulate_private
from fedhlcr.estimators.progress import RoundProgress
from fedhlcr.estimators.reading import UNSCORED
from fedhlcr.estimators.seconds import FitClock, timed
from fedhlcr.estimators.sharing import SharedTable
from fedhlcr.estimators.streamed import StreamedEvents
from fedhlcr.estimators.training import EventsInMemory, TrainingEvents
from fedhlcr.exceptions import ArgumentError, FitInterruptedWarning, warn_user
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.federation.convergence import in_view_of
from fedhlcr.federation.held_out import Validation
from fedhlcr.federation.private.server import PrivateServer
from fedhlcr.federation.run import (
    INTERRUPTED,
    Checkpoints,
    Closes,
    EngineFactory,
    SimulationEngine,
    run_federation,
    server_for,
    settings_for,
)
from fedhlcr.federation.server import Server
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.kernels import ahead
from fedhlcr.model.choice import chosen_likelihood
from fedhlcr.model.gram import GramLayout, Standardization
from fedhlcr.model.likelihood import GAUSSIAN, AnyLikelihood
from fedhlcr.posterior import AgentMemory, Posterior
from fedhlcr.privacy.differential_privacy import DifferentialPrivacy, PrivacyPlan
from fedhlcr.samplers.state import EntityData
from fedhlcr.settings import AggregationName, CoefPriorKind, NoiseName, RuleName
from fedhlcr.storage.atomic import PathLike

# Engines by the names that users give them.
ENGINES: dict[str, EngineFactory] = {"in_process": InProcessEngine.from_hierarchy, "ray": RayCluster()}


# Called after each round with whether the history must now have the errors of all rounds, `run_federation`.
Scoring = Callable[[Server, bool], None]
# Rounds that are scored together.
SCORED_AT_ONCE = 16
# About what an entity takes in the index that workers are sent.
BYTES_PER_ENTITY = 100


@dataclass(frozen=True)
class Simulation:
    """The agents of a table, which an estimator plays.

    Attributes
    ----------
    engine : has the agents
    index : the agents and entities
    sample : some events to compare models on
    events_in : returns all events in the units of a run, if the likelihood needs events
    """

    engine: Any
    index: EntityIndex
    sample: Sample | None = None
    events_in: Callable[[AnyLikelihood, Standardization], EventStore] | None = None


class FederatedPredictor(FileFitter):
    """An estimator whose `fit` runs a federation. A subclass has the settings."""

    rule: RuleName = "delta"
    learning_rate: float = 0.2
    participation_scaling: bool = True
    noise: NoiseName = "entity"
    coef_prior: CoefPriorKind
    curves: str | Sequence[str | int]
    standardize: bool
    participation: float
    rounds: int | None
    failure_rate: float
    patience: int | None
    n_draws: int
    engine: str | EngineFactory
    limits: ReplyLimits | None
    aggregation: AggregationName
    fixed_point: bool
    min_cohort: int
    privacy: DifferentialPrivacy | None = None
    checkpoint: PathLike | None
    checkpoint_every: int
    verbose: bool
    history_: NDArray[np.void]
    server_: Server | PrivateServer
    privacy_: PrivacyPlan | None = None
    stop_reason_: str | None
    n_rounds_: int
    _clock: FitClock
    _is_federated: ClassVar[bool] = True

    def likelihood_name(self) -> str:
        """The name of the likelihood that `fit` uses; the blend rule has the paper's only."""
        if self.rule == "blend" or self.privacy is not None:
            return GAUSSIAN
        return chosen_likelihood(wanted_likelihood(self), self.effects, self.noise)

    @timed
    def _fit(self, given: Given, validation: tuple[Any, ...] | None, resume: bool) -> Self:
        if resume and self.checkpoint is None:
            raise ArgumentError("`resume` needs the file to go on from; pass its path as `checkpoint`.")
        ahead.prepare(ahead.for_fits(self.likelihood_name(), federated=True))
        hierarchy = self._training_events(given)
        settings = self._settings(EventsInMemory(hierarchy), weighted=given.sample_weight is not None)
        _require_cohort(settings, hierarchy.index.n_agents)
        if settings.privacy is not None:
            return self._fit_privately(hierarchy, settings, validation)
        make_engine = self._engine_factory()
        if settings.is_secure and isinstance(make_engine, RayCluster):
            raise ArgumentError("aggregation='secure' needs engine='in_process': a cluster's driver sees its agents.")
        engine = make_engine(hierarchy, failure_rate=self.failure_rate, seed=self.seed_, n_threads=self.thread_count())
        # from here on only the agents have the events, and only as long as they need them; a simulation plays the
        # agents, so at the end it predicts from their events, and compares models on a sample of these
        events = hierarchy.events if settings.make_likelihood().needs_events else None
        index = hierarchy.index
        sample = take_sample(hierarchy)
        del hierarchy
        simulation = Simulation(engine, index, sample, None if events is None else _converter(events))

        def evaluation() -> Scoring | None:
            return None if validation is None else self._scoring(self._validation(validation, engine, index, events))

        return self._run(settings, simulation, evaluation, resume)

    @timed
    @single_threaded_blas
    def fit_streamed(self, data: StreamedEvents) -> Self:
        """Fit the model to a table in a work folder, on a cluster whose workers read its files; see `fit_files`."""
        ahead.prepare(ahead.for_fits(self.likelihood_name(), federated=True))
        cluster = self._cluster_for_files()
        shared = SharedTable(data)
        self._begin_streamed(data)
        settings = self._settings(data, weighted=False)
        index = data.index
        engine = cluster.engine(index, shared.parts, BYTES_PER_ENTITY * index.n_entities, seed=self.seed_)
        needs_events = settings.make_likelihood().needs_events
        events_in = partial(engine.entity_events, data.sorter.event_start) if needs_events else None
        self._run(settings, Simulation(engine, index, shared.sample, events_in))
        self.recipe_ = data.recipe
        return self

    def _engine_factory(self) -> EngineFactory:
        return ENGINES[self.engine] if isinstance(self.engine, str) else self.engine

    def _require_files(self) -> None:
        self._cluster_for_files()

    def _cluster_for_files(self) -> RayCluster:
        """The cluster whose workers read files; refuse settings that need the table in one process."""
        cluster = self._engine_factory()
        if not isinstance(cluster, RayCluster):
            raise ArgumentError("`fit_files` of a federation needs engine='ray'; otherwise pass the table to `fit`.")
        if self.privacy is not None or self.aggregation == "secure" or self.failure_rate:
            raise ArgumentError(
                "`privacy`, aggregation='secure' and `failure_rate` need engine='in_process' and a table in memory; "
                "leave them out, or pass the table to `fit`."
            )
        return cluster

    def _run(
        self,
        settings: FederationSettings,
        simulation: Simulation,
        evaluation: Callable[[], Scoring | None] = lambda: None,
        resume: bool = False,
    ) -> Self:
        """Run the federation, and set everything that follows from it."""
        engine = simulation.engine
        settings = settings_for(settings, engine)
        checkpoints = None if self.checkpoint is None else Checkpoints(self.checkpoint, self.checkpoint_every)
        try:
            evaluate = evaluation()
            if checkpoints is None or not resume:
                server = server_for(settings, engine)
            else:
                server = checkpoints.resume(settings, engine)
            with RoundProgress(settings.rounds, self.verbose) as progress:
                run_federation(server, engine, checkpoints=checkpoints, evaluate=evaluate, progress=progress)
            self._finish(server, simulation)
        finally:
            if isinstance(engine, Closes):
                engine.close()
        self.comparison_ = compare_with_simpler(self.posterior_, simulation.sample)
        self.posterior_.memory.release()
        self._warn_of_simpler_model()
        return self

    def _settings(self, data: TrainingEvents, *, weighted: bool) -> FederationSettings:
        n_features = data.shape().n_features
        names = getattr(self, "feature_names_in_", None)
        columns = curve_columns(self.curves, n_features, names)
        if columns and not isinstance(self.curves, str):
            # refuse columns that cannot have a curve before the run, as a centralised fit does
            make_curves(self.curves, columns, data.quantiles(columns), names)
        limits = ReplyLimits() if self.limits is None else self.limits
        if weighted:
            limits = replace(limits, min_events_per_entity=0.0)
        layout = GramLayout(n_features, self.fits_intercept)
        own = federation_settings(self) | {"limits": limits, "curves": tuple(columns)}
        return FederationSettings(layout, seed=self.seed_, **own)

    def _fit_privately(self, hierarchy: Hierarchy, settings: FederationSettings, validation: Any) -> Self:
        """Run a federation under differential privacy. Nothing public is computed from anything but noisy sums."""
        check_private(self, validation)
        with RoundProgress(settings.most_rounds, self.verbose) as progress:
            server, agents = simulate_private(
                hierarchy, settings, failure_rate=self.failure_rate, n_threads=self.thread_count(), progress=progress
            )
        self._finish(server, Simulation(agents, hierarchy.index))
        return self

    def _validation(
        self, validation: Any, engine: SimulationEngine, index: EntityIndex, events: EventStore | None
    ) -> Validation:
        if not isinstance(validation, tuple) or not 2 <= len(validation) <= 5:
            raise ArgumentError(
                "`validation` must be a tuple (X, y), (X, y, agent) or (X, y, agent, entity); for counts the exposure "
                "may come behind these."
            )
        X, y, agent, entity, exposure = (*validation, None, None, None)[:5]
        given = Given(X, y, agent, entity, exposure=exposure)
        held_out = self._events(given, UNSCORED, target=True, index=index)
        self._require_rows(held_out)
        target = self._target(held_out.read.given.y, len(held_out))
        offset = self._own_offset(held_out)
        return Validation(engine, index, held_out.matrix, target, held_out.profiles, events, offset)

    def _scoring(self, validation: Validation) -> Scoring:
        """Writes the errors of rounds to the history, some at a time, and has the clock count that as scoring."""

        def score(server: Server, now: bool) -> None:
            if server.has_draws:
                validation.note(server)
            if now or validation.n_noted >= SCORED_AT_ONCE:
                with self._clock.scoring():
                    server.history.set_validation(validation.errors(server, self.thread_count()))

        return score

    def _finish(self, server: Server | PrivateServer, simulation: Simulation) -> None:
        """The fitted attributes: the public draws, and every agent's labels under them."""
        model = server.model()
        index = simulation.index
        grams = simulation.engine.entity_grams(server.run, model.layout, model.standardization)
        events_in = simulation.events_in
        events = None if events_in is None else events_in(model.likelihood, model.standardization)
        entities = EntityData(model.likelihood, index, grams, self.thread_count(), events)
        memory = AgentMemory.from_draws(entities, model.draws, Stream(self.seed_, ReservedChain.PREDICTION))
        memory.release()
        self.posterior_ = Posterior(model.likelihood, model.standardization, model.draws, memory)
        self.server_ = server
        kept = {draw.round for draw in server.kept_draws}
        self.history_ = server.history.table(self._ids_of(server, index), kept)
        self.stop_reason_ = server.stop_reason
        self.n_rounds_ = server.round
        if isinstance(server, PrivateServer):
            settle_privately(self, server)
        else:
            self.privacy_ = None
            self._settle_clusters()
            self.set_fitted_attributes()
            self.set_diagnostics()
        if server.stop_reason == INTERRUPTED:
            n_draws = len(model.draws)
            warn_user(
                f"The run was interrupted after {server.round} of at most {ROUND.count(server.settings.most_rounds)}; "
                f"the model uses the {DRAW.count(n_draws)} kept so far.",
                FitInterruptedWarning,
            )

    def set_diagnostics(self) -> None:
        """Set `diagnostics_`, and say "converged" in `stop_reason_` only if R-hat agrees."""
        super().set_diagnostics()
        if getattr(self, "stop_reason_", None) is not None:
            self.stop_reason_ = in_view_of(str(self.stop_reason_), self.diagnostics_)

    @staticmethod
    def _ids_of(server: Server | PrivateServer, index: EntityIndex) -> np.ndarray:
        """The agents' ids as the user wrote them, in the server's order."""
        ids = dict(zip(index.agents.texts, index.agent_ids, strict=True))
        out = np.empty(len(server.registry), dtype=object)
        out[:] = [ids[name] for name in server.registry.names]
        return out


def _converter(events: EventStore) -> Callable[[AnyLikelihood, Standardization], EventStore]:
    return lambda likelihood, units: likelihood.events_in(events, units)


def _require_cohort(settings: FederationSettings, n_agents: int) -> None:
    """Refuse a run under secure aggregation in which no round could ever succeed."""
    n_asked = max(1, round(settings.participation * n_agents))
    if settings.is_secure and n_asked < settings.min_cohort:
        raise ArgumentError(
            f"`min_cohort` is {settings.min_cohort}, but {n_asked} of {AGENT.count(n_agents)} are asked in a round; "
            "raise `participation`, add agents, or lower `min_cohort` (at least 3)."
        )
