"""One declaration for each quantity that agents share or sum: its name, shape and possible values, and who sees it.

Broadcasts, contributions, ledger pages, checkpoints, model files, draws, histories, traces and summaries are derived
from these declarations. A quantity that is declared here needs no other change to travel, to be kept and to be checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import FloatArray, IndexArray
from fedhlcr._support.checks import Check, log_weights, positive, square_finite
from fedhlcr.exceptions import ArgumentError
from fedhlcr.storage.codec import Record
from fedhlcr.storage.reader import RecordReader

# Names of axes. Their sizes are known where values are made or read.
CLUSTERS, COEF = "clusters", "coef"
# The block that every likelihood sums: augmented Gram matrices of events.
GRAMS = "grams"


@dataclass(frozen=True)
class Quantity:
    """One global quantity: a number or an array that the server draws and everyone may know.

    Attributes
    ----------
    axes : names of its axes; none for a single number
    possible : which values it can have; what is read is checked by it
    broadcast : whether agents need it to draw their labels, so that it travels in every round
    traced : whether traces and histories have a column for it: its number, or, where each cluster has one, their
        mean by the clusters' weights
    in_target_units : whether it is reported multiplied by the target's scale
    padding : stands in for clusters that a draw does not have
    """

    name: str
    axes: tuple[str, ...]
    possible: Check
    broadcast: bool = False
    traced: bool = False
    in_target_units: bool = False
    padding: float = 0.0

    def __post_init__(self) -> None:
        if self.traced and self.axes not in ((), (CLUSTERS,)):
            raise ArgumentError(
                f"`{self.name}` has the axes {self.axes}; only a single number, or one for each cluster, can be traced."
            )

    @property
    def words(self) -> str:
        """Its name in words."""
        return self.name.replace("_", " ")

    @property
    def heading(self) -> str:
        """Its name in few words, for the head of a column: "noise" for `noise_scale`."""
        return self.words.removesuffix(" scale")

    @property
    def by_cluster(self) -> bool:
        return CLUSTERS in self.axes

    def reported(self, value: Any, target_scale: float) -> Any:
        """The value in the units that users see."""
        return value * target_scale if self.in_target_units else value


def quantity(*axes: str, possible: Check, **traits: Any) -> Any:
    """A dataclass field that declares a global quantity; traits as in `Quantity`."""
    return field(metadata={"quantity": {"axes": axes, "possible": possible, **traits}})


@dataclass(frozen=True, kw_only=True)
class Globals:
    """One draw of all that the agents share. A likelihood's own class adds its quantities.

    Quantities that are not broadcast are NaN at the agents.
    """

    coef: FloatArray = quantity(CLUSTERS, COEF, possible=square_finite, broadcast=True)
    log_weights: FloatArray = quantity(CLUSTERS, possible=log_weights, broadcast=True, padding=-np.inf)
    global_concentration: float = quantity(possible=positive, traced=True)
    agent_concentration: float = quantity(possible=positive, broadcast=True, traced=True)

    @classmethod
    @cache
    def quantities(cls) -> tuple[Quantity, ...]:
        """All of them, in the order of messages and files: by cluster, then the likelihood's own, then common ones.

        Among the likelihood's own, single numbers come before arrays.
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
        """Those that are in units of the target, such as the noise."""
        return tuple(q for q in cls.traced_quantities() if q.in_target_units)

    @property
    def n_clusters(self) -> int:
        return self.coef.shape[-2]

    def prior_weights(self) -> FloatArray:
        """βψ: the pseudo-counts an agent adds to its own."""
        return self.agent_concentration * np.exp(self.log_weights)

    def for_agents(self) -> Self:
        """The same draw with NaN for what agents do not get to know."""
        hidden: dict[str, Any] = {
            q.name: np.full(np.shape(getattr(self, q.name)), np.nan) if q.axes else float("nan")
            for q in self.quantities()
            if not q.broadcast
        }
        return replace(self, **hidden)

    def traced_value(self, q: Quantity) -> Any:
        """The number that stands for a quantity; one for each draw where draws are stacked."""
        value = getattr(self, q.name)
        # padding and empty clusters have no weight
        return np.average(value, axis=-1, weights=np.exp(self.log_weights)) if q.by_cluster else value

    def traced(self, target_scale: float = 1.0) -> dict[str, float]:
        """What a trace or a history holds of this draw."""
        return {q.name: float(q.reported(self.traced_value(q), target_scale)) for q in self.traced_quantities()}

    def to_record(self, quantities: Iterable[Quantity] | None = None) -> Record:
        """Fields of a record, of all quantities or of some."""
        chosen = self.quantities() if quantities is None else quantities
        return {q.name: value_of(q, getattr(self, q.name)) for q in chosen}

    @classmethod
    def read(cls, reader: RecordReader, n_coef: int, quantities: Iterable[Quantity] | None = None) -> Self:
        """From the fields of `to_record`, checked; what is not among the quantities is NaN."""
        chosen = set(cls.quantities() if quantities is None else quantities)
        coef = reader.array("coef", "f8", (None, n_coef), square_finite)
        sizes = {CLUSTERS: len(coef), COEF: n_coef}
        values: dict[str, Any] = {}
        for q in cls.quantities():
            shape = tuple(sizes[axis] for axis in q.axes)
            if q not in chosen:
                values[q.name] = np.full(shape, np.nan) if shape else float("nan")
            elif shape:
                values[q.name] = reader.array(q.name, "f8", shape, q.possible)
            else:
                values[q.name] = reader.value(q.name, float, q.possible)
        return cls(**values)

    def of_clusters(self, clusters: IndexArray | slice) -> Self:
        """The same draw with only the given clusters, in their order."""
        chosen = {q.name: getattr(self, q.name)[clusters] for q in self.quantities() if q.by_cluster}
        return replace(self, **chosen)


def value_of(q: Quantity, value: Any) -> Any:
    """A value as records hold it: a single number is Python's float."""
    return value if q.axes else float(value)


@dataclass(frozen=True)
class Block:
    """Numbers that are summed by cluster.

    Attributes
    ----------
    size : numbers for each cluster
    is_gram : whether it is an augmented Gram matrix of events, whose shape and signs the server can check
    """

    name: str
    size: int
    is_gram: bool = False


@dataclass(frozen=True)
class SummedScalar:
    """A number for each agent that is summed over agents.

    Attributes
    ----------
    possible : (values, entities of the agents) → which values an agent can report
    """

    name: str
    possible: Callable[[FloatArray, FloatArray], NDArray[np.bool_]]


@dataclass(frozen=True)
class SumSchema:
    """What agents sum: blocks by cluster, and numbers by agent, besides the counts of entities and tables."""

    blocks: tuple[Block, ...]
    scalars: tuple[SummedScalar, ...]

    @property
    def scalar_names(self) -> tuple[str, ...]:
        return tuple(scalar.name for scalar in self.scalars)

    def named(self, scalars: FloatArray) -> dict[str, float]:
        """A row of numbers by name."""
        return dict(zip(self.scalar_names, scalars.tolist(), strict=True))

    def column(self, scalars: FloatArray, name: str) -> FloatArray:
        """One number of all agents, from (agents, scalars)."""
        return scalars[:, self.scalar_names.index(name)]

    def zero_blocks(self, n_rows: int) -> dict[str, FloatArray]:
        return {block.name: np.zeros((n_rows, block.size)) for block in self.blocks}


def _not_positive(values: FloatArray, n_entities: FloatArray) -> NDArray[np.bool_]:  # noqa: ARG001
    return values <= 0


def _one_draw(values: FloatArray, n_entities: FloatArray) -> NDArray[np.bool_]:
    """0 or 1, and 0 without entities."""
    return (values == 0) | ((values == 1) & (n_entities > 0))


def _log_probability(values: FloatArray, n_entities: FloatArray) -> NDArray[np.bool_]:
    """At most 0, but for what rounding leaves of a sum over entities."""
    return values <= 1e-9 * n_entities


def _some_of_the_entities(values: FloatArray, n_entities: FloatArray) -> NDArray[np.bool_]:
    return (values >= 0) & (values <= n_entities)


# What every likelihood sums of the labels' prior, in the order in which the label kernels write it
# (`kernels.arguments`); a likelihood's own numbers come after these. Fitted models hold these checks and can be
# pickled, so they are functions of this module.
LABEL_SCALARS = (
    SummedScalar("log_beta_draws", _not_positive),
    SummedScalar("bernoulli_draws", _one_draw),
    SummedScalar("log_label_prior", _log_probability),
    SummedScalar("labels_changed", _some_of_the_entities),
)


def gram_sums(packed_size: int) -> SumSchema:
    """Gram matrices and the numbers of the labels' prior: what is summed whatever the likelihood, and in the survey."""
    return SumSchema((Block(GRAMS, packed_size, is_gram=True),), LABEL_SCALARS)
