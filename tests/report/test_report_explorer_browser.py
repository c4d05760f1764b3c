"""The explorer and the map in a real browser: search, arrows, links, the back button, phone, dark, print."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from fedhlcr import HLCRClassifier, HLCRRegressor, hold_out_events
from fedhlcr.data.recipe import Recipe
from fedhlcr.datasets import load_airports, load_flights, make_hlcr
from fedhlcr.report import HeldOut, render_report
from tests.browsers import CONTRAST, HOSTILE, Visits, unfold


def flights_report():
    data, airports = load_flights(), load_airports()
    train, test = (data[rows] for rows in hold_out_events(data.agent, data.entity, random_state=0))
    model = HLCRRegressor(n_sweeps=40)
    model.fit(train.to_arrow().select(data.feature_names), train.y, agent=train.agent, entity=train.entity)
    model.recipe_ = Recipe("minutes per 100 miles", "airline", "route", data.feature_names)
    events = HeldOut(test.to_arrow().select(data.feature_names), test.y, test.agent, test.entity)
    return model, render_report(model, events, places=lambda route: airports[route[-3:]])


def hostile_report():
    """Names that would break a careless page, and a target of two classes."""
    table, _ = make_hlcr(30, 4, 6, 3, 2, 0.3, target="binary", random_state=11)
    agent = np.array([f"shop {a}" if a else HOSTILE for a in table.agent], dtype=object)
    entity = np.array([f"item-{e}-{'long' * 40 if e == 2 else 'שלום'}" for e in table.entity], dtype=object)
    model = HLCRClassifier(n_sweeps=30).fit(table.X, table.y, agent=agent, entity=entity)
    return render_report(model)


def lines_report(n_clusters="auto"):
    """A model that keeps no events, and none are given."""
    table, _ = make_hlcr(10, 4, 6, 2, 2, 0.3, random_state=11)
    model = HLCRRegressor(n_clusters, n_sweeps=30)
    return render_report(model.fit(table.X, table.y, agent=table.agent, entity=table.entity))


def named_report():
    """Names that begin with their nouns, and a feature without any effect."""
    rng = np.random.default_rng(2)
    shop, product = np.arange(600) % 6, np.arange(600) % 30
    frame = pd.DataFrame({"price": rng.normal(size=600), "noise": rng.normal(size=600)})
    frame = frame.assign(shop=[f"shop {s}" for s in shop], product=[f"Product {p} of aisle 3" for p in product])
    model = HLCRRegressor(1, n_sweeps=30, effects="none")
    model.fit(frame, 1000.0 + 5.0 * frame["price"], agent="shop", entity="product")
    return render_report(model)


@pytest.fixture(scope="module")
def reports(tmp_path_factory):
    folder = tmp_path_factory.mktemp("explorers")
    (folder / "named.html").write_text(named_report(), encoding="utf-8")
    model, html = flights_report()
    (folder / "flights.html").write_text(html, encoding="utf-8")
    (folder / "hostile.html").write_text(hostile_report(), encoding="utf-8")
    (folder / "lines.html").write_text(lines_report(), encoding="utf-8")
    (folder / "one.html").write_text(lines_report(1), encoding="utf-8")
    return folder, model


@pytest.fixture(scope="module")
def model(reports):
    return reports[1]


@pytest.fixture
def open_report(browser, reports):
    """Opens a report; at the end, nothing may have been asked for or complained of."""
    visits = Visits(browser)

    def start(name="flights", address="", width=1280, **options):
        page = visits.open((reports[0] / f"{name}.html").as_uri() + address, width, **options)
        if options.get("java_script_enabled", True):
            page.locator("#explored h3").wait_for()
        return page

    yield start
    visits.end()


def title(page):
    return page.locator("#explored h3").inner_text()


def suggestions(page):
    return page.get_by_role("listbox", name="Matching names").get_by_role("option")


def waits_for(page, text):
    page.locator("#explored h3", has_text=re.compile(f"^{re.escape(text)}$")).wait_for()


def test_something_is_shown_from_the_start(open_report):
    page = open_report()
    assert title(page).startswith("Route ")
    assert page.locator("#explored .own-line").count() > 0
    assert page.locator("#explored path.event").count() > 0
    assert page.evaluate("scrollY") == 0
    assert page.evaluate("location.hash") == ""


def test_names_are_found_with_the_keyboard_alone(open_report, model):
    page = open_report()
    find = page.get_by_role("combobox", name="Find")
    find.focus()
    page.keyboard.type("ua@ewr-l")
    options = suggestions(page)
    texts = options.all_inner_texts()
    assert 2 <= len(texts) <= 10
    assert all("UA@EWR-L" in text for text in texts)
    assert "names match" in page.locator("#explorer-status").inner_text()
    assert find.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowDown")
    assert options.nth(1).get_attribute("aria-selected") == "true"
    assert find.get_attribute("aria-activedescendant") == options.nth(1).get_attribute("id")
    chosen = options.nth(1).locator("bdi").first.inner_text()
    page.keyboard.press("Enter")
    waits_for(page, f"Route {chosen}")
    row = [route for _, route in model.pair_ids_].index(chosen)
    assert page.evaluate("location.hash") == f"#entity={row}"
    assert page.evaluate("document.activeElement.tagName") == "H3"
    assert chosen in page.locator("#explorer-status").inner_text()
    assert options.count() == 0


def test_arrow_up_from_nothing_goes_to_the_last_name(open_report):
    page = open_report()
    page.get_by_role("combobox", name="Find").focus()
    page.keyboard.type("jfk")
    page.keyboard.press("ArrowUp")
    assert suggestions(page).last.get_attribute("aria-selected") == "true"


def test_a_noun_that_the_name_has_is_not_said_twice(open_report):
    page = open_report("named", "#entity=0")
    assert title(page) == "Product 0 of aisle 3"
    assert "of shop 0 ·" in page.locator(".facts-line").inner_text()
    details = page.locator(".likes small").all_inner_texts()
    assert details
    assert not any("shop shop" in text for text in details)


def test_a_flat_line_is_told_as_flat(open_report):
    page = open_report("named", "#entity=0")
    page.get_by_label("against").select_option("noise")
    assert re.search(r"is about [\d.,−]+ all along noise", page.locator(".told").inner_text())


def test_escape_closes_the_suggestions_then_empties_the_box(open_report):
    page = open_report()
    before = title(page)
    find = page.get_by_role("combobox", name="Find")
    find.fill("jfk")
    assert suggestions(page).count() == 10
    page.keyboard.press("Escape")
    assert page.locator("#explorer-options").is_hidden()
    assert find.input_value() == "jfk"
    page.keyboard.press("Escape")
    assert find.input_value() == ""
    find.fill("no such name")
    assert suggestions(page).count() == 0
    assert page.locator("#explorer-options").inner_text() == "No name matches."
    page.keyboard.press("Enter")
    assert title(page) == before


def test_a_suggestion_can_be_clicked_and_agents_come_first(open_report):
    page = open_report()
    page.get_by_role("combobox", name="Find").fill("B6@JFK")
    first = suggestions(page).first
    assert first.inner_text().split() == ["B6@JFK", "airline"]
    first.click()
    waits_for(page, "Airline B6@JFK")


def test_names_in_tables_lead_to_the_explorer_and_back(open_report):
    page = open_report()
    before = title(page)
    unfold(page)
    link = page.locator("[data-listing=entities] tbody tr").nth(4).get_by_role("link").nth(1)
    name = link.inner_text()
    link.click()
    waits_for(page, f"Route {name}")
    assert page.locator("#explored").evaluate("e => e.getBoundingClientRect().top < innerHeight")
    page.go_back()
    waits_for(page, before)
    page.go_forward()
    waits_for(page, f"Route {name}")
    agent = page.locator("[data-listing=agents] tbody tr").nth(2).get_by_role("link").first
    name = agent.inner_text()
    agent.focus()
    page.keyboard.press("Enter")
    waits_for(page, f"Airline {name}")


def test_a_link_that_is_followed_twice_still_works(open_report):
    page = open_report()
    unfold(page)
    link = page.locator("[data-listing=entities] tbody tr").nth(4).get_by_role("link").nth(1)
    for _ in range(2):
        link.click()
        page.wait_for_function("document.activeElement.tagName === 'H3'")


def test_from_agent_to_entity_to_neighbour_and_back(open_report):
    page = open_report(address="#agent=3")
    waits_for(page, "Airline AA@EWR")
    text = page.locator("#explored").inner_text()
    assert "Its error is" in text
    page.locator("#explored .agent-entities").get_by_role("link").first.click()
    page.locator("#explored h3", has_text="Route AA@EWR").wait_for()
    entity = title(page)
    likes = page.locator("#explored .likes a")
    assert likes.count() == 5
    other = likes.nth(2).inner_text()
    likes.nth(2).click()
    waits_for(page, f"Route {other}")
    page.go_back()
    waits_for(page, entity)
    page.go_back()
    waits_for(page, "Airline AA@EWR")
    page.locator("#explored .likes a").first.click()
    page.wait_for_function("location.hash !== '#agent=3'")
    assert title(page).startswith("Airline ")


def test_previous_and_next_keep_the_keyboard(open_report, model):
    page = open_report(address="#entity=0")
    names = [route for _, route in model.pair_ids_]
    previous, following = page.locator("#explorer-previous"), page.locator("#explorer-next")
    waits_for(page, f"Route {names[0]}")
    assert previous.is_disabled()
    following.focus()
    page.keyboard.press("Enter")
    waits_for(page, f"Route {names[1]}")
    page.keyboard.press("Enter")
    waits_for(page, f"Route {names[2]}")
    assert page.evaluate("document.activeElement.id") == "explorer-next"
    previous.click()
    waits_for(page, f"Route {names[1]}")
    page.evaluate("location.hash = '#entity=353'")
    waits_for(page, f"Route {names[353]}")
    assert following.is_disabled()


def test_addresses_of_nothing_are_ignored(open_report):
    page = open_report(address="#entity=99999")
    assert title(page).startswith("Route ")
    before = title(page)
    page.evaluate("location.hash = '#agent=33'")
    page.wait_for_timeout(100)
    assert title(page) == before


def test_probabilities_on_the_page_are_the_models(open_report, model):
    page = open_report(address="#entity=7")
    agent, entity = model.pair_ids_[7]
    expected = model.responsibilities(agent, entity)
    shown = {}
    for line in page.locator("#explored .probabilities li").all():
        name, share = line.locator("span").first.inner_text(), line.locator(".n").inner_text()
        shown[int(name.split()[1])] = float(share.split()[0])
    assert set(shown) == set(np.flatnonzero(expected >= 0.01))
    for k, value in shown.items():
        assert value == pytest.approx(100 * expected[k], abs=0.51)


def test_an_entity_between_two_clusters_is_called_unclear(open_report, model):
    page = open_report()
    agent, entity = model.pair_ids_[7]
    first, second = (int(k) for k in np.argsort(-model.responsibilities(agent, entity))[:2])
    page.evaluate(f"explorerData().label[7] = {second}")
    page.evaluate("location.hash = '#entity=7'")
    waits_for(page, f"Route {entity}")
    assert f"unclear: cluster {first} or {second}" in page.locator("#explored .facts-line").inner_text()
    assert "with probability" not in page.locator("#explored").inner_text()


def test_one_cluster_has_no_probabilities(open_report):
    page = open_report("one")
    for address in ("#entity=2", "#agent=1"):
        page.evaluate(f"location.hash = '{address}'")
        page.wait_for_function("document.activeElement.tagName === 'H3'")
        assert "cluster" not in page.locator("#explored header").inner_text()
        assert page.locator("#explored .probabilities").count() == 0


def test_examples_of_clusters_lead_to_the_explorer(open_report):
    page = open_report()
    link = page.locator("#clusters .who a").first
    name = link.inner_text().split(" of ")[0]
    link.click()
    waits_for(page, f"Route {name}")


def test_the_line_that_is_drawn_is_the_models(open_report, model):
    """Read the line off the picture at both ends, with the ticks, and compare it with predictions."""
    page = open_report(address="#entity=20")
    page.locator("#explored select").select_option(label="dist")
    ticks = page.locator("#explored .y-ticks span")
    tops = [100.0 - float(t) for t in ticks.evaluate_all("all => all.map(e => parseFloat(e.style.bottom))")]
    values = [float(text.replace("−", "-")) for text in ticks.all_inner_texts()]
    slope, level = np.polyfit(tops, values, 1)
    path = page.locator("#explored .own-line").first.get_attribute("d")[1:].split("L")
    drawn = [level + slope * float(point.split()[1]) for point in (path[0], path[-1])]
    # the slope of log_dist, over the range of the events
    coef = model.entity_coef_[20, 5]
    assert abs(drawn[1] - drawn[0]) > 0.1
    ratio = (drawn[1] - drawn[0]) / coef
    assert 3.0 < ratio < 5.0
    told = page.locator("#explored .told").inner_text()
    assert ("falls" if coef < 0 else "rises") in told
    assert page.locator("#explored svg[role=img] title").text_content() == told


def test_the_axis_can_be_chosen_and_stays(open_report):
    page = open_report()
    select = page.locator("#explored select")
    assert select.locator("option").all_inner_texts()[0] == "month"
    assert page.locator("#explored .x-ticks").inner_text().split() == list("JFMAMJJASOND")
    before = page.locator("#explored .own-line").first.get_attribute("d")
    select.select_option(label="hour")
    assert page.locator("#explored .x-ticks").inner_text().split() == ["0:00", "6:00", "12:00", "18:00", "24:00"]
    assert page.locator("#explored .own-line").first.get_attribute("d") != before
    page.locator("#explorer-next").click()
    assert page.locator("#explored select").evaluate("e => e.selectedOptions[0].textContent") == "hour"


def test_dots_on_the_map_open_the_explorer(open_report, model):
    page = open_report()
    dot = page.locator("svg.places a").nth(100)
    words = dot.get_attribute("aria-label")
    dot.hover(force=True)
    dot.focus()
    assert page.locator("#map-readout").inner_text() == words
    page.keyboard.press("Enter")
    row = int(dot.get_attribute("href").split("=")[1])
    waits_for(page, f"Route {model.pair_ids_[row][1]}")
    assert words.startswith(model.pair_ids_[row][1])
    assert dot.get_attribute("aria-current") == "true"
    page.locator("svg.places a").nth(5).dispatch_event("click")
    waits_for(page, "Route " + page.locator("svg.places a").nth(5).get_attribute("aria-label").split(":")[0])


def test_the_map_is_one_stop_and_arrows_move_on_it(open_report):
    page = open_report()
    assert page.locator("svg.places a[tabindex='0']").count() == 1
    page.locator("svg.places a[tabindex='0']").focus()
    place = "Number(document.activeElement.firstChild.getAttribute('{}'))"
    for key, name, sign in (
        ("ArrowRight", "cx", 1),
        ("ArrowDown", "cy", 1),
        ("ArrowLeft", "cx", -1),
        ("ArrowUp", "cy", -1),
    ):
        before = page.evaluate(place.format(name))
        page.keyboard.press(key)
        assert sign * (page.evaluate(place.format(name)) - before) > 0
    assert page.locator("svg.places a[tabindex='0']").count() == 1
    page.keyboard.press("Tab")
    assert page.evaluate("!document.activeElement.closest('svg.places')")


def test_names_show_on_hover(open_report):
    page = open_report()
    dot = page.locator("svg.places a").nth(3)
    dot.dispatch_event("pointerover")
    assert page.locator("#map-readout").inner_text() == dot.get_attribute("aria-label")


@pytest.mark.parametrize("name", ["flights", "hostile"])
def test_a_phone_shows_all_of_it(open_report, name):
    page = open_report(name, width=390)
    for address, start in (("", ""), ("#entity=2", "Entity|Route"), ("#agent=0", "Agent|Airline")):
        page.evaluate("address => { location.hash = address; }", address)
        page.locator("#explored h3", has_text=re.compile(f"^({start})")).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        beyond = """() => [...document.querySelectorAll('#explorer *, #map *')].filter(element =>
            !element.closest('.scroll, svg, .unseen') && element.getBoundingClientRect().right > 391).length"""
        assert page.evaluate(beyond) == 0
        # fingers need room
        assert page.locator("#explorer-find").evaluate("e => e.getBoundingClientRect().width") > 200


def test_hostile_names_are_text_everywhere(open_report):
    page = open_report("hostile", "#agent=0")
    page.get_by_role("combobox", name="Find").fill("script")
    assert HOSTILE in suggestions(page).first.inner_text()
    page.keyboard.press("Enter")
    page.locator("#explored h3", has_text="</script>").wait_for()
    page.locator("#explored .agent-entities").get_by_role("link").first.click()
    page.locator("#explored h3", has_text="Entity item").wait_for()
    assert HOSTILE in page.locator("#explored .facts-line").inner_text()
    assert page.locator("img").count() == 0


def test_without_events_the_page_says_how_to_get_dots(open_report):
    page = open_report("lines")
    assert page.locator("#explored path.event").count() == 0
    assert page.locator("#explored .own-line").count() > 0
    assert "To see them, give it a table of events" in page.locator("#explorer").inner_text()


def test_a_classifier_draws_the_events_it_keeps_and_per_cent(open_report):
    page = open_report("hostile")
    assert page.locator("#explored path.event").count() > 0
    assert "To see them" not in page.locator("#explorer").inner_text()
    assert all(text.endswith("%") for text in page.locator("#explored .y-ticks span").all_inner_texts())


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_of_explorer_and_map_are_readable(open_report, scheme):
    page = open_report(color_scheme=scheme)
    page.get_by_role("combobox", name="Find").fill("jfk")
    words = "p, h2, h3, h4, a, small, label, li span, button, select, .y-ticks span, .x-ticks span, .place"
    selector = f":is(#explorer, #map) :is({words})"
    ratios = page.evaluate(CONTRAST, f"{selector}, #explorer-options li, #explorer-options small")
    assert len(ratios) > 40
    assert min(ratios) >= 4.5


def test_paper_shows_the_chosen_one_without_controls(open_report):
    page = open_report(address="#entity=12", color_scheme="dark")
    name = title(page)
    page.emulate_media(media="print")
    assert page.locator("#explored h3", has_text=name.split()[1]).is_visible()
    assert page.locator("#explorer button:visible, #explorer input:visible, #explorer select:visible").count() == 0
    assert page.locator("#explored .own-line").first.is_visible()
    assert page.locator("svg.places").is_visible()


def test_without_script_the_map_is_there_and_the_explorer_says_why_not(open_report):
    page = open_report(java_script_enabled=False)
    assert page.locator("svg.places circle").count() == 354
    assert page.locator("#explorer-controls").is_hidden()
    assert page.locator("#explored").is_hidden()


def test_old_browsers_get_the_words_the_pictures_and_a_note(browser, reports):
    context = browser.new_context()
    context.add_init_script("delete window.DecompressionStream")
    page, complaints = context.new_page(), []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto((reports[0] / "flights.html").as_uri() + "#entity=3")
    page.get_by_text("Your browser is too old for this section.").wait_for()
    assert page.locator("#explored").is_hidden()
    assert page.locator("svg.places circle").count() == 354
    assert page.locator("[data-listing=entities] tbody tr").count() == 25
    assert "The first 25 of" in page.locator("[data-listing=entities] .rest").text_content()
    context.close()
    assert complaints == []


COUNTING = """() => {
  window.decoded = { before: 0, after: 0 };
  let isParsed = false;
  document.addEventListener("DOMContentLoaded", () => { isParsed = true; });
  const original = window.atob;
  window.atob = (text) => { window.decoded[isParsed ? "after" : "before"] += 1; return original(text); };
}"""


def test_nothing_is_decoded_before_the_page_is_parsed(browser, reports):
    """A limit in milliseconds would measure how busy the machine is."""
    context = browser.new_context()
    context.add_init_script(f"({COUNTING})()")
    page = context.new_page()
    page.goto((reports[0] / "flights.html").as_uri())
    page.locator("#explored h3").wait_for()
    decoded = page.evaluate("window.decoded")
    context.close()
    assert decoded["before"] == 0
    assert decoded["after"] > 5
