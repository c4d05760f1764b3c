"""Whatever is done to a checkpoint, the run goes on or ends with one clear line: no foreign exception, no hang."""

from __future__ import annotations

import signal
import warnings

import numpy as np
import pytest

from fedhlcr.datasets import make_hlcr
from fedhlcr.exceptions import FedHLCRError
from fedhlcr.federation.agent import Agent
from fedhlcr.federation.run import Checkpoints, run_round
from fedhlcr.storage import atomic, codec
from tests.federations import FIXED, OneByOneEngine, agents_of, in_process, one_cluster, server_for

TABLE, _ = make_hlcr(6, 2, 4, 3, 2, 0.3, random_state=1)
SHORT = {"seed": 3, "max_clusters": 4, "rounds": 8, "patience": None}
RUNS = {
    "plain": (TABLE, {**SHORT}, 5),
    "survey": (TABLE, {**SHORT, "participation": 0.2}, 1),
    "blend": (TABLE, {"seed": 3, "rule": "blend", "n_clusters": 3, "rounds": 8, **FIXED}, 4),
    "fixed point": (TABLE, {**SHORT, "fixed_point": True}, 4),
    "secure": (TABLE, {**SHORT, "aggregation": "secure", "min_cohort": 3}, 4),
    "secure survey": (TABLE, {**SHORT, "aggregation": "secure", "min_cohort": 3}, 1),
    "effects": (one_cluster(n_agents=6), {**SHORT, "rounds": 60, "effects": "entity+agent", "noise": "entity"}, 40),
    "curves": (TABLE, {**SHORT, "curves": (0, 1)}, 4),
    "curves in the survey": (TABLE, {**SHORT, "curves": (0, 1), "participation": 0.2}, 1),
    "student": (TABLE, {**SHORT, "noise": "student", "effects": "entity"}, 4),
}


def started(name):
    """A server with the settings of a run, and its agents."""
    table, settings, _ = RUNS[name]
    return server_for(table.X.shape[1], **settings), in_process(table, failure_rate=0.2, seed=9)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.fixture(scope="module")
def checkpoints(folder):
    """The records of every run's checkpoint: the server's and the agents'."""
    found = {}
    for name, (_, _, n_rounds) in RUNS.items():
        server, engine = started(name)
        for _ in range(n_rounds):
            run_round(server, engine)
        file = Checkpoints(folder / name.replace(" ", "_"))
        file.save(server, engine)
        whole = atomic.read_newest(file.path, "checkpoint", 1)
        kinds = {"server": "server", "agents": "agents"}
        found[name] = whole, {part: codec.decode(whole[part].tobytes(), kind, 1) for part, kind in kinds.items()}
    return found


NUMBERS = (np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-320, 1e160, 2.0**53, 0.5)
INTEGERS = (-1, 0, 1, 2, 5, 40, 255, 2**31, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
TEXTS = ("", "x", "gaussian", "logits", "\ud800", "a" * 1000)


def other_value(value, rng):
    """A value of any type."""
    shape = tuple(rng.integers(0, 4, size=rng.integers(0, 4)))
    choices = (
        bool(rng.integers(2)),
        int(rng.choice(INTEGERS)),
        float(rng.choice(NUMBERS)),
        str(rng.choice(TEXTS)),
        ["a", "b", "a"][: rng.integers(4)],
        np.zeros(shape, dtype=rng.choice(["f8", "i8", "i4", "u8", "u1", "b1"])),
        np.zeros((0, 2**40)),
        np.zeros((2**40, 0), dtype="i8"),
    )
    return choices[rng.integers(len(choices))]


def spoilt(value, rng):
    """A value of the same type, and an array of the same shape or nearly so, with other contents."""
    match value:
        case bool():
            return not value
        case int():
            return int(rng.choice(INTEGERS))
        case float():
            return float(rng.choice(NUMBERS))
        case str():
            return str(rng.choice(TEXTS))
        case list():
            return [value[::-1], value[:-1], [*value, "other"], [*value[:1], *value]][rng.integers(4)]
    array = value.copy()
    way = rng.integers(6)
    if not array.size or way == 0:
        return np.concatenate([array, array]) if array.ndim else array
    if way == 1:
        return array[:-1] if array.ndim else array
    flat = array.reshape(-1)
    for place in rng.integers(len(flat), size=len(flat) if way == 2 else rng.integers(1, 4)):
        if array.dtype.kind == "f":
            flat[place] = rng.choice(NUMBERS)
        elif array.dtype.kind == "b":
            flat[place] = not flat[place]
        else:
            bounds = np.iinfo(array.dtype)
            flat[place] = min(max(int(rng.choice(INTEGERS)), bounds.min), bounds.max)
    return array


def mutated(record, rng):
    """A record one of whose fields was removed, replaced or spoilt; and what was done."""
    record = dict(record)
    field = str(rng.choice(sorted(record)))
    way = rng.choice(["removed", "of another type", "spoilt", "spoilt", "spoilt", "exchanged"])
    if way == "removed":
        del record[field]
    elif way == "exchanged":
        record[field] = record[str(rng.choice(sorted(record)))]
    else:
        record[field] = (spoilt if way == "spoilt" else other_value)(record[field], rng)
    return record, f"{field} {way}"


def mutated_checkpoint(whole, parts, rng):
    """The bytes of a checkpoint one of whose parts is mutated."""
    part = "server" if rng.random() < 0.7 else "agents"
    record, what = mutated(parts[part], rng)
    data = codec.encode(part, 1, record)
    return codec.encode("checkpoint", 1, {**whole, part: np.frombuffer(data, dtype=np.uint8)}), f"{part} {what}"


class Hangs(Exception):  # noqa: N818
    """Reading has taken too long."""


def hang(*_):
    raise Hangs


def attempt(read):
    """Read, and use what was read; the message of the error if that is refused."""
    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, 20.0)
    try:
        # nonsense within bounds may overflow
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            read()
    except FedHLCRError as error:
        message = str(error)
    else:
        return None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert "\n" not in message
    assert len(message) < 500
    return message


def resumed(name, path, data):
    """What resumes a run from the bytes, and goes on with it for a round."""
    path.write_bytes(data)
    server, engine = started(name)

    def run_on():
        again = Checkpoints(path).resume(server.settings, engine)
        again.to_bytes()
        if not again.finished:
            run_round(again, engine)
        if again.has_draws:
            again.model().to_bytes()

    return run_on


def n_refused(checkpoints, folder, name, numbers):
    """How many mutated checkpoints are refused, after each has ended as it should."""
    count = 0
    for number in numbers:
        data, what = mutated_checkpoint(*checkpoints[name], np.random.default_rng([number, *name.encode()]))
        try:
            count = count + (attempt(resumed(name, folder / "mutated", data)) is not None)
        except Exception as error:
            raise AssertionError(f"{name}, mutation {number}: {what}") from error
    return count


@pytest.mark.parametrize("name", RUNS)
def test_intact_checkpoint_is_resumed(name, checkpoints, folder):
    whole, _ = checkpoints[name]
    assert attempt(resumed(name, folder / "intact", codec.encode("checkpoint", 1, whole))) is None


@pytest.mark.parametrize("name", RUNS)
def test_mutated_checkpoint_is_refused_clearly_or_resumed(name, checkpoints, folder):
    assert n_refused(checkpoints, folder, name, range(30)) > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_no_checkpoint_of_thousands_ends_badly(name, checkpoints, folder):
    assert n_refused(checkpoints, folder, name, range(1_000, 1_500)) > 100


AGENTS = {
    "plain": (TABLE, SHORT),
    "curves": (TABLE, {**SHORT, "curves": (0, 1)}),
    "effects": (RUNS["effects"][0], {**RUNS["effects"][1], "rounds": 30}),
}


@pytest.mark.parametrize("name", AGENTS)
def test_mutated_state_of_an_agent_is_refused_clearly_or_read(name, folder):
    table, settings = AGENTS[name]
    agents = agents_of(table)
    server, engine = server_for(table.X.shape[1], **settings), OneByOneEngine(agents)
    for _ in range(20):
        if not server.finished:
            run_round(server, engine)
    path = folder / "agent"
    agents[0].save(path)
    record = atomic.read_newest(path, "agent", 1)
    model = server.model()

    def use():
        agent = Agent.load(path)
        agent.to_record()
        agent.predict(model, table.X[:3], table.entity[:3])

    assert attempt(use) is None
    count = 0
    for number in range(60):
        mutant, what = mutated(record, np.random.default_rng([number, *name.encode()]))
        path.write_bytes(codec.encode("agent", 1, mutant))
        atomic.previous_of(path).unlink(missing_ok=True)
        try:
            count = count + (attempt(use) is not None)
        except Exception as error:
            raise AssertionError(f"{name}, mutation {number}: {what}") from error
    assert count > 15
