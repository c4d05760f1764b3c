"""The server: it chooses which agents to ask, checks their replies, and decides when to stop. It never sees an event.

A run is

    while not server.finished:
        call = server.open_round(engine.agents())
        for reply in engine.deliver(call):
            server.accept(reply)
        server.close_round()
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedhlcr._support.arrays import IndexArray
from fedhlcr._support.checks import not_negative, within
from fedhlcr._support.streams import Stream, text_key
from fedhlcr._support.threads import single_threaded_blas
from fedhlcr.data.ids import canonical_text
from fedhlcr.data.scarcity import TableShape
from fedhlcr.exceptions import ArgumentError, FederationError, UnknownAgentError
from fedhlcr.federation.account import Account, AccountFactory
from fedhlcr.federation.block_ledger import BlockLedger
from fedhlcr.federation.block_sums import BlockReply
from fedhlcr.federation.checks import ExpectedReply
from fedhlcr.federation.claims import Claims
from fedhlcr.federation.cohorts import commit, running_total
from fedhlcr.federation.convergence import has_settled, limit_reason, stable_reason
from fedhlcr.federation.fixed_accounts import FixedLedger, RunningTotal
from fedhlcr.federation.fixed_sums import Integers, SumTerms, VectorLayout
from fedhlcr.federation.history import History, RoundRecord
from fedhlcr.federation.kept_draws import DrawKeeper
from fedhlcr.federation.laws import Law
from fedhlcr.federation.ledger import Ledger
from fedhlcr.federation.messages import MOST_ROUNDS, NEVER, SURVEY_ROUND, Broadcast
from fedhlcr.federation.open_round import Invitation, OpenRound, Reply
from fedhlcr.federation.registry import UNREGISTERED, Registry
from fedhlcr.federation.rules import BlendRule, DeltaRule, Rule
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.sums import AgentSums
from fedhlcr.federation.survey import Units
from fedhlcr.federation.survey_rounds import SurveyRounds
from fedhlcr.federation.survey_sums import survey_size
from fedhlcr.model.likelihood import AnyLikelihood
from fedhlcr.model.priors import ModelSpec
from fedhlcr.posterior import Draws, PublicModel
from fedhlcr.privacy.terms import Terms
from fedhlcr.samplers.state import GlobalDraw, ServerState
from fedhlcr.settings import LEARNABLE
from fedhlcr.storage import codec
from fedhlcr.storage.reader import checkpoint_reader
from fedhlcr.storage.records import from_record, restore, to_record

logger = logging.getLogger(__name__)

STATE_KIND = "server"
STATE_VERSION = 1


class Server:
    """One federation, from the survey to the last round.

    Parameters
    ----------
    settings : settings of the run; the agents' names are passed to `open_round`
    make_account : creates the account of the delta rule, `federation.account`; None takes the one of the settings
    """

    def __init__(self, settings: FederationSettings, make_account: AccountFactory | None = None) -> None:
        self.settings = settings
        self._make_account = make_account
        self.likelihood = settings.make_likelihood()
        self.registry = Registry()
        self.history = History(self.likelihood.globals_type)
        self.units: Units | None = None
        self.rule: Rule | None = None
        self.round = NEVER
        self.stop_reason: str | None = None
        self._stream = Stream(settings.seed)
        # 63 bits, because records hold signed numbers
        self.run = text_key(settings.run_text) >> 1
        self._surveys = SurveyRounds(settings)
        self._claims = Claims(settings.layout.n_inputs, settings.limits.max_change)
        # agents that the log has reported as scaled down
        self._scaled_down: set[int] = set()
        # the time numbers the sessions: a server that is started again has a higher one. No result depends on it.
        self.session = time.time_ns()
        self._end = settings.most_rounds
        self._open: OpenRound | None = None
        self._keeper = DrawKeeper(settings.n_draws)
        self._settled_log_joints: list[float] = []

    @property
    def finished(self) -> bool:
        return self.stop_reason is not None

    @single_threaded_blas
    def open_round(self, available: Sequence[str]) -> Invitation:
        """Begin the next round: choose the agents to ask among those that can be reached now.

        New agents are registered. The setting `participation` is the share of agents asked.
        """
        if self.finished:
            raise FederationError(f"the run has ended ({self.stop_reason}); make a new Server to start another.")
        if self._open is not None:
            raise FederationError(f"round {self._open.broadcast.round} is open; close it first.")
        positions = np.unique(self.registry.register(available))
        candidates = positions[~self.registry.withdrawn[positions]]
        n_asked = max(1, round(self.settings.participation * len(candidates)))
        number = SURVEY_ROUND if self.rule is None else self.round + 1
        if len(leaving := self._leaving()) and len(np.setdiff1d(leaving, positions)):
            self.begin_epoch("an agent that has withdrawn cannot be reached")
        broadcast = self._broadcast(number)
        if number == SURVEY_ROUND and self.settings.is_secure:
            awaited = asked = candidates
        elif number == SURVEY_ROUND:
            survey = self._surveys.by_agent
            asked = self._choose(survey.left_to_ask(candidates), n_asked, f"survey {self._surveys.n_done}")
            survey.ask(asked)
            # a late reply to an earlier survey is still accepted
            awaited = np.setdiff1d(candidates, survey.agents)
        else:
            awaited = asked = self._choose(candidates, n_asked, "participants")
            if len(leaving := self._leaving()):
                awaited = asked = np.union1d(asked, leaving)
        expected = self._expected(broadcast.law)
        claims = None if self.rule is None else self._claims
        limits = self.settings.limits
        self._open = OpenRound(broadcast, self.registry, len(asked), awaited, expected, limits, claims)
        leavers = frozenset(self.registry.names[i] for i in self._leaving())
        names = [self.registry.names[i] for i in asked]
        acknowledged = self.registry.accepted_round[asked]
        return Invitation(broadcast, names, acknowledged, leavers, expected)

    def _leaving(self) -> IndexArray:
        """Positions of agents that must still remove their sums; in plain mode the server does that itself."""
        return self.registry.leaving if self.settings.is_secure else np.empty(0, dtype=np.int64)

    def _choose(self, candidates: IndexArray, n_asked: int, purpose: str) -> IndexArray:
        return np.sort(self._stream.generator(self.round + 1, purpose).permutation(candidates)[:n_asked])

    def _broadcast(self, number: int) -> Broadcast:
        common = Broadcast(self.run, self.session, number, NEVER, self.settings.seed, self.likelihood)
        if self.rule is None or self.units is None:
            terms = SumTerms(0, is_secure=True, centre=self._surveys.summed.centre) if self.settings.is_secure else None
            return replace(common, curve_columns=self.settings.curves, terms=terms)
        self.rule.grow(len(self.registry))
        law = self.rule.open(number)
        if self.rule.begins_afresh:
            self.registry.accepted_round[:] = NEVER
        return replace(
            common,
            standardization=self.units.standardization,
            cluster_of=self.rule.cluster_of,
            law=law,
            terms=self.rule.terms(),
        )

    def accept(self, reply: Reply) -> int:
        """Check a reply to the open round, from one agent or many, and return how many contributions are accepted.

        A refused contribution is logged with the reason and discarded. The agent's last accepted one stays in force.
        """
        if self._open is None:
            logger.info("discarded a reply that arrived while no round was open.")
            return 0
        if self.settings.is_secure:
            self._open.refuse_unmasked()
            return 0
        if isinstance(reply, BlockReply):
            return self._accept_block(self._open, reply)
        accepted, positions = self._open.check_reply(reply)
        if accepted is None:
            return 0
        if self.rule is None:
            self._surveys.by_agent.absorb(positions, accepted)
        else:
            self.rule.absorb(positions, accepted.sums)
            self.registry.accepted_round[positions] = accepted.round
        return len(accepted)

    def _accept_block(self, opened: OpenRound, reply: BlockReply) -> int:
        """Take in the sum of a block, whose worker has checked its agents' contributions."""
        if not isinstance(self.rule, DeltaRule) or not isinstance(self.rule.account, BlockLedger):
            raise FederationError("the sum of a block came, but this server keeps the contribution of each agent.")
        if not opened.check_block(reply):
            return 0
        positions = reply.positions
        self.rule.account.set_block(reply.state)
        self._claims.note_sizes(positions, reply.state.sizes[reply.agents])
        self.registry.accepted_round[positions] = reply.round
        return len(positions)

    def accept_sum(self, agents: Sequence[str], values: Integers) -> int:
        """Add what a cohort has sent under masks, and return how many agents' contributions are accepted: all or none.

        Total and acknowledgements change together: a checkpoint has both or neither.
        """
        if self._open is None or not self.settings.is_secure:
            raise FederationError("no round of a secure aggregation is open; call open_round first.")
        positions = self.registry.find(agents)
        reason = self._open.find_strangers(positions)
        if reason is None and self.rule is None:
            reason = self._surveys.summed.absorb(values)
        elif reason is None:
            assert self.units is not None
            assert self._open.broadcast.terms is not None
            account = running_total(self.rule)
            terms = self._open.broadcast.terms
            reason = commit(account, terms, values, self.units.mean_squares)
        if reason is not None:
            self._open.refuse_cohort(len(agents), reason)
            return 0
        self._open.accept(positions)
        if self.rule is not None:
            stays = ~self.registry.withdrawn[positions]
            self.registry.accepted_round[positions] = np.where(stays, self._open.broadcast.round, NEVER)
        return len(agents)

    def exchange_terms(self) -> Terms:
        """The public terms of the exchange that adds up the open round's contributions."""
        if self._open is None or self._open.broadcast.terms is None:
            raise FederationError("no round of a secure aggregation is open; call open_round first.")
        broadcast = self._open.broadcast
        terms = self._open.broadcast.terms
        if self.rule is None:
            # all surveys are round 0, so they are told apart by their epoch
            epoch = self._surveys.n_done
            size = survey_size(self.settings.layout)
        else:
            epoch = terms.epoch
            size = VectorLayout(self.likelihood.sum_schema, terms.rows).n_values
        return Terms(self.run, self.session, epoch, broadcast.round, size, self.settings.min_cohort)

    def begin_epoch(self, reason: str) -> None:
        """Forget what agents have sent under secure aggregation: each sends all its sums when it is asked next."""
        logger.warning("a new epoch begins, and agents send their sums again: %s.", reason)
        assert isinstance(self.rule, DeltaRule)
        account = running_total(self.rule)
        # higher than any epoch of a server that was restored from an older checkpoint
        account.epoch = max(account.epoch, self.session)
        self.rule.begin_epoch()
        self.registry.accepted_round[:] = NEVER

    def count_sent(self, n_copies: int) -> None:
        """Set how many copies of the broadcast are sent in the open round, if not one for each agent asked."""
        if self._open is not None:
            self._open.n_copies = n_copies

    def count_exchanged(self, n_down: int, n_up: int) -> None:
        """Add bytes of a secure sum to those of the open round."""
        if self._open is not None:
            self._open.bytes_masked_down += n_down
            self._open.bytes_up += n_up

    def count_moved(self, bytes_down: int, bytes_up: int) -> None:
        """Set how many bytes were sent in the open round, if they are not those of the messages."""
        if self._open is not None:
            self._open.bytes_down = bytes_down
            self._open.bytes_up = bytes_up

    def _expected(self, law: Law | None) -> ExpectedReply:
        if self.rule is None or self.units is None:
            expected = ExpectedReply.survey(self.settings.layout, len(self.settings.curves))
        else:
            assert law is not None
            n_clusters = int(self.rule.cluster_of.max()) + 1
            usual = self._claims.usual_events()
            units = self.units.mean_squares
            tables = self.rule.has_tables
            expected = ExpectedReply.under(self.likelihood, law, n_clusters, units, usual, tables=tables)
        return expected._replace(fixed_point=self.settings.fixed_point)

    @single_threaded_blas
    def close_round(self) -> RoundRecord:
        """End the round with the replies that have arrived, and decide whether it was the last one."""
        if self._open is None:
            raise FederationError("no round is open; call open_round first.")
        done = self._open
        self._open = None
        state = None
        if self.rule is not None:
            state = self._close_sampling(self.rule, done)
        elif (units := self._surveys.close(self.registry, done.n_asked, self._claims)) is not None:
            self._end_survey(units)
        record = self._record(done, state)
        self.history.add(record, done.participants)
        if len(self._leaving()):
            self.begin_epoch("an agent that has withdrawn has not removed its sums")
        return record

    def _end_survey(self, units: Units) -> None:
        if (spread := self.likelihood.linear_spread) is not None:
            units = units.with_own_target(spread)
        self._begin(units).grow(len(self.registry))
        self.round = SURVEY_ROUND

    def _begin(self, units: Units) -> Rule:
        """Take the units of the survey, which decide about curves and so about the model's columns; make the rule."""
        self.units = units
        self.likelihood = self.settings.make_likelihood(units.standardization.curves)
        self.rule = _make_rule(self.settings, units, self.likelihood, self._stream, self._make_account)
        return self.rule

    def _restore_claims(self, rule: Rule) -> None:
        """What agents have claimed, from their last contributions, if the account has these."""
        if not isinstance(rule, DeltaRule) or not isinstance(rule.account, Ledger) or not len(rule.account):
            return
        if isinstance(rule.account, BlockLedger):
            sizes = rule.account.sizes()
            agents = np.flatnonzero(sizes[:, 0])
            self._claims.note_sizes(agents, sizes[agents])
        else:
            assert self.units is not None
            sums = AgentSums.stack(rule.account.pages)
            layout = self.likelihood.layout
            units = self.units.mean_squares
            agents = np.flatnonzero(np.diff(sums.row_start))
            self._claims.note(agents, sums.take(agents), layout, units, of_events=sums.schema.counts_events)

    def _close_sampling(self, rule: Rule, done: OpenRound) -> ServerState | None:
        self.round = done.broadcast.round
        state = rule.close(int((~self.registry.withdrawn).sum()), len(done.participants))
        self._warn_of_weights(rule)
        if state is not None and len(done.participants):
            self._keeper.add(GlobalDraw.of_server(state), settled=rule.settled)
            if rule.settled:
                self._settled_log_joints.append(state.log_joint)
        elif state is not None and self.has_draws and not self._settled_log_joints:
            # nobody has answered, so there is no new draw to keep; but clusters may have been merged
            self._keeper.replace_newest(GlobalDraw.of_server(state))
        window = self.settings.window
        if window is not None and has_settled(self._settled_log_joints, window):
            self.stop_reason = stable_reason(2 * window)
        elif self.round >= self._end:
            self.stop_reason = limit_reason(self.round)
        return state

    def _warn_of_weights(self, rule: Rule) -> None:
        """Log, once for each agent, that its sums are scaled down."""
        scaled_down = set(rule.scaled_down().tolist()) if isinstance(rule, DeltaRule) else set()
        for agent in sorted(scaled_down - self._scaled_down):
            logger.warning(
                "agent %r is far larger than most agents, so its sums are scaled down; raise `max_weight` of the "
                "limits if you trust it.",
                self.registry.names[agent],
            )
        self._scaled_down |= scaled_down

    def _record(self, done: OpenRound, state: ServerState | None) -> RoundRecord:
        target_scale = 1.0 if self.units is None else float(self.units.standardization.scale[-1])
        unknown = {q.name: math.nan for q in self.likelihood.globals_type.traced_quantities()}
        return RoundRecord(
            round=done.broadcast.round,
            n_asked=done.n_asked,
            n_accepted=len(done.participants),
            n_refused=done.n_refused,
            bytes_down=done.bytes_down,
            bytes_up=done.bytes_up,
            labels_changed=self._labels_changed(done, state),
            log_joint=math.nan if state is None else state.log_joint,
            shared=unknown if state is None else state.globals.traced(target_scale),
            n_clusters=0 if state is None else int(state.sums.occupied.sum()),
            validation_mse=math.nan,
        )

    def _labels_changed(self, done: OpenRound, state: ServerState | None) -> int:
        """In fixed point it is known only of all agents together, each in the last round it took part in."""
        if not self.settings.fixed_point:
            return int(done.labels_changed)
        return 0 if state is None else int(state.sums.scalars["labels_changed"])

    @single_threaded_blas
    def stop(self, reason: str) -> None:
        """End the run early. An open round is closed with the replies that have arrived."""
        if self._open is not None:
            self.close_round()
        if self.finished:
            return
        if self.has_draws and self.rule is not None and (state := self.rule.finish()) is not None:
            self._keeper.replace_newest(GlobalDraw.of_server(state))
        self.stop_reason = reason

    @property
    def has_draws(self) -> bool:
        return self._keeper.newest is not None

    @property
    def kept_draws(self) -> list[GlobalDraw]:
        """The draws that a model built now would use."""
        return self._keeper.kept()

    def table_shape(self) -> TableShape:
        """What the server knows of the agents' tables together, once there are draws.

        It cannot know whether agents have ids of entities. The number of events is infinite if it is unknown.
        """
        varies = self.units is None or self.units.mean_squares[-1] > 0.0
        n_entities = float(self.kept_draws[-1].entity_counts.sum())
        return TableShape(
            self._surveys.n_events,
            n_entities,
            self.settings.layout.n_inputs,
            target_varies=bool(varies),
            lacks_agents=len(self.registry) == 1 and self.settings.effects == "entity+agent",
        )

    def model(self) -> PublicModel:
        """The public model: all that an agent needs to predict, besides its own matrices."""
        if not self.has_draws or self.units is None:
            raise FederationError(
                "there are no draws: either no agent has contributed yet, or an agent has withdrawn, and the draws "
                "were dropped with it. Run more rounds; if replies were refused, the log says why."
            )
        draws = Draws.from_chains([self._keeper.kept()])
        return PublicModel(self.likelihood, self.units.standardization, draws, self.settings.seed)

    @single_threaded_blas
    def forget(self, agent: object) -> None:
        """Withdraw an agent permanently: remove its contribution, and refuse whatever it may still send.

        Draws made while it took part are dropped, and a run that has ended is open again: run more rounds. These traces
        of the agent stay: its name; its share in the shift and scale of the columns, if it answered the survey; the
        last draw, until the next round; and files. To replace these, save a checkpoint with `keep_previous=False` after
        the next round.

        Under secure aggregation the agent itself removes its sums in the next round. If it cannot be reached, or fails
        in that round, a new epoch begins: all others send their sums again.
        """
        name = canonical_text(agent)
        position = int(self.registry.find([name])[0])
        if position == UNREGISTERED:
            raise UnknownAgentError(
                f"no agent of that name has taken part; the server knows {len(self.registry)} others."
            )
        if self.registry.withdrawn[position]:
            return
        self.registry.withdrawn[position] = True
        self._claims.forget(position)
        if self.rule is None:
            self._surveys.by_agent.forget(position)
        elif self.registry.accepted_round[position] != NEVER:
            # under secure aggregation only the agent itself can remove its sums: it is asked once more
            if not self.settings.is_secure:
                self.registry.accepted_round[position] = NEVER
                self.rule.forget(position)
            self._keeper.clear()
            self._settled_log_joints.clear()
            self.stop_reason = None
            self._end = max(self._end, self.round + self.settings.extension)

    def to_bytes(self) -> bytes:
        """The state from which `from_bytes` continues as if there had been no interruption. Only between rounds."""
        if self._open is not None:
            raise FederationError("a round is open; close it first.")
        parts: dict[str, codec.Record] = {"registry": to_record(self.registry), "history": self.history.to_record()}
        if self.units is not None and self.rule is not None:
            parts |= {"units": self.units.to_record(), "rule": self.rule.to_record()}
        parts |= {"draws": self._keeper.to_record(), "survey": self._surveys.by_agent.to_record()}
        parts["sum_survey"] = to_record(self._surveys.summed)
        record: codec.Record = {
            f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()
        }
        record |= {
            "run": self.run,
            "round": self.round,
            "n_surveys": self._surveys.n_done,
            "end": self._end,
            "stop_reason": self.stop_reason or "",
            "settled_log_joints": np.array(self._settled_log_joints),
        }
        return codec.encode(STATE_KIND, STATE_VERSION, record)

    @classmethod
    def from_bytes(
        cls, settings: FederationSettings, data: bytes, make_account: AccountFactory | None = None
    ) -> Server:
        """Restore a server. `settings` must be those it was constructed with."""
        reader = checkpoint_reader(codec.decode(data, STATE_KIND, STATE_VERSION))
        server = cls(settings, make_account)
        if reader.value("run", int) != server.run:
            raise ArgumentError(
                "the checkpoint was made with other settings; resume with the ones it was started with."
            )
        server.registry = from_record(Registry, reader.part("registry."))
        n_agents = len(server.registry)
        server.history = History.read(reader.part("history."), server.likelihood.globals_type, n_agents)
        if not reader.part("units.").is_empty:
            rule = server._begin(Units.read(reader.part("units."), settings.layout))
            rule.restore(reader.part("rule."), n_agents)
            server._restore_claims(rule)
        server._keeper.restore(reader.part("draws."), server.likelihood)
        server._surveys.by_agent.restore(reader.part("survey."), n_agents)
        restore(server._surveys.summed, reader.part("sum_survey."), {"columns": settings.layout.width - 1})
        server.round = reader.value("round", int, within(NEVER, MOST_ROUNDS))
        reader.require(server.round == (NEVER if server.rule is None else server.rule.round), "round")
        server._surveys.n_done, server._end = (reader.value(name, int, not_negative) for name in ("n_surveys", "end"))
        server.stop_reason = reader.value("stop_reason", str) or None
        server._settled_log_joints = reader.array("settled_log_joints", "f8", (None,), np.isfinite).tolist()
        return server


def _make_rule(
    settings: FederationSettings,
    units: Units,
    likelihood: AnyLikelihood,
    stream: Stream,
    make_account: AccountFactory | None = None,
) -> Rule:
    """The rule that the settings ask for; `make_account` replaces the account of the settings."""
    spec = ModelSpec.in_units(
        float(units.standardization.scale[-1]),
        **{name: getattr(settings, name) for name in LEARNABLE},
        coef_prior=settings.coef_prior,
        effects=settings.effects,
        target_spread=units.target_spread,
    )
    n_clusters = settings.start_clusters
    if settings.rule == "blend":
        scaling = settings.participation_scaling
        rate = settings.learning_rate
        most = settings.max_weight
        return BlendRule(settings.layout, spec, n_clusters, rate, scaling, stream, most)
    if make_account is None:
        account = _account(settings, likelihood)
    else:
        account = make_account(n_clusters, likelihood.sum_schema)
    return DeltaRule(likelihood, spec, n_clusters, settings.merger(spec), stream, account, settings.settling)


def _account(settings: FederationSettings, likelihood: AnyLikelihood) -> Account:
    n_clusters = settings.start_clusters
    if settings.is_secure:
        return RunningTotal(n_clusters, likelihood)
    if settings.fixed_point:
        return FixedLedger(n_clusters, likelihood)
    return Ledger(n_clusters, likelihood.sum_schema, settings.max_weight)
