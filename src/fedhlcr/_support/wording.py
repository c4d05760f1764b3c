"""Numbers and nouns as a person would write them."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Units of sizes, each a thousand times the one before.
BYTE_UNITS = ("bytes", "kB", "MB", "GB", "TB")
# Characters that would break a line, a file or the direction of the text around them: control characters, lone
# surrogates, which UTF-8 cannot encode, and marks that change the writing direction.
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")

# Exceptions to the rules for singular and plural, which go by the last letters.
ONE_FORM = frozenset({"children", "data", "men", "news", "people", "series", "species", "staff", "women"})
SINGULAR_IN_S = frozenset({"alias", "atlas", "bias", "bus", "campus", "canvas", "gas", "lens", "status", "virus"})
SINGULAR_IN_IE = frozenset({"calorie", "cookie", "die", "movie", "pie", "tie", "zombie"})
IRREGULAR = {"child": "children", "man": "men", "person": "people", "woman": "women"}


def number(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits and thousands separators; very large or small ones as powers of ten."""
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞" if value > 0 else "−∞"
    # turns −0 into 0
    value += 0.0
    size = abs(value)
    if size != 0.0 and not 1e-4 <= size < 1e9:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        text = f"{float(mantissa):g}×10{str(int(exponent)).translate(SUPERSCRIPTS)}"
    elif size >= 10**digits:
        text = f"{value:,.0f}"
    else:
        text = f"{value:.{digits}g}"
        # rounding may carry 999.9 to 1e+03, which should read 1,000
        text = f"{float(text):,.0f}" if "e" in text and size > 1 else text
    return text.replace("-", "−")


def three_decimals(value: float) -> str:
    """A score with three decimals, such as R², so that a column of scores lines up."""
    return f"{value:z.3f}".replace("-", "−") if math.isfinite(value) else number(value)


def amount(n: float) -> str:
    """A count: all digits of a whole number; sums of event weights may be fractional."""
    return f"{n:,.0f}" if float(n).is_integer() else number(n)


def percent(share: float) -> str:
    """A share in per cent; shown as 0 % or 100 % only if it is exactly that."""
    if not math.isfinite(share):
        return "–"
    if 0.0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1.0:
        return f"{min(100.0 * share, 99.9):.1f} %"
    # halves are rounded up, as in the report's script
    return f"{math.floor(100.0 * share + 0.5)} %".replace("-", "−")


def fine_percent(share: float) -> str:
    """A share in per cent with one decimal."""
    return f"{100.0 * share:.1f} %"


def byte_size(size: float) -> str:
    power = 0
    while size >= 999.5 and power < len(BYTE_UNITS) - 1:
        size = size / 1000.0
        power = power + 1
    return f"{number(size)} {'byte' if size == 1 and not power else BYTE_UNITS[power]}"


def listed(items: Sequence[str], word: str = "and") -> str:
    """a, b and c"""
    return f" {word} ".join(filter(None, [", ".join(items[:-1]), items[-1]])) if items else ""


def capital(text: str) -> str:
    """The text with its first letter in upper case."""
    return text[:1].upper() + text[1:]


def free_name(name: str, taken: Collection[str]) -> str:
    """The name of a column, with underscores appended while another column has the same name."""
    while name in taken:
        name += "_"
    return name


def printable(value: Any) -> str:
    """A user's text on one line, with unprintable characters replaced."""
    return UNPRINTABLE.sub("\ufffd", " ".join(str(value).split()))


@dataclass(frozen=True)
class Noun:
    """Singular and plural of a noun."""

    one: str
    many: str

    def count(self, n: float) -> str:
        """1 store, 1,204 stores"""
        return f"{amount(n)} {self.of(n)}"

    def of(self, n: float) -> str:
        """The form that fits n."""
        return self.one if n == 1 else self.many


AGENT = Noun("agent", "agents")
ENTITY = Noun("entity", "entities")
EVENT = Noun("event", "events")
CLUSTER = Noun("cluster", "clusters")
FEATURE = Noun("feature", "features")
CHAIN = Noun("chain", "chains")
ROW = Noun("row", "rows")
COLUMN = Noun("column", "columns")
ROUND = Noun("round", "rounds")
DRAW = Noun("draw", "draws")
SWEEP = Noun("sweep", "sweeps")
NODE = Noun("node", "nodes")
REPLY = Noun("reply", "replies")
DEVICE = Noun("device", "devices")
PARTY = Noun("party", "parties")


def noun(column: str | None, otherwise: Noun) -> Noun:
    """The noun for what a column identifies: store and stores for `store_id`.

    Return `otherwise` if the column's name is not made of plain words.
    """
    words = re.sub(r"[\s_-]+", " ", column or "").strip()
    words = re.sub(r"(?i)[\s]+(id|ids|name|names|code|key|number|no|nr)$", "", words)
    if not re.fullmatch(r"[A-Za-z]{2,}( [A-Za-z]{2,})*", words) or words.lower() in {"id", "ids", "key", "name"}:
        return otherwise
    words = words if words.isupper() and len(words) <= 4 else words.lower()
    last = words.split()[-1]
    if last in IRREGULAR:
        return Noun(words, words.removesuffix(last) + IRREGULAR[last])
    if last in ONE_FORM:
        return Noun(words, words)
    if last not in SINGULAR_IN_S and re.search(r"[^siu]s$", words):
        return Noun(_singular(words), words)
    return Noun(words, _plural(words))


def _plural(word: str) -> str:
    if re.search(r"[^aeiou]y$", word):
        return f"{word[:-1]}ies"
    if word.endswith("sis"):
        return f"{word[:-2]}es"
    return f"{word}es" if re.search(r"(s|x|z|ch|sh)$", word) else f"{word}s"


def _singular(word: str) -> str:
    last = word.split()[-1]
    if last[:-1] in SINGULAR_IN_IE:
        return word[:-1]
    if last.endswith("ies"):
        return f"{word[:-3]}y"
    return word[:-2] if last[:-2] in SINGULAR_IN_S or re.search(r"(ss|x|ch|sh)es$", word) else word[:-1]
