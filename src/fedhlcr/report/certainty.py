"""How sure it is which entity is in which cluster, and which clusters to read as one mixed group."""

from __future__ import annotations

from dataclasses import dataclass

from fedhlcr._support.wording import capital, listed, percent
from fedhlcr.report.findings import SURE, Findings
from fedhlcr.report.names import Names

# A cluster is clear if at least this share of its entities is surely in it.
MOSTLY = 0.5
# If fewer of all entities are surely in their cluster, clusters are no finding.
FEW_SURE = 0.2


@dataclass(frozen=True)
class Certainty:
    """How certain memberships are.

    Attributes
    ----------
    n_all, n_sure : numbers of entities, and of those that are surely in their cluster; 0 if the model holds none
    clear, blurred : numbers of the clusters whose entities are mostly certain, and of the others
    blurred_share : share of the entities in blurred clusters, mean over the draws
    """

    n_all: int
    n_sure: int
    clear: tuple[int, ...]
    blurred: tuple[int, ...]
    blurred_share: float

    @classmethod
    def of(cls, findings: Findings) -> Certainty:
        clusters = findings.clusters
        entities = findings.entities
        if entities is None or len(clusters) == 1:
            n_all = 0 if entities is None else entities.n_all
            return cls(n_all, n_all, tuple(cluster.number for cluster in clusters), (), 0.0)
        blurred = [c for c in clusters if not c.n_entities or (c.n_sure or 0) < MOSTLY * c.n_entities]
        numbers = tuple(c.number for c in blurred)
        return cls(
            n_all=entities.n_all,
            n_sure=entities.n_all - entities.n_uncertain,
            clear=tuple(c.number for c in clusters if c.number not in numbers),
            blurred=numbers,
            blurred_share=sum(c.share for c in blurred),
        )

    @property
    def n_clusters(self) -> int:
        return len(self.clear) + len(self.blurred)

    @property
    def share(self) -> float:
        """Share of the entities that are surely in their cluster."""
        return self.n_sure / self.n_all if self.n_all else 1.0

    @property
    def is_finding(self) -> bool:
        """Whether the clusters tell entities apart."""
        return bool(self.clear) and self.share >= FEW_SURE

    @property
    def is_blurred(self) -> bool:
        """Whether there is a mixed group to tell apart from the clear clusters."""
        return bool(self.blurred)


def how_sure(found: Certainty, names: Names) -> str:
    """How sure memberships are, in a sentence or two; empty where there is nothing to be sure of."""
    entities = names.entity.many
    if found.n_clusters == 1 or not found.n_all:
        return ""
    if not found.is_finding:
        return (
            f"The clusters are not a finding here: only {percent(found.share)} of {entities} are surely in one. "
            f"{capital(entities)} differ gradually rather than in groups."
        )
    if found.n_sure == found.n_all:
        return f"All {entities} are surely in their cluster."
    return f"{percent(found.share)} of {entities} are surely in their cluster."


def mixed_group(found: Certainty, names: Names) -> str:
    """What to make of blurred clusters; empty if there are none."""
    if not found.blurred or not found.is_finding:
        return ""
    many = len(found.blurred) > 1
    return (
        f"{capital(cluster_numbers(found.blurred))} {'hold' if many else 'holds'} {percent(found.blurred_share)} of "
        f"{names.entity.many}, and fewer than half of them for certain"
        f"{': read them as one mixed group' if many else ''}."
    )


def sure_in_words(names: Names) -> str:
    """What "surely" means, for a note."""
    return f"“Surely” means: the probability that the {names.entity.one} is in this cluster is {percent(SURE)} or more."


def cluster_numbers(numbers: tuple[int, ...]) -> str:
    """ "cluster 3", "clusters 3 and 5", "clusters 3 to 8" """
    if len(numbers) == 1:
        return f"cluster {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"clusters {numbers[0]} to {numbers[-1]}"
    return f"clusters {listed([str(k) for k in numbers])}"
