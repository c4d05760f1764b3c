"""The schema: one declaration for each global that the server draws, and for each sum that agents report.

    declared by                                 derived from it
    Globals, one `quantity(...)` per field      broadcasts, draws, checkpoints, model files, traces, histories, reports
    SumSchema, with `Block`, `SummedScalar`     contributions, their checks, ledger pages, cluster sums, checkpoints

A declaration holds a name, a shape, a check of values and who sees it: globals are public, and those marked `broadcast`
reach the agents in every round; sums are private to their agent and the server. A new quantity needs no other change to
be sent, kept, saved and checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from enum import IntEnum
from functools import cache, cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import Check, finite, log_weights, positive, square_finite
from fedhlcr._support.special import digamma, gammaln
from fedhlcr._support.wording import listed
from fedhlcr.exceptions import ArgumentError
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Stored, read_fields

# Names of axes. Their sizes are known only where values are made or read.
CLUSTERS = "clusters"
COEF = "coef"
# The block that every likelihood sums: augmented Gram matrices of events.
GRAMS = "grams"
# Fields that contributions and ledger pages have besides the blocks, which are stored under their own names.
RESERVED_NAMES = frozenset(
    (
        *("run", "session", "round", "agent", "entity_counts", "table_counts", "scalars", "shift", "quantiles"),
        *("row_start", "clusters"),
    )
)


@dataclass(frozen=True)
class Quantity:
    """The declaration of one global: a number or an array that the server draws and everyone may know.

    Attributes
    ----------
    axes : names of its axes, CLUSTERS or COEF; empty for a single number
    possible : check of its values (`_support.checks`), applied whenever it is read from a message or a file
    broadcast : whether agents need it to draw labels; if so, it is sent in every round
    traced : whether traces and histories have a column for it. If each cluster has a value, the column holds their
        mean, weighted by the clusters' weights.
    in_target_units : whether it is a scale of the target; if so, reports multiply it by the target's scale
    attribute : whether fitted models have its posterior mean as an attribute
    padding : value for missing clusters, where draws with different numbers of clusters are stacked
    """

    name: str
    axes: tuple[str, ...]
    possible: Check
    broadcast: bool = False
    traced: bool = False
    in_target_units: bool = False
    attribute: bool = True
    padding: float = 0.0

    def __post_init__(self) -> None:
        if self.traced and self.axes not in ((), (CLUSTERS,)):
            raise ArgumentError(
                f"`{self.name}` has the axes {self.axes}; only a single number, or one for each cluster, can be traced."
            )

    @property
    def words(self) -> str:
        """Its name in words: "noise scale"."""
        return self.name.replace("_", " ")

    @property
    def heading(self) -> str:
        """Its name in few words, for the head of a column: "noise" for `noise_scale`."""
        return self.words.removesuffix(" scale")

    @property
    def by_cluster(self) -> bool:
        return CLUSTERS in self.axes

    def stored(self, *leading: str) -> Stored:
        """How records hold it; with leading axes if it is stacked."""
        return Stored("f8" if self.axes or leading else float, (*leading, *self.axes), self.possible)

    def reported(self, value: Any, target_scale: float) -> Any:
        """The value in the user's units."""
        return value * target_scale if self.in_target_units else value


def quantity(*axes: str, possible: Check, **traits: Any) -> Any:
    """A dataclass field that declares a global; `traits` are further attributes of `Quantity`."""
    return field(metadata={"quantity": {"axes": axes, "possible": possible, **traits}})


@dataclass(frozen=True, kw_only=True)
class Globals:
    """One draw of all globals. A likelihood derives a class from this one and adds its own.

    At the agents, globals that are not broadcast are NaN.
    """

    coef: FloatArray = quantity(CLUSTERS, COEF, possible=square_finite, broadcast=True)
    log_weights: FloatArray = quantity(CLUSTERS, possible=log_weights, broadcast=True, padding=-np.inf)
    global_concentration: float = quantity(possible=positive, traced=True)
    agent_concentration: float = quantity(possible=positive, broadcast=True, traced=True)

    @classmethod
    @cache
    def quantities(cls) -> tuple[Quantity, ...]:
        """All declarations, in the order of messages and files.

        First those by cluster, then the likelihood's own (numbers before arrays), then those of every model.
        """
        declared = [Quantity(f.name, **f.metadata["quantity"]) for f in fields(cls)]
        common = {f.name for f in fields(Globals)}
        order = sorted(declared, key=lambda q: (not q.by_cluster, q.by_cluster ^ (q.name in common), bool(q.axes)))
        return tuple(order)

    @classmethod
    def broadcast_quantities(cls) -> tuple[Quantity, ...]:
        return tuple(q for q in cls.quantities() if q.broadcast)

    @classmethod
    def traced_quantities(cls) -> tuple[Quantity, ...]:
        return tuple(q for q in cls.quantities() if q.traced)

    @classmethod
    def traced_scales(cls) -> tuple[Quantity, ...]:
        """The traced quantities in units of the target, such as the noise scale."""
        return tuple(q for q in cls.traced_quantities() if q.in_target_units)

    @property
    def n_clusters(self) -> int:
        return self.coef.shape[-2]

    def prior_weights(self) -> FloatArray:
        """(clusters,) βψ, the pseudo-counts that are added to an agent's own counts."""
        return self.agent_concentration * np.exp(self.log_weights)

    def for_agents(self) -> Self:
        """The same draw with NaN for everything that is not broadcast."""
        hidden: dict[str, Any] = {
            q.name: np.full(np.shape(getattr(self, q.name)), np.nan) if q.axes else float("nan")
            for q in self.quantities()
            if not q.broadcast
        }
        return replace(self, **hidden)

    def traced_value(self, q: Quantity) -> Any:
        """The traced number of a quantity; one for each draw if draws are stacked."""
        value = getattr(self, q.name)
        # padding and empty clusters have no weight
        return np.average(value, axis=-1, weights=np.exp(self.log_weights)) if q.by_cluster else value

    def traced(self, target_scale: float = 1.0) -> dict[str, float]:
        """The traced quantities of this draw, by name."""
        return {q.name: float(q.reported(self.traced_value(q), target_scale)) for q in self.traced_quantities()}

    def to_record(self, quantities: Iterable[Quantity] | None = None) -> Record:
        """The fields of a record, for all quantities or for those given."""
        chosen = self.quantities() if quantities is None else quantities
        return {q.name: value_of(q, getattr(self, q.name)) for q in chosen}

    @classmethod
    def read(cls, reader: RecordReader, n_coef: int, quantities: Iterable[Quantity] | None = None) -> Self:
        """Read and check the fields of `to_record`; quantities that are not given become NaN."""
        chosen = cls.quantities() if quantities is None else tuple(quantities)
        sizes = {COEF: n_coef}
        read = read_fields({q.name: q.stored() for q in chosen}, reader, sizes)
        unknown: dict[str, Any] = {
            q.name: np.full([sizes[axis] for axis in q.axes], np.nan) if q.axes else float("nan")
            for q in cls.quantities()
            if q not in chosen
        }
        return cls(**read, **unknown)

    def at_stage(self, stage: Stage) -> Self:  # noqa: ARG002
        """The same at another stage, for likelihoods that have stages."""
        return self

    def of_clusters(self, clusters: IndexArray | slice) -> Self:
        """The same draw with the given clusters only, in the given order."""
        chosen = {q.name: getattr(self, q.name)[clusters] for q in self.quantities() if q.by_cluster}
        return replace(self, **chosen)


def value_of(q: Quantity, value: Any) -> Any:
    """A value as records store it: a single number as a Python float."""
    return value if q.axes else float(value)


class Stage(IntEnum):
    """How far a run is. Likelihoods without effects know the first and the last stage only by merging.

    PLAIN     clusters of equal entities, all with the same noise; clusters are merged
    MERGING   effects and noise of entities are switched on; merging goes on
    WEIGHING  the same without merging, while agents also add up how well the clusters describe their entities
    EXACT     merging is over; from here on the sampler is exact
    """

    PLAIN = 0
    MERGING = 1
    EXACT = 2
    WEIGHING = 3


# The state of agents, by name.
State = dict[str, FloatArray]


class Level(IntEnum):
    """What has a row in an array of the agent state."""

    AGENT = 0
    ENTITY = 1
    EVENT = 2


@dataclass(frozen=True)
class StateField:
    """The declaration of an array that agents keep for themselves.

    Attributes
    ----------
    level : whether there is a row for each agent, each entity or each event
    size : numbers in a row; 0 for a single number
    initial : value at the start
    possible : check of its values, applied when an agent's file is read
    """

    name: str
    level: Level
    size: int
    initial: float
    possible: Check

    def shape(self, n_agents: int, n_entities: int, n_events: int) -> tuple[int, ...]:
        n_rows = (n_agents, n_entities, n_events)[self.level]
        return (n_rows, self.size) if self.size else (n_rows,)

    def start(self, n_agents: int, n_entities: int, n_events: int) -> FloatArray:
        return np.full(self.shape(n_agents, n_entities, n_events), self.initial)


@dataclass(frozen=True)
class Block:
    """The declaration of an array that agents sum by cluster.

    Attributes
    ----------
    size : how many numbers each cluster has
    is_gram : whether it is an augmented Gram matrix of events; the server checks that it is positive semi-definite
    counts_events : whether the first number of a Gram matrix is the number of events; not if events have weights
    is_moments : whether it is a packed matrix Σ (1, b)(1, b)ᵀ over entities; the server checks it like a Gram matrix
    possible : check of its values, applied to what agents report and to checkpoints
    """

    name: str
    size: int
    is_gram: bool = False
    counts_events: bool = True
    is_moments: bool = False
    possible: Check = finite

    @cached_property
    def width(self) -> int:
        """Rows of a packed matrix."""
        return int(np.sqrt(2 * self.size))

    @cached_property
    def diagonal(self) -> IndexArray:
        """(width,) positions of the diagonal of a packed matrix."""
        return np.cumsum(np.arange(1, self.width + 1)) - 1


class Known(NamedTuple):
    """What the server knows of agents whose scalars it checks.

    Attributes
    ----------
    n_entities, n_events : (agents,) their own counts
    law : what they answer: globals, or the law of the blend rule
    """

    n_entities: FloatArray
    n_events: FloatArray
    law: Any


Bound = FloatArray | float
# How far beyond its range a scalar may be because of rounding, relative to the end of the range.
ROUNDING = 1e-9


@dataclass(frozen=True)
class SummedScalar:
    """The declaration of a number that each agent reports and that is summed over agents.

    Attributes
    ----------
    range : (what is known of the agents) → the least and the largest value that each can report
    limited_as : if not empty, an agent counts less if the sum of its values of this group is far larger than usual,
        `federation.weights`
    is_whole : whether it is a whole number
    """

    name: str
    range: Callable[[Known], tuple[Bound, Bound]]
    limited_as: str = ""
    is_whole: bool = False

    def possible(self, values: FloatArray, known: Known) -> NDArray[np.bool_]:
        """(agents,) whether an agent can have reported this value."""
        least, most = self.range(known)
        within = (values >= least - ROUNDING * np.abs(least)) & (values <= most + ROUNDING * np.abs(most))
        return np.asarray(within & (np.rint(values) == values) if self.is_whole else within)


@dataclass(frozen=True)
class SumSchema:
    """What agents sum: blocks by cluster and scalars by agent. Counts of entities and tables are always summed too.

    All sums are private to the agent and the server: they are in contributions and checkpoints, never in a broadcast or
    a model file.
    """

    blocks: tuple[Block, ...]
    scalars: tuple[SummedScalar, ...]

    def __post_init__(self) -> None:
        names = [*(block.name for block in self.blocks), *self.scalar_names]
        if taken := {name for name in names if name in RESERVED_NAMES or names.count(name) > 1}:
            raise ArgumentError(
                f"a block or scalar cannot be called {listed(sorted(taken), 'or')}: it is declared twice, or every "
                "contribution has a field of that name; choose another name."
            )

    @cached_property
    def counts_events(self) -> bool:
        """Whether the sums of Gram matrices count events; if not, there is a scalar `events`."""
        return all(block.counts_events for block in self.blocks if block.is_gram)

    @cached_property
    def scalar_names(self) -> tuple[str, ...]:
        return tuple(scalar.name for scalar in self.scalars)

    def named(self, scalars: FloatArray) -> dict[str, float]:
        """One row of scalars, by name."""
        return dict(zip(self.scalar_names, scalars.tolist(), strict=True))

    def column(self, scalars: FloatArray, name: str) -> FloatArray:
        """(agents,) the scalar with this name, from (agents, scalars)."""
        return scalars[:, self.scalar_names.index(name)]

    def zero_blocks(self, n_rows: int) -> dict[str, FloatArray]:
        return {block.name: np.zeros((n_rows, block.size)) for block in self.blocks}


# Ranges of scalars. They are named functions, not lambdas, because fitted models hold them and must be picklable.


def anything(known: Known) -> tuple[Bound, Bound]:  # noqa: ARG001
    return -np.inf, np.inf


def at_least_zero(known: Known) -> tuple[Bound, Bound]:  # noqa: ARG001
    return 0.0, np.inf


def up_to_entities(known: Known) -> tuple[Bound, Bound]:
    return 0.0, known.n_entities


def up_to_events(known: Known) -> tuple[Bound, Bound]:
    return 0.0, known.n_events


def up_to_one(known: Known) -> tuple[Bound, Bound]:
    """0 or 1; only 0 for an agent without entities."""
    return 0.0, np.minimum(known.n_entities, 1.0)


# The keyed uniform number u of an entity is a multiple of 2⁻³² plus 2⁻³³ (`kernels.uniforms`).
LOG_LEAST_UNIFORM = -33.0 * np.log(2.0)


def _log_beta_draws(known: Known) -> tuple[Bound, Bound]:
    """Σ log u / (β + 1 + r) over the agent's entities r = 0, 1, …: least if all u are as small as can be."""
    first = known.law.agent_concentration + 1.0
    n = known.n_entities
    # the sum is at least n / (β + n), which is exact where β is so large that the difference vanishes
    total = np.maximum(digamma(first + n) - digamma(first), n / (first + n - 1.0))
    return LOG_LEAST_UNIFORM * total, 0.0


def _log_label_prior(known: Known) -> tuple[Bound, Bound]:
    """∏ (βψ_z + n) / (β + r) over the agent's entities, with n ≥ 0 before it in its cluster; 0 under the blend rule."""
    law = known.law
    if not isinstance(law, Globals):
        return 0.0, 0.0
    beta = law.agent_concentration
    n = known.n_entities
    smallest = np.minimum(law.prior_weights().min(), 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = n * np.log(smallest) - gammaln(beta + n) + gammaln(beta)
    # with one cluster this is 0, and what is left of it is rounding errors
    slack = ROUNDING * (n + np.abs(gammaln(beta + n)))
    # an agent without entities has a probability of 1, whatever the weights
    return np.where(n > 0.0, least - slack, 0.0), np.where(n > 0.0, slack, 0.0)


# Scalars of the labels' prior, which every likelihood sums, in the order in which the label kernels write them
# (`kernels.arguments`). A likelihood's own scalars come after these.
LABEL_SCALARS = (
    SummedScalar("log_beta_draws", _log_beta_draws),
    SummedScalar("bernoulli_draws", up_to_one, is_whole=True),
    SummedScalar("log_label_prior", _log_label_prior),
    SummedScalar("labels_changed", up_to_entities, is_whole=True),
)


def gram_sums(packed_size: int, *, counts_events: bool = True) -> SumSchema:
    """The sums of every likelihood, and of the survey: Gram matrices and the scalars of the labels' prior."""
    return SumSchema((Block(GRAMS, packed_size, is_gram=True, counts_events=counts_events),), LABEL_SCALARS)
