"""The report page: its sentences, its doubts, its escaping, and that every model has one."""

from __future__ import annotations

import copy
import doctest
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression

import fedhlcr
from fedhlcr import FedHLCRRegressor, HLCRRegressor, describe_clusters
from fedhlcr._support.wording import byte_size, number, percent
from fedhlcr.analysis.axes import feature_axes
from fedhlcr.analysis.contrasts import usual_range
from fedhlcr.analysis.effects import change_intervals, effect_sizes, entity_shares, unit_changes
from fedhlcr.analysis.evaluation import evaluate
from fedhlcr.analysis.ticks import tick_text
from fedhlcr.analysis.verdict import Difference, FitComparison
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators.base import set_found
from fedhlcr.posterior.diagnostics import Diagnostic
from fedhlcr.report import HeldOut, charts, listings, render_report
from fedhlcr.report import doubts as doubts_module
from fedhlcr.report import page as page_module
from fedhlcr.report.doubts import find_doubts
from fedhlcr.report.findings import Findings
from tests.problems import PAPER
from tests.reports import HOSTILE, Page, fitted, held_out, public, recipe_of, with_figures


@pytest.fixture(scope="module")
def federated(split):
    table = split[0]
    model = FedHLCRRegressor(participation=0.5, failure_rate=0.3, rounds=25)
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def test_sentences_contain_share_and_changes(model):
    sentences = describe_clusters(model, "y")
    share = entity_shares(model)[0]
    strongest = int(np.argmax(np.abs(effect_sizes(model)[0])))
    slope = model.coef_[0, strongest]
    low, high = usual_range(model, feature_axes(model)[strongest])
    told = (
        f"{'rises' if slope > 0 else 'falls'} {number(abs(slope) * (high - low), 2)} as x{strongest} goes from "
        f"{tick_text(low)} to {tick_text(high)}"
    )
    assert sentences[0].startswith(f"Cluster 0, {percent(share)} of entities: y is ")
    assert f"it {told}" in sentences[0]
    page = Page(render_report(model))
    assert f"Cluster 0, {percent(share)} of entities" in page.text
    assert f"It {told}." in page.text


@pytest.mark.parametrize("drop_first", [False, True])
def test_a_level_is_compared_with_all_others(split, rng, drop_first):
    train = split[0]
    city = rng.choice(["Paris", "Rome", "Oslo"], size=len(train), p=[0.5, 0.3, 0.2])
    lift = {"Paris": 0.0, "Rome": 1.0, "Oslo": 4.0}
    levels = ["Oslo", "Paris", "Rome"][drop_first:]
    frame = pd.DataFrame({f"city={level}": (city == level).astype(float) for level in levels})
    y = np.array([lift[name] for name in city]) + rng.normal(0, 0.1, len(train))
    model = HLCRRegressor(n_clusters=1, n_sweeps=30).fit(frame, y, agent=train.agent, entity=train.entity)
    model.recipe_ = recipe_of(["city"], agent="store_id", entity="product", categorical={"city": levels})
    told = dict(zip(levels, unit_changes(model)[0], strict=True))
    for level in levels:
        assert told[level] == pytest.approx(y[city == level].mean() - y[city != level].mean(), abs=0.05)
    text = describe_clusters(model)[0]
    assert ("is highest where city is Oslo" in text) == (not drop_first)
    assert "sales is" in text
    assert "per unit of" not in text
    html = render_report(model)
    assert 'title="difference of sales from all other levels"' in html
    assert 'title="change of sales per unit"' not in html
    page = Page(html).text
    assert re.search(r"All \d+ products of \d+ stores are in one cluster", page)
    assert "“city” is a category" in page
    assert "one regression of sales on city" in page
    assert "or of a level of a category against all other levels" in page


def test_agents_and_entities_are_named_after_their_columns(split):
    train = split[0]
    model = fitted(train)
    model.recipe_ = recipe_of(["x0", "x1", "x2"], agent="City", entity="product_id")
    model.provenance_ = {"data": "sales.csv", "rows": 12, "nested": {"a": [1, 2]}}
    page = Page(render_report(model)).text
    n_clusters = ("no", "one", "two", "three", "four", "five", "six")[model.n_clusters_]
    assert f"The {len(model.pair_ids_)} products of 40 cities fall into {n_clusters} clusters." in page
    assert "How cities mix the clusters" in page
    assert 'sales.csv rows 12 nested {"a": [1, 2]}' in page
    assert "agents" not in page.replace("agent=", "")


def headlines(model, scores=None):
    return {doubt.headline: doubt for doubt in find_doubts(Findings(model), scores)}


def test_one_chain_is_a_doubt_with_a_cure(model):
    doubt = headlines(model)["Only one chain was run, so it is unknown if another one would find the same clusters"]
    assert "`n_chains=4`" in doubt.text
    assert "n_chains=4" in Page(render_report(model)).text


def test_chains_that_disagree_are_a_serious_doubt(split):
    model = fitted(split[0], n_chains=2, effects="none", noise="common")
    model.diagnostics_ = (Diagnostic("log joint", 1.0, 50.0), Diagnostic("predictions", 1.7, 5.0))
    doubt = headlines(model)["The 2 chains disagree"]
    assert doubt.serious
    assert "predictions 1.70" in doubt.text
    assert "log joint" not in doubt.text
    assert "Read on with care. The 2 chains disagree." in Page(render_report(model)).text
    model.diagnostics_ = (Diagnostic("log joint", 1.0, 50.0),)
    assert not any("chain" in headline for headline in headlines(model))


def test_uncertain_labels_and_small_clusters_are_doubted(split):
    model = fitted(split[0], n_clusters=9, n_sweeps=30, **PAPER)
    found = Findings(model)
    told = headlines(model)
    assert any(f"The cluster of {found.entities.n_uncertain} entities is uncertain" in headline for headline in told)
    few = (entity_shares(model) * len(model.labels_) < 5).sum()
    assert any(headline.startswith(f"{few} cluster") and "fewer than 5" in headline for headline in told)
    text = Page(render_report(model)).text
    least = int(found.entities.certainty.argmin())
    assert f"{found.entities.name(least)} : cluster {found.entities.label[least]} with probability" in text


def test_few_events_are_a_serious_doubt(model, split):
    assert not any("coefficients of a cluster" in headline for headline in headlines(model))
    first = split[0][np.arange(19)]
    doubt = headlines(fitted(first, n_clusters=1))["Only 19 events for the 4 coefficients of a cluster were fitted"]
    assert doubt.serious
    assert "too narrow" in doubt.text


def test_changes_have_intervals_and_unclear_ones_are_grey(model, split, rng):
    page = Page(render_report(model))
    lower, upper = change_intervals(model)
    column = next(c for c in page.data["clusters"]["columns"] if c["label"] == "x1")
    np.testing.assert_allclose(column["ranges"], np.column_stack([lower[:, 1], upper[:, 1]]), rtol=5e-3)
    low, high = column["ranges"][0]
    assert f"{number(column['values'][0])} {number(low)} to {number(high)}" in page.text
    assert "a grey dot means that the interval includes no effect" in page.text
    train = split[0]
    by_one = fitted(replace(train, y=train.X[:, 0] + rng.normal(size=len(train))), n_clusters=1)
    lower, upper = change_intervals(by_one)
    unclear = ((lower <= 0.0) & (upper >= 0.0)).sum()
    assert 0 < unclear < lower.size
    assert render_report(by_one).count('class="spot open') == unclear
    assert "the small figures are the 90 % interval" in page.text
    one = Page(render_report(fitted(split[0], n_draws=1)))
    assert "the small figures are" not in one.text
    assert all(not c["ranges"] for c in one.data["clusters"]["columns"])


def test_clusters_are_alike_by_their_predictions_of_the_events(model, split, monkeypatch):
    train = split[0]
    predicted = model.intercept_[:, None] + model.coef_ @ train.X.T
    apart = [np.sqrt(((a - b) ** 2).mean()) for k, a in enumerate(predicted) for b in predicted[:k]]
    limit = min(apart) / model.noise_scale_
    monkeypatch.setattr(doubts_module, "ALIKE", 0.999 * limit)
    assert "Some clusters are nearly alike" not in headlines(model)
    monkeypatch.setattr(doubts_module, "ALIKE", 1.001 * limit)
    assert "Some clusters are nearly alike" in headlines(model)


def test_interrupted_and_limited_runs_are_doubts(split, federated):
    model = fitted(split[0])
    model.trace_ = model.trace_[:40]
    assert headlines(model)["The fit was interrupted after 40 of 60 sweeps"].serious
    set_found(model, settings={**model.get_params(), "max_clusters": model.n_clusters_})
    assert any("is close to the limit of" in headline for headline in headlines(model))
    assert "The run ended at its limit of 25 rounds" in headlines(federated)
    stopped = copy.copy(federated)
    stopped.stop_reason_ = "interrupted"
    assert headlines(stopped)["The run was interrupted after 25 rounds"].serious


def test_doubts_agree_in_number(federated):
    n = len(federated.history_)
    lone = copy.copy(federated)
    lone.history_ = federated.history_[:2].copy()
    lone.history_["n_refused"], lone.history_["n_accepted"] = (0, 1), 0
    told = headlines(lone)
    assert {
        "The run ended at its limit of 1 round",
        "1 answer was refused",
        "In 1 of 1 round nobody answered",
    } <= set(told)
    several = copy.copy(federated)
    several.history_ = federated.history_.copy()
    several.history_["n_refused"] = 1
    assert f"{n - 1} answers were refused" in headlines(several)


def test_held_out_events_decide_whether_a_simpler_model_is_better(model, split):
    doubted = copy.copy(model)
    doubted.comparison_ = FitComparison((Difference("mixed model", -0.1, 0.01, 20),), 100, 20)
    alone = headlines(doubted)["A simpler model predicts better"]
    assert alone.serious
    assert "`n_clusters=1`, `effects='entity'`, `noise='common'`" in alone.text
    scores = evaluate(model, held_out(split[1]))
    told = headlines(doubted, scores)
    assert "A simpler model predicts better" not in told
    assert not told["Held-out events do not confirm that a simpler model predicts better"].serious
    worse = replace(scores, densities=FitComparison((Difference("ridge per entity", -0.1, 0.01, 20),), 100, 20))
    told = headlines(doubted, worse)["A simpler model predicts better"]
    assert told.serious
    # the verdict recommends the method that predicts held-out events best, which may be another one
    assert "n_clusters=1" not in told.text
    # a difference that may be chance confirms nothing
    chance = replace(scores, densities=FitComparison((Difference("mixed model", -0.01, 0.01, 20),), 100, 20))
    assert "A simpler model predicts better" not in headlines(doubted, chance)
    # on fitted events every method looks better
    assert headlines(doubted, replace(scores, was_fitted=True))["A simpler model predicts better"].serious


def test_doubts_of_one_cluster_do_not_speak_of_several(split):
    one = fitted(split[0], n_clusters=1)
    one.comparison_ = FitComparison((Difference("one ridge", -0.1, 0.01, 20),), 100, 20)
    text = headlines(one)["A simpler model predicts better"].text
    assert "There is only one cluster" in text
    assert "alike" not in text


def test_wrong_coverage_is_a_doubt(model, split):
    scores = evaluate(model, held_out(split[1]))
    assert not any(
        headline.startswith("Intervals") for headline in headlines(model, with_figures(scores, coverage=0.9))
    )
    assert headlines(model, with_figures(scores, coverage=0.5))["Intervals are too narrow"].serious
    assert "Intervals are too wide" in headlines(model, with_figures(scores, coverage=1.0))


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
    limits = {"entity": len(model.labels_), "agent": len(model.agent_ids_)}
    for target in [a["href"][1:] for tag, a in page.tags if tag == "a"]:
        kind, _, row = target.partition("=")
        assert int(row) < limits[kind] if row else any(a.get("id") == target for _, a in page.tags)


def test_hostile_names_are_text(split):
    train = split[0]
    frame = pd.DataFrame(train.X, columns=["<b>one</b>", 'two"', "three`x`"])
    agent = np.array([f"{HOSTILE}{agent}" for agent in train.agent], dtype=object)
    entity = np.array([f"<i>{entity}\u2028\ud800" for entity in train.entity], dtype=object)
    model = HLCRRegressor(n_sweeps=10).fit(frame, train.y, agent=agent, entity=entity)
    model.recipe_ = recipe_of(frame.columns, target=HOSTILE, agent=HOSTILE, entity="<u>")
    model.provenance_ = {HOSTILE: HOSTILE}
    html = render_report(model, title=HOSTILE)
    page = Page(html)
    html.encode()
    assert not {"img", "b", "u"} & {tag for tag, _ in page.tags}
    assert len([tag for tag, _ in page.tags if tag == "i"]) == html.count('<i class="tag') + html.count(
        '<i class="dash'
    )
    assert page.text.count(HOSTILE) > 40
    assert HOSTILE in page.columns("agents")["agent"][0]
    assert html.count("</script>") == 5
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


@pytest.mark.parametrize("ids", ["both", "one agent", "no ids", "columns", "one column"])
def test_settings_reproduce_the_model(split, ids):
    train = split[0]
    frame = train.to_pandas().drop(columns="target")
    X, given = {
        "both": (train.X, {"agent": train.agent, "entity": train.entity}),
        "one agent": (train.X, {"entity": train.entity}),
        "no ids": (train.X, {}),
        "columns": (frame, {"agent": "agent", "entity": "entity"}),
        "one column": (frame.drop(columns="agent"), {"entity": "entity"}),
    }[ids]
    names = {"X": X, "y": train.y, "agent": train.agent, "entity": train.entity, "frame": X}
    model = HLCRRegressor(n_sweeps=30, n_clusters=3, random_state=np.random.RandomState(5)).fit(X, train.y, **given)
    page = render_report(model)
    snippet = re.search(r"<code>(from fedhlcr.*?)</code>", page, re.S).group(1).replace("&#39;", "'")
    assert f"fedhlcr {fedhlcr.__version__} with seed {model.seed_}" in Page(page).text
    assert "This code reproduces it from the same events:" in page
    exec(snippet, names)
    np.testing.assert_array_equal(names["model"].coef_, model.coef_)
    assert names["model"].pair_ids_ == model.pair_ids_


@pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.DataWarning")
def test_private_model_shows_its_guarantee(split):
    pytest.importorskip("opendp", reason="the privacy extra is not installed")
    train = split[0]
    model = FedHLCRRegressor(privacy=fedhlcr.DifferentialPrivacy(8, rounds=3), n_clusters=2)
    model.fit(train.X, train.y, agent=train.agent, entity=train.entity)
    n_agents = len(np.unique(train.agent))
    for shown in (model, public(model)):
        text = Page(render_report(shown)).text
        assert f"epsilon 8, delta {n_agents**-1.1:.3g} for each of {n_agents} agents." in text
        assert "reproduces it" not in text
        assert "the noise is new in every run" in text


def test_a_model_from_the_command_line_shows_its_command(split):
    table, n_events = split[0], len(split[0])
    X = np.column_stack([table.X[:, 0], np.eye(3)[np.arange(n_events) % 3], table.X[:, 1] > 0])
    model = HLCRRegressor(n_sweeps=10).fit(X, table.y, agent=table.agent, entity=table.entity)
    levels = {"city": ["Oslo", "Rome", "Wien"], "member": ["no", "yes"]}
    fill = {"price": 2.5, "city": "Rome", "member": "no"}
    model.recipe_ = replace(
        recipe_of(["price"], agent=None, categorical=levels), features=tuple(fill), fill=fill, missing="impute"
    )
    model.sole_agent_ = np.array([""], dtype=object)
    model.provenance_ = {"data": "sales.csv", "events": n_events, "command": "fedhlcr fit 'my  sales.csv' -t sales"}
    html = render_report(model)
    text = Page(html).text
    assert "This command reproduces it from the same table:" in text
    assert "<code>fedhlcr fit &#39;my  sales.csv&#39; -t sales</code>" in html
    assert "HLCRRegressor(" not in text
    assert "there is one agent, and the entity is “entity”. Features are “price”, “city” and “member”." in text
    assert "“city” is a category with one column of 0 and 1 per level: “Oslo”, “Rome” and “Wien”." in text
    assert "“member” is a category: 1 where it is “yes”, 0 where it is “no”." in text
    assert "“price” with 2.5, “city” with “Rome” and “member” with “no”" in text
    for changed in ({"events": n_events + 1}, {"adapted": "more.csv"}):
        other = copy.copy(model)
        other.provenance_ = model.provenance_ | changed
        text = Page(render_report(other)).text
        assert "and adapted to other events afterwards" in text
        assert "reproduces it" not in text
    html = render_report(model, code="fit(\"<table>\")\nprint('&')")
    assert "<code>fit(&#34;&lt;table&gt;&#34;)\nprint(&#39;&amp;&#39;)</code>" in html
    assert "fedhlcr fit" not in html
    assert "This code reproduces it" in Page(html).text


def test_a_federated_run_shows_its_rounds(federated, split):
    text = Page(render_report(federated, held_out(split[1]))).text
    history = federated.history_
    rounds = history[1:]
    assert "after 25 rounds: reached" in text
    assert f"It ended because: {federated.stop_reason_}." in text
    assert (
        f"{percent(rounds['n_accepted'].sum() / rounds['n_asked'].sum())} of the agents asked answered in time" in text
    )
    assert f"{byte_size(history['bytes_up'].sum())} of sums up" in text
    assert f"{byte_size(history['bytes_down'].sum())} of coefficients down" in text
    silent = (rounds["n_asked"] - rounds["n_accepted"]).sum()
    assert rounds["n_refused"].sum()
    assert f"requests were not answered in time {silent} " in text
    assert f"answers were refused {rounds['n_refused'].sum()} " in text
    assert "Agents send sums, never events. This run was simulated in one process." in text
    assert "validation set" not in text


def test_a_validation_set_is_mentioned(federated):
    model = copy.copy(federated)
    model.history_ = federated.history_.copy()
    model.history_["validation_mse"] = 1.0
    assert "A validation set was scored after each round." in Page(render_report(model)).text


def test_a_stopped_run_may_still_have_unsettled_quantities(federated):
    model = copy.copy(federated)
    model.diagnostics_ = (Diagnostic("predictions", 1.7, 5.0),)
    assert "The fit had not settled, so its figures may still change" in headlines(model)
    model.stop_reason_ = "stopped: the log joint has been stable for 20 rounds"
    told = headlines(model)
    assert "The fit had not settled, so its figures may still change" not in told
    assert "predictions 1.70" in told["Not everything had settled when the run ended"].text


def test_fitted_events_are_not_called_held_out(model, split):
    page = Page(render_report(model, held_out(split[0])))
    assert "held out" not in page.columns("agents")
    assert "error" in page.columns("agents")
    assert "on its fitted events" in page.text
    assert "HLCR has a smaller error" not in page.text
    assert "HLCR has a smaller error" in Page(render_report(model, held_out(split[1]))).text
    assert "No held-out events were given, so it was not evaluated." in Page(render_report(model)).text


def test_events_of_new_agents_have_no_ridge_per_entity_and_no_column(model, split):
    test = split[1]
    strangers = np.array([f"new {agent}" for agent in test.agent])
    page = Page(render_report(model, HeldOut(test.X, test.y, strangers, test.entity)))
    assert "one ridge" in page.text
    assert "a ridge per" not in page.text
    assert not {"held out", "error", "ridge’s error"} & set(page.columns("agents"))
    page = Page(render_report(model, HeldOut(test.X, -test.y, strangers, test.entity)))
    assert "it predicts the target worse than the plain mean does" in page.text
    assert "one ridge for all explains none of it" in page.text
    assert "explains −" not in page.text


def test_clusters_are_listed_by_share(model):
    clusters = Page(render_report(model)).columns("clusters")
    assert clusters["cluster"] == list(range(model.n_clusters_))
    np.testing.assert_allclose(clusters["share"], entity_shares(model), atol=1e-4)
    assert clusters["share"] == sorted(clusters["share"], reverse=True)
    np.testing.assert_allclose(clusters["weight"], model.cluster_weights_, atol=1e-4)


def test_a_card_tells_the_strongest_effects_of_its_own_cluster(split, rng):
    train = split[0]
    X = rng.normal(size=(len(train), 30))
    odd = train.entity % 2
    y = np.where(odd, 3.0 * X[:, 27] + X[:, 1], 5.0 * X[:, :7].sum(axis=1)) + rng.normal(0, 0.1, len(train))
    model = HLCRRegressor(n_clusters=2, n_sweeps=60).fit(X, y, agent=train.agent, entity=train.entity)
    cards = render_report(model).split('<article class="card">')[1:]
    assert len(cards) == 2
    for k, card in enumerate(cards):
        told = re.findall(r"It \w+ [\d.]+ as (x\d+) goes", card)
        assert len(told) >= 2
        assert set(told[:2]) <= {f"x{f}" for f in np.flatnonzero(np.abs(effect_sizes(model)[k]) > 0.5)}


@pytest.mark.parametrize("fixture", ["model", "federated"])
def test_a_public_model_says_that_it_holds_no_agents(fixture, split, request):
    bare = public(request.getfixturevalue(fixture))
    page = Page(render_report(bare, held_out(split[1])))
    assert "It is public: it holds no data of any agent" in page.text
    assert "so there is no comparison" in page.text
    assert set(page.data) == {"clusters"}
    assert not any(a.get("id") in {"agents", "entities"} for _, a in page.tags)
    assert f"Cluster 0, {percent(entity_shares(bare)[0])} of entities" in page.text
    assert "nan" not in page.text
    assert ("The federated run" in page.text) == (fixture == "federated")
    assert describe_clusters(bare)[0].startswith("Cluster 0, ")


@pytest.mark.parametrize("case", ["one cluster", "one agent", "no ids", "one event", "no spread", "no features"])
def test_small_models_have_a_report(split, case):
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
    assert not re.search(r"(?<!agent )(?<!cluster )\b1 entities", page.text)
    assert "entities" in page.data
    assert ("agents" in page.data) == (len(model.agent_ids_) > 1)
    if case == "one cluster":
        assert "are in one cluster" in page.text
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


def test_anything_but_a_fitted_model_is_refused(model, split):
    with pytest.raises(TypeError, match=r"`model` must be an estimator of fedhlcr"):
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


def test_shares_in_the_picture_are_drawn_by_the_largest():
    weights = np.full((100, 50), 0.5 / 49)
    weights[np.arange(100), np.arange(100) % 50] = 0.5
    picture = charts.agent_picture(weights)
    assert picture.largest == pytest.approx(0.5)
    assert picture.source == charts.agent_picture(weights / 2.0).source


def test_a_unit_stays_with_its_figure(federated):
    html = render_report(federated)
    words = html.split('<div class="found">')[1].split("<div")[0]
    assert re.search(r"\d\N{NO-BREAK SPACE}(k|M)B of sums", words)
    assert not re.search(r"\d (%|[kMG]B)", words)


def test_upper_case_in_names_stays(split):
    model = fitted(split[0], n_sweeps=10)
    model.recipe_ = recipe_of(["x0", "x1", "x2"], agent="shop", entity="SKU")
    assert '<h2 id="entities-title">SKUs</h2>' in render_report(model)


def test_one_cluster_is_a_finding_only_if_the_model_chose_it(split, rng):
    train = split[0]
    assert "that is a finding too" not in Page(render_report(fitted(train, n_clusters=1))).text
    alike = replace(train, y=train.X @ [1.0, 2.0, -1.0] + rng.normal(0.0, 0.5, len(train.y)))
    model = fitted(alike)
    assert model.n_clusters_ == 1
    assert "There are no groups to tell apart, and that is a finding too." in Page(render_report(model)).text


def test_one_cluster_has_no_columns_of_mixes(split):
    page = Page(render_report(fitted(split[0], n_clusters=1, n_sweeps=10)))
    assert not {"main cluster", "effective clusters", "mix"} & set(page.columns("agents"))
    assert not {"certainty", "other", "its probability"} & set(page.columns("entities"))
    assert "There is only one cluster." in page.text
    assert "uncertain only" not in page.text


def test_one_agent_has_no_link_of_its_own(split):
    train = split[0]
    model = HLCRRegressor(n_sweeps=8).fit(train.X, train.y, entity=train.entity)
    links = [a["href"] for tag, a in Page(render_report(model)).tags if tag == "a"]
    assert "#agents" not in links
    assert "#entities" in links


def test_certainty_is_below_1_if_another_cluster_is_possible(model):
    entities = Page(render_report(model)).columns("entities")
    assert max(entities["certainty"]) < 1.0
    assert min(entities["its probability"]) > 0.0


def test_charts_show_their_ends_and_where_draws_are_kept(model):
    html = render_report(model)
    noise = model.trace_["noise_scale"]
    assert f'aria-label="noise, sweeps 1 to 60: from {number(noise[0])} to {number(noise[-1])}."' in html
    first = model.trace_["sweep"][model.trace_["kept"]].min()
    assert first > 6
    assert f'<rect class="kept" x="{100.0 * (first - 1) / (60 - 1):.2f}"' in html


def test_the_example_in_the_docstring_holds():
    failures, tried = doctest.testmod(page_module)
    assert tried > 0
    assert failures == 0
