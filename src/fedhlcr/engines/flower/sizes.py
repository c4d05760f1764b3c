"""How large a reply can be: everything beyond is refused before it is read.

The size of a contribution follows from the broadcast and the agent's name, never from the agent's data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedhlcr.federation.messages import SURVEY_ROUND, Broadcast, Contribution
from fedhlcr.model.curves import N_QUANTILES
from fedhlcr.model.schema import gram_sums
from fedhlcr.privacy.terms import Terms

# Bytes of a reply without contributions: a score, a refusal, and Flower's own fields.
SMALL_REPLY = 65_536
# Bytes for the names of a node's columns, and for the name of each agent.
COLUMN_NAMES = 1_000_000
AGENT_NAME = 1_000
# Bytes that packing and Flower add to each contribution.
_AROUND_EACH = 64


def largest_presence(max_agents: int) -> int:
    """Bytes of the largest answer to a roll call of a node that may have so many agents; one more is told apart."""
    return SMALL_REPLY + COLUMN_NAMES + AGENT_NAME * (max_agents + 1)


def largest_contribution(broadcast: Broadcast, agents: Sequence[str]) -> int:
    """Bytes of the largest contribution of these agents, before it is packed."""
    is_survey = broadcast.round == SURVEY_ROUND
    layout = broadcast.layout
    schema = gram_sums(layout.packed_size) if is_survey else broadcast.likelihood.sum_schema
    n_clusters = len(broadcast.representative)
    counts = np.zeros(n_clusters, dtype=np.int32)
    blocks = {block.name: np.zeros((n_clusters, block.size)) for block in schema.blocks}
    longest = max(agents, key=lambda name: len(name.encode(errors="surrogatepass")), default="")
    shift = np.zeros(layout.n_features + 1 if is_survey else 0)
    quantiles = np.zeros((len(broadcast.curve_columns), N_QUANTILES))
    scalars = np.zeros(len(schema.scalars))
    empty = Contribution(0, 0, 0, longest, counts, counts, blocks, scalars, shift, quantiles)
    return len(empty.to_bytes())


def largest_answers(contribution: int, n_agents: int) -> int:
    """Bytes of the largest reply with a contribution of each of these agents."""
    return SMALL_REPLY + n_agents * (contribution + _AROUND_EACH)


def largest_sum_reply(terms: Terms, n_parties: int) -> int:
    """Bytes of the largest reply to a message of a secure sum: masked values, or something for each other node."""
    return SMALL_REPLY + 8 * terms.n_values + _AROUND_EACH * 4 * n_parties


def largest_query_reply(n_values: int) -> int:
    """Bytes of the largest answer to a query of a private run: a sum of so many numbers."""
    return SMALL_REPLY + 8 * n_values
