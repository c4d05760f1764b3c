"""The server of a private run: it asks all agents in every round, and sees nothing but noisy sums.

    while not server.finished:
        query = server.query()
        server.accept(noisy total of the agents' answers to the query)      or server.skip(), if it was lost

First come four queries about units (`units`), then a fixed number of rounds (`scores`,
`filter`). Merging, stopping and averages over rounds use noisy sums only, so they cost nothing.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.streams import Stream, text_key
from fedhlcr._support.wording import AGENT
from fedhlcr.exceptions import FederationError
from fedhlcr.federation.history import History, RoundRecord
from fedhlcr.federation.messages import SURVEY_ROUND
from fedhlcr.federation.private import filter as clusters_filter
from fedhlcr.federation.private import units
from fedhlcr.federation.private.filter import ClusterEstimates, Noisy
from fedhlcr.federation.private.queries import ROUND, Query, planned_blocks
from fedhlcr.federation.private.scores import SCORE_CLIP, RoundQuery
from fedhlcr.federation.registry import Registry
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.model.gaussian import Gaussian, GaussianGlobals
from fedhlcr.model.gram import Standardization
from fedhlcr.posterior import Draws, PublicModel
from fedhlcr.privacy.accounting import epsilon_of
from fedhlcr.privacy.differential_privacy import LOCATIONS, SCORES, SPREADS, STAGES, VOTES, PrivacyPlan
from fedhlcr.privacy.release import decode
from fedhlcr.samplers.state import GlobalDraw

# Clusters to start with, if their number is to be found: so many that, at the start, the score of a cluster tells its
# coefficients to this many standard deviations of the noise, in units of σ.
CLARITY = 18.0
FEWEST_START = 8
MOST_START = 48
# The share of the rounds, at the end, whose regressions are kept as draws.
KEPT_SHARE = 0.4
# Standard deviations of its size by which a cluster must exceed zero to be reported.
SEEN = 2.0


class PrivateServer:
    """One private federation. `plan` has been shown to whoever is responsible before the first query."""

    def __init__(self, settings: FederationSettings, plan: PrivacyPlan, agents: list[str]) -> None:
        self.settings = settings
        self.plan = plan
        self.likelihood = Gaussian(settings.layout)
        self.registry = Registry()
        self.registry.register(agents)
        self.history = History(GaussianGlobals)
        self.run = text_key(settings.run_text) >> 1
        self.stop_reason: str | None = None
        self.round = SURVEY_ROUND
        self._stream = Stream(settings.seed)
        self._stages = list(STAGES)
        self._n_spent = 0
        self._limits: units.Limits | None = None
        self._provisional: Standardization | None = None
        self._units: units.PrivateUnits | None = None
        self._whitening = np.eye(settings.layout.n_coef)
        self._clusters: ClusterEstimates | None = None
        self._cluster_of: IndexArray = np.arange(0)
        self._kept: list[GlobalDraw] = []

    @property
    def finished(self) -> bool:
        return self.stop_reason is not None

    @property
    def _n_start(self) -> int:
        """Number of clusters to start with, once the units are known."""
        settings = self.settings
        found = self._units
        if settings.n_clusters is not None:
            return 2 * settings.n_clusters
        assert found is not None
        information = self.plan.n_agents * math.sqrt(found.typical_events / settings.layout.n_coef)
        clear = int(information * self.plan.mu_of(SCORES) / (SCORE_CLIP * CLARITY))
        return min(max(clear, FEWEST_START), MOST_START, settings.max_clusters)

    @property
    def _n_columns(self) -> int:
        return self.settings.layout.n_features + 1

    @property
    def units_are_clear(self) -> bool:
        """Whether the units of the columns stand out of the noise; if not, the model may be nonsense."""
        return self._limits is None or self._limits.are_clear

    @property
    def warning(self) -> str | None:
        """What whoever uses the model should know."""
        if self.units_are_clear:
            return None
        return (
            f"The noise hides where the columns of {AGENT.count(self.plan.n_agents)} lie, so predictions may be far "
            "off. Use a larger `epsilon`, or more agents: a hundred are few."
        )

    def query(self) -> Query:
        """The next question to the agents."""
        if self.finished:
            raise FederationError(f"the run has ended ({self.stop_reason}); start another.")
        if self._stages:
            stage = self._stages[0]
            layout = self.settings.layout
            blocks = planned_blocks(stage, layout, self.plan)
            return Query(self.run, stage, 0, layout, blocks, self._limits, self._provisional)
        assert self._units is not None
        question = self._round_query()
        return Query(
            self.run,
            ROUND,
            self.round + 1,
            self.settings.layout,
            planned_blocks(ROUND, self.settings.layout, self.plan, question),
            units=self._units.standardization,
            law=self._law(),
            cluster_of=self._cluster_of,
            round=question,
        )

    def _round_query(self) -> RoundQuery:
        found = self._units
        clusters = self._clusters
        assert found is not None
        assert clusters is not None
        return RoundQuery(
            clusters.coef @ self._whitening,
            math.sqrt(clusters.variance),
            self._whitening,
            clusters.second_moments,
            found.typical_events,
            found.most_events,
        )

    def _law(self, coef: FloatArray | None = None) -> GaussianGlobals:
        """The globals of the present state, with these or the present regressions in whitened coordinates."""
        clusters = self._clusters
        settings = self.settings
        assert clusters is not None
        own = clusters.coef if coef is None else coef
        in_units = own @ self._whitening
        scale = math.sqrt(float((in_units**2).mean())) or 1.0
        return GaussianGlobals(
            coef=in_units,
            log_weights=clusters.log_weights,
            global_concentration=settings.global_concentration or 1.0,
            agent_concentration=settings.agent_concentration or 1.0,
            noise_scale=math.sqrt(clusters.variance),
            coef_mean=np.zeros(in_units.shape[1]),
            coef_scale=np.full(in_units.shape[1], scale),
        )

    def fault_generator(self) -> np.random.Generator:
        """Random numbers for the simulated failures of agents."""
        return self._stream.generator(0, "faults")

    def accept(
        self, total: NDArray[np.int64], answered: IndexArray, bytes_moved: tuple[int, int] | None = None
    ) -> None:
        """Take in the noisy total of the answers of the agents at these positions, in lattice units.

        `bytes_moved` are those sent down and up; without them those that agents would send are counted.
        """
        query = self.query()
        self.spend(query)
        sums = decode(total, query.blocks)
        if self._stages:
            self._stages.pop(0)
            self._take_units(query.stage, sums[query.stage], 1.0 / query.blocks[0].mu)
        else:
            self._take_round(query, sums)
        self._record(query, answered, bytes_moved or (0, 8 * query.n_values * len(answered)))

    def skip(self, bytes_moved: tuple[int, int] = (0, 0)) -> None:
        """Go on without the answer to a query that agents cannot answer again, because it may have been revealed."""
        query = self.query()
        self.spend(query)
        if self._stages:
            raise FederationError(
                f"the sum of the {query.stage} was lost after agents had sent their parts, and they send them once "
                "only. Start another run; its budget adds to what this one has spent."
            )
        self._end_round()
        self._record(query, np.arange(0), bytes_moved)

    def spend(self, query: Query) -> None:
        """Count a query as asked: from now on agents may have answered it."""
        self._n_spent = query.place + 1

    def take_back(self, query: Query) -> None:
        """Do not count a query: nobody has answered it."""
        self._n_spent = query.place

    @property
    def spent(self) -> str:
        """What has been asked so far, and what that costs, in words."""
        plan = self.plan
        mu = self.plan.mu_until(self._n_spent)
        epsilon = epsilon_of(mu, plan.delta) if self._n_spent else 0.0
        return (
            f"{self._n_spent} of {plan.n_queries} queries of the privacy plan were asked; they cost epsilon = "
            f"{epsilon:.6g} of {plan.epsilon:.6g}, at delta = {plan.delta:.3g}"
        )

    def _take_units(self, stage: str, total: FloatArray, noise_scale: float) -> None:
        n_columns = self._n_columns
        layout = self.settings.layout
        if stage == VOTES:
            self._limits = units.read_votes(total, n_columns, noise_scale)
            return
        assert self._limits is not None
        if stage == LOCATIONS:
            places = units.read_locations(total, self._limits, noise_scale)
            places = places if layout.fit_intercept else np.zeros_like(places)
            self._provisional = Standardization(places, np.ones(n_columns))
            return
        assert self._provisional is not None
        if stage == SPREADS:
            scales = units.read_spreads(total, n_columns, noise_scale)
            self._provisional = Standardization(self._provisional.shift, scales)
            return
        most = self._limits.most_events
        self._units = units.read_moments(total, layout, self._provisional, most, noise_scale)
        self._begin(self._units)

    def _begin(self, found: units.PrivateUnits) -> None:
        values, vectors = np.linalg.eigh(found.second_moments)
        self._whitening = (vectors / np.sqrt(values)) @ vectors.T
        n_events = self.plan.n_agents * found.typical_events
        rng = self._stream.generator(0)
        self._clusters = ClusterEstimates.start(self._n_start, self.settings.layout.n_coef, n_events, rng)
        self._cluster_of = np.arange(self._n_start)

    def _take_round(self, query: Query, sums: dict[str, FloatArray]) -> None:
        assert query.round is not None
        assert self._clusters is not None
        noisy = Noisy.of(sums, query.round, self.plan)
        self._clusters = clusters_filter.update(self._clusters, noisy, self.round, self.plan.rounds)
        self._end_round()

    def _end_round(self) -> None:
        """Merge clusters, keep draws, and end the run where the plan says so."""
        assert self._clusters is not None
        number = self.round
        n_rounds = self.plan.rounds
        self.round += 1
        rng = self._stream.generator(self.round)
        first, last = (int(share * n_rounds) for share in (clusters_filter.MERGE_FROM, clusters_filter.MERGE_UNTIL))
        if first <= number <= last and number % 2 == 0:
            wanted = self.settings.n_clusters if number + 2 > last else None
            self._clusters, merged = clusters_filter.merge(self._clusters, wanted)
            self._cluster_of = merged[self._cluster_of]
        if self.round > n_rounds * (1.0 - KEPT_SHARE):
            self._keep(rng)
        if self.round == n_rounds:
            self.stop_reason = f"all {n_rounds} rounds of the privacy plan are done"

    def _keep(self, rng: np.random.Generator) -> None:
        """Keep two draws of the regressions, on opposite sides of their mean, so that the mean stays what it is."""
        clusters = self._clusters
        assert clusters is not None
        root = np.linalg.cholesky(clusters.covariance)
        step = (root @ rng.standard_normal((*clusters.coef.shape, 1)))[..., 0]
        # clusters that the noise may have made are kept, but not reported
        seen = clusters.events > SEEN * math.sqrt(clusters.event_variance)
        counts = np.where(seen | (clusters.events == clusters.events.max()), np.maximum(clusters.events, 1.0), 0.0)
        for coef in (clusters.coef + step, clusters.coef - step):
            self._kept.append(GlobalDraw(self.round, counts, self._law(coef), 0.0))

    def _record(self, query: Query, answered: IndexArray, bytes_moved: tuple[int, int]) -> None:
        state = {q.name: math.nan for q in GaussianGlobals.traced_quantities()}
        scale = 1.0
        if self._units is not None:
            scale = float(self._units.standardization.scale[-1])
            state = self._law().traced(scale)
        record = RoundRecord(
            round=query.number,
            n_asked=len(self.registry),
            n_accepted=len(answered),
            n_refused=0,
            bytes_down=bytes_moved[0],
            bytes_up=bytes_moved[1],
            labels_changed=0,
            log_joint=math.nan,
            shared=state,
            n_clusters=0 if self._clusters is None else self._clusters.n_clusters,
            validation_mse=math.nan,
        )
        self.history.add(record, answered)

    @property
    def second_moments(self) -> FloatArray:
        """(n_coef, n_coef) of the regressors, estimated from noisy sums."""
        assert self._units is not None
        return self._units.second_moments

    @property
    def kept_draws(self) -> list[GlobalDraw]:
        return self._kept

    def model(self) -> PublicModel:
        """The public model: all that an agent needs to predict, besides its own matrices."""
        if self._units is None or not self._kept:
            raise FederationError("there are no draws yet; run more rounds.")
        draws = Draws.from_chains([self._kept])
        return PublicModel(self.likelihood, self._units.standardization, draws, self.settings.seed, privacy=self.plan)
