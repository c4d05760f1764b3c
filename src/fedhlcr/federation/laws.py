"""The law of a round: the terms under which agents draw their labels.

Each of the server's rules has one law, in the form in which it travels:

    delta rule   `model.schema.Globals`   a draw of the coefficients and of the clusters' weights
    blend rule   `BlendLaw`               blended regressions, whose coefficients the agents integrate out

An agent turns the law into an argument of the compiled kernel that draws labels, `kernels.arguments`: `Globals` into
`LabelLaw`, `BlendLaw` into `BlendedLaw`. The kernel's forms are separate because they hold precomputed rows, which are
larger than what travels. The third of them, `CollapsedLaw`, belongs to the centralised collapsed sampler and never
travels.

The blend rule is the paper's algorithm and exists for the Gaussian only, so its law, its rule (`rules.BlendRule`) and
its half of `labelling` name the Gaussian's quantities. Everything else here knows a likelihood by its declarations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedhlcr._support.arrays import FloatArray
from fedhlcr._support.checks import finite, not_negative, positive, square_positive
from fedhlcr.federation.read_only import ReadOnly
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import GAUSSIAN, AnyLikelihood, is_registered, likelihood_named
from fedhlcr.model.schema import Globals
from fedhlcr.storage import codec
from fedhlcr.storage.reader import RecordReader
from fedhlcr.storage.records import Sizes, field_names, from_record, stored, to_record

# How the delta rule's law is called in a message. A likelihood other than the Gaussian appends its name.
GIBBS = "gibbs"


@dataclass(frozen=True)
class BlendLaw(ReadOnly):
    """The law of the blend rule: regressions from blended statistics. Paper: Algorithm 3, broadcast.

    Attributes
    ----------
    precision : (clusters, n_coef (n_coef + 1) / 2) A_k = H_k⁻¹, packed
    linear : (clusters, n_coef) c_k, so that the mean of w_k is H_k c_k
    entity_counts : (clusters,) N^(k); the paper's prior needs them, but the paper's message lacks them
    noise_scale, global_concentration, agent_concentration : σ, α, β
    """

    KIND: ClassVar[str] = "blend"

    precision: FloatArray = stored("f8", "clusters", "packed", possible=finite)
    linear: FloatArray = stored("f8", "clusters", "coef", possible=finite)
    entity_counts: FloatArray = stored("f8", "clusters", possible=not_negative)
    noise_scale: float = stored(float, possible=square_positive)
    global_concentration: float = stored(float, possible=positive)
    agent_concentration: float = stored(float, possible=positive)

    def check_record(self, reader: RecordReader, sizes: Sizes) -> None:
        diagonal = self.precision[:, np.cumsum(np.arange(1, sizes["coef"] + 1)) - 1]
        reader.require((diagonal > 0).all(), "precision")

    @property
    def n_clusters(self) -> int:
        return len(self.precision)


Law = Globals | BlendLaw


def law_to_record(law: Law, likelihood: AnyLikelihood) -> codec.Record:
    """The law as fields of a broadcast."""
    if isinstance(law, BlendLaw):
        return {"law": BlendLaw.KIND, **to_record(law)}
    name = GIBBS if likelihood.name == GAUSSIAN else f"{GIBBS}:{likelihood.name}"
    return {"law": name, **law.to_record(law.broadcast_quantities())}


def likelihood_of_law(reader: RecordReader, law_name: str, layout: GramLayout) -> AnyLikelihood:
    """The likelihood that a law's name refers to: the Gaussian in the survey and under the blend rule."""
    kind, _, name = law_name.partition(":")
    reader.require(kind in ("", GIBBS, BlendLaw.KIND) and (not name or (kind == GIBBS and is_registered(name))), "law")
    return likelihood_named(name or GAUSSIAN, layout)


def read_law(reader: RecordReader, law_name: str, likelihood: AnyLikelihood) -> Law:
    """Read the law from the fields of a broadcast, and check every value."""
    if law_name == BlendLaw.KIND:
        n_coef = likelihood.layout.n_coef
        return from_record(BlendLaw, reader, {"coef": n_coef, "packed": n_coef * (n_coef + 1) // 2})
    globals_type = likelihood.globals_type
    law: Globals = globals_type.read(reader, likelihood.layout.n_coef, globals_type.broadcast_quantities())
    return law


def law_fields(law_name: str, likelihood: AnyLikelihood) -> set[str]:
    """Names of the fields that a law has in a broadcast."""
    if law_name == BlendLaw.KIND:
        return {"law", *field_names(BlendLaw)}
    return {"law", *(q.name for q in likelihood.globals_type.broadcast_quantities())}
