"""The experiments: records that survive interruption, folds that do not leak, reports that follow the figures."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

pytest.importorskip("matplotlib")

from experiments import __main__ as command
from experiments.data import FOLDER_VARIABLE, find_data
from experiments.markdown import Gallery, mean_and_error, table, wrap
from experiments.methods import DEFAULT
from experiments.records import RecordFile
from experiments.running import run_study
from experiments.study import FAILS, HOLDS, PARTLY, Finding, MissingDataError, Record, Report, Study
from experiments.synthetic import STUDIES, convergence, figure_a, figure_b, figure_c, labels, misspecified
from experiments.synthetic.data import N_AGENTS, Size, assign_folds, folds, own_slopes, synth_hlcr
from experiments.synthetic.federations import Look, settings_of, watch
from experiments.synthetic.limit import limit_mse
from experiments.synthetic.measuring import LIMIT, cell, measure

SMALL = Size(2, 5, 2)
ROOT = Path(__file__).parents[2]


def square(*, number, log):
    """A cell that tells when it is measured."""
    with open(log, "a") as file:
        file.write(f"{number}\n")
    if number == 13:
        raise MissingDataError("thirteen is not here.")
    return {"square": number**2}


def study_of(numbers, log, n_jobs=1):
    def settings(full):
        return [{"number": number, "log": str(log)} for number in numbers]

    def report(records, gallery):
        return Report(", ".join(str(record.figures["square"]) for record in records), (Finding("4", HOLDS, "2²"),))

    return Study("squares", "Squares", settings, square, report, n_jobs)


KILLED_RUN = """
import os, sys, time
sys.path.insert(0, os.getcwd())
from pathlib import Path
from experiments.records import RecordFile
from experiments.running import run_study
from experiments.study import Study

def measure(*, number):
    (Path(sys.argv[1]) / "child").write_text(str(os.getpid()))
    time.sleep(60)
    return {}

if __name__ == "__main__":
    study = Study("sleep", "Sleep", None, measure, None, 2)
    run_study(study, [{"number": 1}, {"number": 2}], RecordFile(Path(sys.argv[1]) / "records.jsonl", 1))
"""


def eventually(true, seconds=60):
    until = time.monotonic() + seconds
    while not true() and time.monotonic() < until:
        time.sleep(0.1)
    return true()


class TestRecords:
    def test_nothing_is_measured_twice(self, tmp_path):
        log, path = tmp_path / "log", tmp_path / "records.jsonl"
        for numbers in ([1, 2], [1, 2, 3], [3, 1]):
            study = study_of(numbers, log)
            records = run_study(study, study.settings(True), RecordFile(path, 1))
            assert [record.figures["square"] for record in records] == [number**2 for number in numbers]
        assert log.read_text().split() == ["1", "2", "3"]

    def test_a_run_that_fails_keeps_what_it_measured(self, tmp_path):
        study = study_of([1, 2, 13], tmp_path / "log")
        path = tmp_path / "records.jsonl"
        with pytest.raises(MissingDataError):
            run_study(study, study.settings(True), RecordFile(path, 1))
        settings = study.settings(True)
        assert [RecordFile(path, 1).find(each) is not None for each in settings] == [True, True, False]

    @pytest.mark.slow
    def test_processes_measure_the_same(self, tmp_path):
        study = study_of(range(4), tmp_path / "log", n_jobs=2)
        records = run_study(study, study.settings(True), RecordFile(tmp_path / "records.jsonl", 1))
        assert [record.figures["square"] for record in records] == [0, 1, 4, 9]

    @pytest.mark.slow
    def test_processes_end_with_a_run_that_is_killed(self, tmp_path):
        script = tmp_path / "script.py"
        script.write_text(KILLED_RUN)
        run = subprocess.Popen([sys.executable, script, tmp_path], cwd=ROOT)
        assert eventually(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text())
        child = psutil.Process(int((tmp_path / "child").read_text()))
        run.kill()
        run.wait()
        assert eventually(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)

    def test_a_torn_line_is_measured_again(self, tmp_path):
        path, settings = tmp_path / "records.jsonl", {"number": 1}
        RecordFile(path, 1).add(settings, {"square": 1})
        RecordFile(path, 1).add({"number": 2}, {"square": 4})
        path.write_text(path.read_text()[:-9])
        records = RecordFile(path, 1)
        assert records.find(settings) == Record(settings, {"square": 1})
        assert records.find({"number": 2}) is None
        records.add({"number": 2}, {"square": 4})
        assert all(json.loads(line) for line in path.read_text().splitlines())

    def test_records_of_another_revision_are_set_aside(self, tmp_path):
        path = tmp_path / "records.jsonl"
        RecordFile(path, 1).add({"number": 1}, {"square": 1})
        newer = RecordFile(path, 2)
        assert newer.find({"number": 1}) is None
        newer.add({"number": 1}, {"square": 2})
        assert RecordFile(path, 2).find({"number": 1}).figures == {"square": 2}
        assert RecordFile(tmp_path / "records.revision-1.jsonl", 1).find({"number": 1}).figures == {"square": 1}

    def test_looking_does_not_write(self, tmp_path):
        path = tmp_path / "records.jsonl"
        mine = RecordFile(path, 1)
        mine.add({"number": 1}, {"square": 1})
        other = RecordFile(path, 1)
        mine.add({"number": 2}, {"square": 4})
        other.tidy([{"number": 1}])
        assert RecordFile(path, 1).find({"number": 2}) is not None

    def test_settings_that_differ_are_other_cells(self, tmp_path):
        records = RecordFile(tmp_path / "records.jsonl", 1)
        records.add({"number": 1, "seed": 0}, {"square": 1})
        assert records.find({"seed": 0, "number": 1}) is not None
        assert records.find({"number": 1, "seed": 1}) is None


class TestPage:
    @pytest.fixture
    def squares(self, tmp_path, monkeypatch):
        studies = (study_of([1, 2], tmp_path / "log"),)
        monkeypatch.setattr(command, "STUDIES", studies)
        return studies

    def test_it_holds_reports_findings_and_commands(self, squares, tmp_path, capsys):
        command.main(["--out", str(tmp_path), "--full"])
        page = (tmp_path / "full" / "RESULTS.md").read_text()
        assert "## Squares" in page
        assert "1, 4" in page
        assert "python -m experiments squares --full" in page
        assert "| 4 | **holds** | 2² |" in page

    def test_prose_and_lists_are_wrapped_and_tables_are_not(self):
        words, row = " ".join(["word"] * 60), "| " + "cell " * 60 + "|"
        prose, items, table_row = wrap(f"{words}\n\n- {words}\n- {words}\n\n{row}").split("\n\n")
        assert max(map(len, (prose + "\n" + items).splitlines())) <= 110
        assert " ".join(prose.split()) == words
        assert [line[:2] for line in items.splitlines()] == ["- ", "  ", "  "] * 2
        assert table_row == row

    def test_a_study_that_is_not_asked_for_is_shown_once_it_was_run(self, tmp_path, monkeypatch):
        first = study_of([1, 2], tmp_path / "log")
        other = Study("other", "Other", first.settings, first.measure, first.report, 1)
        monkeypatch.setattr(command, "STUDIES", (first, other))
        command.main(["--out", str(tmp_path), "squares"])
        page = tmp_path / "quick" / "RESULTS.md"
        assert "- `other`, Other: not run yet." in page.read_text()
        command.main(["--out", str(tmp_path), "other"])
        assert "Not shown here" not in page.read_text()

    def test_missing_data_are_named_and_the_rest_is_shown(self, tmp_path, monkeypatch, capsys):
        lacking = study_of([1, 13], tmp_path / "log")
        monkeypatch.setattr(command, "STUDIES", (lacking,))
        command.main(["--out", str(tmp_path)])
        assert "thirteen is not here" in (tmp_path / "quick" / "RESULTS.md").read_text()
        assert "thirteen is not here" in capsys.readouterr().err

    def test_an_unknown_study_is_refused_with_those_that_are(self, squares, capsys):
        with pytest.raises(SystemExit) as exit:
            command.main(["figure-z"])
        assert exit.value.code == 2
        assert "there are squares" in capsys.readouterr().err

    def test_data_are_found_in_the_given_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        with pytest.raises(MissingDataError, match="--data"):
            find_data("table.parquet")
        (tmp_path / "table.parquet").touch()
        assert find_data("table.parquet") == tmp_path / "table.parquet"

    def test_pictures_are_linked_from_the_page(self, tmp_path):
        gallery = Gallery(tmp_path / "experiments" / "results", tmp_path / "RESULTS.md")
        assert "(experiments/results/a.png)" in gallery.show("a", "A picture")

    def test_tables_and_errors(self):
        assert mean_and_error([1.0, 3.0], digits=1) == "2.0 ± 1.0"
        assert mean_and_error([1.0], digits=1) == "1.0 ± 0.0"
        assert table(("a", "b"), [(1, 2)]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


class TestSynthetic:
    def test_agents_have_entities_among_128_ids(self):
        data, truth = synth_hlcr(Size(4, 5, 8), 0.5, seed=3)
        assert len(data) == N_AGENTS * 4 * 5
        pairs, counts = np.unique(np.column_stack([data.agent, data.entity]), axis=0, return_counts=True)
        assert len(pairs) == N_AGENTS * 4
        assert set(counts) == {5}
        assert data.entity.max() == 127
        # the truth's labels are those of the pairs in order
        position = np.unique(np.column_stack([data.agent, data.entity]), axis=0, return_inverse=True)[1].ravel()
        np.testing.assert_array_equal(truth.labels[position], truth.event_labels)

    def test_every_event_is_held_out_once_and_no_entity_wholly(self):
        data, _ = synth_hlcr(Size(3, 5, 4), 0.5, seed=1)
        fold_of = assign_folds(data, seed=1)
        pair = data.agent * 1000 + data.entity
        for fold in range(5):
            assert (np.unique(pair[fold_of == fold], return_counts=True)[1] == 1).all()
        each = list(folds(data, seed=1))
        assert sum(len(fold.test) for fold in each) == len(data)
        assert all(len(fold.train) + len(fold.test) == len(data) for fold in each)

    def test_slopes_of_their_own_differ_between_entities(self):
        data = own_slopes(Size(2, 50, 1), 0.01, 1.0, seed=0)
        pair = data.agent * 1000 + data.entity
        slopes = []
        for one in np.unique(pair)[:20]:
            design = np.column_stack([np.ones(50), data.X[pair == one]])
            slopes.append(np.linalg.lstsq(design, data.y[pair == one], rcond=None)[0])
        assert 0.5 < np.std(slopes, axis=0).mean() < 1.5

    def test_the_limit_is_near_the_noise_where_much_is_known(self):
        data, truth = synth_hlcr(Size(2, 20, 2), 0.5, seed=2)
        fold = next(folds(data, seed=2))
        assert limit_mse(*fold, truth, n_sweeps=60, burn_in=10) == pytest.approx(0.25, rel=0.15)

    def test_all_rules_are_watched(self):
        data, truth = synth_hlcr(SMALL, 0.3, seed=0)
        fold = next(folds(data, seed=0))
        limit = limit_mse(*fold, truth, n_sweeps=60, burn_in=10)
        for rule in ("published", "corrected", "delta"):
            run = watch(fold, settings_of(rule, SMALL, 0.3, 0.5), participation=0.5, n_rounds=25, seed=0)
            assert run.running[-1] < 1.5 * limit
            assert len(run.each) == len(run.running) == len(run.traffic)
            assert (np.diff(run.traffic) > 0).all()

    def test_who_knows_the_regressions_finds_most_labels(self):
        size = Size(2, 10, 3)
        known = {"noise_scale": 0.1, "n_rounds": 30, "seed": 1}
        agreements = {rule: labels.measure(**size._asdict(), rule=rule, **known)["agreement"] for rule in labels.NAMES}
        assert agreements[labels.KNOWING] > 0.99
        assert agreements["delta"] > 0.95
        noisy = labels.measure(**size._asdict(), rule=labels.KNOWING, **{**known, "noise_scale": 20.0})
        assert noisy["agreement"] < 0.6

    def test_looking_less_changes_nothing_at_the_end(self):
        data, _ = synth_hlcr(SMALL, 0.3, seed=0)
        fold = next(folds(data, seed=0))
        told = settings_of("corrected", SMALL, 0.3, 0.5)
        runs = [watch(fold, told, participation=0.5, n_rounds=8, seed=0, look=look) for look in Look]
        assert len({run.running[-1] for run in runs}) == 1
        assert [len(run.each) > 0 for run in runs] == [False, True, True]

    def test_without_absent_agents_the_correction_changes_nothing(self):
        one, other = (
            measure(**cell(SMALL, 0.3, rule, 0, learning_rate=0.5, n_rounds=6)) for rule in ("published", "corrected")
        )
        assert one == other

    def test_converged_is_the_first_round_that_stays_close(self):
        found = convergence.converged([9.0, 1.02, 3.0, 1.04, 1.0], [10, 20, 30, 40, 50])
        assert found == (1.0, 4, 40)
        assert convergence.converged([1.0, 1.0], [10, 20]) == (1.0, 1, 10)

    @pytest.mark.parametrize("name", ["ifca-agent", "fedem", "fedavg", "fedprox-network"])
    def test_rivals_record_error_and_traffic_per_round(self, name):
        data, _ = synth_hlcr(SMALL, 0.3, seed=0)
        errors, traffic = convergence.watch_rival(convergence.make_rival(name, 1.0, 5, 0), next(folds(data, seed=0)))
        assert len(errors) == len(traffic) <= 5
        assert (np.diff(traffic) > 0).all()

    @pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
    @pytest.mark.parametrize("full", [True, False])
    def test_settings_are_plain_and_different(self, study, full):
        settings = study.settings(full)
        texts = {json.dumps(each, sort_keys=True) for each in settings}
        assert len(texts) == len(settings)
        assert [json.loads(json.dumps(each)) for each in settings] == list(settings)


def made_up(study, figures, full=False):
    """Records of a study with figures that are told, not measured."""
    return [Record(settings, figures(settings)) for settings in study.settings(full)]


@pytest.fixture
def gallery(tmp_path):
    return Gallery(tmp_path, tmp_path / "RESULTS.md")


def verdicts(report):
    return {finding.claim: finding.verdict for finding in report.findings}


class TestReports:
    @pytest.mark.parametrize("full", [True, False])
    def test_figure_a(self, gallery, full):
        def figures(settings):
            over = {LIMIT: 1.05, "delta": 1.06}.get(settings["rule"], 1.2)
            return {"end": over * settings["noise_scale"] ** 2}

        report = figure_a.report(made_up(figure_a.FIGURE_A, figures, full), gallery)
        for suffix in (".svg", ".png"):
            assert (gallery.folder / f"figure-a{suffix}").stat().st_size > 10_000
        found = verdicts(report)
        assert found == {"near the optimal σ² at high noise, with 20 events per agent": FAILS}
        assert "more than 1 % higher at 0 of" in report.text

    def test_figure_b_follows_the_figures(self, gallery):
        def figures(settings):
            rate, n_rounds = settings["learning_rate"], settings["n_rounds"]
            if settings["rule"] == LIMIT:
                return {"end": 1.0}
            rounds = 1 + np.arange(n_rounds)
            wiggle = 1 + 0.3 * rate * (-1.0) ** rounds
            return {"end": 1.0 + rate / 10, "each": ((1.0 + 20 * np.exp(-rounds * (rate + 0.1))) * wiggle).tolist()}

        found = verdicts(figure_b.report(made_up(figure_b.FIGURE_B, figures), gallery))
        assert found["γ = .1 is smooth (15 % of the agents)"] == HOLDS
        assert found["γ = .2 is faster"] == HOLDS
        assert found["γ = .5 does not guarantee convergence"] == FAILS
        assert found["γ = .75 is unstable"] == PARTLY

    def test_figure_b_finds_nothing_where_all_rates_are_alike(self, gallery):
        def figures(settings):
            return {"end": 2.0, "each": [2.0, 2.1] * 30} if settings["rule"] != LIMIT else {"end": 1.0}

        report = figure_b.report(made_up(figure_b.FIGURE_B, figures), gallery)
        assert set(verdicts(report).values()) == {FAILS}
        assert "inf" not in report.text + str(report.findings)

    def test_figure_b_knows_instability(self, gallery):
        def figures(settings):
            if settings["rule"] == LIMIT:
                return {"end": 1.0}
            wild = settings["learning_rate"] == 0.75
            each = [1.5, 2.5] * 30 if wild else [1.01, 1.02] * 30
            return {"end": 1.4 if wild else 1.01, "each": each}

        assert verdicts(figure_b.report(made_up(figure_b.FIGURE_B, figures), gallery))["γ = .75 is unstable"] == HOLDS

    @pytest.mark.parametrize(("found", "verdict"), [(0.4, HOLDS), (0.95, FAILS)])
    def test_labels_verdict_follows_the_agreement(self, gallery, found, verdict):
        def figures(settings):
            return {"agreement": 0.99 if settings["rule"] == labels.KNOWING else found}

        report = labels.report(made_up(labels.LABELS, figures), gallery)
        assert list(verdicts(report).values()) == [verdict]
        assert (gallery.folder / "labels.svg").exists()

    @pytest.mark.parametrize(("best", "verdict"), [(0.35, HOLDS), (1.0, FAILS)])
    def test_figure_c_finds_the_optimum(self, gallery, best, verdict):
        def figures(settings):
            noise = 0.001 * settings["seed"]
            off = abs(np.log(settings["learning_rate"] / best)) if settings["learning_rate"] else 0.0
            return {"end": 1.0 + off + noise * (1 + off)}

        report = figure_c.report(made_up(figure_c.FIGURE_C, figures), gallery)
        assert verdicts(report)["each fraction of agents has an optimal γ"] == verdict
        assert f"best γ: {best:g}" in report.findings[0].why

    def test_figure_c_finds_no_optimum_in_noise(self, gallery):
        rng = np.random.default_rng(0)
        found = []
        for _ in range(12):
            records = made_up(figure_c.FIGURE_C, lambda _: {"end": 1.0 + 0.02 * rng.normal()}, full=True)
            found.append(figure_c.optimum(records, figure_c.LEARNING_RATES, figure_c.PARTICIPATIONS).verdict)
        assert found.count(FAILS) >= 10

    @pytest.mark.parametrize(("slowest", "end", "verdict"), [(8, 1.0, HOLDS), (30, 1.0, PARTLY), (5, 3.0, FAILS)])
    def test_convergence_verdict_follows_rounds_and_error(self, gallery, slowest, end, verdict):
        def figures(settings):
            if settings["method"] == LIMIT:
                return {"end": 1.0}
            rounds = slowest if settings["learning_rate"] == 0.1 else 5
            return {"end": end, "rounds": rounds, "bytes": 2_500_000, "states": [rounds] * 5}

        report = convergence.report(made_up(convergence.CONVERGENCE, figures), gallery)
        assert verdicts(report) == {"fewer than 10 rounds are enough with all agents": verdict}
        assert f"| FedProx, network | {end:.3f} ± 0.000 | 5 | 2.5 |" in report.text

    @pytest.mark.parametrize(("hlcr", "winner"), [(2.0, "the mixed model"), (0.5, "HLCR")])
    def test_misspecified_names_the_winner(self, gallery, hlcr, winner):
        def figures(settings):
            return {"mse": hlcr if settings["method"] == DEFAULT else 1.0 if settings["method"] == "mixed" else 3.0}

        report = misspecified.report(made_up(misspecified.MISSPECIFIED, figures), gallery)
        assert f"N_** = 5: {winner}, whose rival's error is 2.00 times as high" in report.text
        assert (
            "| HLCR, the default | **2.00 ± 0.00**" in report.text
            if hlcr < 1
            else "| mixed model | **4.00 ± 0.00**" in report.text
        )
