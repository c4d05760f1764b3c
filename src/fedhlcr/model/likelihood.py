"""Likelihoods: how targets depend on features, given the cluster. Read this page to add one.

All other packages know a likelihood only through the methods of `Likelihood`, so a new one is one class in one file.

How to add a likelihood
-----------------------
 1. Declare its globals: a dataclass derived from `Globals`, with one `quantity(...)` for each number or array that the
    server draws (`model.schema`). Broadcasts, draws, checkpoints, model files, traces and summaries follow from this.
 2. Declare what agents sum besides Gram matrices, if anything: `own_blocks` by cluster, `own_scalars` by agent. Then
    `summands` must return it.
 3. Derive a class from `Likelihood`, set `name` and `globals_type`, write the abstract methods, and decorate the class
    with `register`. Linear regressions with a normal prior derive from `model.linear` instead: only the noise is left.
 4. Pass its name: `HLCRRegressor(likelihood=name)`. Every process of a federation must import the class, since only the
    name travels.

`model.gaussian` is the likelihood of the paper. `tests/model/test_second_likelihood.py` holds a whole second one, with
a noise scale for each cluster, in about 60 lines.

Who calls what, and when
------------------------
With E entities, K clusters, and P numbers in a packed augmented Gram matrix (`model.gram`):

    when         who      method                                    result
    at first     server   start(spec, K)                            the first globals, all clusters alike
                 server   prior_coef(given, K, rng)                 (K, n_coef) coefficients that make clusters differ
    each round   agents   scoring_matrices(grams, given)            (E, P) one matrix S_e for each entity
                 agents   score_rows(given)                         (K, P) S_e · r_k = log p(entity e | k) + constant
                          … the sampler draws labels z, with p(z_e = k) ∝ label prior · exp(S_e · r_k) …
                 agents   summands(grams, given, labels)            what each entity adds to its cluster and agent
                          … the sampler, or the federation, sums these by cluster: `ClusterSums` …
                 server   regressions(sums.blocks, given)           posterior of each cluster's coefficients, evidence
                 server   draw(sums, regressions, current, …)       new globals for the next round
    merging      server   evidence(blocks, given)                   log evidence of any sets of entities
    prediction   anyone   noise_scales(draws)                       (draws, K) standard deviations of the noise
                 anyone   mixture(draws, weights)                   the mixture of normals that predicts an event

A centralised fit plays both parts and calls the same methods in the same order. Agents never see other agents' sums,
and the server never sees an entity. `given` are the current globals; at an agent, those not broadcast are NaN.

The prior of the labels is not part of a likelihood: the samplers draw α, β and ψ (`samplers.label_prior`), and `draw`
leaves them as they are. Two methods are optional: `collapsed_terms` (for `sampler="collapsed"`) and
`log_partition_likelihood` (for comparing numbers of clusters).

Agents keep Gram matrices, not events. A likelihood that weights single events (Student-t noise, binary targets) needs
the events too; they would enter through `scoring_matrices` and `summands`, with `has_fixed_summands = False`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr.exceptions import ArgumentError
from fedhlcr.kernels.mixtures import Mixture
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.priors import ModelSpec
from fedhlcr.model.regression import CoefPosterior
from fedhlcr.model.schema import GRAMS, Block, Globals, SummedScalar, SumSchema, gram_sums
from fedhlcr.model.sums import ClusterSums

G = TypeVar("G", bound=Globals)


class Summands(NamedTuple):
    """What each entity adds to the sums of its cluster and of its agent.

    Attributes
    ----------
    blocks : by name, (entities, size); summed by cluster
    scalars : by name, (entities,); summed by agent
    """

    blocks: dict[str, FloatArray]
    scalars: dict[str, FloatArray]


class CollapsedTerms(NamedTuple):
    """What the collapsed sampler needs to integrate the coefficients out.

    Attributes
    ----------
    grams : (entities, packed) the (regressors, target) block of each Gram matrix, divided by σ²
    prior_precision : (packed,) the same block of a cluster without entities, i.e. the prior's
    """

    grams: FloatArray
    prior_precision: FloatArray


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

    @cached_property
    def sum_schema(self) -> SumSchema:
        """Declares everything that agents sum: what all likelihoods share, then this one's own."""
        common = gram_sums(self.layout.packed_size)
        return SumSchema((*common.blocks, *self.own_blocks), (*common.scalars, *self.own_scalars))

    # Called at the agents.

    def scoring_matrices(self, grams: FloatArray, given: G) -> FloatArray:  # noqa: ARG002
        """(entities, packed) the matrices that `score_rows` multiplies; by default the entities' Gram matrices."""
        return grams

    @abstractmethod
    def score_rows(self, given: G) -> FloatArray:
        """(clusters, packed) rows r_k with scoring matrix · r_k = log p(entity | cluster k) + constant.

        The constant must be the same for all clusters.
        """

    def summands(self, grams: FloatArray, given: G, labels: LabelArray) -> Summands:  # noqa: ARG002
        """What each entity adds to the sums, given its new label; by default its Gram matrix.

        `labels` (entities,) is −1 for entities that take no part in this round; what they add is not used.
        """
        return Summands({GRAMS: grams}, {})

    # Called at the server.

    @abstractmethod
    def start(self, spec: ModelSpec, n_clusters: int) -> G:
        """The globals at the start: equal weights, zero coefficients, and learned scales set from the target's spread.

        A hyperparameter that `spec` fixes has its fixed value.
        """

    @abstractmethod
    def prior_coef(self, given: G, n_clusters: int, rng: np.random.Generator) -> FloatArray:
        """(clusters, n_coef) coefficients drawn from their prior."""

    @abstractmethod
    def regressions(self, blocks: dict[str, FloatArray], given: G) -> CoefPosterior:
        """Posterior and log evidence of the coefficients of each cluster, given its sums and the globals.

        Row k of each block is cluster k of `given`; there may be fewer rows than clusters.
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

    def evidence(self, blocks: dict[str, FloatArray], given: G) -> FloatArray:
        """(rows,) log evidence of sets of entities, by which merging decides.

        A row need not be a cluster of `given`. So a quantity that each cluster has, such as a noise scale, must be
        integrated out here; of `given`, only what all clusters share may be used.
        """
        return self.regressions(blocks, given).log_evidence

    # Called for predictions. `draws` are stacked: every quantity has a leading axis of draws.

    @abstractmethod
    def noise_scales(self, draws: G) -> FloatArray:
        """(draws, clusters) standard deviation of an event around its cluster's regression."""

    def mixture(self, draws: G, weights: FloatArray) -> Mixture:
        """The mixture of each profile, from its label weights (profiles, draws, clusters).

        By default one normal around the regression of each draw and cluster.
        """
        n_draws, _, n_coef = draws.coef.shape
        flat = weights.reshape(len(weights), -1) / n_draws
        return Mixture(flat, draws.coef.reshape(-1, n_coef), self.noise_scales(draws).ravel())

    # Optional.

    def collapsed_terms(self, grams: FloatArray, given: G) -> CollapsedTerms:  # noqa: ARG002
        """What `sampler="collapsed"` needs, for likelihoods that can integrate their coefficients out."""
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

_REGISTERED: dict[str, type[AnyLikelihood]] = {}
L = TypeVar("L", bound=type[AnyLikelihood])


def register(likelihood: L) -> L:
    """Class decorator: let settings, messages and files refer to a likelihood by its name."""
    _REGISTERED[likelihood.name] = likelihood
    return likelihood


def is_registered(name: str) -> bool:
    return name in _REGISTERED


def likelihood_named(name: str, layout: GramLayout) -> AnyLikelihood:
    """Return the registered likelihood with this name, for this layout."""
    if name not in _REGISTERED:
        known = ", ".join(repr(known) for known in sorted(_REGISTERED))
        raise ArgumentError(
            f"`likelihood` must be one of {known}, but is {name!r}; import the module that registers it first."
        )
    return _REGISTERED[name](layout)
