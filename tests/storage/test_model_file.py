"""A loaded model equals the saved one; a public file holds nothing of agents; other files are refused in one line."""

from __future__ import annotations

import datetime
import errno
import os
import pickle
import stat
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import fedhlcr
from fedhlcr import NEW, FedHLCRRegressor, HLCRRegressor, plot
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators import loading, saving
from fedhlcr.exceptions import ModelFileError
from fedhlcr.federation.checks import ReplyLimits
from fedhlcr.posterior import PublicModel
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.storage import codec, model_facts, model_file, pages

QUICK = {"n_sweeps": 16, "max_clusters": 8}
TABLE, _ = make_hlcr(10, 3, 5, 2, 2, 0.3, random_state=1)
FIXED = {"noise_scale": 0.3, "coef_scale": 1.0, "global_concentration": 1.0, "agent_concentration": 2.0}


def fitted(estimator=HLCRRegressor, *, X=TABLE.X, agent=TABLE.agent, entity=TABLE.entity, **settings):
    settings = (QUICK if estimator is HLCRRegressor else {"rounds": 8, "max_clusters": 8}) | settings
    return estimator(**settings).fit(X, TABLE.y, agent=agent, entity=entity)


def through_a_file(model, folder, **how):
    model.save(folder / "model.fedhlcr", **how)
    return fedhlcr.load(folder / "model.fedhlcr")


def assert_same(a, b):
    """Everything that was fitted, to the last bit."""
    assert type(a) is type(b)
    if isinstance(a, np.ndarray) and a.dtype != object and a.dtype.names is None:
        assert (a.dtype, a.shape, a.tobytes()) == (b.dtype, b.shape, b.tobytes())
    elif isinstance(a, np.ndarray) and a.dtype.names is not None:
        assert a.dtype == b.dtype
        for name in a.dtype.names:
            assert_same(
                list(a[name]) if a.dtype[name].hasobject else np.ascontiguousarray(a[name]),
                list(b[name]) if a.dtype[name].hasobject else np.ascontiguousarray(b[name]),
            )
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for left, right in zip(a, b, strict=True):
            assert_same(left, right)
    elif isinstance(a, float):
        assert np.float64(a).tobytes() == np.float64(b).tobytes()
    else:
        np.testing.assert_array_equal(a, b)


FITTED = (
    *("coef_", "intercept_", "cluster_weights_", "agent_weights_", "labels_", "noise_scale_", "coef_mean_"),
    *("coef_scale_", "global_concentration_", "agent_concentration_", "n_clusters_", "diagnostics_", "seed_"),
    *("n_features_in_", "agent_column_", "entity_column_", "feature_means_", "feature_spreads_"),
)
IDS = ("agent_ids_", "pair_ids_", "feature_quantiles_")
ALSO = ("trace_", "history_", "stop_reason_", "n_rounds_", "feature_names_in_")


def assert_same_model(model, loaded, X=TABLE.X, agent=TABLE.agent, entity=TABLE.entity, *, ids=True):
    assert type(loaded) is type(model)
    for name in FITTED + (IDS if ids else ()):
        assert_same(getattr(model, name), getattr(loaded, name))
    for name in ALSO:
        assert hasattr(model, name) == hasattr(loaded, name), name
        if hasattr(model, name) and (ids or name != "history_"):
            assert_same(getattr(model, name), getattr(loaded, name))
    for who in ({"agent": NEW}, {"agent": agent, "entity": NEW}, {"agent": agent, "entity": entity}):
        assert_same(
            tuple(model.predict_moments(X, **who, levels=(0.05, 0.5))),
            tuple(loaded.predict_moments(X, **who, levels=(0.05, 0.5))),
        )
    assert_same(model.predict_interval(X, agent=NEW), loaded.predict_interval(X, agent=NEW))
    assert str(model.summary()) == str(loaded.summary())


def assert_same_after_adapting(model, loaded, X=TABLE.X, agent=TABLE.agent, entity=TABLE.entity):
    adapted = [each.adapt(X[:30], TABLE.y[:30], agent=agent, entity=entity) for each in (model, loaded)]
    assert_same(*(each.predict(X, agent=TABLE.agent, entity=TABLE.entity) for each in adapted))


CENTRAL = {
    "auto": {},
    "given": {"n_clusters": 3},
    "two chains": {"n_chains": 2, "n_sweeps": 24},
    "no intercept": {"fit_intercept": False},
    "raw units": {"standardize": False},
    "numpy settings": {"n_clusters": np.int64(2), "fit_intercept": np.bool_(True), "noise_scale": np.float32(0.5)},
    "one draw": {"n_sweeps": 1},
    "collapsed": {"sampler": "collapsed", "label_prior": "paper", "n_clusters": 2},
    "all given": {"n_clusters": 2, **FIXED},
    "many clusters": {"n_clusters": 300, "n_sweeps": 4},
}


@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", CENTRAL)
def test_loaded_model_equals_saved_model(name, tmp_path):
    model = fitted(**CENTRAL[name])
    loaded = through_a_file(model, tmp_path)
    assert_same_model(model, loaded)
    ids = {"agent": TABLE.agent[:5], "entity": TABLE.entity[:5]}
    assert_same(model.responsibilities(**ids), loaded.responsibilities(**ids))
    own, read = (
        each.adapt(TABLE.X[:30], TABLE.y[:30], TABLE.agent[:30], TABLE.entity[:30]) for each in (model, loaded)
    )
    assert_same_model(own, read)
    assert_same_model(own, through_a_file(own, tmp_path))


FEDERATED = {
    "delta": {"participation": 0.5, "failure_rate": 0.2},
    "blend": {"rule": "blend", "n_clusters": 3, **FIXED},
    "limits": {"limits": ReplyLimits(max_events=1e5), "patience": None},
    "no intercept": {"fit_intercept": False, "standardize": False, "n_clusters": 2},
}


@pytest.mark.parametrize("name", FEDERATED)
def test_loaded_federation_equals_saved_federation(name, tmp_path):
    checkpoint = tmp_path / "run"
    model = fitted(FedHLCRRegressor, checkpoint=checkpoint, **FEDERATED[name])
    loaded = through_a_file(model, tmp_path)
    assert_same_model(model, loaded)
    assert loaded.checkpoint is None, "where a run was saved is no part of the model"
    assert loaded.limits == model.limits
    assert_same_model(model, through_a_file(loaded, tmp_path))


def test_validation_errors_are_saved(tmp_path):
    model = FedHLCRRegressor(rounds=4, max_clusters=8).fit(
        TABLE.X, TABLE.y, TABLE.agent, TABLE.entity, validation=(TABLE.X, TABLE.y, TABLE.agent, TABLE.entity)
    )
    assert np.isfinite(model.history_["validation_mse"][-1])
    assert_same_model(model, through_a_file(model, tmp_path))


def day(number):
    return datetime.date(2024, 1, 1) + datetime.timedelta(days=int(number))


def objects(values):
    out = np.empty(len(values), dtype=object)
    for place, value in enumerate(values):
        out[place] = value
    return out


ID_KINDS = {
    "int": lambda n: int(n) - 5,
    "large int": lambda n: 2**62 + int(n),
    "huge int": lambda n: 2**70 + int(n),
    "text": lambda n: f"store {n}",
    "numbers as text": lambda n: f"{n:03d}",
    "float": lambda n: n + 0.5,
    "date": day,
    "moment": lambda n: np.datetime64("2024-01-01T12:00") + np.timedelta64(int(n), "m"),
    "mixed": lambda n: (int(n), f"a{n}", n + 0.25, day(n))[n % 4],
    "tuple": lambda n: ("north", int(n)),
    "bytes": lambda n: b"\xff" + bytes([int(n)]),
    "odd text": lambda n: f"\0\x1b[31m ü \u2028 \ud800 {n}",
    "like numbers": lambda n: (1, True, "1.0")[n] if n < 3 else int(n),
}


@pytest.mark.parametrize("kind", ID_KINDS)
def test_ids_of_any_type_survive_saving(kind, tmp_path):
    agent = objects([ID_KINDS[kind](n) for n in TABLE.agent])
    entity = objects([ID_KINDS[kind](n) for n in TABLE.entity])
    model = fitted(agent=agent, entity=entity)
    loaded = through_a_file(model, tmp_path)
    # numbers and texts come back as they were, others as texts
    same = kind in ("int", "large int", "text", "numbers as text", "odd text")
    assert_same_model(model, loaded, agent=agent, entity=entity, ids=same)
    assert_same_after_adapting(model, loaded, agent=agent[:30], entity=entity[:30])
    federated = fitted(FedHLCRRegressor, agent=agent, entity=entity, rounds=3, participation=0.5)
    loaded = through_a_file(federated, tmp_path)
    for own, read in zip(federated.history_["participants"], loaded.history_["participants"], strict=True):
        assert len(own) == len(read)
        assert_same(federated.responsibilities(agent=own), loaded.responsibilities(agent=read))


@pytest.mark.parametrize("ids", [{"agent": None}, {"entity": None}, {"agent": None, "entity": None}])
def test_models_without_agents_or_entities(ids, tmp_path):
    model = fitted(**ids)
    loaded = through_a_file(model, tmp_path)
    assert_same_model(model, loaded, **ids)
    public = through_a_file(model, tmp_path, public=True)
    everyone = {"agent": ids.get("agent", TABLE.agent), "entity": TABLE.entity}
    for each in (model, loaded, public):
        each.adapt(TABLE.X, TABLE.y, **everyone).predict(TABLE.X, **everyone)


def test_sole_agent_survives_saving(tmp_path):
    """After other agents came, too."""
    model = fitted(agent=np.full(len(TABLE.y), "the only one"))
    grown = model.adapt(TABLE.X[:9], TABLE.y[:9], agent=["another"] * 9, entity=TABLE.entity[:9])
    loaded = through_a_file(grown, tmp_path)
    assert_same(grown.predict(TABLE.X, entity=TABLE.entity), loaded.predict(TABLE.X, entity=TABLE.entity))
    assert b"the only one" not in saving.to_bytes(grown, public=True)
    public = through_a_file(grown, tmp_path, public=True)
    assert_same(public.predict(TABLE.X), grown.predict(TABLE.X, agent=["nobody"] * len(TABLE.X)))


def test_column_names_survive_saving(tmp_path):
    names = ["größe \u2028", "\x1b[31mred\n\0"]
    frame = pd.DataFrame(TABLE.X, columns=names).assign(store=TABLE.agent, product=TABLE.entity)
    model = fitted(X=frame, agent="store", entity="product")
    loaded = through_a_file(model, tmp_path)
    assert loaded.feature_names_in_.tolist() == names
    assert (loaded.agent_column_, loaded.entity_column_) == ("store", "product")
    assert_same(model.predict(frame), loaded.predict(frame))
    with pytest.raises(ValueError, match=r"'X' has no column"):
        loaded.predict(frame.rename(columns={names[0]: "size"}))


@pytest.mark.parametrize("case", ["constant feature", "constant target", "no noise", "one event"])
def test_degenerate_tables(case, tmp_path):
    X, y, agent, entity = TABLE.X.copy(), TABLE.y, TABLE.agent, TABLE.entity
    match case:
        case "constant feature":
            X[:, 1] = 3.0
        case "constant target":
            y = np.full_like(y, 0.1)
        case "no noise":
            y = X @ np.array([1.0, -2.0])
        case "one event":
            X, y, agent, entity = X[:1], y[:1], agent[:1], entity[:1]
    model = HLCRRegressor(**QUICK).fit(X, y, agent=agent, entity=entity)
    assert case != "constant feature" or np.isinf(model.posterior_.standardization.scale[1])
    assert_same_model(model, through_a_file(model, tmp_path), X, agent, entity)


def test_sample_weights_below_one_survive_saving(tmp_path):
    model = HLCRRegressor(**QUICK).fit(TABLE.X, TABLE.y, TABLE.agent, TABLE.entity, np.linspace(0, 1e-3, len(TABLE.y)))
    assert_same_model(model, through_a_file(model, tmp_path))


def test_settings_survive_except_those_of_the_machine(tmp_path):
    model = fitted(n_threads=1, verbose=False, random_state=np.random.RandomState(3), n_draws=7, coef_prior="zero_mean")
    loaded = through_a_file(model, tmp_path)
    changed = {"n_threads": None, "random_state": model.seed_}
    assert loaded.get_params() == model.get_params() | changed
    assert clone(loaded).get_params() == loaded.get_params()
    again = clone(loaded).fit(TABLE.X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity)
    assert_same(again.coef_, model.coef_)


def test_a_loaded_model_can_be_plotted_copied_and_pickled(tmp_path):
    loaded = through_a_file(fitted(), tmp_path)
    plot.traces(loaded)
    assert_same(pickle.loads(pickle.dumps(loaded)).predict(TABLE.X, agent=NEW), loaded.predict(TABLE.X, agent=NEW))
    federated = through_a_file(fitted(FedHLCRRegressor), tmp_path)
    plot.traces(federated)


def test_saving_again_writes_the_same_bytes(tmp_path):
    for model in (fitted(), fitted(FedHLCRRegressor)):
        model.provenance_ = model_file.provenance_of(model) | {"data": "events.csv"}
        model.random_state = model.seed_
        data = saving.to_bytes(model)
        assert saving.to_bytes(loading.from_bytes(data)) == data
        public = saving.to_bytes(model, public=True)
        assert saving.to_bytes(loading.from_bytes(public)) == public
        assert saving.to_bytes(loading.from_bytes(data), public=True) == public


def test_files_hold_their_provenance(tmp_path):
    model = fitted()
    model.provenance_ = {"data": "secret.csv", "command": "fedhlcr fit secret.csv"}
    loaded = through_a_file(model, tmp_path)
    assert {"fedhlcr", "python", "numpy", "created", "data", "command"} == set(loaded.provenance_)
    assert loaded.provenance_["fedhlcr"] == fedhlcr.__version__
    assert through_a_file(loaded, tmp_path).provenance_ == loaded.provenance_, "not when it was written again"
    assert b"secret" not in saving.to_bytes(model, public=True)


def test_unfitted_models_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        HLCRRegressor().save(tmp_path / "model")
    assert not list(tmp_path.iterdir())


def named_fit(estimator=HLCRRegressor, n_agents=10, **settings):
    rows = TABLE.agent < n_agents
    agent = np.array([f"hospital-{n}" for n in TABLE.agent[rows]], dtype=object)
    entity = np.array([f"patient-{n}" for n in TABLE.entity[rows]], dtype=object)
    settings = (QUICK if estimator is HLCRRegressor else {"rounds": 8, "patience": None}) | settings
    return estimator(n_clusters=2, **settings).fit(TABLE.X[rows], TABLE.y[rows], agent=agent, entity=entity)


@pytest.mark.parametrize("estimator", [HLCRRegressor, FedHLCRRegressor])
def test_a_public_file_holds_nothing_of_any_agent(estimator):
    model = named_fit(estimator)
    data, whole = saving.to_bytes(model, public=True), saving.to_bytes(model)
    private = [b"hospital", b"patient", b"private"]
    memory = model.posterior_.memory
    private += [gram.tobytes() for gram in memory.entities.grams]
    private += [np.float64(value).tobytes() for value in np.unique(memory.entities.grams) if value != np.round(value)]
    private += [labels.tobytes() for labels in memory.labels]
    for secret in private:
        assert secret in whole
        assert secret not in data
    few, many = (public_record(named_fit(estimator, n)) for n in (4, 10))
    assert list(few) == list(many)
    for name, value in few.items():
        if isinstance(value, str):
            # numbers in texts have more or fewer digits
            assert abs(len(value) - len(many[name])) < 100, name
        else:
            assert np.shape(value) == np.shape(many[name]), "a size that depends on the number of agents"


def public_record(model):
    data = bytearray(saving.to_bytes(model, public=True))
    return dict(pages.PagedRecord(data, model_facts.KIND, model_facts.VERSION))


@pytest.mark.parametrize("estimator", [HLCRRegressor, FedHLCRRegressor])
def test_a_public_model_predicts_for_new_agents(estimator, tmp_path):
    model = named_fit(estimator)
    public = through_a_file(model, tmp_path, public=True)
    assert len(public.agent_ids_) == len(public.pair_ids_) == len(public.labels_) == 0
    for who in ({}, {"agent": ["hospital-1"] * len(TABLE.X), "entity": ["patient-1"] * len(TABLE.X)}):
        # known to the whole model, not to this
        own = tuple(model.predict_moments(TABLE.X, NEW, levels=(0.1, 0.9)))
        assert_same(own, tuple(public.predict_moments(TABLE.X, **who, levels=(0.1, 0.9))))
    assert_same(public.responsibilities("hospital-1", "patient-1"), model.responsibilities("nobody", "patient-1"))
    assert_same(public.coef_, model.coef_)
    assert_same(public.diagnostics_, model.diagnostics_)
    assert "Regressor" in repr(public)
    assert clone(public).get_params() == public.get_params()


def test_public_model_adapts_to_agents_by_their_events(tmp_path):
    table, _ = make_hlcr(12, 4, 10, 2, 2, 0.3, random_state=3)
    model = HLCRRegressor(2, n_sweeps=100).fit(table.X, table.y, agent=table.agent, entity=table.entity)
    public = through_a_file(model, tmp_path, public=True)
    adapted = public.adapt(table.X, table.y, agent=table.agent, entity=table.entity)
    who = {"agent": table.agent, "entity": table.entity}
    apart = np.sqrt(np.mean((model.predict(table.X, **who) - adapted.predict(table.X, **who)) ** 2))
    assert apart < 0.05 * model.noise_scale_
    np.testing.assert_allclose(adapted.agent_weights_, model.agent_weights_, atol=0.05)
    assert_same_model(adapted, through_a_file(adapted, tmp_path), table.X, **who)
    assert saving.to_bytes(adapted, public=True) == saving.to_bytes(public, public=True), "and tells of none"


@pytest.mark.parametrize("estimator", [HLCRRegressor, FedHLCRRegressor])
def test_public_model_has_a_summary(estimator, tmp_path):
    public = through_a_file(named_fit(estimator), tmp_path, public=True)
    assert "nan" not in str(public.summary())


def public_of_a_server(model, **more):
    posterior = model.posterior_
    return PublicModel(posterior.likelihood, posterior.standardization, posterior.draws, model.seed_, **more)


@pytest.mark.parametrize("names", [(), ("a", "b")])
def test_public_model_of_a_flower_server_can_be_loaded(names, tmp_path):
    model = fitted(FedHLCRRegressor)
    public_of_a_server(model, features=names).save(tmp_path / "model")
    loaded = fedhlcr.load(tmp_path / "model")
    assert isinstance(loaded, FedHLCRRegressor)
    X = pd.DataFrame(TABLE.X, columns=names) if names else TABLE.X
    assert_same(loaded.predict(X), model.predict(TABLE.X, agent=NEW))
    assert loaded.n_clusters_ == model.n_clusters_
    np.testing.assert_allclose(np.sort(loaded.coef_, axis=0), np.sort(model.coef_, axis=0))
    adapted = loaded.adapt(X, TABLE.y, agent=TABLE.agent, entity=TABLE.entity)
    for each in (loaded, adapted):
        again = through_a_file(each, tmp_path)
        assert_same(again.predict(X, agent=TABLE.agent, entity=NEW), each.predict(X, agent=TABLE.agent, entity=NEW))
        assert_same(again.coef_, each.coef_)


def reason(path):
    with pytest.raises(ModelFileError) as caught:
        fedhlcr.load(path)
    message = str(caught.value)
    assert "\n" not in message
    assert os.path.basename(path) in message
    assert str(os.path.dirname(path)) not in message
    assert caught.value.__cause__ is None
    return message


class Bomb:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_other_files_are_refused_and_never_executed(tmp_path):
    path, crater = tmp_path / "model.fedhlcr", tmp_path / "crater"
    for data in (pickle.dumps(Bomb(crater)), b"", b"fedhlcr", b"x", b"PK\x03\x04", b"\x89PNG", bytes(1000)):
        path.write_bytes(data)
        assert "empty" in reason(path) if not data else "not a fedhlcr file" in reason(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model", pickle.dumps(Bomb(crater)))
    assert "not a fedhlcr file" in reason(path)
    assert not crater.exists()


def test_folders_and_missing_files_are_named(tmp_path):
    assert "folder" in reason(tmp_path)
    assert "does not exist" in reason(tmp_path / "absent")
    assert "does not exist" in reason(tmp_path / ("long" * 100)) or "too long" in reason(tmp_path / ("long" * 100))
    assert "device" in reason("/dev/zero")
    assert "device" in reason("/dev/null")
    os.mkfifo(tmp_path / "pipe")
    assert "device" in reason(tmp_path / "pipe")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_file_is_named(tmp_path):
    path = tmp_path / "model"
    path.write_bytes(b"fedhlcr\0")
    path.chmod(0)
    assert "Permission denied" in reason(path)


def test_file_of_a_later_release_asks_to_upgrade(tmp_path):
    path, data = tmp_path / "model", saving.to_bytes(fitted())
    record = model_file.to_record(check_model(fitted()))
    for kind, version, told in (
        (model_facts.KIND, model_facts.VERSION + 1, "upgrade fedhlcr"),
        ("checkpoint", 1, "'checkpoint'"),
    ):
        path.write_bytes(codec.encode(kind, version, record))
        assert told in reason(path)
        with path.open("wb") as file:
            pages.write(file, kind, version, record)
        assert told in reason(path)
    path.write_bytes(data[:8] + (pages.FORMAT + 1).to_bytes(2, "little") + data[10:])
    assert "upgrade fedhlcr" in reason(path)


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("call", ["fsync", "replace", "open"])
def test_full_disk_leaves_the_old_file_and_no_other(call, tmp_path, monkeypatch):
    path, model = tmp_path / "model", fitted()
    model.save(path)
    before = path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(OSError, match=r"No space left on device: .*model'") as caught:
            model.save(path, public=True)
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["model"]


@pytest.fixture
def tiny_disk(tmp_path):
    """64 kB of it."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", place], check=True)


def test_really_full_disk(tiny_disk):
    path, model = tiny_disk / "model", fitted()
    model.save(path, public=True)
    before = path.read_bytes()
    large = fitted(n_clusters=64, n_sweeps=60)
    with pytest.raises(OSError, match="No space left"):
        large.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tiny_disk.iterdir()] == ["model"]


def test_models_get_the_permissions_of_other_files(tmp_path):
    model = fitted()
    before = os.umask(0o022)
    try:
        for mask, mode in ((0o022, 0o644), (0o077, 0o600)):
            os.umask(mask)
            for public in (False, True):
                path = tmp_path / f"{mode}-{public}"
                model.save(path, public=public)
                assert stat.S_IMODE(path.stat().st_mode) == mode
    finally:
        os.umask(before)


def test_unwritable_path_is_named_as_the_user_gave_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = HLCRRegressor(1, n_sweeps=2).fit(np.arange(6.0)[:, None], np.arange(6.0))
    Path("afile").write_text("")
    with pytest.raises(NotADirectoryError) as told:
        model.save("afile/model")
    assert told.value.filename == "afile/model"
    with pytest.raises(FileNotFoundError) as told:
        model.save("nowhere/model")
    assert told.value.filename == "nowhere/model"
    assert [path.name for path in tmp_path.iterdir()] == ["afile"]


def test_models_can_be_saved_to_links_and_long_names(tmp_path):
    model = fitted()
    long = tmp_path / ("ü" * 127)
    model.save(long)
    fedhlcr.load(str(long))
    (tmp_path / "link").symlink_to(tmp_path / "target")
    model.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    fedhlcr.load(tmp_path / "link")
    for wrong in (tmp_path, tmp_path / "absent" / "model", long / "model"):
        with pytest.raises(OSError, match=str(wrong.name)):
            model.save(wrong)
    model.save("/dev/null")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link", "target", long.name]
