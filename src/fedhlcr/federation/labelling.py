"""How agents draw labels under a broadcast law."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray, IndexArray, LabelArray
from fedhlcr.federation.messages import BlendLaw, Law
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import AgentAnswers, BlendedLaw, EntityArrays
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.samplers.blocked import empty_answers, relabel_agents


def label_entities(
    likelihood: AnyLikelihood,
    law: Law,
    sweep: int,
    entities: EntityArrays,
    labels: LabelArray,
    agents: IndexArray,
) -> tuple[LabelArray, AgentAnswers]:
    """New labels of the given agents' entities (those of others stay), and the agents' answers."""
    if not isinstance(law, BlendLaw):
        return relabel_agents(likelihood, entities, law, labels, sweep, agents)
    layout, new_labels = likelihood.layout, labels.copy()
    answers = empty_answers(len(agents), law.n_clusters)
    block = entities.grams[:, layout.regression_block]
    block /= law.noise_scale**2
    blended = blend_kernel_law(layout, law, sweep)
    kernels.blend_agents(entities._replace(grams=block), blended, labels, new_labels, agents, answers, layout.n_coef)
    return new_labels, answers


def blend_kernel_law(layout: GramLayout, law: BlendLaw, sweep: int) -> BlendedLaw:
    return BlendedLaw(
        np.ascontiguousarray(augmented_precision(layout.n_coef, law).T),
        np.array(law.entity_counts, dtype=np.float64),
        law.agent_concentration,
        law.global_concentration,
        sweep,
    )


def augmented_precision(n_coef: int, law: BlendLaw) -> FloatArray:
    """(clusters, packed) [[A, c], [cᵀ, cᵀA⁻¹c]]: any corner does that keeps it positive; scores do not depend on it."""
    rows, columns = np.tril_indices(n_coef)
    precision = np.zeros((len(law.linear), n_coef, n_coef))
    precision[:, rows, columns] = precision[:, columns, rows] = law.precision
    try:
        corner = (law.linear * np.linalg.solve(precision, law.linear[..., None])[..., 0]).sum(axis=1)
    except np.linalg.LinAlgError:
        raise ValueError("`precision` of the broadcast's law is singular; it is not answered.") from None
    # in packed order the last row stands at the end
    return np.column_stack([law.precision, law.linear, corner])
