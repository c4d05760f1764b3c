"""Likelihoods: how targets depend on features, given the cluster. Read this page to add one.

All other packages know a likelihood only through the methods of `Likelihood`, so a new one is one class in one file.

How to add a likelihood
-----------------------
 1. Declare its globals: a dataclass derived from `LinearGlobals`, with one `quantity(...)` for each number or array
    that the server draws (`model.schema`). Broadcasts, draws, checkpoints, model files, traces and summaries follow.
 2. Declare what agents sum besides Gram matrices, if anything: `own_blocks` by cluster, `own_scalars` by agent. Then
    `summands` must return it.
 3. Derive a class from `Likelihood`, set `name` and `globals_type`, write the abstract methods, and decorate the class
    with `register`. The prior of the coefficients, w_k ~ N(μ, diag(δ²)) with μ and δ fixed or learned, is here: `start`
    calls `start_with`, and `draw` ends with `with_coef_prior`. Only the noise is left.
 4. Derive an estimator of it, `class MyRegressor(HLCRRegressor): own_likelihood = name`. Every process of a federation
    must import the likelihood's class, since only the name travels.

`model.gaussian` is the likelihood of the paper. `tests/model/test_second_likelihood.py` holds a whole second one, with
a noise scale for each cluster, in about 60 lines.

Who calls what, and when
------------------------
With E entities, K clusters, and P numbers in a packed augmented Gram matrix (`model.gram`):

    when         who      method                                    result
    at first     server   start(spec, K)                            the first globals, all clusters alike
                 server   prior_coef(current, K, rng)               (K, n_coef) coefficients that make clusters differ
    each round   agents   scoring_matrices(part, current)           (E, P) one matrix S_e for each entity
                 agents   score_rows(current)                       (K, P) S_e · r_k = log p(entity e | k) + constant
                          … the sampler draws labels z, with p(z_e = k) ∝ label prior · exp(S_e · r_k) …
                 agents   summands(grams, current, labels)          what each entity adds to its cluster and agent;
                 agents   or conclude(part, current, scoring, …)    with an agent state: its draw, and the sums
                 agents   or sweep(part, current, law, …)           in place of all this, if `sweeps_at_once`
                          … the sampler, or the federation, sums these by cluster: `ClusterSums` …
                 server   regressions(sums.blocks, current)         posterior of each cluster's coefficients, evidence
                 server   draw(sums, regressions, current, …)       new globals for the next round
                 server   recentre(sums, drawn, …)                  coefficients again, with all entities' effects
                 server   enter(stage, current, sums, spec)         globals when effects are switched on
    merging      server   evidence(blocks, current)                 log evidence of any sets of entities
    prediction   anyone   noise_scales(draws)                       (draws, K) standard deviations of the noise
                 anyone   mixture(draws, weights, profiles)         the mixture of normals that predicts an event

A centralised fit plays both parts and calls the same methods in the same order. Agents never see other agents' sums,
and the server never sees an entity. `current` are the current globals; at an agent, those not broadcast are NaN.

The prior of the labels is not part of a likelihood: the samplers draw α, β and ψ (`samplers.label_prior`), and `draw`
leaves them as they are. A likelihood whose agents draw more than labels declares `own_state`; `model.mixed` is one.
Three methods are optional: `collapsed_terms` (for `sampler="collapsed"`),
`log_partition_likelihood` (for comparing numbers of clusters) and `differences` (for summaries, where entities of one
cluster are not equal).

Agents keep Gram matrices, not events. A likelihood that weights single events sets `needs_events`; then agents keep
their events, which `AgentsPart` and `ProfileData` hold in the units of the run. `model.student` is one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr.data.events import EventStore
from fedhlcr.data.families import REAL, Family
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels.arguments import LabelLaw
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.model import conjugate
from fedhlcr.model.arguments import (
    AgentsPart,
    Concluded,
    Differences,
    DrawnLabels,
    EffectShift,
    EventPoints,
    FittedEntities,
    ProfileData,
    Recentred,
    Summands,
)
from fedhlcr.model.gram import GramLayout, Standardization, standard_events
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import LOG_2PI, CoefPosterior, CoefPrior, LinearGlobals, log_normal
from fedhlcr.model.schema import GRAMS, Block, Stage, State, StateField, SummedScalar, SumSchema, gram_sums
from fedhlcr.model.sums import ClusterSums
from fedhlcr.storage.reader import RecordReader

G = TypeVar("G", bound=LinearGlobals)


class Likelihood(ABC, Generic[G]):
    """How targets depend on features, given the cluster. The module's docstring explains the methods together.

    Attributes
    ----------
    name : how settings, messages and files refer to it
    globals_type : the class that declares its globals
    has_fixed_summands : whether an entity adds the same to its cluster in every round. If so, sums are updated from the
        entities that move; otherwise they are summed from scratch.
    """

    name: ClassVar[str]
    globals_type: type[G]
    has_fixed_summands: ClassVar[bool] = True
    # whether effects and noise of entities are switched on after plain clusters have been found
    has_stages: ClassVar[bool] = False
    # whether single events may be far off, so that squared errors say little
    has_heavy_tails: ClassVar[bool] = False
    # whether agents must keep their events
    needs_events: ClassVar[bool] = False
    # whether the agent state needs many sweeps until its start no longer matters
    settles_slowly: ClassVar[bool] = False
    # whether single events say so little that several clusters are always compared with one
    doubts_clusters: ClassVar[bool] = False
    # the spread of the linear part, if the target is not in its units, as with a link; then targets stay as they are
    linear_spread: ClassVar[float | None] = None
    # what targets are
    family: ClassVar[Family] = REAL

    def __init__(self, layout: GramLayout) -> None:
        self.layout = layout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Likelihood) and (self.name, self.layout) == (other.name, other.layout)

    def __hash__(self) -> int:
        return hash((self.name, self.layout))

    @property
    def own_blocks(self) -> tuple[Block, ...]:
        """What it sums by cluster besides the Gram matrices; sizes may depend on `self.layout`."""
        return ()

    @property
    def own_scalars(self) -> tuple[SummedScalar, ...]:
        """What it sums by agent besides the scalars of the labels' prior."""
        return ()

    @property
    def own_state(self) -> tuple[StateField, ...]:
        """What each agent keeps for itself from round to round, besides its labels: nothing by default."""
        return ()

    @cached_property
    def state_fields(self) -> tuple[StateField, ...]:
        """`own_state`, put together once: every round asks for it."""
        return self.own_state

    @property
    def has_state(self) -> bool:
        """Whether agents draw more than labels; then `conclude` replaces `summands`."""
        return bool(self.state_fields)

    def start_state(self, n_agents: int, n_entities: int, n_events: int = 0) -> State:
        """The state of agents that have not answered yet; `n_events` matters only if events are needed."""
        return {field.name: field.start(n_agents, n_entities, n_events) for field in self.state_fields}

    def events_in(self, events: EventStore, units: Standardization) -> EventStore:
        """The agents' events in the units of a run, with its curves, for a likelihood that needs them.

        Raises an error if the likelihood does not allow their targets or weights.
        """
        return standard_events(events, units)

    def fresh_state(self, state: State) -> State:
        """The state of the same agents, as if they had not answered yet."""
        return {field.name: np.full_like(state[field.name], field.initial) for field in self.state_fields}

    @cached_property
    def sum_schema(self) -> SumSchema:
        """Declares everything that agents sum: what all likelihoods share, then this one's own."""
        common = gram_sums(self.layout.packed_size, counts_events=self.has_fixed_summands)
        return SumSchema((*common.blocks, *self.own_blocks), (*common.scalars, *self.own_scalars))

    def sums_events(self, current: Any) -> bool:  # noqa: ARG002
        """Whether the Gram matrices that agents sum under these globals are those of their events as they are.

        Then an agent's total over clusters is the same in every round, and the server checks that.
        """
        return self.has_fixed_summands

    def most_weight(self, current: Any) -> Callable[[FloatArray], FloatArray] | None:  # noqa: ARG002
        """(numbers of events of agents) → the most that the weights of these events can sum to; None if unknown."""
        return None

    # Called at the agents.

    def scoring_matrices(self, part: AgentsPart, current: G) -> FloatArray:  # noqa: ARG002
        """(entities, packed) the matrices that `score_rows` multiplies; by default the entities' Gram matrices.

        Rows of entities whose agents take no part in the round are not used.
        """
        return part.entities.grams

    @abstractmethod
    def score_rows(self, current: G) -> FloatArray:
        """(clusters, packed) rows r_k with scoring matrix · r_k = log p(entity | cluster k) + constant.

        The constant must be the same for all clusters.
        """

    def common_scale(self, current: G) -> float | None:  # noqa: ARG002
        """s, if scores are −RSS(w_k)/(2s²) of the entities' own Gram matrices; None if they are something else.

        Then labels that are certain need no scores: see `samplers.skipping`.
        """
        return None

    def scores_squares(self, current: G) -> bool:
        """Whether score rows are −c·vvᵀ, and scoring matrices positive semi-definite: then rounding errors are known.

        Only then can entities be scored in single precision.
        """
        return self.common_scale(current) is not None

    def summands(self, grams: FloatArray, current: G, labels: LabelArray) -> Summands:  # noqa: ARG002
        """What each entity adds to the sums, given its new label; by default its Gram matrix.

        `labels` (entities,) is −1 for entities that take no part in this round; what they add is not used.
        """
        return Summands({GRAMS: grams}, {})

    def conclude(
        self, part: AgentsPart, current: G, scoring: FloatArray, labels: LabelArray, rows: IndexArray, n_rows: int
    ) -> Concluded:
        """Draw the agent state given the new labels, and sum over entities; for likelihoods with an agent state.

        Parameters
        ----------
        scoring : the matrices of `scoring_matrices`, which may be overwritten
        rows : (entities,) the row of the sums to which each entity of the part adds; −1 for other entities
        n_rows : number of these rows; 0 if the caller sums the Gram matrices itself, which `sums_events` must allow
        """
        raise NotImplementedError

    def sweeps_at_once(self, current: G) -> bool:  # noqa: ARG002
        """Whether `sweep` may replace `scoring_matrices`, the draw of labels and `conclude` if all agents take part."""
        return False

    def sweep(self, part: AgentsPart, current: G, law: LabelLaw, labels: LabelArray, drawn: DrawnLabels) -> Concluded:
        """Draw labels and the agent state, and sum over entities by cluster, in fewer passes over the entities.

        Parameters
        ----------
        labels : (entities,) the old labels
        drawn : the new labels and the agents' counts, which are written
        """
        raise NotImplementedError

    # Called at the server.

    @abstractmethod
    def start(self, spec: ModelSpec, n_clusters: int) -> G:
        """The globals at the start: equal weights, zero coefficients, and learned scales set from the target's spread.

        A hyperparameter that `spec` fixes has its fixed value.
        """

    def start_with(self, spec: ModelSpec, n_clusters: int, **own: Any) -> G:
        """The globals at the start; a subclass passes its `own` quantities."""
        n_coef = self.layout.n_coef
        n_linear = self.layout.n_linear
        scale = spec.coef_scale if spec.coef_scale is not None else spec.target_spread * n_linear**-0.5
        coef_scale = np.full(n_coef, float(scale))
        coef_scale[n_linear:] = conjugate.START_SCALE * spec.target_spread
        return self.globals_type(
            coef=np.zeros((n_clusters, n_coef)),
            log_weights=np.full(n_clusters, -np.log(n_clusters)),
            coef_mean=np.zeros(n_coef),
            coef_scale=coef_scale,
            global_concentration=1.0 if spec.global_concentration is None else spec.global_concentration,
            agent_concentration=1.0 if spec.agent_concentration is None else spec.agent_concentration,
            **own,
        )

    def prior_coef(self, current: G, n_clusters: int, rng: np.random.Generator) -> FloatArray:
        """(clusters, n_coef) coefficients drawn from their prior."""
        return current.coef_mean + current.coef_scale * rng.standard_normal((n_clusters, self.layout.n_coef))

    @abstractmethod
    def regressions(self, blocks: dict[str, FloatArray], current: G) -> CoefPosterior:
        """Posterior and log evidence of the coefficients of each cluster, given its sums and the globals.

        Row k of each block is cluster k of `current`; there may be fewer rows than clusters.
        """

    @abstractmethod
    def draw(self, sums: ClusterSums, regressions: CoefPosterior, current: G, spec: ModelSpec, rng: Any) -> G:
        """Draw the globals given the sums: one Gibbs step for each. Those of the labels' prior stay as they are.

        Parameters
        ----------
        sums : of the last round, over all agents
        regressions : of these sums and `current`, from `regressions`
        current : the globals of the last round
        spec : which hyperparameters are fixed, and the priors of those that are learned
        """

    def with_coef_prior(self, drawn: G, sums: ClusterSums, spec: ModelSpec, rng: np.random.Generator) -> G:
        """Draw (μ, δ) | w unless they are fixed; then draw the coefficients of empty clusters from the new prior.

        A fixed δ is that of the linear coefficients. Every curve learns its own.
        """
        if spec.coef_scale is not None and not self.layout.curve_groups:
            return drawn
        occupied = sums.occupied
        n_linear = self.layout.n_linear
        parts = [CoefPrior(drawn.coef_mean[:n_linear], drawn.coef_scale[:n_linear])]
        if spec.coef_scale is None:
            priors = spec.hyperpriors.for_spread(spec.target_spread)
            parts = [conjugate.draw_coef_prior(rng, drawn.coef[occupied, :n_linear], spec.coef_prior, priors)]
        for span in self.layout.curve_spans:
            parts.append(conjugate.draw_curve_prior(rng, drawn.coef[occupied, span], spec.target_spread))
        mean, scale = (np.concatenate(values) for values in zip(*parts, strict=True))
        drawn = replace(drawn, coef_mean=mean, coef_scale=scale)
        from_prior = self.prior_coef(drawn, drawn.n_clusters, rng)
        return replace(drawn, coef=np.where(occupied[:, None], drawn.coef, from_prior))

    def log_coef_marginal(self, coef: FloatArray, spec: ModelSpec) -> float:
        """log p(w) of the coefficients of the occupied clusters, with their prior's μ and δ integrated out."""
        linear = coef[:, : self.layout.n_linear]
        curves = [coef[:, span] for span in self.layout.curve_spans]
        of_curves = sum(conjugate.log_curve_marginal(own, spec.target_spread) for own in curves)
        if spec.coef_scale is not None:
            return log_normal(linear.size, (linear**2).sum(), spec.coef_scale) + of_curves
        priors = spec.hyperpriors.for_spread(spec.target_spread)
        return conjugate.log_coef_marginal(linear, spec.coef_prior, priors) + of_curves

    def enter(self, stage: Stage, current: G, sums: ClusterSums, spec: ModelSpec) -> G:  # noqa: ARG002
        """The globals at the beginning of a stage; `current` itself if it is in this stage already."""
        return current

    def has_clear_effects(self, sums: ClusterSums) -> bool:  # noqa: ARG002
        """Whether entities clearly differ within plain clusters; then one cluster with effects may do as well."""
        return False

    def recentre(self, sums: ClusterSums, drawn: G, spec: ModelSpec, rng: Any) -> Recentred[G]:  # noqa: ARG002
        """A second draw of the coefficients that moves the effects of all entities along; by default none."""
        return Recentred(drawn, None)

    def effect_shift(self, shift: FloatArray, current: G) -> EffectShift:  # noqa: ARG002
        """What a growth of effects by `shift` (clusters, n_coef) does to sums made under `current`."""
        return EffectShift(shift, np.zeros_like(shift))

    def shifted(self, blocks: dict[str, FloatArray], shift: EffectShift) -> dict[str, FloatArray]:  # noqa: ARG002
        """Sums after the effects of all their entities have grown; the shift has an entry for each row."""
        return blocks

    def log_joint(self, sums: ClusterSums, regressions: CoefPosterior, current: G) -> float:  # noqa: ARG002
        """log p(y, labels | globals) with coefficients and agent weights integrated out."""
        # empty clusters do not matter: their log evidence is 0
        return float(regressions.log_evidence.sum() + sums.scalars["log_label_prior"])

    def evidence(self, blocks: dict[str, FloatArray], current: G) -> FloatArray:
        """(rows,) log evidence of sets of entities, by which merging decides.

        A row need not be a cluster of `current`. So a quantity that each cluster has, such as a noise scale, must be
        integrated out here; of `current`, only what all clusters share may be used.
        """
        return self.regressions(blocks, current).log_evidence

    # Called for predictions. `draws` are stacked: every quantity has a leading axis of draws.

    @abstractmethod
    def noise_scales(self, draws: G) -> FloatArray:
        """(draws, clusters) standard deviation of an event around its cluster's regression."""

    def entity_matrices(
        self, grams: FloatArray, current: G, agent_state: State, events: EventStore | None = None
    ) -> FloatArray:
        """Scoring matrices of single entities, each with its row of the agent state; by default the Gram matrices."""
        del current, agent_state, events
        return grams

    def mixture(self, draws: G, weights: FloatArray, profiles: ProfileData) -> Any:  # noqa: ARG002
        """The mixture of each profile, from its label weights (profiles, draws, clusters).

        By default `plain_mixture`. `posterior.responses` lists the mixtures that there are. The weights may be
        overwritten.
        """
        return self.plain_mixture(draws, weights)

    def has_plain_entities(self, draws: G) -> bool:  # noqa: ARG002
        """Whether, in all draws, `entity_matrices` are Gram matrices and `mixture` is `plain_mixture`.

        Predictions are faster then. By default this is so if both methods are the default ones.
        """
        kind = type(self)
        return kind.entity_matrices is Likelihood.entity_matrices and kind.mixture is Likelihood.mixture

    def plain_mixture(self, draws: G, weights: FloatArray) -> Mixture:
        """One normal around the regression of each draw and cluster. The weights are overwritten."""
        n_draws, _, n_coef = draws.coef.shape
        flat = weights.reshape(len(weights), -1)
        flat /= n_draws
        return Mixture(flat, draws.coef.reshape(-1, n_coef), self.noise_scales(draws).ravel())

    # Called for pointwise log likelihoods.

    def entity_coef(self, current: G, known: FittedEntities, normals: FloatArray) -> FloatArray:  # noqa: ARG002
        """(entities, n_coef) coefficients of known entities in one draw, given all else; by default the cluster's.

        What agents do not keep is drawn from its conditional law, from standard normal numbers (entities, n_coef).
        """
        return np.asarray(current.coef[known.labels])

    def event_log_densities(self, current: G, points: EventPoints) -> FloatArray:  # noqa: ARG002
        """(events,) log density of each event given its entity's coefficients and noise; by default a normal one."""
        z = (points.target - points.linear) / points.scale
        return np.asarray(-0.5 * (LOG_2PI + z**2) - np.log(points.scale))

    def draw_targets(self, current: G, points: EventPoints, rng: np.random.Generator) -> FloatArray:  # noqa: ARG002
        """(events,) new targets from the same laws."""
        return points.linear + points.scale * rng.standard_normal(len(points.linear))

    # Optional.

    def entity_noise(self, draws: G, agent_state: State) -> FloatArray | None:  # noqa: ARG002
        """(draws, entities) noise scales of known entities, from their state; None if all have the same."""
        return None

    def differences(self, draws: G) -> Differences | None:  # noqa: ARG002
        """How entities of one cluster differ in each of the stacked draws; None if they are equal."""
        return None

    def collapsed_terms(self, grams: FloatArray, current: G) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """What `sampler="collapsed"` needs, for likelihoods that can integrate their coefficients out.

        Returns (entities, packed) the (regressors, target) block of each Gram matrix, divided by σ², and (packed,) the
        same block of a cluster without entities, i.e. the prior's.
        """
        raise ArgumentError(
            f"sampler='collapsed' does not support the likelihood {self.name!r}; use sampler='blocked', or "
            "likelihood='gaussian'."
        )

    def log_partition_likelihood(
        self, spec: ModelSpec, blocks: dict[str, FloatArray], draws: list[G], coef: FloatArray
    ) -> float:
        """log p(y | labels) with everything else integrated out, by Chib's identity at `coef`; NaN if not available.

        Parameters
        ----------
        blocks : sums of the clusters in use
        draws : globals drawn with these labels fixed
        coef : (clusters in use, n_coef) a point of high posterior density
        """
        del spec, blocks, draws, coef
        return float("nan")


AnyLikelihood = Likelihood[Any]
GAUSSIAN = "gaussian"
# As a likelihood: the one that follows from the effects and the noise. As `curves`: all features with enough values.
AUTO = "auto"

_REGISTERED: dict[str, type[AnyLikelihood]] = {}
L = TypeVar("L", bound=type[AnyLikelihood])


def register(likelihood: L) -> L:
    """Class decorator: let settings, messages and files refer to a likelihood by its name."""
    _REGISTERED[likelihood.name] = likelihood
    return likelihood


def is_registered(name: str) -> bool:
    return name in _REGISTERED


def read_likelihood(reader: RecordReader, layout: GramLayout) -> AnyLikelihood:
    """Return the likelihood that a record names, for this layout."""
    name = reader.value("likelihood", str)
    reader.require(name in _REGISTERED, "likelihood")
    return _REGISTERED[name](layout)


def likelihood_named(name: str, layout: GramLayout) -> AnyLikelihood:
    """Return the registered likelihood with this name, for this layout."""
    if name not in _REGISTERED:
        known = ", ".join(repr(known) for known in (AUTO, *sorted(_REGISTERED)))
        raise ArgumentError(
            f"`likelihood` must be one of {known}, but is {name!r}; check the spelling, or import the module that "
            "registers it first."
        )
    return _REGISTERED[name](layout)
