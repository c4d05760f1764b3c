"""The server: whom to ask, what to believe, when to stop. It sees sums, never an event.

while not server.finished:
    call = server.open_round(engine.agents())
    for reply in engine.deliver(call):
        server.accept(reply)
    server.close_round()
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from fedhlcr import codec
from fedhlcr.arrays import IndexArray
from fedhlcr.federation.checks import Expected
from fedhlcr.federation.convergence import has_settled
from fedhlcr.federation.history import History, RoundRecord
from fedhlcr.federation.messages import NEVER, SURVEY_ROUND, Broadcast
from fedhlcr.federation.reception import Reception, Reply
from fedhlcr.federation.registry import STRANGER, Registry
from fedhlcr.federation.rules import BlendRule, DeltaRule, Rule
from fedhlcr.federation.settings import FederationSettings
from fedhlcr.federation.survey import Survey, Units
from fedhlcr.posterior import Draws
from fedhlcr.priors import ModelSpec
from fedhlcr.samplers.state import GlobalDraw, ServerState
from fedhlcr.streams import Stream, text_key
from fedhlcr.tables import canonical_text
from fedhlcr.threads import single_threaded_blas

MOST_SURVEYS = 100
STATE_KIND, STATE_VERSION = "server", 1


class Invitation(NamedTuple):
    """Whom an engine is to deliver what: the broadcast, and to each agent its last accepted round."""

    broadcast: Broadcast
    agents: list[str]
    acknowledged: IndexArray


class Server:
    """One federation, from the survey to the last round.

    Parameters
    ----------
    settings : what to do; agents make themselves known to `open_round`
    """

    def __init__(self, settings: FederationSettings) -> None:
        self.settings = settings
        self.registry = Registry()
        self.history = History()
        self.units: Units | None = None
        self.rule: Rule | None = None
        self.round = NEVER
        self.stop_reason: str | None = None
        self._stream = Stream(settings.seed)
        # 63 bits, for records hold signed numbers
        self.run = text_key(f"run/{settings}") >> 1
        self._survey = Survey(settings.layout)
        self._n_surveys = 0
        self._open: Reception | None = None
        self._draws: list[GlobalDraw] = []
        self._settled_log_joints: list[float] = []

    @property
    def finished(self) -> bool:
        return self.stop_reason is not None

    @single_threaded_blas
    def open_round(self, available: Sequence[str]) -> Invitation:
        """Begin the next round: choose whom to ask among the agents that can be reached now.

        Agents not met before are entered; how many of all are asked is the setting `participation`.
        """
        if self.finished:
            raise RuntimeError(f"the run has ended ({self.stop_reason}); make a new Server to start another.")
        positions = self.registry.register(available)
        candidates = np.sort(positions[~self.registry.withdrawn[positions]])
        if not len(candidates):
            raise ValueError("`available` names no agent that takes part; a round needs at least one.")
        number = SURVEY_ROUND if self.rule is None else self.round + 1
        broadcast = self._broadcast(number)
        asked = self._choose(candidates, number)
        self._open = Reception(broadcast, self.registry, asked, self._expected(), self.settings.limits)
        return Invitation(broadcast, [self.registry.names[i] for i in asked], self.registry.accepted_round[asked])

    def _choose(self, candidates: IndexArray, number: int) -> IndexArray:
        n_asked = max(1, round(self.settings.participation * len(candidates)))
        purpose = f"survey {self._n_surveys}" if number == SURVEY_ROUND else "participants"
        return np.sort(self._stream.generator(number, purpose).permutation(candidates)[:n_asked])

    def _broadcast(self, number: int) -> Broadcast:
        common = Broadcast(self.run, number, NEVER, self.settings.seed, self.settings.layout)
        if self.rule is None or self.units is None:
            return common
        self.rule.grow(len(self.registry))
        law = self.rule.open(number)
        return replace(common, standardization=self.units.standardization, cluster_of=self.rule.cluster_of, law=law)

    def accept(self, reply: Reply) -> int:
        """Take in a reply to the open round, of one agent or of many; returns how many are believed.

        What is not is logged with a reason and forgotten: the agent's last accepted contribution stays.
        """
        if self._open is None:
            raise RuntimeError("no round is open; call open_round first.")
        believed, positions = self._open.judge(reply)
        if believed is None:
            return 0
        if self.rule is None:
            self._survey.absorb(positions, believed)
        else:
            self.rule.absorb(positions, believed.sums)
            self.registry.accepted_round[positions] = believed.round
        return len(believed)

    def _expected(self) -> Expected:
        if self.rule is None or self.units is None:
            return Expected.survey(self.settings.layout)
        n_clusters = int(self.rule.cluster_of.max()) + 1
        return Expected(self.settings.layout, n_clusters, self.units.mean_squares, self.rule.has_tables)

    @single_threaded_blas
    def close_round(self) -> RoundRecord:
        """End the round with what has come, and decide whether it was the last."""
        if self._open is None:
            raise RuntimeError("no round is open; call open_round first.")
        done, self._open = self._open, None
        state = None
        if self.rule is None:
            self._close_survey()
        else:
            state = self._close_sampling(self.rule, done)
        record = self._record(done, state)
        self.history.add(record, done.participants)
        return record

    def _close_survey(self) -> None:
        settings = self.settings
        if self._survey.is_empty:
            self._n_surveys += 1
            if self._n_surveys == MOST_SURVEYS:
                raise RuntimeError(
                    f"no agent has reported an event in {MOST_SURVEYS} surveys; check that agents can be reached "
                    "and that what they reply is not refused (it is logged)."
                )
            return
        self.units = self._survey.fix(standardize=settings.standardize, max_mean_square=settings.limits.max_mean_square)
        self._survey = Survey(settings.layout)
        self.rule = self._make_rule(self.units)
        self.rule.grow(len(self.registry))
        self.round = SURVEY_ROUND

    def _make_rule(self, units: Units) -> Rule:
        settings = self.settings
        target_scale = float(units.standardization.scale[-1])
        spec = ModelSpec(
            noise_scale=None if settings.noise_scale is None else settings.noise_scale / target_scale,
            coef_scale=settings.coef_scale,
            global_concentration=settings.global_concentration,
            agent_concentration=settings.agent_concentration,
            coef_prior=settings.coef_prior,
            target_spread=units.target_spread,
        )
        if settings.rule == "blend":
            return BlendRule(
                settings.layout,
                spec,
                settings.start_clusters,
                settings.learning_rate,
                settings.participation_scaling,
                self._stream,
            )
        return DeltaRule(settings.layout, spec, settings.start_clusters, settings.merger(), self._stream)

    def _close_sampling(self, rule: Rule, done: Reception) -> ServerState | None:
        self.round = done.broadcast.round
        state = rule.close(int((~self.registry.withdrawn).sum()), len(done.participants))
        if state is not None:
            if not self._settled_log_joints:
                # of draws from before merging was over only the newest may be asked for
                self._draws.clear()
            self._draws.append(GlobalDraw.of_server(state))
            if rule.settled:
                self._settled_log_joints.append(state.log_joint)
        window = self.settings.window
        if window is not None and has_settled(self._settled_log_joints, window):
            self.stop_reason = f"converged: no change over {2 * window} rounds"
        elif self.round >= self.settings.most_rounds:
            self.stop_reason = f"reached {self.round} rounds"
        return state

    def _record(self, done: Reception, state: ServerState | None) -> RoundRecord:
        hyper = None if state is None else state.globals.hyper
        target_scale = 1.0 if self.units is None else float(self.units.standardization.scale[-1])
        return RoundRecord(
            round=done.broadcast.round,
            n_asked=done.n_asked,
            n_accepted=len(done.participants),
            n_refused=done.n_refused,
            bytes_down=done.bytes_down,
            bytes_up=done.bytes_up,
            labels_changed=int(done.labels_changed),
            log_joint=math.nan if state is None else state.log_joint,
            noise_scale=math.nan if hyper is None else float(hyper.noise_scale) * target_scale,
            global_concentration=math.nan if hyper is None else float(hyper.global_concentration),
            agent_concentration=math.nan if hyper is None else float(hyper.agent_concentration),
            n_clusters=0 if state is None else int(state.sums.occupied.sum()),
            validation_mse=math.nan,
        )

    def stop(self, reason: str) -> None:
        """End the run before its time. A round that is open is as if it had not been."""
        self._open = None
        self.stop_reason = reason

    @property
    def has_draws(self) -> bool:
        return bool(self._draws)

    @property
    def newest_draw(self) -> GlobalDraw:
        return self._draws[-1]

    def kept_draws(self) -> list[GlobalDraw]:
        """The draws a model made now would use: those of the later half of the rounds, once merging is over."""
        if not self._draws:
            raise RuntimeError("there are no draws yet: no agent has contributed; check the log for refused replies.")
        first = self.round // 2
        kept = [draw for draw in self._draws if draw.round > first] or self._draws[-1:]
        chosen = np.linspace(0, len(kept) - 1, min(len(kept), self.settings.n_draws)).round().astype(int)
        return [kept[i] for i in chosen]

    def draws(self) -> Draws:
        """The public part of the posterior: all an agent needs besides its own matrices to predict."""
        return Draws.from_chains([self.kept_draws()])

    @single_threaded_blas
    def forget(self, agent: object) -> None:
        """Withdraw an agent for good: subtract what it contributed, refuse what it may still send.

        Draws made while it took part are dropped too; sampling goes on without it. If it answered the survey, its say
        in the shift and scale of the columns stays.
        """
        name = canonical_text(agent)
        position = int(self.registry.find([name])[0])
        if position == STRANGER:
            raise KeyError(f"no agent of that name has taken part; {len(self.registry)} others have.")
        if self.rule is None:
            self._survey.forget(position)
        else:
            self.rule.forget(position)
        self.registry.withdrawn[position] = True
        self.registry.accepted_round[position] = NEVER
        self._draws.clear()
        self._settled_log_joints.clear()

    def to_bytes(self) -> bytes:
        """All that is needed to go on as if never interrupted; between rounds only."""
        if self._open is not None:
            raise RuntimeError("a round is open; close it first.")
        parts: dict[str, codec.Record] = {"registry": self.registry.to_record(), "history": self.history.to_record()}
        if self.units is not None and self.rule is not None:
            parts |= {"units": self.units.to_record(), "rule": self.rule.to_record()}
        if self._draws:
            parts["draws"] = vars(self._all_draws()) | {"round": np.array([draw.round for draw in self._draws])}
        record: codec.Record = {
            f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()
        }
        record |= {
            "run": self.run,
            "round": self.round,
            "n_surveys": self._n_surveys,
            "stop_reason": self.stop_reason or "",
            "settled_log_joints": np.array(self._settled_log_joints),
        }
        return codec.encode(STATE_KIND, STATE_VERSION, record)

    @classmethod
    def from_bytes(cls, settings: FederationSettings, data: bytes) -> Server:
        """A server as it was, with the settings it was made with."""
        record = codec.decode(data, STATE_KIND, STATE_VERSION)

        def part(name: str) -> codec.Record:
            return {key.removeprefix(f"{name}."): record[key] for key in record if key.startswith(f"{name}.")}

        server = cls(settings)
        if record["run"] != server.run:
            raise ValueError("the checkpoint was made with other settings; resume with the ones it was started with.")
        server.registry, server.history = Registry.from_record(part("registry")), History.from_record(part("history"))
        if units := part("units"):
            server.units = Units.from_record(units)
            server.rule = server._make_rule(server.units)
            server.rule.restore(part("rule"))
        if draws := part("draws"):
            rounds = draws.pop("round").tolist()
            server._draws = Draws(**draws).separate(rounds)
        server.round, server._n_surveys = record["round"], record["n_surveys"]
        server.stop_reason = record["stop_reason"] or None
        server._settled_log_joints = record["settled_log_joints"].tolist()
        return server

    def _all_draws(self) -> Draws:
        return Draws.from_chains([self._draws])
