"""HLCRRegressor as a user meets it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score

from fedhlcr import (
    NEW,
    ConvergenceWarning,
    FitInterruptedWarning,
    HLCRRegressor,
    describe_clusters,
    hold_out_events,
    load,
)
from fedhlcr.datasets import make_hlcr
from fedhlcr.samplers import blocked, chain
from tests.problems import PAPER


@pytest.fixture(scope="module")
def split(small):
    table, truth = small
    train, test = hold_out_events(table.agent, table.entity)
    return table[train], table[test], truth


@pytest.fixture(scope="module")
def model(split):
    train, _, _ = split
    return HLCRRegressor().fit(train.X, train.y, agent=train.agent, entity=train.entity)


def ids(table):
    return {"agent": table.agent, "entity": table.entity}


def mse(a, b):
    return ((a - b) ** 2).mean()


def test_recovers_the_truth(model, split):
    *_, truth = split
    assert model.n_clusters_ == len(np.unique(truth.labels))
    assert adjusted_rand_score(truth.labels, model.labels_) > 0.9
    # the true coefficients in the order of the reported clusters
    matched = [np.bincount(truth.labels[model.labels_ == k]).argmax() for k in range(model.n_clusters_)]
    np.testing.assert_allclose(model.coef_, truth.coef[matched], atol=0.15)
    np.testing.assert_allclose(model.intercept_, truth.intercept[matched], atol=0.15)
    assert model.noise_scale_ == pytest.approx(0.3, rel=0.1)


def test_predicts_known_entities_near_the_oracle(model, split):
    _, test, truth = split
    assert mse(model.predict(test.X, **ids(test)), test.y) < 1.5 * truth.noise_scale**2


def test_fitted_attributes_fit_together(model, split):
    train, *_ = split
    n_agents, n_entities = len(np.unique(train.agent)), len(model.labels_)
    assert model.coef_.shape == (model.n_clusters_, 3)
    assert model.intercept_.shape == model.cluster_weights_.shape == (model.n_clusters_,)
    assert model.agent_weights_.shape == (n_agents, model.n_clusters_)
    assert len(model.pair_ids_) == n_entities
    assert (np.diff(model.cluster_weights_) <= 0).all()
    np.testing.assert_allclose(model.cluster_weights_.sum(), 1.0)
    np.testing.assert_allclose(model.agent_weights_.sum(axis=1), 1.0)
    assert model.trace_["kept"].sum() == len(model.posterior_.draws) == 100
    assert model.trace_["noise_scale"][-1] == pytest.approx(0.3, rel=0.2)
    assert list(model.agent_ids_) == sorted(set(train.agent.tolist()))


def test_uncertainty_grows_from_known_to_new(model, split):
    _, test, _ = split
    cases = {"known": ids(test), "new entity": {"agent": test.agent, "entity": NEW}, "new agent": {"agent": NEW}}
    widths, coverages, stds = {}, {}, {}
    for name, given in cases.items():
        lower, upper = model.predict_interval(test.X, **given)
        widths[name] = (upper - lower).mean()
        coverages[name] = ((lower <= test.y) & (test.y <= upper)).mean()
        stds[name] = model.predict(test.X, **given, return_std=True)[1].mean()
    assert widths["known"] < widths["new entity"] < widths["new agent"]
    assert stds["known"] < stds["new entity"] < stds["new agent"]
    assert min(coverages.values()) > 0.8


def test_strangers_are_new(model, split):
    _, test, _ = split
    nobody = np.full(len(test), "nobody")
    np.testing.assert_array_equal(
        model.predict(test.X, agent=test.agent, entity=nobody), model.predict(test.X, agent=test.agent, entity=NEW)
    )
    np.testing.assert_array_equal(model.predict(test.X, agent=nobody, entity=test.entity), model.predict(test.X, NEW))
    # a new agent is predicted by the clusters' weights
    expected = model.intercept_ + test.X @ model.coef_.T
    np.testing.assert_allclose(model.predict(test.X, agent=NEW), expected @ model.cluster_weights_, atol=0.05)


def test_intervals_are_quantiles_of_the_mixture(model, split):
    """Where two clusters are far apart the distribution has two humps: mean ± z·std would be wrong."""
    _, test, _ = split
    lower, upper = model.predict_interval(test.X, agent=NEW, level=0.5)
    mean, std = model.predict(test.X, agent=NEW, return_std=True)
    assert np.abs((lower + upper) / 2 - mean).max() > 0.1 * std.max()
    wider = model.predict_interval(test.X, agent=NEW, level=0.99)
    assert (wider[0] < lower).all()
    assert (wider[1] > upper).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 90, "0.9", [0.5, 0.9]])
def test_a_level_is_a_probability(model, split, level):
    with pytest.raises(ValueError, match="`level` must lie between 0 and 1"):
        model.predict_interval(split[1].X, level=level)


def test_responsibilities(model):
    agent, entity = model.pair_ids_[5]
    one = model.responsibilities(agent, entity)
    assert one.shape == (model.n_clusters_,)
    assert one.argmax() == model.labels_[5]
    many = model.responsibilities([agent, agent, "new"], [entity, "new", entity])
    np.testing.assert_allclose(many[0], one)
    np.testing.assert_allclose(many.sum(axis=1), 1.0)
    np.testing.assert_allclose(many[2], model.cluster_weights_)
    position = list(model.agent_ids_).index(agent)
    np.testing.assert_allclose(many[1], model.agent_weights_[position])
    np.testing.assert_allclose(model.responsibilities(agent), many[1])


def test_adapt_learns_new_agents_without_refitting(model, split):
    train, test, _ = split
    new_train = {"agent": [f"new {a}" for a in train.agent], "entity": train.entity}
    new_test = {"agent": [f"new {a}" for a in test.agent], "entity": test.entity}
    adapted = model.adapt(train.X, train.y, **new_train)
    before, after = (m.score(test.X, test.y, **new_test) for m in (model, adapted))
    assert after > before + 0.2
    assert after == pytest.approx(model.score(test.X, test.y, **ids(test)), abs=0.01)
    # this model stays as it was, and old agents see no difference
    np.testing.assert_array_equal(adapted.predict(test.X, **ids(test)), model.predict(test.X, **ids(test)))
    assert len(adapted.labels_) == 2 * len(model.labels_)
    np.testing.assert_array_equal(adapted.posterior_.draws.coef, model.posterior_.draws.coef)


def test_adapting_in_two_parts_is_adapting_at_once(split):
    train, test, _ = split
    model = HLCRRegressor(n_sweeps=60).fit(train.X[:500], train.y[:500], **ids(train[:500]))
    at_once = model.adapt(test.X, test.y, **ids(test))
    first, second = test[: len(test) // 2], test[len(test) // 2 :]
    in_parts = model.adapt(first.X, first.y, **ids(first)).adapt(second.X, second.y, **ids(second))
    grams = [m.posterior_.memory.entities.grams for m in (at_once, in_parts)]
    np.testing.assert_allclose(*grams, rtol=1e-10, atol=1e-10)
    predictions = [m.predict(train.X, **ids(train)) for m in (at_once, in_parts)]
    assert mse(*predictions) < 0.01 * predictions[0].var()


def test_adapt_needs_entities(model, split):
    _, test, _ = split
    with pytest.raises(ValueError, match="`entity` is missing"):
        model.adapt(test.X, test.y, agent=test.agent)
    with pytest.raises(ValueError, match="`agent` is missing and the model has several agents"):
        model.adapt(test.X, test.y, entity=test.entity)


def test_a_sole_agent_is_the_default(split):
    train, test, _ = split
    pairs = [f"{a}/{e}" for a, e in zip(train.agent, train.entity, strict=True)]
    model = HLCRRegressor(n_sweeps=40).fit(train.X, train.y, agent=["only"] * len(train), entity=pairs)
    np.testing.assert_array_equal(
        model.predict(train.X, entity=pairs), model.predict(train.X, agent=["only"] * len(train), entity=pairs)
    )
    of_new = model.predict(test.X, entity=NEW)
    np.testing.assert_array_equal(of_new, model.predict(test.X, agent=["only"] * len(test), entity=NEW))


def test_a_fixed_number_of_clusters_is_kept(split):
    train, *_ = split
    model = HLCRRegressor(n_clusters=5, n_sweeps=60).fit(train.X, train.y, **ids(train))
    assert model.n_clusters_ == len(model.coef_) == 5


def test_more_clusters_than_entities():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(6, 2)), rng.normal(size=6)
    model = HLCRRegressor(n_clusters=4, n_sweeps=20).fit(X, y, entity=[1, 1, 1, 2, 2, 2])
    assert model.coef_.shape == (4, 2)
    assert np.isfinite(model.predict(X, agent=NEW)).all()


def test_one_event_is_enough():
    model = HLCRRegressor(n_sweeps=10).fit([[1.0, 2.0]], [3.0], agent=["a"], entity=["b"])
    assert np.isfinite(model.predict([[1.0, 2.0]], agent=["a"], entity=["b"])).all()


def test_hyperparameters_can_be_fixed(split):
    train, *_ = split
    model = HLCRRegressor(
        noise_scale=0.7, coef_scale=2.0, global_concentration=3.0, agent_concentration=0.5, n_sweeps=20
    ).fit(train.X, train.y, **ids(train))
    assert model.noise_scale_ == pytest.approx(0.7)
    np.testing.assert_allclose(model.trace_["noise_scale"], 0.7)
    assert (model.global_concentration_, model.agent_concentration_) == (3.0, 0.5)


@pytest.mark.parametrize("params", [{"sampler": "collapsed"}, {"sampler": "collapsed", "label_prior": "paper"},
                                    {"coef_prior": "zero_mean"}, {"standardize": False}])  # fmt: skip
def test_every_way_of_fitting_finds_the_clusters(split, params):
    train, test, truth = split
    model = HLCRRegressor(n_sweeps=80, **params).fit(train.X, train.y, **ids(train))
    assert mse(model.predict(test.X, **ids(test)), test.y) < 1.5 * truth.noise_scale**2


def test_without_intercept():
    rng = np.random.default_rng(3)
    table, truth = make_hlcr(40, 4, 6, 3, 3, 0.3, random_state=11)
    y = (truth.coef[truth.event_labels] * table.X).sum(axis=1) + 0.3 * rng.standard_normal(len(table))
    model = HLCRRegressor(fit_intercept=False, n_sweeps=80).fit(table.X, y, **ids(table))
    np.testing.assert_array_equal(model.intercept_, 0.0)
    np.testing.assert_allclose(model.predict(np.zeros((2, 3)), agent=NEW), 0.0, atol=1e-12)
    assert mse(model.predict(table.X, **ids(table)), y) < 1.2 * 0.09


def test_units_do_not_matter(split):
    """Rescaled columns and target give the same model in other units."""
    train, test, _ = split
    factors, y_factor = np.array([1024.0, 2.0**-10, 8.0]), 64.0
    plain = HLCRRegressor(n_sweeps=40).fit(train.X, train.y, **ids(train))
    scaled = HLCRRegressor(n_sweeps=40).fit(train.X * factors, train.y * y_factor, **ids(train))
    np.testing.assert_allclose(scaled.coef_ * factors / y_factor, plain.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(
        scaled.predict(test.X * factors, **ids(test)) / y_factor, plain.predict(test.X, **ids(test)), rtol=1e-8
    )
    assert scaled.noise_scale_ == pytest.approx(y_factor * plain.noise_scale_)


def test_integer_weights_repeat_events(split):
    """A weight of 2 is the event seen twice, in the same entity."""
    train, *_ = split
    weight = np.arange(len(train)) % 3 + 1
    repeated = train[np.repeat(np.arange(len(train)), weight)]
    by_weight = HLCRRegressor(**PAPER, n_sweeps=40).fit(train.X, train.y, **ids(train), sample_weight=weight)
    by_rows = HLCRRegressor(**PAPER, n_sweeps=40).fit(repeated.X, repeated.y, **ids(repeated))
    np.testing.assert_allclose(by_weight.coef_, by_rows.coef_, rtol=1e-6)


def test_events_without_weight_do_not_count(split):
    train, *_ = split
    weight = (np.arange(len(train)) % 4 > 0).astype(float)
    kept = train[weight > 0]
    by_weight = HLCRRegressor(**PAPER, n_sweeps=40).fit(train.X, train.y, **ids(train), sample_weight=weight)
    by_rows = HLCRRegressor(**PAPER, n_sweeps=40).fit(kept.X, kept.y, **ids(kept))
    np.testing.assert_array_equal(by_weight.coef_, by_rows.coef_)


@pytest.mark.parametrize(
    "options",
    [
        PAPER,
        pytest.param({}, marks=pytest.mark.xfail(reason="chains may find evidence of different effects", strict=True)),
    ],
    ids=["paper", "default"],
)
def test_several_chains_agree_on_easy_data(split, options):
    train, *_ = split
    model = HLCRRegressor(n_chains=3, **options).fit(train.X, train.y, **ids(train))
    assert len(model.posterior_.draws) == 300
    assert [d.quantity for d in model.diagnostics_] == ["log joint", "noise scale", "predictions"]
    assert all(0.95 < d.r_hat < 1.1 for d in model.diagnostics_)
    assert all(d.effective_size > 50 for d in model.diagnostics_)


def test_warning_about_disagreeing_chains_advises_more_sweeps(split):
    train, *_ = split
    with pytest.warns(ConvergenceWarning, match=r"chains disagree.*n_sweeps=24"):
        HLCRRegressor(n_chains=3, n_sweeps=12).fit(train.X, train.y, **ids(train))


def test_summary_reads_well(model):
    summary = model.summary()
    text = str(summary)
    assert f"{model.n_clusters_} (found)" in text
    assert "40 agents" in text
    table = text.partition("\n\n")[2].splitlines()[: model.n_clusters_ + 2]
    assert len(table) == model.n_clusters_ + 2
    assert len({len(line) for line in table}) == 1
    html = summary._repr_html_()
    assert html.count("<tr>") == len(summary.facts) + 1 + model.n_clusters_
    sentences = describe_clusters(model, "the cost")
    assert len(sentences) == model.n_clusters_
    assert "of entities: the cost is" in sentences[0]


def test_unfitted_models_say_so():
    with pytest.raises(NotFittedError):
        HLCRRegressor().predict([[1.0]])
    with pytest.raises(NotFittedError):
        HLCRRegressor().summary()


def test_progress_is_shown_when_asked_for(split, capsys):
    train, *_ = split
    HLCRRegressor(n_sweeps=5).fit(train.X, train.y, **ids(train))
    assert capsys.readouterr().err == ""
    HLCRRegressor(n_sweeps=5, verbose=True).fit(train.X, train.y, **ids(train))
    assert "5 of 5 sweeps" in capsys.readouterr().err


@pytest.fixture
def default_ctrl_c():
    """A shell that starts the tests in the background has them ignore Ctrl-C; here it raises KeyboardInterrupt."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_ctrl_c")
@pytest.mark.parametrize("done", [40, 400])
def test_ctrl_c_keeps_what_has_been_sampled(done, monkeypatch):
    """The signal comes in the middle of the next sweep."""
    table, _ = make_hlcr(100, 6, 5, 3, 4, 0.5, random_state=2)
    draw_globals = blocked.draw_globals

    def interrupted(likelihood, state, *others):
        if state.round == done:
            signal.raise_signal(signal.SIGINT)
        return draw_globals(likelihood, state, *others)

    monkeypatch.setattr(blocked, "draw_globals", interrupted)
    model = HLCRRegressor(n_sweeps=100_000)
    with pytest.warns(FitInterruptedWarning, match=f"interrupted after {done} of"):
        model.fit(table.X, table.y, **ids(table))
    assert len(model.trace_) == done
    assert model.score(table.X, table.y, **ids(table)) > 0.5
    assert np.isfinite(model.predict_interval(table.X, **ids(table))).all()


def test_importing_is_light():
    code = (
        "import sys, fedhlcr, fedhlcr.datasets;"
        "heavy = {'flwr', 'ray', 'torch', 'matplotlib', 'tqdm'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_large_predictions_are_cut_into_pieces(model, split, monkeypatch):
    _, test, _ = split
    whole = model.predict_interval(test.X, **ids(test))
    monkeypatch.setattr("fedhlcr.posterior.prediction.WEIGHTS_AT_ONCE", 4000)
    np.testing.assert_array_equal(model.predict_interval(test.X, **ids(test)), whole)


def test_time_is_spent_on_threads_only_while_fitting(split):
    """No thread of ours spins when nothing is to be done."""
    train, *_ = split
    HLCRRegressor(n_sweeps=5, n_threads=2).fit(train.X, train.y, **ids(train))
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.2


def test_ctrl_c_between_chains_keeps_the_first(split, monkeypatch):
    train, *_ = split
    start = blocked.initial_state

    def interrupted_at_the_second(entities, spec, n_clusters, stream):
        if stream.chain == 1:
            raise KeyboardInterrupt
        return start(entities, spec, n_clusters, stream)

    monkeypatch.setattr(blocked, "initial_state", interrupted_at_the_second)
    with pytest.warns(FitInterruptedWarning, match="interrupted after 60 of 180 sweeps; the model uses the 30 draws"):
        model = HLCRRegressor(n_chains=3, n_sweeps=60).fit(train.X, train.y, **ids(train))
    assert model.score(train.X, train.y, **ids(train)) > 0.9


def test_an_interrupted_fit_has_the_wanted_number_of_clusters(split, monkeypatch):
    train, *_ = split
    step = chain._step

    def interrupted(entities, spec, plan, state, *others):
        if state.round == 5:
            raise KeyboardInterrupt
        return step(entities, spec, plan, state, *others)

    monkeypatch.setattr(chain, "_step", interrupted)
    with pytest.warns(FitInterruptedWarning, match="the 1 draw kept"):
        model = HLCRRegressor(n_clusters=3).fit(train.X, train.y, **ids(train))
    assert len(model.coef_) == 3


def test_constant_columns_have_no_effect(split):
    train, test, _ = split
    constants = np.array([0.1, 1e8 / 3])

    def widened(table, values):
        return np.column_stack([table.X, np.tile(values, (len(table), 1))])

    model = HLCRRegressor(n_sweeps=40).fit(widened(train, constants), train.y, **ids(train))
    np.testing.assert_array_equal(model.coef_[:, 3:], 0.0)
    moved = model.predict(widened(test, constants + 5.0), **ids(test))
    np.testing.assert_array_equal(moved, model.predict(widened(test, constants), **ids(test)))
    assert np.isfinite(model.intercept_).all()
    assert "nan" not in str(model.summary())


@pytest.mark.parametrize("params", [{"coef_scale": 1e8}, {"noise_scale": 1e-8}, {"coef_scale": 1e6}])
def test_extreme_scales_do_not_break_the_algebra(split, params):
    train, *_ = split
    X = np.column_stack([train.X, train.X[:, 0]])
    model = HLCRRegressor(n_sweeps=10, max_clusters=4, **params).fit(X, train.y, **ids(train))
    assert np.isfinite(model.predict(X, **ids(train))).all()


@pytest.mark.parametrize("factor", [2.0**-20, 2.0**20])
def test_without_standardising_the_target_may_have_any_spread(split, factor):
    train, test, _ = split
    model = HLCRRegressor(standardize=False, n_sweeps=60)
    plain, scaled = (clone(model).fit(train.X, unit * train.y, **ids(train)) for unit in (1.0, factor))
    r2 = plain.score(test.X, test.y, **ids(test))
    assert r2 > 0.9
    assert scaled.score(test.X, factor * test.y, **ids(test)) == pytest.approx(r2, abs=1e-6)


def test_no_spread_at_all():
    X, y = np.ones((12, 2)), np.full(12, 3.0)
    model = HLCRRegressor(n_sweeps=10).fit(X, y, entity=np.arange(12) % 4)
    # a new entity may have an effect, however small
    np.testing.assert_allclose(model.predict(X, entity=NEW), 3.0, atol=0.05)


def test_the_sole_agent_stays_the_default_after_adapt(split):
    train, test, _ = split
    model = HLCRRegressor(n_sweeps=30).fit(train.X, train.y, agent=["only"] * len(train), entity=train.entity)
    adapted = model.adapt(test.X, test.y, agent=["other"] * len(test), entity=test.entity)
    np.testing.assert_array_equal(
        adapted.predict(train.X, entity=train.entity), model.predict(train.X, entity=train.entity)
    )


def test_one_cluster_is_a_ridge_regression(split):
    train, *_ = split
    model = HLCRRegressor(n_clusters=1, **PAPER).fit(train.X, train.y, **ids(train))
    design = np.column_stack([np.ones(len(train)), train.X])
    expected = np.linalg.lstsq(design, train.y, rcond=None)[0]
    np.testing.assert_allclose(np.append(model.intercept_, model.coef_), expected, atol=0.1)


def test_ids_of_different_lengths_are_refused(model):
    with pytest.raises(ValueError, match=r"lists of the same length and not empty; their lengths are \[2, 3\]"):
        model.responsibilities(["a", "b"], [1, 2, 3])
    with pytest.raises(ValueError, match="not empty"):
        model.responsibilities([], [])


def test_warnings_point_at_the_user(split):
    train, *_ = split
    with pytest.warns(ConvergenceWarning) as told:
        HLCRRegressor(n_chains=2, n_sweeps=16).fit(train.X, train.y, **ids(train))
    assert told[0].filename == __file__
    frame = pd.DataFrame(train.X, columns=["a", "b", "c"]).assign(agent=train.agent, entity=train.entity)
    model = HLCRRegressor(n_sweeps=4).fit(frame, train.y, agent="agent", entity="entity")
    for action in (
        lambda: model.predict(frame.drop(columns="agent")),
        lambda: model.adapt(frame.drop(columns="agent"), train.y, agent=train.agent, entity="entity"),
        lambda: model.score(frame.drop(columns="entity"), train.y),
    ):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            action()
        assert {warning.filename for warning in told} <= {__file__}


class WithFlavour(HLCRRegressor):
    """What users may do: fewer parameters than the class they derive from, and one more."""

    def __init__(self, n_clusters="auto", *, n_sweeps=30, flavour="plain"):
        super().__init__(n_clusters, n_sweeps=n_sweeps)
        self.flavour = flavour


def test_subclass_may_have_parameters_of_its_own(small, tmp_path):
    table, _ = small
    ids = {"agent": table.agent, "entity": table.entity}
    model = WithFlavour().fit(table.X, table.y, **ids)
    expected = HLCRRegressor(n_sweeps=30).fit(table.X, table.y, **ids).predict(table.X, **ids)
    np.testing.assert_array_equal(model.predict(table.X, **ids), expected)
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(table.X, **ids), expected)
