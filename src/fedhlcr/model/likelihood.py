"""The seam: everything the samplers, the federation, storage and predictions need to know of a likelihood.

A likelihood says what an entity is to the sampler, what a cluster sums, how the shared quantities follow from the sums,
what merging clusters gains, and which mixture predicts an event. The Gaussian of the paper is `model.gaussian`; to add
another one, derive from `Likelihood`, declare its shared quantities in a class derived from `Globals`, and decorate it
with `register`. Nothing else changes: `tests/model/test_second_likelihood.py` does all of it in about 60 lines.
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
    blocks : by name, (entities, size)
    scalars : (entities, own scalars of the likelihood), summed by agent
    """

    blocks: dict[str, FloatArray]
    scalars: FloatArray


class CollapsedTerms(NamedTuple):
    """What a sampler needs that integrates the coefficients out.

    Attributes
    ----------
    grams : (entities, packed) of the (regressors, target) block, divided by σ²
    prior_precision : (packed,) of a cluster without entities
    """

    grams: FloatArray
    prior_precision: FloatArray


class Likelihood(ABC, Generic[G]):
    """How targets depend on features, given the cluster. Entities come as augmented Gram matrices, `model.gram`.

    Attributes
    ----------
    name : by which settings, messages and files refer to it
    globals_type : the class that declares its shared quantities
    own_blocks, own_scalars : what it sums besides the Gram matrices and the numbers of the labels' prior
    has_fixed_summands : whether what an entity adds to its cluster never changes, so that sums can be updated from the
        entities that move alone
    """

    name: ClassVar[str]
    globals_type: type[G]
    own_blocks: ClassVar[tuple[Block, ...]] = ()
    own_scalars: ClassVar[tuple[SummedScalar, ...]] = ()
    has_fixed_summands: ClassVar[bool] = True

    def __init__(self, layout: GramLayout) -> None:
        self.layout = layout

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Likelihood) and (self.name, self.layout) == (other.name, other.layout)

    def __hash__(self) -> int:
        return hash((self.name, self.layout))

    @cached_property
    def sum_schema(self) -> SumSchema:
        """What agents sum."""
        common = gram_sums(self.layout.packed_size)
        return SumSchema((*common.blocks, *self.own_blocks), (*common.scalars, *self.own_scalars))

    # At the agents.

    def scoring_matrices(self, grams: FloatArray, given: G) -> FloatArray:  # noqa: ARG002
        """(entities, packed) what an entity is scored by; its Gram matrix unless a likelihood says otherwise."""
        return grams

    @abstractmethod
    def score_rows(self, given: G) -> FloatArray:
        """(clusters, packed) rows r_k with matrix · r_k = log p(entity | cluster k), up to what all clusters share."""

    def summands(self, grams: FloatArray, given: G, labels: LabelArray) -> Summands:  # noqa: ARG002
        """What each entity adds, given its new label (−1 for entities that are not labelled now)."""
        return Summands({GRAMS: grams}, np.zeros((len(grams), len(self.own_scalars))))

    # At the server.

    @abstractmethod
    def start(self, spec: ModelSpec, n_clusters: int) -> G:
        """Where a run begins: clusters of the same weight, coefficients of zero, learned scales at the target's."""

    @abstractmethod
    def prior_coef(self, given: G, n_clusters: int, rng: np.random.Generator) -> FloatArray:
        """(clusters, n_coef) coefficients drawn from their prior."""

    @abstractmethod
    def regressions(self, blocks: dict[str, FloatArray], given: G) -> CoefPosterior:
        """Coefficients of clusters given their sums: posterior and log evidence, one for each row.

        Rows are the clusters of `given`, from the first one on.
        """

    @abstractmethod
    def draw(self, sums: ClusterSums, regressions: CoefPosterior, current: G, spec: ModelSpec, rng: Any) -> G:
        """The shared quantities given the sums; those of the labels' prior stay as they are."""

    def evidence(self, blocks: dict[str, FloatArray], given: G) -> FloatArray:
        """Log evidence of any sets of entities, one for each row: what merging compares.

        A set need not be a cluster, so what clusters have of their own (a noise scale, say) must be integrated out.
        """
        return self.regressions(blocks, given).log_evidence

    # For predictions.

    @abstractmethod
    def spreads(self, draws: G) -> FloatArray:
        """(draws, clusters) standard deviation of an event around its cluster's regression, from stacked draws."""

    def mixture(self, draws: G, weights: FloatArray) -> Mixture:
        """The mixture of each profile, from stacked draws and label weights (profiles, draws, clusters).

        Normals around the regressions, unless a likelihood says otherwise.
        """
        n_draws, _, n_coef = draws.coef.shape
        flat = weights.reshape(len(weights), -1) / n_draws
        return Mixture(flat, draws.coef.reshape(-1, n_coef), self.spreads(draws).ravel())

    # What not every likelihood has.

    def collapsed_terms(self, grams: FloatArray, given: G) -> CollapsedTerms:  # noqa: ARG002
        """For samplers that integrate the coefficients out."""
        raise ArgumentError(
            f"the likelihood {self.name!r} cannot integrate its coefficients out; use sampler='blocked' or "
            "likelihood='gaussian'."
        )

    def log_partition_likelihood(
        self, spec: ModelSpec, blocks: dict[str, FloatArray], draws: list[G], coef: FloatArray
    ) -> float:
        """log p(y | labels) with everything else integrated out, by Chib's identity at `coef`; NaN if it is not known.

        `draws` were made with the labels held fixed; `coef` (clusters in use, n_coef) is a point of high density.
        """
        del spec, blocks, draws, coef
        return float("nan")


AnyLikelihood = Likelihood[Any]
GAUSSIAN = "gaussian"

_REGISTERED: dict[str, type[AnyLikelihood]] = {}
L = TypeVar("L", bound=type[AnyLikelihood])


def register(likelihood: L) -> L:
    """Class decorator: make a likelihood known by its name, to settings, messages and files."""
    _REGISTERED[likelihood.name] = likelihood
    return likelihood


def is_registered(name: str) -> bool:
    return name in _REGISTERED


def likelihood_named(name: str, layout: GramLayout) -> AnyLikelihood:
    """The registered likelihood of that name, for this layout."""
    if name not in _REGISTERED:
        known = ", ".join(repr(known) for known in sorted(_REGISTERED))
        raise ArgumentError(f"`likelihood` must be the name of a registered likelihood ({known}), but is {name!r}.")
    return _REGISTERED[name](layout)
