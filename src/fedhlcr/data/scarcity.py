"""Tables that are too small or too plain for what the model does.

They can be fitted, so they are no errors. A warning says what will not work, from counts alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fedhlcr._support.wording import ENTITY, EVENT, FEATURE
from fedhlcr.exceptions import Advice, DataWarning

# With fewer entities than this, clusters cannot be learned.
FEWEST_ENTITIES = 5


class TableShape(NamedTuple):
    """What the warnings depend on. In a federation the server knows it from sums.

    Attributes
    ----------
    n_events, n_entities, n_features : numbers of events, of agent–entity pairs, and of features
    target_varies : whether the target has more than one value
    has_entity_ids : False if the user gave no entities on purpose, so that each event is its own entity
    lacks_agents : whether the user asks for effects of agents where there is one agent
    """

    n_events: float
    n_entities: float
    n_features: int
    target_varies: bool
    has_entity_ids: bool = True
    lacks_agents: bool = False


def find_scarcity(shape: TableShape) -> Iterator[DataWarning]:
    """The warnings that a table deserves. That entities have fewer events than features is normal here."""
    if not shape.target_varies:
        yield DataWarning(
            "The target has the same value in every event, so there is nothing to learn and R² is undefined.",
            Advice("Check that the target is the right column."),
        )
    if shape.n_features > shape.n_events:
        yield DataWarning(
            f"The table has {EVENT.count(shape.n_events)} and {FEATURE.count(shape.n_features)}. With more features "
            "than events, the slopes follow from their prior more than from the data.",
            Advice("Use fewer features, or more events."),
        )
    if shape.n_entities < FEWEST_ENTITIES:
        yield DataWarning(
            f"The table has only {ENTITY.count(shape.n_entities)}. So few say nothing reliable about clusters, or "
            "about new entities.",
            Advice("Fit one regression to each entity instead."),
        )
    elif shape.has_entity_ids and shape.n_events <= shape.n_entities:
        yield DataWarning(
            "Every entity has only one event, so differences between entities cannot be told apart from noise.",
            Advice("Check that {entity} is the right column.", entity=None),
        )
    if shape.lacks_agents:
        yield DataWarning(
            "The table has one agent, so nothing can be learned about effects of agents; the model has none.",
            Advice("Use {effects}, or check that {agent} is the right column.", effects="entity", agent=None),
        )
