"""The map of a report: places are found, projected, spread and named."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedhlcr import HLCRRegressor
from fedhlcr.datasets import load_airports, load_flights
from fedhlcr.exceptions import ArgumentError, ArgumentTypeError
from fedhlcr.figures import svg
from fedhlcr.report import map as report_map
from fedhlcr.report import render_report
from fedhlcr.report.findings import Findings
from fedhlcr.report.map import RADIUS, WIDTH, Projection, map_section, season_panel
from fedhlcr.report.places import Places, locate
from tests.reports import HOSTILE, Page, fitted, public


@pytest.fixture(scope="module")
def flights():
    data = load_flights()
    model = HLCRRegressor(n_sweeps=30)
    return model.fit(data.to_arrow().select(data.feature_names), data.y, agent=data.agent, entity=data.entity)


def spread_places(model):
    """A place for each entity id: its number as degrees east."""
    return {entity: (10.0 + 0.1 * int(entity), float(entity)) for _, entity in model.pair_ids_}


def circles(svg):
    found = re.findall(r'href="#entity=(\d+)" class="([^"]+)" aria-label="([^"]*)"><circle cx="(\S+)" cy="(\S+)"', svg)
    return {int(row): (name, words, float(x), float(y)) for row, name, words, x, y in found}


def test_places_by_entity_agent_and_pair_agree(model):
    pairs = model.pair_ids_
    by_pair = locate(model, {pair: (row / 10.0, -row / 5.0, f"p{row}") for row, pair in enumerate(pairs)})
    np.testing.assert_allclose(by_pair.latitude, np.arange(len(pairs)) / 10.0)
    np.testing.assert_allclose(by_pair.longitude, -np.arange(len(pairs)) / 5.0)
    assert by_pair.names[3] == "p3"
    by_entity = locate(model, spread_places(model))
    np.testing.assert_allclose(by_entity.longitude, [float(entity) for _, entity in pairs])
    assert by_entity.n_known == len(pairs)
    by_rule = locate(model, lambda entity: (10.0 + 0.1 * entity, float(entity)))
    np.testing.assert_allclose(by_rule.latitude, by_entity.latitude)


@pytest.mark.parametrize("library", [pd.DataFrame, pl.DataFrame])
def test_places_come_from_tables_with_the_usual_names(model, library):
    agents = model.agent_ids_.tolist()
    table = library(
        {"Lat": [float(a) for a in agents], "agent": agents, "lng": [2.0] * len(agents), "city": ["C"] * len(agents)}
    )
    found = locate(model, table)
    np.testing.assert_allclose(found.latitude, [float(agent) for agent, _ in model.pair_ids_])
    assert set(found.names) == {"C"}
    pairs = pd.DataFrame(model.pair_ids_, columns=["agent", "entity"]).assign(
        latitude=1.0, longitude=np.arange(len(model.pair_ids_))
    )
    np.testing.assert_allclose(locate(model, library(pairs.to_dict("list"))).longitude, np.arange(len(model.pair_ids_)))


def test_ids_of_any_type_and_missing_coordinates_are_understood(flights):
    airports = load_airports()
    routes = sorted({route for _, route in flights.pair_ids_})
    frame = pd.DataFrame(
        [(route, *airports[route[-3:]]) for route in routes], columns=["entity", "latitude", "longitude", "place"]
    )
    frame.loc[0, "latitude"] = np.nan
    found = locate(flights, frame)
    assert found.n_known == len(flights.pair_ids_) - 1
    assert found.names[-1] == airports[flights.pair_ids_[-1][1][-3:]].city
    texts = {str(agent): (1, 2) for agent in flights.agent_ids_}
    assert locate(flights, texts).n_known == len(flights.pair_ids_)


def test_wrong_places_are_refused_without_their_values(model):
    with pytest.raises(ArgumentTypeError, match="a mapping, a function or a dataframe, but is of type list"):
        locate(model, [1, 2])
    with pytest.raises(ArgumentError, match="no place for any entity"):
        locate(model, {"nobody": (1.0, 2.0)})
    for value in ((91.77, 0.0), (0.0, 361.77), "somewhere", (1.77,), None):
        with pytest.raises(ArgumentError, match="places") as error:
            locate(model, {0: value})
        assert "77" not in str(error.value)
        assert "somewhere" not in str(error.value)
    with pytest.raises(ArgumentError, match="no column 'entity' or 'agent', latitude and longitude"):
        locate(model, pd.DataFrame({"shop": [1]}))


def test_the_projection_keeps_distances_at_its_middle():
    latitude, longitude = np.array([59.0, 61.0]), np.array([10.0, 14.0])
    frame = Projection.around(latitude, longitude)
    x, y = frame.project(latitude, longitude)
    # at 60 degrees a degree to the east is half as long as one to the north
    assert x[1] - x[0] == pytest.approx(y[0] - y[1], rel=1e-6)
    assert ((x > 0) & (x < WIDTH) & (y > 0) & (y < frame.height)).all()


def test_the_date_line_is_crossed():
    frame = Projection.around(np.array([0.0, 1.0, 2.0]), np.array([178.0, -179.0, -175.0]))
    x, _ = frame.project(np.array([0.0, 1.0, 2.0]), np.array([178.0, -179.0, -175.0]))
    assert (np.diff(x) > 0).all()
    assert x[2] - x[0] > WIDTH / 2


def test_one_place_far_away_does_not_make_the_others_small():
    longitude = np.append(np.linspace(-120.0, -70.0, 300), -158.0)
    latitude = np.append(np.full(300, 40.0), 21.0)
    x, _ = Projection.around(latitude, longitude).project(latitude, longitude)
    assert np.ptp(x[:300]) > 0.8 * WIDTH
    assert x[300] < 0
    # of few places all count
    x, _ = Projection.around(latitude[250:], longitude[250:]).project(latitude[250:], longitude[250:])
    assert (x > 0).all()


def test_dots_have_the_colour_of_their_cluster_and_do_not_cover_each_other(model):
    findings = Findings(model)
    places = Places(np.full(len(model.labels_), 5.0), np.full(len(model.labels_), 6.0), [""] * len(model.labels_))
    found = circles(map_section(model, findings, places)["svg"])
    assert set(found) == set(range(len(model.labels_)))
    assert [found[row][0] for row in range(len(found))] == [f"c{k}" for k in model.labels_]
    points = np.array([own[2:] for own in found.values()])
    apart = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    np.fill_diagonal(apart, np.inf)
    assert apart.min() > RADIUS


def test_very_many_entities_share_the_dots_of_their_places(model, monkeypatch):
    monkeypatch.setattr(report_map, "MAX_DOTS", 20)
    findings = Findings(model)
    found = map_section(
        model, findings, locate(model, {agent: (1.0, float(agent)) for agent in model.agent_ids_.tolist()})
    )
    assert 2 <= found["n_drawn"] <= 20
    assert len(circles(found["svg"])) == found["n_drawn"]
    many = [words for _, words, *_ in circles(found["svg"]).values() if "and others: " in words]
    assert many
    assert re.search(r"\d+ entities, \d+(\.\d)? % in cluster \d", many[0])


def test_the_page_has_the_map_and_says_who_is_missing(flights):
    airports = load_airports()
    html = render_report(flights, places=lambda route: None if route.endswith("LAX") else airports[route[-3:]])
    page = Page(html)
    n_missing = sum(route.endswith("LAX") for _, route in flights.pair_ids_)
    assert f"{n_missing} of 354 entities have no place." in page.text
    assert "2 entities far away are drawn at the edge." in page.text
    assert "← Honolulu" in page.text
    assert len(circles(html)) == 354 - n_missing
    # no city is named twice
    labels = re.findall(r'<span class="place[^>]*><bdi>([^<]*)', html)
    assert 3 <= len(labels) == len(set(labels))
    assert "Map" in page.text
    assert 'id="map"' not in render_report(flights)


def test_seasons_are_the_clusters_lines_over_the_year(flights):
    clusters = np.arange(flights.n_clusters_)
    found = season_panel(flights, clusters)
    assert found.x.label == "month"
    assert [text for _, text in found.x.ticks] == list("JFMAMJJASOND")
    assert "against the year’s mean" in found.title
    assert {k for k, _ in found.ends} == set(clusters[:6].tolist())
    # of a sine and a cosine, the curve's heights follow from the coefficients
    curve = next(mark for mark in found.marks if mark.cluster == 0)
    months = np.linspace(0.0, 2.0 * np.pi, len(curve.y))
    expected = flights.coef_[0, 3] * np.sin(months) + flights.coef_[0, 4] * np.cos(months)
    assert np.corrcoef(curve.y, expected)[0, 1] > 0.9999
    assert 'class="season c0"' in svg.picture(found)
    assert (np.diff([place for place, _ in svg.line_labels(found.fitted(), 15.0)]) >= 6.9).all()


def test_models_without_a_cycle_have_a_map_alone(model):
    html = render_report(model, places=spread_places(model))
    assert "map-side alone" in html
    assert 'season-plot"' not in html


def test_hostile_place_names_are_text(split):
    model = fitted(split[0], n_sweeps=10)
    html = render_report(model, places=lambda entity: (float(entity), 1.0, HOSTILE))
    assert HOSTILE in Page(html).text
    assert HOSTILE not in html


def test_public_models_ignore_places(model):
    assert 'id="map"' not in render_report(public(model), places=spread_places(model))
