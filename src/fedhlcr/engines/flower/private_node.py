"""A node's side of a private run: which queries it answers, and the file with its agents' labels and their secret.

Flower starts a new process for each message. So the labels, and the secret that seeds their draws, are kept in a file
that only the node's owner can read. `tally` counts the queries that were answered.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedhlcr._support.arrays import LabelArray
from fedhlcr._support.checks import SIZE_LIMIT, not_negative, within
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.engines.flower.tally import Tally
from fedhlcr.exceptions import CodecError, Refusal
from fedhlcr.federation.group import AgentGroup
from fedhlcr.federation.private.agents import PrivateAgents
from fedhlcr.federation.private.inquiry import Inquiry
from fedhlcr.privacy.noise import NoiseSource, discrete_gaussian
from fedhlcr.privacy.release import agent_noise
from fedhlcr.privacy.terms import Terms
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.reader import RecordReader

logger = logging.getLogger(__name__)

KIND = "private labels"
VERSION = 1


@dataclass(frozen=True)
class PrivateNode:
    """Answers the queries of private runs of one experiment at one node.

    Attributes
    ----------
    path : the file of labels
    tally : what the node has answered, in all experiments
    source : of the noise; only tests pass another one
    """

    path: Path
    experiment: str
    tally: Tally
    source: NoiseSource = discrete_gaussian

    def answer(self, inquiry: Inquiry, group: AgentGroup, table: str) -> tuple[NDArray[np.int64], list[str]]:
        """Draw labels; return the sum of the clipped vectors of all agents that take part, and the names of these.

        Labels are saved before it returns. The caller sends the sum only after `mark` has counted the query. `table`
        identifies the table that the agents were read from; with another table they start without labels.
        """
        if inquiry.query.layout.n_features != group.shard.n_features:
            raise Refusal("ColumnsError", "the query has another number of columns than the node; nothing is sent")
        self.tally.admit(self.experiment, inquiry)
        agents = self._agents(inquiry, group, table)
        found = _add_up(agents, inquiry, group)
        self._write(inquiry, agents, table)
        return found

    def with_noise(self, values: NDArray[np.int64], inquiry: Inquiry, terms: Terms) -> NDArray[np.uint64]:
        """The node's part of a secure sum. Its share of the noise is large enough if `min_parties` nodes remain."""
        noisy = values + agent_noise(inquiry.query.blocks, terms.min_parties, self.source)
        return noisy.view(np.uint64)

    def mark(self, run: int, session: int, place: int) -> None:
        """Count a query as answered; refuse if it was answered before."""
        self.tally.mark(self.experiment, run, session, place)

    def _agents(self, inquiry: Inquiry, group: AgentGroup, table: str) -> PrivateAgents:
        """The agents with their labels and their secret, or without labels if they have not answered this run yet."""
        saved = self._saved(inquiry, table, len(group.shard.grams))
        if saved is None:
            return PrivateAgents(group.shard)
        return PrivateAgents(group.shard, secret=saved[0], labels=saved[1])

    def _saved(self, inquiry: Inquiry, table: str, n_entities: int) -> tuple[int, LabelArray] | None:
        try:
            reader = RecordReader(codec.decode(self.path.read_bytes(), KIND, VERSION), self.path.name, "")
            of_run = reader.value("run", int), reader.value("session", int), reader.value("table", str)
            if of_run != (inquiry.query.run, inquiry.session, table):
                return None
            labels = reader.array("labels", "i4", (n_entities,), within(-1, SIZE_LIMIT))
            return reader.value("secret", int, not_negative), labels
        except FileNotFoundError:
            return None
        except CodecError as error:
            logger.warning("%s: %s; the labels are lost, and the agents start again.", self.path.name, error)
            return None

    def _write(self, inquiry: Inquiry, agents: PrivateAgents, table: str) -> None:
        record: codec.Record = {
            "run": inquiry.query.run,
            "session": inquiry.session,
            "table": table,
            "secret": agents.secret,
            "labels": agents.labels,
        }
        atomic.write_atomically(self.path, codec.encode(KIND, VERSION, record), keep_previous=False, private=True)


def check_terms(inquiry: Inquiry, terms: Terms) -> None:
    """Refuse the terms of another sum than the query's."""
    query = inquiry.query
    expected = query.run, inquiry.session, query.place, query.n_values
    if (terms.run, terms.session, terms.epoch, terms.n_values) != expected:
        raise Refusal("SecureSumError", "the terms of the sum are not those of the query; nothing is sent")


@single_threaded_blas
def _add_up(agents: PrivateAgents, inquiry: Inquiry, group: AgentGroup) -> tuple[NDArray[np.int64], list[str]]:
    query = inquiry.query
    joining = np.flatnonzero(group.joins)
    total = np.zeros(query.n_values, dtype=np.int64)
    # whatever overflows under a server's absurd query is clipped
    with np.errstate(all="ignore"):
        for _, vectors in agents.answer(query, joining):
            total += vectors.sum(axis=0)
    return total, [agents.names[agent] for agent in joining]
