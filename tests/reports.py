"""What the tests of the report share: models to report on, and a reader of pages."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from html.parser import HTMLParser

from fedhlcr import HLCRRegressor
from fedhlcr.analysis.evaluation import MODEL
from fedhlcr.data.recipe import Recipe
from fedhlcr.estimators import loading, saving
from fedhlcr.report import HeldOut

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
            self.data[self._inside[-1][1].removeprefix("data-")] = unpacked(data)

    def columns(self, table):
        """The values of a table's columns by label, texts as texts."""
        return {c["label"]: self._texts_of(c) if c["kind"] == "text" else c["values"] for c in self.table(table)}

    def table(self, name):
        """The columns of a table as the page has them."""
        return self.data[name]["columns"]

    def _texts_of(self, column):
        words = column["words"]
        if isinstance(words, str):
            words = self.table(words)[0]["words"]
        return [words[value] for value in column["values"]]


def unpacked(block):
    """The data in a block of a page."""
    return json.loads(zlib.decompress(base64.urlsafe_b64decode(block)))


def fitted(table, **parameters):
    model = HLCRRegressor(**{"n_sweeps": 60, **parameters})
    return model.fit(table.X, table.y, agent=table.agent, entity=table.entity)


def held_out(table):
    return HeldOut(table.X, table.y, table.agent, table.entity)


def public(model):
    """A model from a file without anything of the agents."""
    return loading.from_bytes(saving.to_bytes(model, public=True))


def recipe_of(features, *, target="sales", agent="agent", entity="entity", categorical=None):
    """A recipe as if the model had been fitted from the command line."""
    return Recipe(target, agent, entity, tuple(features), categorical or {})


def with_figures(scores, **figures):
    """An evaluation of a model that has some other figures."""
    return replace(
        scores, scores={**scores.scores, MODEL: replace(scores.model, figures={**scores.model.figures, **figures})}
    )
