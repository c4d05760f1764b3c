"""The report without a browser: its facts against other ways of computing them, its words, its escaping."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.linear_model import Ridge as SklearnRidge
from sklearn.metrics import mean_absolute_error, mean_squared_error, r2_score

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor, describe_clusters, hold_out_events
from fedhlcr.baselines.ridge import PENALTIES
from fedhlcr.datasets import make_hlcr
from fedhlcr.diagnostics import Diagnostic
from fedhlcr.hierarchy import EntityIndex
from fedhlcr.report import HeldOut, listings, render_report
from fedhlcr.report import doubts as doubts_module
from fedhlcr.report import findings as findings_module
from fedhlcr.report.doubts import find_doubts
from fedhlcr.report.findings import SURE, gather
from fedhlcr.report.ridges import Ridges
from fedhlcr.report.rounds import Rounds
from fedhlcr.report.scores import score_held_out
from fedhlcr.summary import changes_told, effect_sizes
from fedhlcr.tables import Ids
from fedhlcr.wording import Noun, byte_size, listed, noun, number, percent, printable

HOSTILE = "</script><img src=x onerror=alert(1)>"


class Page(HTMLParser):
    """What a page shows as text, the tags it has, and its blocks of data."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.data, self._texts, self._inside = [], {}, [], []
        self.feed(html)
        self.text = " ".join(" ".join(self._texts).split())

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag in {"script", "style"}:
            self._inside.append((tag, dict(attrs).get("id", "")))

    def handle_endtag(self, tag):
        if tag in {"script", "style"}:
            self._inside.pop()

    def handle_data(self, data):
        if not self._inside:
            self._texts.append(data)
        elif self._inside[-1][1].startswith("data-"):
            self.data[self._inside[-1][1].removeprefix("data-")] = json.loads(data)

    def columns(self, table):
        """The values of a table's columns by label, texts as texts."""
        columns = self.data[table]["columns"]
        return {
            c["label"]: [c["words"][v] for v in c["values"]] if c["kind"] == "text" else c["values"] for c in columns
        }


@pytest.fixture(scope="module")
def split(small):
    table, _ = small
    train, test = hold_out_events(table.agent, table.entity)
    return table[train], table[test]


def fitted(table, **parameters):
    model = HLCRRegressor(**{"n_sweeps": 60, **parameters})
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


@pytest.fixture(scope="module")
def model(split):
    return fitted(split[0])


@pytest.fixture(scope="module")
def federated(split):
    table = split[0]
    model = FedHLCRRegressor(participation=0.5, failure_rate=0.3, rounds=25)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def held_out(table):
    return HeldOut(table.X, table.y, table.agent, table.entity)


def public(model):
    """A model as if loaded from a file without anything of the agents."""
    nobody = np.empty(0, dtype=np.int64)
    index = EntityIndex(Ids.of_texts([]), Ids.of_texts([]), nobody, nobody)
    memory, bare = model.posterior_.memory, copy.copy(model)
    entities = replace(memory.entities, index=index, grams=memory.entities.grams[:0])
    bare.posterior_ = replace(model.posterior_, memory=replace(memory, entities=entities, labels=memory.labels[:, :0]))
    bare.agent_ids_, bare.pair_ids_, bare.labels_ = np.empty(0, dtype=object), [], nobody
    bare.agent_weights_ = model.agent_weights_[:0]
    if hasattr(bare, "history_"):
        del bare.server_
        bare.history_ = model.history_.copy()
        for row in bare.history_:
            row["participants"] = np.empty(0, dtype=object)
    return bare


# ---- scores


def test_scores_are_those_of_scikit_learn(model, split):
    test = split[1]
    ids = {"agent": test.agent, "entity": test.entity}
    scores = score_held_out(model, held_out(test))
    predicted = model.predict(test.X, **ids)
    lower, upper = model.predict_interval(test.X, **ids, level=0.9)
    assert scores.model.r2 == pytest.approx(r2_score(test.y, predicted))
    assert scores.model.mse == pytest.approx(mean_squared_error(test.y, predicted))
    assert scores.model.mae == pytest.approx(mean_absolute_error(test.y, predicted))
    assert scores.coverage == pytest.approx(((lower <= test.y) & (test.y <= upper)).mean())
    assert (scores.n_events, scores.n_new_agents, scores.n_new_entities) == (len(test), 0, 0)
    agent = test.agent == model.agent_ids_[3]
    expected = np.sqrt(mean_squared_error(test.y[agent], predicted[agent]))
    assert scores.by_agent.model[3] == pytest.approx(expected)
    assert scores.by_agent.n_events.sum() == len(test)


def restricted_likelihood(groups, penalty):
    """log p(y) of groups of raw events by dense covariances, the intercepts free and σ maximised out."""
    quadratic = determinants = freedom = 0.0
    for X, y in groups:
        covariance = np.eye(len(y)) + X @ X.T / penalty
        inverse, ones = np.linalg.inv(covariance), np.ones(len(y))
        intercept = ones @ inverse @ y / (ones @ inverse @ ones)
        quadratic += (y - intercept) @ inverse @ (y - intercept)
        determinants += np.linalg.slogdet(covariance)[1] + np.log(ones @ inverse @ ones)
        freedom += len(y) - 1
    return -0.5 * freedom * np.log(quadratic) - 0.5 * determinants


@pytest.mark.parametrize(
    ("parameters", "factors"),
    [({}, (1, 1, 1)), ({"standardize": False}, (1, 50, 0.02)), ({"fit_intercept": False}, (1, 1, 1))],
)
def test_ridges_equal_those_of_the_raw_events(split, parameters, factors):
    train, test = (replace(table, X=table.X * factors + 3.0) for table in split)
    model = fitted(train, n_sweeps=20, **parameters)
    scores, ridges = score_held_out(model, held_out(test)), Ridges.of(model.posterior_)

    def standard(X):
        return (X - train.X.mean(axis=0)) / train.X.std(axis=0)

    groups = {pair: (train.agent == pair[0]) & (train.entity == pair[1]) for pair in model.pair_ids_}
    events = [(standard(train.X[rows]), train.y[rows]) for rows in groups.values()]
    everything = [(standard(train.X), train.y)]
    for ridge, own in ((ridges.of_all, everything), (ridges.of_entities, events)):
        assert ridge.penalty == PENALTIES[np.argmax([restricted_likelihood(own, penalty) for penalty in PENALTIES])]
    one = SklearnRidge(alpha=ridges.of_all.penalty).fit(*everything[0]).predict(standard(test.X))
    each = np.empty(len(test))
    for pair, (X, y) in zip(groups, events, strict=True):
        rows = (test.agent == pair[0]) & (test.entity == pair[1])
        if rows.any():
            each[rows] = SklearnRidge(alpha=ridges.of_entities.penalty).fit(X, y).predict(standard(test.X[rows]))
    assert [score.name for score in scores.ridges] == ["one ridge", "ridge per entity"]
    for score, predicted in zip(scores.ridges, (one, each), strict=True):
        assert score.r2 == pytest.approx(r2_score(test.y, predicted), abs=1e-7)
        assert score.mae == pytest.approx(mean_absolute_error(test.y, predicted), abs=1e-7)


def test_what_is_new_falls_back_to_the_one_ridge(model, split):
    test = split[1]
    strangers = HeldOut(test.X, test.y, test.agent, np.full(len(test), "nobody knows it"))
    scores = score_held_out(model, strangers)
    assert scores.scores[1].mse == pytest.approx(scores.scores[2].mse)
    assert (scores.n_new_entities, scores.n_new_agents) == (len(test), 0)
    assert score_held_out(model, HeldOut(test.X, test.y)).n_new_agents == len(test)


def test_a_table_with_id_columns_is_read_as_in_fit(split):
    train, test = (table.to_pandas() for table in split)
    model = HLCRRegressor(n_sweeps=20).fit(
        train.drop(columns="target"), train["target"], agent="agent", entity="entity"
    )
    scores = score_held_out(model, HeldOut(test.drop(columns="target"), test["target"]))
    assert scores.n_new_agents == 0
    assert scores.model.r2 == pytest.approx(model.score(test.drop(columns="target"), test["target"]))


def test_figures_on_the_fitted_events_are_said_to_flatter(model, split):
    train, test = split
    assert score_held_out(model, held_out(train)).was_fitted
    shuffled = np.random.default_rng(0).permutation(len(train))
    assert score_held_out(model, held_out(train[shuffled])).was_fitted
    assert not score_held_out(model, held_out(test)).was_fitted
    assert "These figures flatter" in Page(render_report(model, held_out(train))).text
    assert "flatter" not in Page(render_report(model, held_out(test))).text


def test_fitted_rows_without_ids_are_noticed_too(split):
    train, test = split
    model = HLCRRegressor(n_sweeps=5).fit(train.X, train.y)
    assert score_held_out(model, HeldOut(train.X, train.y)).was_fitted
    assert not score_held_out(model, HeldOut(test.X, test.y)).was_fitted


# ---- what was found


def test_entities_have_the_labels_and_probabilities_of_the_model(model):
    found = gather(model).entities
    agents, ids = (np.array(column, dtype=object) for column in zip(*model.pair_ids_, strict=True))
    probability = model.responsibilities(agents, ids)
    rows = np.arange(len(probability))
    np.testing.assert_array_equal(found.label, model.labels_)
    np.testing.assert_allclose(found.certainty, probability[rows, model.labels_])
    others = probability.copy()
    others[rows, model.labels_] = -1.0
    np.testing.assert_array_equal(found.runner_up, others.argmax(axis=1))
    assert found.n_uncertain == (found.certainty < SURE).sum()
    assert [found.agents[a] for a in found.agent] == [str(agent) for agent in agents]
    assert [found.entities[e] for e in found.entity] == [str(entity) for entity in ids]


def test_scatter_and_variance_explained_are_those_of_the_events(model, split):
    train = split[0]
    found = gather(model)
    position = {pair: row for row, pair in enumerate(model.pair_ids_)}
    rows = np.array([position[pair] for pair in zip(train.agent, train.entity, strict=True)])
    label = model.labels_[rows]
    residual = train.y - model.intercept_[label] - (model.coef_[label] * train.X).sum(axis=1)
    squares = np.bincount(rows, weights=residual**2) / np.bincount(rows)
    np.testing.assert_allclose(found.entities.scatter, np.sqrt(squares))
    assert found.explained == pytest.approx(1.0 - (residual**2).mean() / train.y.var())


def test_agents_are_made_of_what_their_entities_are(model):
    found = gather(model).agents
    labels = model.posterior_.memory.labels
    own = [row for row, (agent, _) in enumerate(model.pair_ids_) if agent == model.agent_ids_[5]]
    told = model._alignment.target[np.arange(len(labels))[:, None], labels[:, own]]
    np.testing.assert_allclose(found.weights[5], np.bincount(told.ravel(), minlength=model.n_clusters_) / told.size)
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)
    assert found.n_entities.sum() == len(model.pair_ids_)


def test_of_very_many_entities_the_most_doubtful_are_listed(model, monkeypatch):
    monkeypatch.setattr(findings_module, "MAX_LISTED", 20)
    found = gather(model).entities
    assert (len(found), found.n_all) == (20, len(model.pair_ids_))
    page = Page(render_report(model))
    assert f"Of {len(model.pair_ids_)} entities, the 20 whose cluster is least certain are listed." in page.text
    monkeypatch.undo()
    everyone = gather(model).entities
    assert found.certainty.min() == everyone.certainty.min()


def test_spreads_are_the_features_own_where_nothing_was_scaled(split):
    train = replace(split[0], X=split[0].X * [1.0, 50.0, 0.02])
    model = fitted(train, n_sweeps=10, standardize=False)
    np.testing.assert_allclose(model.feature_spreads_, train.X.std(axis=0))
    np.testing.assert_allclose(effect_sizes(model), model.coef_ * train.X.std(axis=0))


# ---- words


def test_sentences_tell_share_and_slopes(model):
    sentences = describe_clusters(model, "y")
    share = (model.labels_ == 0).mean()
    strongest = int(np.argmax(np.abs(effect_sizes(model)[0])))
    slope = model.coef_[0, strongest]
    way = "rises" if slope > 0 else "falls"
    assert sentences[0].startswith(f"Cluster 0, {percent(share)} of entities: y is ")
    assert f"it {way} {number(abs(slope))} per unit of x{strongest}" in sentences[0]
    page = Page(render_report(model))
    assert f"Cluster 0, {percent(share)} of entities" in page.text
    assert f"The target {way} {number(abs(slope))} per unit of x{strongest}" in page.text


@pytest.mark.parametrize("drop_first", [False, True])
def test_a_level_is_told_against_all_others(split, rng, drop_first):
    train = split[0]
    city = rng.choice(["Paris", "Rome", "Oslo"], size=len(train), p=[0.5, 0.3, 0.2])
    lift = {"Paris": 0.0, "Rome": 1.0, "Oslo": 4.0}
    levels = ["Oslo", "Paris", "Rome"][drop_first:]
    frame = pd.DataFrame({f"city={level}": (city == level).astype(float) for level in levels})
    y = np.array([lift[name] for name in city]) + rng.normal(0, 0.1, len(train))
    model = HLCRRegressor(n_clusters=1, n_sweeps=30).fit(frame, y, agent=train.agent, entity=train.entity)
    model.recipe_ = SimpleNamespace(target="sales", agent="store_id", entity="product", categorical={"city": levels})
    told = dict(zip(levels, changes_told(model)[0], strict=True))
    for level in levels:
        assert told[level] == pytest.approx(y[city == level].mean() - y[city != level].mean(), abs=0.05)
    text = describe_clusters(model)[0]
    assert f"is {number(abs(told['Paris']))} lower where city is Paris than elsewhere" in text
    assert "sales is" in text
    assert "per unit of" not in text
    page = Page(render_report(model)).text
    assert re.search(r"All \d+ products of \d+ stores are of one kind", page)
    assert "takes the place of 'city'" in page


def test_things_are_called_as_their_columns(split):
    train = split[0]
    model = fitted(train)
    model.recipe_ = SimpleNamespace(target="sales", agent="City", entity="product_id", categorical={})
    model.provenance_ = {"data": "sales.csv", "rows": 12, "nested": {"a": [1, 2]}}
    page = Page(render_report(model)).text
    n_kinds = ("no", "one", "two", "three", "four", "five", "six")[model.n_clusters_]
    assert f"The {len(model.pair_ids_)} products of 40 cities fall into {n_kinds} kinds" in page
    assert "Which cities mix which clusters" in page
    assert 'sales.csv rows 12 nested {"a": [1, 2]}' in page
    assert "agents" not in page.replace("agent=", "")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.7, "0.7"), (-12.345, "−12.3"), (999.6, "1,000"), (1234.5, "1,234"), (1.5e-7, "1.5×10⁻⁷")],
)
def test_numbers_are_written_for_people(value, text):
    assert number(value) == text


def test_words_for_shares_sizes_and_nouns():
    assert [percent(share) for share in (0.0, 0.004, 0.18, 0.9999, 1.0)] == [
        "0 %",
        "under 1 %",
        "18 %",
        "99.9 %",
        "100 %",
    ]
    assert [byte_size(size) for size in (1, 999, 11_500_000)] == ["1 byte", "999 bytes", "11.5 MB"]
    entity = Noun("entity", "entities")
    assert (entity.count(1), entity.count(1204)) == ("1 entity", "1,204 entities")
    named = [noun(column, entity).many for column in ("store_id", "City", "boxes", "SKU", "id", "号", None)]
    assert named == ["stores", "cities", "boxes", "SKUs", "entities", "entities", "entities"]
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert printable("a\nb\0\ud800\u202e") == "a b\ufffd\ufffd\ufffd"


# ---- doubts


def headlines(model, scores=None):
    return {doubt.headline: doubt for doubt in find_doubts(model, gather(model), Rounds.of(model), scores)}


def test_one_chain_was_not_checked_and_the_cure_is_told(model):
    doubt = headlines(model)["Whether another run would find the same was not checked"]
    assert "`n_chains=4`" in doubt.text
    assert "n_chains=4" in Page(render_report(model)).text


def test_chains_that_disagree_are_a_serious_doubt(split):
    model = fitted(split[0], n_chains=2)
    model.diagnostics_ = (Diagnostic("log joint", 1.0, 50.0), Diagnostic("predictions", 1.7, 5.0))
    doubt = headlines(model)["The 2 chains disagree"]
    assert doubt.serious
    assert "predictions 1.70" in doubt.text
    assert "log joint" not in doubt.text
    assert "the 2 chains disagree" in Page(render_report(model)).text
    model.diagnostics_ = (Diagnostic("log joint", 1.0, 50.0),)
    assert not any("chain" in headline or "another run" in headline for headline in headlines(model))


def test_uncertain_labels_and_small_clusters_are_doubted(split):
    model = fitted(split[0], n_clusters=9, n_sweeps=30)
    found = gather(model)
    told = headlines(model)
    assert any(f"{found.entities.n_uncertain} entities are not surely" in headline for headline in told)
    few = (np.bincount(model.labels_, minlength=9) < 5).sum()
    assert any(headline.startswith(f"{few} cluster") and "fewer than 5" in headline for headline in told)
    text = Page(render_report(model)).text
    least = int(found.entities.certainty.argmin())
    assert f"{found.entities.name(least)} : cluster {found.entities.label[least]} with" in text


def test_clusters_are_alike_by_their_predictions_of_the_events(model, split, monkeypatch):
    train = split[0]
    predicted = model.intercept_[:, None] + model.coef_ @ train.X.T
    apart = [np.sqrt(((a - b) ** 2).mean()) for k, a in enumerate(predicted) for b in predicted[:k]]
    limit = min(apart) / model.noise_scale_
    monkeypatch.setattr(doubts_module, "ALIKE", 0.999 * limit)
    assert "Some clusters are nearly alike" not in headlines(model)
    monkeypatch.setattr(doubts_module, "ALIKE", 1.001 * limit)
    assert "Some clusters are nearly alike" in headlines(model)


def test_interrupted_and_limited_runs_are_told(split, federated):
    model = fitted(split[0])
    model.trace_ = model.trace_[:40]
    assert headlines(model)["The fit was interrupted after 40 of 60 sweeps"].serious
    model.max_clusters = model.n_clusters_
    assert any("near the most that could be found" in headline for headline in headlines(model))
    assert "The run ended at its limit of 25 rounds" in headlines(federated)
    stopped = copy.copy(federated)
    stopped.stop_reason_ = "interrupted"
    assert headlines(stopped)["The run was interrupted after 25 rounds"].serious


def test_intervals_that_do_not_hold_are_told(model, split):
    scores = score_held_out(model, held_out(split[1]))
    assert not any(headline.startswith("Intervals") for headline in headlines(model, replace(scores, coverage=0.9)))
    assert headlines(model, replace(scores, coverage=0.5))["Intervals are too narrow"].serious
    assert "Intervals are too wide" in headlines(model, replace(scores, coverage=1.0))


# ---- the page


def test_the_page_is_one_safe_file(model, split):
    html = render_report(model, held_out(split[1]), title="Our shops")
    page = Page(html)
    policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in policy
    assert "unsafe-inline" not in policy.split("script-src")[1].split(";")[0]
    addresses = [a[key] for _, a in page.tags for key in ("src", "href", "action") if key in a]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert not re.search(r"(https?:)?//(?!www\.w3\.org/2000/svg)\w", html)
    assert "Our shops" in page.text
    assert html.startswith("<!doctype html>")
    for target in [a["href"][1:] for tag, a in page.tags if tag == "a"]:
        assert any(a.get("id") == target for _, a in page.tags)


def test_hostile_names_are_text(split):
    train = split[0]
    frame = pd.DataFrame(train.X, columns=["<b>one</b>", 'two"', "three`x`"])
    agent = np.array([f"{HOSTILE}{agent}" for agent in train.agent], dtype=object)
    entity = np.array([f"<i>{entity}\u2028\ud800" for entity in train.entity], dtype=object)
    model = HLCRRegressor(n_sweeps=10).fit(frame, train.y, agent=agent, entity=entity)
    model.recipe_ = SimpleNamespace(target=HOSTILE, agent=HOSTILE, entity="<u>", categorical={})
    model.provenance_ = {HOSTILE: HOSTILE}
    html = render_report(model, title=HOSTILE)
    page = Page(html)
    html.encode()
    assert not {"img", "b", "u"} & {tag for tag, _ in page.tags}
    assert len([tag for tag, _ in page.tags if tag == "i"]) == html.count('<i class="swatch')
    assert page.text.count(HOSTILE) > 40
    assert HOSTILE in page.columns("agents")["agent"][0]
    assert html.count("</script>") == 4
    assert "\u2028" not in html


def test_tables_hold_everything_and_the_page_a_few_rows(model, split):
    page = Page(render_report(model, held_out(split[1])))
    entities, agents, clusters = (page.columns(name) for name in ("entities", "agents", "clusters"))
    assert entities["cluster"] == model.labels_.tolist()
    assert list(zip(entities["agent"], entities["entity"], strict=True)) == [
        (str(a), str(e)) for a, e in model.pair_ids_
    ]
    assert agents["agent"] == [str(agent) for agent in model.agent_ids_]
    assert sum(agents["held out"]) == len(split[1])
    assert sum(agents["events"]) == len(split[0])
    assert clusters["entities"] == np.bincount(model.labels_, minlength=model.n_clusters_).tolist()
    assert clusters["x0"] == [float(f"{slope:.3g}") for slope in model.coef_[:, 0]]
    rows = [a for tag, a in page.tags if tag == "tr"]
    assert len(rows) < 3 * listings.PAGE_ROWS + 60


def test_settings_make_the_same_model(split):
    train = split[0]
    model = fitted(train, n_sweeps=30, n_clusters=3, random_state=np.random.RandomState(5))
    page = render_report(model)
    snippet = re.search(r"<code>(from fedhlcr.*?)</code>", page, re.S).group(1).replace("&#39;", "'")
    assert f"fedhlcr {fedhlcr.__version__}, seed {model.seed_}" in Page(page).text
    names = {"X": train.X, "y": train.y, "agent": train.agent, "entity": train.entity}
    exec(snippet, names)
    np.testing.assert_array_equal(names["model"].coef_, model.coef_)


def test_a_federated_run_tells_its_rounds(federated, split):
    text = Page(render_report(federated, held_out(split[1]))).text
    history = federated.history_
    rounds = history[1:]
    assert f"in 25 rounds ({federated.stop_reason_})" in text
    assert f"{percent(rounds['n_accepted'].sum() / rounds['n_asked'].sum())} of the agents asked answered" in text
    assert f"{byte_size(history['bytes_up'].sum())} of sums went up" in text
    assert f"{byte_size(history['bytes_down'].sum())} of coefficients came down" in text
    silent = (rounds["n_asked"] - rounds["n_accepted"] - rounds["n_refused"]).sum()
    assert f"requests without an answer {silent}" in text


@pytest.mark.parametrize("kind", ["model", "federated"])
def test_a_public_model_says_that_it_holds_no_agents(kind, split, request):
    bare = public(request.getfixturevalue(kind))
    page = Page(render_report(bare, held_out(split[1])))
    assert "It holds nothing of any agent" in page.text
    assert "from which ridges to compare with would be solved" in page.text
    assert set(page.data) == {"clusters"}
    assert not any(a.get("id") in {"agents", "entities"} for _, a in page.tags)
    counts = bare._alignment.gather(bare.posterior_.draws.entity_counts)
    assert f"Cluster 0, {percent(counts[0] / counts.sum())} of entities" in page.text
    assert "nan" not in page.text
    assert ("The federated run" in page.text) == (kind == "federated")
    assert describe_clusters(bare)[0].startswith("Cluster 0, ")


@pytest.mark.parametrize("case", ["one cluster", "one agent", "no ids", "one event", "no spread", "no features"])
def test_small_models_are_told_too(split, case):
    train = split[0]
    X, y, ids = train.X, train.y, {"agent": train.agent, "entity": train.entity}
    if case in {"one agent", "no ids"}:
        ids = {"entity": train.entity} if case == "one agent" else {}
    if case == "one event":
        X, y, ids = X[:1], y[:1], {}
    if case == "no spread":
        y = np.ones(len(y))
    if case == "no features":
        X = np.ones((len(y), 1))
    n_clusters = 1 if case == "one cluster" else "auto"
    model = HLCRRegressor(n_clusters=n_clusters, n_sweeps=8).fit(X, y, **ids)
    page = Page(render_report(model, HeldOut(X, y, ids.get("agent"), ids.get("entity"))))
    assert not re.search(r"\bnan\b|\binf\b", page.text)
    # among the figures one stands before the name of the next
    assert not re.search(r"(?<!agent )\b1 entities", page.text)
    assert "entities" in page.data
    assert ("agents" in page.data) == (len(model.agent_ids_) > 1)
    if case == "one cluster":
        assert "are of one kind" in page.text
        fit = LinearRegression().fit(X, y)
        np.testing.assert_allclose(model.coef_[0], fit.coef_, atol=0.1)


@pytest.mark.parametrize(
    "ids",
    [
        np.arange,
        lambda n: np.arange(n) + 0.5,
        lambda n: np.arange(n) * np.timedelta64(1, "D") + np.datetime64("2024-01-01"),
    ],
)
def test_ids_may_be_of_any_type(split, ids):
    train = split[0]
    agent, entity = ids(40)[train.agent], ids(200)[train.entity]
    model = HLCRRegressor(n_sweeps=5).fit(train.X, train.y, agent=agent, entity=entity)
    columns = Page(render_report(model, HeldOut(train.X, train.y, agent, entity))).columns("entities")
    assert columns["agent"][0] == str(ids(40)[0])


def test_what_is_no_fitted_model_is_refused(model, split):
    with pytest.raises(TypeError, match=r"`model` must be an HLCRRegressor"):
        render_report(LinearRegression())
    with pytest.raises(NotFittedError):
        render_report(HLCRRegressor())
    with pytest.raises(TypeError, match=r"HeldOut\(X, y, agent, entity\)"):
        render_report(model, (split[1].X, split[1].y))


def test_the_same_model_gives_the_same_page(model, split):
    assert render_report(model, held_out(split[1])) == render_report(model, held_out(split[1]))


def test_thousands_of_agents_are_drawn_as_an_image():
    table, _ = make_hlcr(300, 3, 4, 2, 3, 0.3, random_state=2)
    page = Page(render_report(fitted(table, n_sweeps=10)))
    image = next(a for tag, a in page.tags if tag == "img")
    assert image["src"].startswith("data:image/png;base64,")
    assert "cluster 0 of" in image["alt"]
