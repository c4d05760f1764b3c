"""How agents draw labels under the law of a broadcast: that of the delta rule or of the blend rule."""

from __future__ import annotations

import numpy as np

from fedhlcr._support.arrays import FloatArray, LabelArray
from fedhlcr.exceptions import BroadcastError
from fedhlcr.federation.laws import BlendLaw, Law
from fedhlcr.kernels import labels as kernels
from fedhlcr.kernels.arguments import AgentAnswers, BlendedLaw
from fedhlcr.model.arguments import AgentsPart
from fedhlcr.model.gram import GramLayout
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.regression import stable_cholesky
from fedhlcr.samplers.blocked import empty_answers, relabel_agents


def label_entities(
    likelihood: AnyLikelihood, law: Law, part: AgentsPart, labels: LabelArray
) -> tuple[LabelArray, AgentAnswers, FloatArray]:
    """Draw new labels for a part's entities; labels of other agents stay.

    Also returns the agents' counts and the scoring matrices.
    """
    if not isinstance(law, BlendLaw):
        return relabel_agents(likelihood, part, law, labels)
    layout = likelihood.layout
    new_labels = labels.copy()
    agents = part.agents
    answers = empty_answers(len(agents), law.n_clusters)
    block = np.ascontiguousarray(part.entities.grams[:, layout.regression_block])
    block /= law.noise_scale**2
    blended = blend_kernel_law(layout, law, part.round)
    arrays = part.entities._replace(grams=block)
    kernels.blend_agents(arrays, blended, labels, new_labels, agents, answers, layout.n_coef)
    return new_labels, answers, block


def blend_kernel_law(layout: GramLayout, law: BlendLaw, sweep: int) -> BlendedLaw:
    """The law as the compiled kernel takes it."""
    return BlendedLaw(
        np.ascontiguousarray(augmented_precision(layout.n_coef, law).T),
        np.array(law.entity_counts, dtype=np.float64),
        law.agent_concentration,
        law.global_concentration,
        sweep,
    )


def augmented_precision(n_coef: int, law: BlendLaw) -> FloatArray:
    """(clusters, packed) the matrices [[A, c], [cᵀ, cᵀA⁻¹c]].

    Scores do not depend on the last corner; this value keeps the matrix positive semi-definite.
    """
    rows, columns = np.tril_indices(n_coef)
    precision = np.zeros((len(law.linear), n_coef, n_coef))
    precision[:, rows, columns] = precision[:, columns, rows] = law.precision
    try:
        factors = stable_cholesky(precision)
    except np.linalg.LinAlgError:
        raise BroadcastError(
            "`precision` of the broadcast's law is not positive definite; agents do not answer it."
        ) from None
    corner = np.empty(len(precision))
    sound = ~factors.raised
    solved = np.linalg.solve(precision[sound], law.linear[sound, :, None])
    corner[sound] = (law.linear[sound] * solved[..., 0]).sum(axis=1)
    half = np.linalg.solve(factors.lower[factors.raised], law.linear[factors.raised, :, None])
    # twice: the raised diagonal makes it smaller than cᵀA⁻¹c, but it must not be smaller than what the kernel finds
    corner[factors.raised] = 2.0 * (half[..., 0] ** 2).sum(axis=1)
    # packed matrices hold row after row of the lower triangle, so the last row comes at the end
    return np.column_stack([law.precision, law.linear, corner])
