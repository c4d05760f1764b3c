"""Whatever a server sends, or a file of state holds, an agent answers it or says what is wrong; it never crashes.

Kernels do not check bounds, so a check that is missing may kill the process: the fuzzing runs in one of its own.
"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.federation import Agent, Broadcast, Server
from fedhlcr.federation.agent import STATE_KIND, STATE_VERSION
from fedhlcr.federation.run import run_round
from fedhlcr.federation.server import STATE_KIND as SERVER_KIND
from fedhlcr.storage import codec
from tests.federations import FIXED, OneByOneEngine, agents_of, grams_of, in_process, put, run_rounds, server_for

RULES = {"delta": {"max_clusters": 6, "patience": None}, "blend": {"rule": "blend", "n_clusters": 3, **FIXED}}
TABLE, _ = make_hlcr(8, 4, 6, 3, 3, 0.3, random_state=11)


def federation(rule):
    """A server that has just opened a round, its engine, and an agent as it was before it."""
    server, agents = server_for(3, seed=1, **RULES[rule]), agents_of(TABLE)
    engine = OneByOneEngine(agents)
    run_rounds(server, engine, 4)
    return server, engine, agents[2]


def letter_to(server, engine, agent):
    call = server.open_round(engine.agents())
    return codec.decode(
        call.broadcast.acknowledging(call.acknowledged[call.agents.index(agent.name)]).to_bytes(), "broadcast", 1
    )


def answer(agent, record):
    return copy.deepcopy(agent).round(Broadcast.from_bytes(codec.encode("broadcast", 1, record)))


FORGED = {
    "delta": {
        "more weights than coefficients": ("log_weights", lambda a: np.full(200_000, -np.log(200_000.0))),
        "fewer coefficients than features": ("coef", lambda a: a[:, 1:].copy()),
        "coefficients on one axis": ("coef", lambda a: a.ravel()),
        "coefficients of another type": ("coef", lambda a: a.astype(np.int64)),
        "no number among the coefficients": ("coef", put((0, 0), np.nan)),
        "weights that are no number": ("log_weights", put(0, np.nan)),
        "weights beyond one": ("log_weights", lambda a: 0.0 * a),
        "a cluster beyond the last": ("cluster_of", put(0, 6)),
        "a cluster far beyond the last": ("cluster_of", put(0, 2**62)),
        "a cluster below none": ("cluster_of", put(0, -2)),
        "a cluster without an original": ("cluster_of", put(slice(None), 0)),
        "clusters that are no whole numbers": ("cluster_of", lambda a: a.astype(np.float64)),
    },
    "blend": {
        "more counts than regressions": ("entity_counts", lambda a: np.ones(200_000)),
        "negative counts": ("entity_counts", lambda a: -1.0 - a),
        "fewer linear terms": ("linear", lambda a: a[:-1]),
        "a precision of other features": ("precision", lambda a: a[:, :-1].copy()),
        "a precision that is infinite": ("precision", put((0, 0), np.inf)),
        "a precision that is negative": ("precision", lambda a: -a),
        "no regressions": ("precision", lambda a: a[:0]),
        "no global concentration": ("global_concentration", lambda value: 0.0),
    },
}
FORGED_EITHER = {
    "negative noise": ("noise_scale", lambda value: -value),
    "noise too small to square": ("noise_scale", lambda value: 1e-200),
    "noise that is a text": ("noise_scale", str),
    "an infinite concentration": ("agent_concentration", lambda value: np.inf),
    "a shift that is no number": ("shift", put(0, np.nan)),
    "a scale of zero": ("scale", put(0, 0.0)),
    "a scale without end": ("scale", put(0, np.inf)),
    "units of other features": ("scale", lambda a: a[1:]),
    "more features": ("n_features", lambda n: n + 1),
    "more features than there are": ("n_features", lambda n: 2**62),
    "features that are a truth": ("n_features", bool),
    "an intercept that is a number": ("fit_intercept", int),
    "a law nobody knows": ("law", lambda name: "martial"),
    "a negative round": ("round", lambda number: -3),
    "a survey with a law": ("round", lambda number: 0),
    "a round out of range": ("round", lambda number: 2**40),
    "a round that is a number with a point": ("round", float),
    "a session that is a text": ("session", str),
    "an acknowledgement from before the start": ("acknowledged", lambda number: -9),
}


@pytest.mark.parametrize("rule", RULES)
def test_broadcasts_that_do_not_fit_together_are_refused(rule):
    server, engine, agent = federation(rule)
    record = letter_to(server, engine, agent)
    for field, change in (FORGED[rule] | FORGED_EITHER).values():
        with pytest.raises(codec.CodecError, match=r"the broadcast (is not valid|lacks a field)"):
            answer(agent, record | {field: change(record[field])})
    assert answer(agent, record).agent == agent.name


def test_agents_refuse_what_would_destroy_their_matrices():
    server, engine, agent = federation("delta")
    record = letter_to(server, engine, agent)
    for field, value in (("shift", 1e200), ("scale", 1e-300)):
        with pytest.raises(ValueError, match="units of the broadcast do not fit the events here"):
            agent.round(Broadcast.from_bytes(codec.encode("broadcast", 1, record | {field: np.full(4, value)})))
    assert grams_of(answer(agent, record)).any()
    assert np.isfinite(grams_of(answer(agent, record))).all()


def test_labels_of_unknown_clusters_are_refused():
    server, engine, agent = federation("delta")
    record = letter_to(server, engine, agent)
    shorter = {"coef": record["coef"][:1], "log_weights": np.zeros(1), "cluster_of": np.zeros(1, dtype=np.int64)}
    with pytest.raises(ValueError, match="the agents have labels of clusters that the broadcast does not have"):
        answer(agent, record | shorter)


def test_a_precision_that_is_not_positive_is_refused():
    server, engine, agent = federation("blend")
    record = letter_to(server, engine, agent)
    precision = np.full_like(record["precision"], 1e12)
    precision[:, np.cumsum(np.arange(1, record["linear"].shape[1] + 1)) - 1] = 1.0
    with pytest.raises(ValueError, match="`precision` of the broadcast's law is not positive definite"):
        answer(agent, record | {"precision": precision})


def test_a_run_with_too_many_clusters_does_not_start():
    for params in ({"max_clusters": 10_001}, {"n_clusters": 9_000}, {"n_clusters": 10_001, "rule": "blend", **FIXED}):
        with pytest.raises(ValueError, match="agents accept at most 10000; pass a smaller number"):
            server_for(3, **params)


STATES = {
    "labels beyond all clusters": ("accepted", put(0, 2**31 - 1)),
    "labels below none": ("pending", put(0, -2)),
    "labels of other entities": ("accepted", lambda a: a[:-1]),
    "an agent that is not there": ("agent_of", put(-1, 7)),
    "entities out of order": ("entity_of", lambda a: a[::-1].copy()),
    "matrices of other features": ("grams", lambda a: a[:, :-1].copy()),
    "matrices of other entities": ("grams", lambda a: a[:-1]),
    "matrices of another type": ("grams", lambda a: a.astype(np.int64)),
    "shifts of other features": ("shifts", lambda a: a[:, :-1].copy()),
    "shifts that are no number": ("shifts", put((0, 0), np.nan)),
    "units of other features": ("unit_scale", lambda a: a[:-1]),
    "a round from before the start": ("accepted_round", put(0, -7)),
    "names twice": ("entities", lambda names: [names[0]] * len(names)),
}


@pytest.mark.parametrize("case", STATES)
def test_states_that_do_not_fit_together_are_refused(case, tmp_path):
    _, _, agent = federation("delta")
    agent.save(tmp_path / "agent")
    record = codec.decode((tmp_path / "agent").read_bytes(), STATE_KIND, STATE_VERSION)
    field, change = STATES[case]
    forged = codec.encode(STATE_KIND, STATE_VERSION, record | {field: change(record[field])})
    (tmp_path / "agent").write_bytes(forged)
    with pytest.raises(codec.CodecError, match="the agent's state is not valid"):
        Agent.load(tmp_path / "agent")


CHECKPOINTS = {
    "sums of clusters that are not there": ("rule.sums_clusters", put(0, 6)),
    "rows of no agent": ("rule.sums_row_start", put(1, 10**9)),
    "rows that run backwards": ("rule.sums_row_start", put(1, -1)),
    "matrices of other features": ("rule.sums_grams", lambda a: a[:, :-1].copy()),
    "a cluster far beyond the last": ("rule.cluster_of", put(0, 2**40)),
    "more weights than coefficients": ("rule.log_weights", lambda a: np.full(4000, -np.log(4000.0))),
    "draws of fewer clusters": ("draws.n_clusters", put(0, 99)),
    "coefficients of other draws": ("draws.coef", lambda a: a[1:]),
    "rounds of other agents": ("registry.accepted_round", lambda a: a[1:]),
    "agents twice": ("registry.agents", lambda names: [names[0]] * len(names)),
    "agents that took part and are not there": ("history.took_part", put(0, 1)),
    "other sizes": ("history.took_part_sizes", put(0, 2**62)),
    "units of other features": ("units.scale", lambda a: a[1:]),
    "asked of nobody": ("survey.times_asked", lambda a: np.array([[99, 1]])),
    "a round that is a text": ("round", str),
}


@pytest.mark.parametrize("case", CHECKPOINTS)
def test_checkpoints_that_do_not_fit_together_are_refused(case):
    server, _, _ = federation("delta")
    record = codec.decode(server.to_bytes(), SERVER_KIND, 1)
    field, change = CHECKPOINTS[case]
    if field == "history.took_part":
        # of seven agents: the eighth bit is nobody's
        server = server_for(3, seed=1, **RULES["delta"])
        run_rounds(server, OneByOneEngine(agents_of(TABLE)[:7]), 4)
        record = codec.decode(server.to_bytes(), SERVER_KIND, 1)
    forged = codec.encode(SERVER_KIND, 1, record | {field: change(record[field])})
    with pytest.raises(codec.CodecError, match="the checkpoint is not valid"):
        Server.from_bytes(server.settings, forged)


def mutated(value, rng):
    """Another shape, another type, or other values; any of them may be what a reader does not expect."""
    huge = [0, 1, -1, -2, 7, 2**31 - 1, -(2**31), 2**40, 2**62, 2**63 - 1, -(2**63)]
    strange = [np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-320, 1e160, 1e-160, 1e9]
    if not isinstance(value, np.ndarray):
        others = [True, "text", ["a", "b"], np.zeros(3), *(int(n) for n in huge), *(float(x) for x in strange)]
        return others[rng.integers(len(others))]
    array = value.copy()
    kind = rng.integers(8)
    if kind == 0:
        return array.astype(rng.choice(["f8", "i8", "i4", "u1", "b1"]))
    if kind == 1:
        return array[: rng.integers(len(array) + 1)]
    if kind == 2:
        return np.repeat(array, rng.choice([2, 3, 1000]), axis=0)
    if kind == 3:
        return array.reshape(rng.choice([1, array.size or 1]), -1) if array.size else array[None]
    if kind == 4:
        return np.ascontiguousarray(array.T[..., : rng.integers(array.shape[0] + 1)].T)
    for _ in range(rng.integers(1, 4) if array.size else 0):
        place = tuple(rng.integers(array.shape))
        if array.dtype.kind == "f":
            array[place] = strange[rng.integers(len(strange))]
        elif array.dtype.kind == "b":
            array[place] = not array[place]
        else:
            bounds = np.iinfo(array.dtype)
            array[place] = min(max(huge[rng.integers(len(huge))], bounds.min), bounds.max)
    return array


def fuzz(subject, rule, n_trials, folder):
    """How many mutants were refused, and how many answered."""
    server, engine, agent = federation(rule)
    path = Path(folder) / "agent"
    agent.save(path)
    state = codec.decode(path.read_bytes(), STATE_KIND, STATE_VERSION)
    checkpoint = codec.decode(server.to_bytes(), SERVER_KIND, 1)
    letter = letter_to(server, engine, agent)
    kept = in_process(TABLE).to_record()

    def try_letter(record):
        assert answer(agent, record).agent == agent.name

    def try_state(record):
        path.write_bytes(codec.encode(STATE_KIND, STATE_VERSION, record))
        Agent.load(path, disclosure=None).round(Broadcast.from_bytes(codec.encode("broadcast", 1, letter)))

    def try_checkpoint(record):
        resumed = Server.from_bytes(server.settings, codec.encode(SERVER_KIND, 1, record))
        if not resumed.finished:
            run_round(resumed, in_process(TABLE))

    def try_engine(record):
        fresh = in_process(TABLE)
        fresh.restore(codec.decode(codec.encode("agents", 1, record), "agents", 1))
        run_round(Server.from_bytes(server.settings, codec.encode(SERVER_KIND, 1, checkpoint)), fresh)

    subjects = {
        "letter": (letter, try_letter),
        "state": (state, try_state),
        "checkpoint": (checkpoint, try_checkpoint),
        "engine": (kept, try_engine),
    }
    record, attempt = subjects[subject]
    rng, refused = np.random.default_rng(7), 0
    names = sorted(record)
    for trial in range(n_trials):
        name = names[trial % len(names)]
        with np.errstate(all="ignore"):
            try:
                attempt(record | {name: mutated(record[name], rng)})
            except ValueError:
                refused += 1
    return refused, n_trials - refused


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["delta", pytest.param("blend", marks=pytest.mark.slow)])
@pytest.mark.parametrize("subject", ["letter", "state", "checkpoint", "engine"])
def test_nothing_that_is_mutated_crashes(subject, rule, tmp_path):
    """Any error but a ValueError, and any signal, fails it."""
    n_trials = "400" if subject == "letter" else "200"
    done = subprocess.run(
        [sys.executable, "-m", "tests.federation.test_hostile_server", subject, rule, n_trials, str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    refused, answered = map(int, done.stdout.split())
    assert refused > 50
    assert answered > 5


if __name__ == "__main__":
    print(*fuzz(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]))
