"""The study on real tables: its splits, one true cell, and a report of made-up records."""

import subprocess
import sys

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import methods
from experiments.data import FOLDER_VARIABLE
from experiments.markdown import Gallery
from experiments.methods import DEFAULT, LEVELS, METHODS, available_methods
from experiments.real import STUDIES
from experiments.real.report import left_edge
from experiments.real.scores import Lead, Scores, leaders, mean_ranks
from experiments.real.tables import ALL, FEW, TABLES, load, split_events
from experiments.study import MissingDataError, Record
from fedhlcr.datasets import make_hlcr

(REAL,) = STUDIES


@pytest.fixture
def made_up(tmp_path, monkeypatch):
    """A folder with but one table, drawn from the model under the cheese's name."""
    table, _ = make_hlcr(12, 4, 20, 3, 4, 0.3, random_state=3)
    pq.write_table(table.to_arrow(), tmp_path / TABLES["cheese"].file)
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    return table


def pairs(table):
    return list(zip(table.agent.tolist(), table.entity.tolist(), strict=True))


def test_the_test_events_are_the_same_with_few_training_events(made_up):
    table = load("cheese")
    np.testing.assert_array_equal(table.X, made_up.X)
    (many, test), (few, same) = (split_events(table, events, 5) for events in (ALL, FEW))
    np.testing.assert_array_equal(test.y, same.y)
    sizes = {pair: pairs(many).count(pair) for pair in set(pairs(many))}
    assert max(sizes.values()) > FEW
    assert {pair: pairs(few).count(pair) for pair in set(pairs(few))} == {
        pair: min(size, FEW) for pair, size in sizes.items()
    }
    # all targets differ, so events are told by them
    assert set(few.y) < set(many.y)
    assert not set(many.y) & set(test.y)
    other, _ = split_events(table, FEW, 6)
    assert set(other.y) != set(few.y)


def test_the_full_form_needs_no_data_to_be_listed_and_the_quick_one_takes_what_is_here(made_up):
    full, quick = REAL.settings(True), REAL.settings(False)
    assert {cell["table"] for cell in full} == set(TABLES)
    assert {cell["table"] for cell in quick} == {"flights", "cheese"}
    assert {cell["method"] for cell in quick} == {cell["method"] for cell in full} == set(available_methods())
    with pytest.raises(MissingDataError, match=r"oj_store_brand_week\.parquet is not here"):
        load("oj")


@pytest.mark.parametrize("method", ["ridge", "mixed", "ifca-entity", "lcr-entity", "hlcr", "fedhlcr"])
def test_a_cell_measures_what_it_says(made_up, method):
    figures = REAL.measure(table="cheese", events=8, split=1, method=method)
    _, test = split_events(made_up, 8, 1)
    assert figures["r2"] == pytest.approx(1.0 - figures["mse"] / np.var(test.y))
    # four classes, told apart by entity alone
    assert figures["r2"] > 0.8 if METHODS[method].level == "entity" else figures["r2"] < 0.7
    again = REAL.measure(table="cheese", events=8, split=1, method=method)
    assert {**figures, "seconds": 0} == {**again, "seconds": 0}


def test_seconds_are_of_the_core_and_without_the_compiler(made_up, monkeypatch):
    log = []
    monkeypatch.setattr(methods, "compile_kernels", lambda: log.append("compiler"))
    monkeypatch.setattr(methods.time, "process_time", lambda: log.append("clock") or 2.5 * len(log))
    figures = REAL.measure(table="cheese", events=8, split=1, method="ridge")
    assert log == ["compiler", "clock", "clock"]
    assert figures["seconds"] == 2.5


def test_every_method_can_be_made_and_is_seeded():
    seeded = [method.make(7).get_params().get("random_state") for method in METHODS.values()]
    assert set(seeded) == {7, None}
    assert seeded.count(None) == 4  # three ridges and the mixed model draw nothing
    levels = [LEVELS.index(method.level) for method in METHODS.values()]
    assert levels == sorted(levels)


def records(r2, n_splits=3, tables=("flights", "cheese")):
    """Records whose R² is r2(table, events, split, method)."""
    return [
        Record(cell, {"r2": r2(*cell.values()), "mse": 1.0, "seconds": 2.0})
        for cell in (
            {"table": table, "events": events, "split": split, "method": method}
            for split in range(n_splits)
            for table in tables
            for events in (ALL, FEW)
            for method in METHODS
        )
    ]


def test_the_best_are_told_by_differences_split_by_split():
    runs = np.array([[0.5, 0.7, 0.9], [0.49, 0.71, 0.89], [0.48, 0.68, 0.88], [0.1, 0.2, 0.3]])
    # the third is as near to the best as the second by its own error, but behind in every split
    np.testing.assert_array_equal(leaders(runs), [True, True, False, False])
    np.testing.assert_array_equal(leaders(runs[:, :1]), [True, False, False, False])


def test_mean_ranks():
    np.testing.assert_allclose(mean_ranks(np.array([[0.9, 0.1, 0.5], [0.2, 0.1, 0.5]])), [1.5, 3.0, 1.5])
    # to three digits
    np.testing.assert_allclose(mean_ranks(np.array([[0.3, 0.5001, 0.5002, 0.7]])), [4.0, 2.5, 2.5, 1.0])


def test_a_panel_begins_where_most_values_are():
    assert left_edge(np.array([0.0, 0.44, 0.45, 0.47, 0.5])) == pytest.approx(0.44 - 0.006)
    assert left_edge(np.array([0.0, 0.2, 0.3, 0.4, 0.5])) == 0.0
    # two halves far from each other are no outliers
    assert left_edge(np.array([0.1, 0.11, 0.12, 0.8, 0.81, 0.82])) == 0.1


def test_leads_are_against_the_best_of_others():
    best = {"flights": "mixed", "cheese": "ridge"}
    scores = Scores.of(records(lambda table, events, split, method: 0.5 * (method == best[table])), "r2")
    leads = scores.lead(ALL, "hlcr", ("ridge", "mixed"))
    assert leads == {"flights": (-0.5, 0.0, "mixed"), "cheese": (-0.5, 0.0, "ridge")}
    assert [Lead(mean, 0.2, "").side for mean in (0.3, 0.1, -0.1, -0.3)] == [1, 0, 0, -1]


def test_the_report_tells_the_figures(tmp_path):
    place = {method: i for i, method in enumerate(METHODS)}

    def r2(table, events, split, method):
        behind = 0.3 if method == "lcr-event" and table == "cheese" else 0.0
        few = 0.1 if events == FEW and table == "flights" else 0.0
        return 0.3 + 0.03 * place[method] - few + 0.001 * split - behind

    report = REAL.report(records(r2), Gallery(tmp_path, tmp_path / "RESULTS.md"))
    assert (tmp_path / "real.png").exists()
    assert (tmp_path / "real.svg").exists()
    lines = report.text.splitlines()
    first, second = (line for line in lines if line.startswith("| FedHLCR, the default") and "±" in line)
    assert first == "| FedHLCR, the default | yes | **0.961 ± 0.001** | **0.961 ± 0.001** | 1.0 |"
    assert second.startswith("| FedHLCR, the default | yes | **0.861")
    assert "No entity of cheese has more than 8 training events, so both settings are the same data" in report.text
    assert "| one ridge |  | 0.301 ± 0.001 | 0.301 ± 0.001 | 22.5 |" in lines
    assert report.text.count("**") == 8
    words = (
        "HLCR against the mixed model: ahead on 2 of 2 tables, level on 0, behind on 0; flights +0.120, cheese +0.120."
    )
    assert words in report.text
    assert "HLCR is nowhere more than 0.02 behind" in report.text
    assert "A class per event falls far behind one ridge on cheese" in report.text
    assert "orange juice" not in report.text


def test_a_table_that_few_events_do_not_change_counts_once(tmp_path):
    """The cheese, where HLCR is last, is the same with few events: only the flights, where it is first, count then."""

    def r2(table, events, split, method):
        place = 1.0 if table == "flights" else -1.0
        return 0.5 + 0.1 * place * (method == DEFAULT) - 0.2 * (events == FEW and table == "flights")

    scores = Scores.of(records(r2), "r2")
    hlcr = list(METHODS).index(DEFAULT)
    assert [list(scores.counted(events)) for events in (ALL, FEW)] == [[True, True], [True, False]]
    assert [scores.mean_ranks(events)[hlcr] for events in (ALL, FEW)] == [(1 + len(METHODS)) / 2, 1]
    assert [list(scores.lead(events, DEFAULT, ("ridge",))) for events in (ALL, FEW)] == [
        ["flights", "cheese"],
        ["flights"],
    ]
    text = REAL.report(records(r2), Gallery(tmp_path, tmp_path / "RESULTS.md")).text
    words = "HLCR against a ridge per entity: ahead on 1 of {} tables, level on 0, behind on {}; flights +0.100"
    assert [words.format(n, n - 1) in text for n in (1, 2)] == [True, True]


def test_report_names_weak_spots(tmp_path):
    def r2(table, events, split, method):
        if method == DEFAULT and table == "flights" and events == FEW:
            return 0.4 - 0.01 * split
        return {"mixed": 0.9, "lcr-entity": 0.43, DEFAULT: 0.42}.get(method, 0.3)

    text = REAL.report(records(r2), Gallery(tmp_path, tmp_path / "RESULTS.md")).text
    told = (
        "HLCR is 0.040 behind on flights (LCR, class per entity): its R² is 0.380 to 0.400 by split, the rival's 0.430"
    )
    assert text.count(told) == 1
    # the mixed model has no classes, and 0.01 is not far
    assert text.count("Weak spots: none") == 1


@pytest.mark.slow
def test_importing_the_study_is_light():
    program = (
        "import sys, experiments.real; print([name for name in ('torch', 'fedhlcr.baselines') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
