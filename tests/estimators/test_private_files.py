"""Files of models under differential privacy: their public part holds nothing that came from a row."""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

pytest.importorskip("opendp", reason="the privacy extra is not installed")

import fedhlcr
from fedhlcr import DifferentialPrivacy, FedHLCRRegressor
from fedhlcr.data.frames import Given
from fedhlcr.datasets import make_hlcr
from fedhlcr.estimators.tables import learn_table
from fedhlcr.exceptions import ArgumentError, DataError
from fedhlcr.posterior.fitted_model import check_model
from fedhlcr.storage.model_facts import KIND, PRIVATE, VERSION
from fedhlcr.storage.model_file import to_record
from fedhlcr.storage.pages import PagedRecord

RARE, SECRET_X, SECRET_Y = "Creutzfeldt-Jakob", 1.234567890123, -7.654321098765
LEVELS = ["flu", "cold", RARE]
IDS = {"agent": "clinic", "entity": "patient"}
PRIVATE_RUN = {"privacy": DifferentialPrivacy(50, rounds=4), "n_clusters": 2, "random_state": 0}

pytestmark = pytest.mark.filterwarnings("ignore::fedhlcr.exceptions.DataWarning")


def clinics(*, has_rare: bool = True) -> pd.DataFrame:
    """Events whose ids, levels and first numbers can be recognised in a file."""
    table, _ = make_hlcr(30, 4, 6, 2, 2, random_state=0)
    frame = pd.DataFrame(table.X, columns=["dose", "age"]).assign(cost=table.y)
    frame["clinic"] = [f"clinic-of-{agent}-street" for agent in table.agent]
    frame["patient"] = [f"patient-{entity}-miller" for entity in table.entity]
    frame["diagnosis"] = np.where(np.arange(len(frame)) % 2, "flu", "cold").astype(object)
    frame.loc[0, ["dose", "cost"]] = SECRET_X, SECRET_Y
    if has_rare:
        frame.loc[0, "diagnosis"] = RARE
    return frame


def fit(frame, **settings) -> FedHLCRRegressor:
    return FedHLCRRegressor(**PRIVATE_RUN, **settings).fit(frame, "cost", **IDS)


def in_polars(kind):
    return lambda frame: pl.from_pandas(frame).with_columns(pl.col("diagnosis").cast(kind))


def in_arrow(frame):
    table = pa.Table.from_pandas(frame, preserve_index=False)
    place = table.column_names.index("diagnosis")
    return table.set_column(place, "diagnosis", table["diagnosis"].dictionary_encode())


def ordered_afterwards(frame):
    return frame.assign(diagnosis=frame["diagnosis"].astype("category").cat.as_ordered())


UNDECLARED = {
    "texts": (lambda frame: frame, {}),
    "texts of polars": (pl.from_pandas, {}),
    "named texts": (lambda frame: frame, {"categories": ["diagnosis"]}),
    "inferred categorical": (lambda frame: frame.astype({"diagnosis": "category"}), {}),
    "categorical": (lambda frame: frame.assign(diagnosis=pd.Categorical(frame["diagnosis"], categories=LEVELS)), {}),
    "ordered categorical": (lambda frame: frame.assign(diagnosis=pd.Categorical(frame["diagnosis"], ordered=True)), {}),
    "ordered afterwards": (ordered_afterwards, {}),
    "ordered and named": (ordered_afterwards, {"categories": ["diagnosis"]}),
    "ordered and dropped": (ordered_afterwards, {"missing": "drop"}),
    "cut": (lambda frame: frame.assign(diagnosis=pd.cut(frame["dose"], 3)), {}),
    "cut at quantiles": (lambda frame: frame.assign(diagnosis=pd.qcut(frame["dose"], 3)), {}),
    "categorical of polars": (in_polars(pl.Categorical), {}),
    "arrow dictionary": (in_arrow, {}),
    "a number as a category": (
        lambda frame: frame.assign(diagnosis=frame["diagnosis"].map(LEVELS.index)),
        {"categories": ["diagnosis"]},
    ),
}


@pytest.mark.parametrize("case", UNDECLARED)
def test_levels_that_nobody_declared_are_refused(case):
    make, settings = UNDECLARED[case]
    with pytest.raises(DataError, match=r"'diagnosis' are not declared.*categories=\{'diagnosis'") as error:
        fit(make(clinics()), **settings)
    assert RARE not in str(error.value)


def test_levels_that_a_formula_would_take_from_rows_are_refused():
    pytest.importorskip("formulaic", reason="the formula extra is not installed")
    formula = "cost ~ dose + C(diagnosis) | clinic/patient"
    for frame in (clinics(), ordered_afterwards(clinics())):
        for text in (formula, "cost ~ dose + diagnosis | clinic/patient"):
            with pytest.raises(DataError, match="'diagnosis' are not declared"):
                FedHLCRRegressor(**PRIVATE_RUN, formula=text).fit(frame)
    model = FedHLCRRegressor(**PRIVATE_RUN, formula=formula, categories={"diagnosis": LEVELS}).fit(clinics())
    assert list(model.feature_names_in_) == ["dose", *(f"diagnosis={level}" for level in LEVELS)]


@pytest.mark.parametrize("formula", [None, "cost ~ dose + C(diagnosis) | clinic/patient"])
def test_levels_of_a_table_that_another_estimator_has_encoded_are_refused(formula):
    given = Given(clinics(), "cost", **IDS)
    if formula is not None:
        pytest.importorskip("formulaic", reason="the formula extra is not installed")
        given = Given(clinics())
    read = learn_table(FedHLCRRegressor(formula=formula, categories=["diagnosis"]), given).table.events.given
    for table in (read.X, read.X.take(slice(None))):
        with pytest.raises(DataError, match=r"the levels of 'diagnosis' .* as `categories`") as error:
            FedHLCRRegressor(**PRIVATE_RUN).fit(table, read.y, agent=read.agent, entity=read.entity)
        assert RARE not in str(error.value)


def test_levels_of_an_encoded_table_may_be_declared():
    encoder = FedHLCRRegressor(categories={"diagnosis": LEVELS})
    read = learn_table(encoder, Given(clinics(), "cost", **IDS)).table.events.given
    model = FedHLCRRegressor(**PRIVATE_RUN).fit(read.X, read.y, agent=read.agent, entity=read.entity)
    assert f"diagnosis={RARE}" in model.feature_names_in_


def test_levels_of_a_table_that_a_model_has_read_are_refused():
    model = FedHLCRRegressor(n_clusters=2, rounds=2, categories=["diagnosis"]).fit(clinics(), "cost", **IDS)
    read = check_model(model).events_of(clinics(), "cost")
    with pytest.raises(DataError, match="'diagnosis'"):
        FedHLCRRegressor(**PRIVATE_RUN).fit(read.X, read.y, agent=read.agent, entity=read.entity)


DECLARED = {
    "texts": (lambda frame: frame, {"categories": {"diagnosis": LEVELS}}),
    "categorical": (lambda frame: frame.astype({"diagnosis": "category"}), {"categories": {"diagnosis": LEVELS}}),
    "enum": (in_polars(pl.Enum(LEVELS)), {}),
    "codes": (
        lambda frame: frame.assign(diagnosis=frame["diagnosis"].map(LEVELS.index)),
        {"categories": {"diagnosis": [0, 1, 2]}},
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_declared_levels_are_features_whether_they_occur_or_not(case):
    make, settings = DECLARED[case]
    levels = ["0", "1", "2"] if case == "codes" else LEVELS
    for has_rare in (True, False):
        frame = make(clinics(has_rare=has_rare))
        model = fit(frame, **settings)
        assert model.recipe_.categorical == {"diagnosis": levels}
        assert list(model.feature_names_in_) == ["dose", "age", *(f"diagnosis={level}" for level in levels)]
        assert np.isfinite(model.predict(frame)).all()


def test_a_level_that_was_not_declared_is_refused_and_not_named():
    with pytest.raises(DataError, match=r"column 'diagnosis' has levels .*: 1 besides the 2 in `categories`") as error:
        fit(clinics(), categories={"diagnosis": LEVELS[:2]})
    assert RARE not in str(error.value)


def numbers_of(values: np.ndarray) -> Iterator[bytes]:
    return (np.float64(value).tobytes() for value in np.ravel(values))


def planted(frame: pd.DataFrame) -> list[bytes]:
    """What must not be in a file: ids, and the numbers of the first event in binary and in text."""
    ids = [str(name).encode() for column in IDS.values() for name in frame[column].unique()]
    numbers = frame.loc[0, ["dose", "age", "cost"]].to_numpy(dtype=float)
    return [*ids, *numbers_of(numbers), *(str(number)[:8].encode() for number in numbers)]


def test_public_files_hold_nothing_of_a_row(tmp_path):
    """What is declared is in it, whether it occurs or not."""
    frame = clinics(has_rare=False)
    frame["sex"] = np.where(np.arange(len(frame)) % 3, "m", "f").astype(object)
    model = fit(frame, categories={"diagnosis": ["flu", "cold", "measles"], "sex": ["f", "m", "x"]})
    model.save(tmp_path / "public.fedhlcr", public=True)
    data = (tmp_path / "public.fedhlcr").read_bytes()
    assert not [text for text in planted(frame) if text in data]
    # that the search finds what is there
    model.save(tmp_path / "full.fedhlcr")
    full = (tmp_path / "full.fedhlcr").read_bytes()
    assert frame["clinic"][0].encode() in full
    assert b"measles" in data
    loaded = fedhlcr.load(tmp_path / "public.fedhlcr")
    assert loaded.recipe_ == model.recipe_
    assert loaded.categories == {"diagnosis": ["flu", "cold", "measles"], "sex": ["f", "m", "x"]}


def test_full_files_hold_agents_in_their_private_part_only(tmp_path):
    frame = clinics()
    model = fit(frame, categories={"diagnosis": LEVELS})
    model.save(tmp_path / "full.fedhlcr")
    record = PagedRecord(bytearray((tmp_path / "full.fedhlcr").read_bytes()), KIND, VERSION)
    shared = {name: value for name, value in record.items() if not name.startswith(PRIVATE)}
    texts = [value if isinstance(value, str) else repr(value) for value in shared.values()]
    data = b"".join(np.ascontiguousarray(v).tobytes() for v in shared.values() if isinstance(v, np.ndarray))
    found = "\n".join(texts).encode() + data
    assert not [text for text in planted(frame) if text in found]
    assert {"private.grams", "private.labels", "private.agents_texts"} <= set(record)
    assert json.loads(record["about"])["recipe"]["fill"] == {}
    assert "feature_quantiles" not in "".join(record)


def test_files_of_tables_that_differ_in_a_level_have_the_same_fields():
    """Of a row's level nothing but noise is left: names, types and shapes do not depend on it."""
    records = []
    for has_rare in (True, False):
        model = fit(clinics(has_rare=has_rare), categories={"diagnosis": LEVELS})
        records.append(json.loads(to_record(check_model(model).without_agents())["about"]))
    for name in ("settings", "feature_names", "recipe", "agent_column", "entity_column", "privacy"):
        assert records[0][name] == records[1][name]


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ("flu", "a list of levels for 'diagnosis'"),
        (3, "a list of levels for 'diagnosis'"),
        ([], "1 to 100 different"),
        (["flu", "flu"], "1 to 100 different"),
        (["flu", "1", "1.0"], "1 to 100 different"),
        (["flu", None], "1 to 100 different"),
        (["flu", "NA"], "1 to 100 different"),
        ([f"level {i}" for i in range(101)], "1 to 100 different"),
    ],
)
def test_impossible_levels_are_refused(levels, words):
    with pytest.raises(ArgumentError, match=words):
        fit(clinics(), categories={"diagnosis": levels})
