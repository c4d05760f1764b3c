"""Whatever is done to a model file, reading it gives a model that predicts or a clear error, and nothing else."""

from __future__ import annotations

import io
import json
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor
from fedhlcr.data.recipe import Recipe
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators import saving
from fedhlcr.exceptions import ModelFileError, StorageError
from fedhlcr.federation import Agent
from fedhlcr.posterior.public_model import MODEL_KIND, MODEL_VERSION, PublicModel
from fedhlcr.storage import codec, model_facts, pages
from fedhlcr.storage.codec import CodecError
from tests.problems import PAPER

TABLE, _ = make_hlcr(6, 2, 4, 3, 2, 0.3, random_state=1)
RECIPE = Recipe(
    "y", "store", "product", ("size", "color"), {"color": ["blue", "red", "10"]}, {"size": 1.5, "color": "red"}
)
MANY = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def models():
    X = np.column_stack([TABLE.X[:, :1], np.eye(3)[np.arange(len(TABLE.X)) % 3]])
    central = HLCRRegressor(effects="entity", n_sweeps=6, max_clusters=4).fit(
        X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity
    )
    central.feature_names_in_ = np.array(RECIPE.encoded_features, dtype=object)
    central.recipe_, central.agent_column_, central.entity_column_ = RECIPE, "store", "product"
    federated = FedHLCRRegressor(effects="entity+agent", rounds=3, max_clusters=4)
    federated.fit(TABLE.X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity)
    lone = HLCRRegressor(2, **PAPER, n_sweeps=3).fit(TABLE.X, TABLE.y)
    posterior = federated.posterior_
    flower = PublicModel(posterior.likelihood, posterior.standardization, posterior.draws, 3, ("a", "b", "c"))
    return {
        "central": saving.to_bytes(central),
        "federated": saving.to_bytes(federated),
        "one agent": saving.to_bytes(lone),
        "public": saving.to_bytes(central, public=True),
        "flower": flower.to_bytes(),
    }


FILES = models()
RECORDS = {
    name: codec.decode(data, MODEL_KIND, MODEL_VERSION)
    if name == "flower"
    else dict(pages.PagedRecord(bytearray(data), model_facts.KIND, model_facts.VERSION))
    for name, data in FILES.items()
}
NAMES = st.sampled_from(sorted(FILES))


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz") / "model"


def attempt(path, data):
    """Load it, and if it is a model, use it: kernels must not meet anything out of bounds."""
    path.write_bytes(data)
    try:
        model = fedhlcr.load(path)
    except ModelFileError as error:
        message = str(error)
    else:
        # nonsense within bounds may overflow, or divide by zero, on any thread
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            use(model)
        return None
    assert "\n" not in message
    assert len(message) < 500
    return message


def use(model):
    X = np.ones((7, model.n_features_in_))
    ids = {"agent": np.array([0, 1, 2, 3, 4, 5, 77]), "entity": np.arange(7)}
    model.feature_names_in_ = None
    del model.feature_names_in_
    model.agent_column_ = model.entity_column_ = None
    try:
        model.predict_interval(X, **ids)
        model.responsibilities(**ids)
        model.adapt(X, np.ones(7), **ids).predict(X, **ids)
        saving.to_bytes(model)
    except ZeroDivisionError:
        pass


def forged(name, record):
    if name == "flower":
        return codec.encode(MODEL_KIND, MODEL_VERSION, record)
    file = io.BytesIO()
    pages.write(file, model_facts.KIND, model_facts.VERSION, record)
    return file.getvalue()


@pytest.mark.parametrize("name", FILES)
def test_intact_file_is_loaded(name, path):
    assert attempt(path, FILES[name]) is None


@MANY
@given(NAMES, st.data())
def test_truncated_and_altered_files_are_refused(path, name, data):
    whole = FILES[name]
    cut = data.draw(st.integers(0, len(whole) - 1))
    altered = bytearray(whole)
    altered[cut] ^= data.draw(st.integers(1, 255))
    for damaged in (whole[:cut], bytes(altered), whole + b"\0", whole[cut:] if cut else b""):
        assert attempt(path, damaged) is not None


OTHER_VALUES = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=3),
    st.sampled_from(["<f8", "<i8", "|u1", "|b1"]).flatmap(
        lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6))
    ),
)


@MANY
@given(NAMES, st.data())
def test_wrong_types_and_shapes_never_crash(path, name, data):
    record = dict(RECORDS[name])
    field = data.draw(st.sampled_from(sorted(record)))
    record[field] = data.draw(OTHER_VALUES)
    attempt(path, forged(name, record))


@pytest.mark.parametrize("name", FILES)
def test_missing_fields_are_refused(name, path):
    # ids are seldom the numbers of rows, and a public model of the paper's likelihood does not name it; files of older
    # releases have no quantiles
    unused = {"facts", "private.entities_are_rows", "likelihood", "private.feature_quantiles"}
    for field in RECORDS[name]:
        record = {other: value for other, value in RECORDS[name].items() if other != field}
        refused = attempt(path, forged(name, record))
        assert refused is not None or field in unused, field


NUMBERS = st.one_of(
    st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -1.0, 1e308, -1e308, 1e-320, 1e160, 2.0**53]), st.floats()
)
INTEGERS = st.one_of(st.sampled_from([-1, 1, 255, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63)]), st.integers(-5, 300))


def spoilt(array, data):
    """An array with some values replaced, its type and shape kept."""
    array = np.array(array)
    flat = array.reshape(-1)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, len(flat) - 1))
        if array.dtype.kind == "f":
            # what is too large for the type becomes infinite
            with np.errstate(over="ignore"):
                flat[place] = data.draw(NUMBERS)
        elif array.dtype.kind == "b":
            flat[place] = not flat[place]
        else:
            bounds = np.iinfo(array.dtype)
            flat[place] = min(max(data.draw(INTEGERS), bounds.min), bounds.max)
    return array


@pytest.mark.slow
@settings(MANY, max_examples=300)
@given(NAMES, st.data())
def test_impossible_values_never_crash(path, name, data):
    record = dict(RECORDS[name])
    arrays = sorted(field for field, value in record.items() if isinstance(value, np.ndarray) and value.size)
    field = data.draw(st.sampled_from(arrays))
    record[field] = spoilt(record[field], data)
    attempt(path, forged(name, record))


def with_array(name, field, change):
    record = dict(RECORDS[name])
    record[field] = record[field].copy()
    change(record[field])
    return forged(name, record)


OUT_OF_BOUNDS = {
    "labels beyond the clusters": ("private.labels", lambda a: a.fill(200)),
    "an agent that is not there": ("private.agent_of", lambda a: a.__setitem__(-1, 99)),
    "a negative agent": ("private.agent_of", lambda a: a.__setitem__(0, -1)),
    "agents out of order": ("private.agent_of", lambda a: a.sort(), lambda a: a[::-1]),
    "an entity that is not there": ("private.entity_of", lambda a: a.__setitem__(0, 10**6)),
    "a pair twice": ("private.entity_of", lambda a: a.fill(0)),
    "clusters that stand for none": ("alignment", lambda a: a.fill(77)),
    "a negative cluster": ("alignment", lambda a: a.fill(-1)),
    "chains with gaps": ("draws.chain", lambda a: a.__setitem__(-1, 2)),
    "no number in the draws": ("draws.coef", lambda a: a.fill(np.nan)),
    "no noise": ("draws.noise_scale", lambda a: a.fill(0.0)),
    "negative scales": ("standardization.scale", lambda a: a.fill(-1.0)),
    "a target without scale": ("standardization.scale", lambda a: a.__setitem__(-1, np.inf)),
    "a feature of next to no scale": ("standardization.scale", lambda a: a.__setitem__(0, 1e-308)),
    "weights beyond one": ("draws.log_weights", lambda a: a.fill(0.0)),
    "no weight at all": ("draws.log_weights", lambda a: a.fill(-np.inf)),
    "matrices without events": ("private.grams", lambda a: a.fill(0.0)),
    "negative squares": ("private.grams", lambda a: a.__setitem__((0, 2), -1.0)),
}


@pytest.mark.parametrize("case", OUT_OF_BOUNDS)
def test_values_that_would_crash_kernels_are_refused(case, path):
    field, *changes = OUT_OF_BOUNDS[case]

    def change(array):
        for each in changes:
            out = each(array)
            if out is not None:
                array[:] = out.copy()

    assert "is not valid" in attempt(path, with_array("central", field, change))


def with_about(name, **changes):
    about = json.loads(RECORDS[name]["about"]) | changes
    return forged(name, RECORDS[name] | {"about": json.dumps(about)})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted(json.loads(RECORDS["central"]["about"]))


@settings(MANY, max_examples=200)
@given(st.sampled_from(["central", "federated", "public"]), st.sampled_from(KEYS), JSON)
def test_about_with_any_value_never_crashes(path, name, key, value):
    attempt(path, with_about(name, **{key: value}))


# files of earlier releases have neither a comparison nor the name of a likelihood
@pytest.mark.parametrize("key", [key for key in KEYS if key not in ("comparison", "likelihood")])
def test_missing_entries_of_about_are_refused(key, path):
    about = json.loads(RECORDS["central"]["about"])
    del about[key]
    assert attempt(path, forged("central", RECORDS["central"] | {"about": json.dumps(about)})) is not None


RECIPE_KEYS = sorted(RECIPE.to_json())


@MANY
@given(st.sampled_from(RECIPE_KEYS), JSON)
def test_recipe_with_any_value_never_crashes(path, key, value):
    attempt(path, with_about("central", recipe=RECIPE.to_json() | {key: value}))


BAD_RECIPES = {
    "levels twice": {"categorical": {"color": ["blue", "red", "red"]}},
    "no levels": {"categorical": {"color": []}},
    "levels that are no texts": {"categorical": {"color": ["blue", "red", 10]}},
    "levels of no feature": {"categorical": {"color": ["blue", "red", "10"], "shape": ["round"]}},
    "features that are a text": {"features": "ab"},
    "features twice": {"features": ["size", "size", "color"]},
    "a target among the features": {"target": "size"},
    "an id among the features": {"entity": "color"},
    "a fill that is no level": {"fill": {"color": "green"}},
    "a fill that is no number": {"fill": {"size": float("nan")}},
    "an infinite fill": {"fill": {"size": float("inf")}},
    "a fill that is a text": {"fill": {"size": "1"}},
    "an unknown policy": {"missing": "guess"},
    "a policy of another kind": {"missing": ["drop"]},
    "more than a recipe has": {"command": "rm -rf"},
    "no target": {"target": None},
    "other features": {"features": ["color", "size"]},
}


@pytest.mark.parametrize("case", BAD_RECIPES)
def test_impossible_recipes_are_refused(case, path):
    assert attempt(path, with_about("central", recipe=RECIPE.to_json() | BAD_RECIPES[case])) is not None


SETTINGS = json.loads(RECORDS["federated"]["about"])["settings"]
BAD_FACTS = {
    "an estimator that is a command": {"estimator": "os.system"},
    "another estimator": {"estimator": "HLCRRegressor"},
    "an unknown setting": {"settings": SETTINGS | {"__class__": "Server"}},
    "an illegal setting": {"settings": SETTINGS | {"n_draws": -1}},
    "a place to write to": {"settings": SETTINGS | {"checkpoint": "/tmp/anywhere"}},
    "a million threads": {"settings": SETTINGS | {"n_threads": 10**6}},
    "a seed of its own": {"settings": SETTINGS | {"random_state": 3}},
    "limits that are none": {"settings": SETTINGS | {"limits": {"max_events": "many"}}},
    "unknown limits": {"settings": SETTINGS | {"limits": {"max_everything": 1.0}}},
    "a seed that is no number": {"seed": True},
    "a seed out of range": {"seed": 10**40},
    "too many clusters": {"n_clusters": 10**9},
    "no clusters": {"n_clusters": 0},
    "clusters that are a truth": {"n_clusters": True},
    "names that are no texts": {"feature_names": [1, 2, 3]},
    "too few names": {"feature_names": ["a"]},
    "diagnostics that are texts": {"diagnostics": ["abc"]},
    "diagnostics too short": {"diagnostics": [["log joint", 1.0]]},
    "diagnostics without numbers": {"diagnostics": [["log joint", "1.0", None]]},
    "provenance with depth": {"provenance": {"data": [[1]]}},
}


@pytest.mark.parametrize("case", BAD_FACTS)
def test_impossible_entries_of_about_are_refused(case, path):
    assert attempt(path, with_about("federated", **BAD_FACTS[case])) is not None


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "1" * 10_000, "", "null", "[]", "{}", "NaN", "{", '"about"', " " * 1_000_000],
    ids=lambda text: text[:6],
)
def test_about_must_be_a_json_object(text, path):
    assert attempt(path, forged("central", RECORDS["central"] | {"about": text})) is not None


def test_model_with_too_many_clusters_is_refused(path):
    """A few bytes must not claim gigabytes."""
    n_clusters = 200_000
    record = dict(RECORDS["flower"])
    record |= {f"draws.{name}": np.zeros((1, n_clusters)) for name in ("log_weights", "entity_counts")}
    record["draws.log_weights"] -= np.log(n_clusters)
    record["draws.coef"] = np.zeros((1, n_clusters, 4))
    for field in ("noise_scale", "global_concentration", "agent_concentration", "log_joint", "chain"):
        record[f"draws.{field}"] = RECORDS["flower"][f"draws.{field}"][:1]
    for field in ("coef_mean", "coef_scale"):
        record[f"draws.{field}"] = RECORDS["flower"][f"draws.{field}"][:1]
    assert "draws" in attempt(path, forged("flower", record))


AGENT = Agent("a", TABLE.X[:60], TABLE.y[:60], TABLE.entity[:60])


def attempt_at_an_agent(path, data):
    """The same for an agent, which is handed a public model by a server it need not trust."""
    path.write_bytes(data)
    errors = []
    for read, argument in ((PublicModel.from_bytes, data), (PublicModel.load, path)):
        try:
            model = read(argument)
        except (CodecError, StorageError) as error:
            errors.append(str(error))
        else:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                AGENT.predict(model, TABLE.X[:7], TABLE.entity[:7])
    assert len(errors) in (0, 2), "bytes and file are judged alike"
    return errors[0] if errors else None


def test_agent_predicts_with_intact_model(path):
    assert attempt_at_an_agent(path, FILES["flower"]) is None


@MANY
@given(st.data())
def test_agent_refuses_truncated_and_altered_models(path, data):
    whole = FILES["flower"]
    cut = data.draw(st.integers(0, len(whole) - 1))
    altered = bytearray(whole)
    altered[cut] ^= data.draw(st.integers(1, 255))
    for damaged in (whole[:cut], bytes(altered), whole + b"\0"):
        assert attempt_at_an_agent(path, damaged) is not None


@MANY
@given(st.data())
def test_agent_never_crashes_on_wrong_types_and_shapes(path, data):
    record = dict(RECORDS["flower"])
    record[data.draw(st.sampled_from(sorted(record)))] = data.draw(OTHER_VALUES)
    attempt_at_an_agent(path, forged("flower", record))


@MANY
@given(st.data())
def test_agent_never_crashes_on_impossible_values(path, data):
    record = dict(RECORDS["flower"])
    field = data.draw(st.sampled_from(sorted(name for name, value in record.items() if isinstance(value, np.ndarray))))
    record[field] = spoilt(record[field], data)
    attempt_at_an_agent(path, forged("flower", record))


def n_draws():
    return len(RECORDS["flower"]["draws.noise_scale"])


FORGED = {
    "more weights than coefficients": ("draws.log_weights", lambda a: np.full((n_draws(), 4000), -np.log(4000.0))),
    "fewer coefficients than features": ("draws.coef", lambda a: a[..., :-1].copy()),
    "coefficients of other draws": ("draws.coef", lambda a: a[:-1]),
    "counts of other clusters": ("draws.entity_counts", lambda a: a[:, :-1].copy()),
    "whole numbers for coefficients": ("draws.coef", lambda a: a.astype(np.int64)),
    "no number among the coefficients": ("draws.coef", lambda a: np.where(a == a[0, 0, 0], np.nan, a)),
    "infinite coefficients": ("draws.coef", lambda a: a + np.inf),
    "weights that are no number": ("draws.log_weights", lambda a: a * np.nan),
    "negative noise": ("draws.noise_scale", lambda a: -a),
    "no concentration": ("draws.agent_concentration", lambda a: 0.0 * a),
    "units of other features": ("scale", lambda a: a[1:]),
    "other features": ("n_features", lambda n: n + 1),
    "names of other features": ("features", lambda names: names[:-1]),
    "a seed that is a text": ("seed", str),
    "an intercept that is a number": ("fit_intercept", int),
}


@pytest.mark.parametrize("case", FORGED)
def test_agent_refuses_inconsistent_models(case, path):
    field, change = FORGED[case]
    record = RECORDS["flower"] | {field: change(RECORDS["flower"][field])}
    told = attempt_at_an_agent(path, forged("flower", record))
    assert "the model is not valid" in told
    assert told == attempt(path, forged("flower", record)).partition(": ")[2], "one reader for one format"


def test_agent_refuses_model_of_other_features():
    model = PublicModel.from_bytes(FILES["flower"])
    narrow = Agent("a", TABLE.X[:60, :1], TABLE.y[:60], TABLE.entity[:60])
    with pytest.raises(ValueError, match="the model has 3 features, but the agents here have 1"):
        narrow.predict(model, TABLE.X[:7])
    with pytest.raises(ValueError, match="`X` has 1 column, but the model has 3 features"):
        AGENT.predict(model, TABLE.X[:7, :1])
