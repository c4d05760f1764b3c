"""What a node has answered in private runs, in a file: each query once, and no more than the node's owner allows.

The file counts all private runs of the node, whatever they are called: budgets of runs add up. It is written before
a reply is sent. A node that cannot read it answers nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from fedhlcr.exceptions import CodecError, Refusal
from fedhlcr.federation.private.inquiry import Inquiry
from fedhlcr.privacy.accounting import epsilon_of
from fedhlcr.privacy.differential_privacy import LARGEST_DELTA, PrivacyPlan
from fedhlcr.storage import atomic, codec
from fedhlcr.storage.reader import RecordReader

logger = logging.getLogger(__name__)

TALLY_FILE = "privacy.tally"
KIND = "privacy tally"
VERSION = 1
# An ε that is computed again may differ by rounding.
ROUNDING = 1e-6
REFUSED = "PrivacyRefused"
ANSWERED = "AlreadyAnswered"


@dataclass
class RunTally:
    """One private run at a node.

    Attributes
    ----------
    experiment, run, session : which run it is
    plan : what it may release; it cannot change
    next_place : the first query that may still be answered
    spent : Σμ² of the queries that were answered
    """

    experiment: str
    run: int
    session: int
    plan: PrivacyPlan
    next_place: int = 0
    spent: float = 0.0


@dataclass(frozen=True)
class Tally:
    """The file of a node.

    Attributes
    ----------
    max_epsilon : the most that all private runs of the node may cost its agents together; None for no limit
    max_delta : the largest δ of a run, if there is a limit
    """

    path: Path
    max_epsilon: float | None = None
    max_delta: float = LARGEST_DELTA

    @classmethod
    def of(cls, folder: Path, max_epsilon: float | None = None, max_delta: float = LARGEST_DELTA) -> Tally:
        return cls(folder / TALLY_FILE, max_epsilon, max_delta)

    def admit(self, experiment: str, inquiry: Inquiry) -> None:
        """Refuse a query that would be answered a second time, or whose run may release more than is allowed."""
        with self._open() as runs:
            run = _find(runs, experiment, inquiry.query.run, inquiry.session) or self._enter(runs, experiment, inquiry)
            if run.plan != inquiry.plan:
                raise Refusal(REFUSED, "the query has another privacy plan than its run had before; nothing is sent")
            _check_order(run, inquiry.query.place)
            self._write(runs)

    def mark(self, experiment: str, run: int, session: int, place: int) -> None:
        """Count a query as answered, before its answer is sent; refuse it if it was answered meanwhile."""
        with self._open() as runs:
            own = _find(runs, experiment, run, session)
            if own is None:
                raise Refusal(REFUSED, "the query belongs to no run that the node knows; nothing is sent")
            _check_order(own, place)
            cost = own.plan.mu_until(place + 1, place) ** 2
            self._check_budget(_least_delta(runs), _spent(runs) + cost)
            own.next_place = place + 1
            own.spent = own.spent + cost
            self._write(runs)

    def has(self, experiment: str) -> bool:
        """Whether the node has taken part in a private run of this name."""
        if not self.path.exists():
            return False
        with self._open() as runs:
            return any(run.experiment == experiment for run in runs)

    def _enter(self, runs: list[RunTally], experiment: str, inquiry: Inquiry) -> RunTally:
        plan = inquiry.plan
        if any(run.experiment == experiment and run.session >= inquiry.session for run in runs):
            cure = (
                "the query is of an older run than one that the node has answered; stop other runs of this experiment, "
                "or choose another `experiment`"
            )
            raise Refusal(ANSWERED, cure)
        if self.max_epsilon is not None and plan.delta > self.max_delta:
            cure = (
                f"delta of the run is {plan.delta:.2g}, but the node allows {self.max_delta:g} (`max-delta` of the "
                "node); set `delta` of the run"
            )
            raise Refusal(REFUSED, cure)
        entered = RunTally(experiment, inquiry.query.run, inquiry.session, plan)
        total = _spent(runs) + plan.mu**2
        delta = _least_delta([*runs, entered])
        self._check_budget(delta, total)
        logger.info("%s", plan)
        epsilon = epsilon_of(math.sqrt(total), delta)
        logger.info("all private runs of this node together: epsilon = %.6g, delta = %.3g.", epsilon, delta)
        runs.append(entered)
        return entered

    def _check_budget(self, delta: float, total: float) -> None:
        """Refuse a total Σμ² of all runs that is more than the owner allows."""
        if self.max_epsilon is None:
            return
        epsilon = epsilon_of(math.sqrt(total), delta)
        if epsilon > self.max_epsilon * (1.0 + ROUNDING):
            raise Refusal(
                REFUSED,
                f"with this run, all private runs of the node together would cost epsilon = {epsilon:.4g}, but it "
                f"allows {self.max_epsilon:g} (`max-epsilon` of the node); lower `epsilon` of the run",
            )

    @contextlib.contextmanager
    def _open(self) -> Iterator[list[RunTally]]:
        """Read the file, and keep other processes of the node from it, those of other experiments too."""
        with FileLock(self.path.with_suffix(".tally-lock")):
            yield self._read()

    def _read(self) -> list[RunTally]:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        try:
            reader = RecordReader(codec.decode(data, KIND, VERSION), self.path.name, "see the node's log")
            return [_read_run(**values) for values in json.loads(reader.value("runs", str))]
        except (CodecError, ValueError, TypeError, LookupError) as error:
            cure = "the node cannot read what it has answered in private runs, so it answers nothing; see its log"
            detail = (
                f"{self.path} cannot be read ({type(error).__name__}). If you restore an older copy or remove it, what "
                "the node has answered since is not counted: stop all private runs first."
            )
            raise Refusal(REFUSED, cure, detail) from None

    def _write(self, runs: list[RunTally]) -> None:
        texts = [{**asdict(run), "plan": run.plan.to_dict()} for run in runs]
        data = codec.encode(KIND, VERSION, {"runs": json.dumps(texts)})
        atomic.write_atomically(self.path, data, keep_previous=False, private=True)


def _spent(runs: list[RunTally]) -> float:
    return math.fsum(run.spent for run in runs)


def _least_delta(runs: list[RunTally]) -> float:
    """The strictest δ of all runs: at a larger one the same noise would seem to cost less."""
    return min(run.plan.delta for run in runs)


def _find(runs: list[RunTally], experiment: str, run: int, session: int) -> RunTally | None:
    return next((one for one in runs if (one.experiment, one.run, one.session) == (experiment, run, session)), None)


def _check_order(run: RunTally, place: int) -> None:
    if not run.next_place <= place < run.plan.n_queries:
        cure = "the node has answered this query, or a later one, already; each is answered once"
        raise Refusal(ANSWERED, cure)


def _read_run(plan: Any, **values: Any) -> RunTally:
    run = RunTally(plan=PrivacyPlan.from_dict(plan), **values)
    if not run.plan.has_all_queries:
        raise CodecError("a privacy plan lacks a part.")
    return run
