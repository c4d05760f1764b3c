"""Consoles that cannot show every character, such as those of Windows with code page 1252."""

from __future__ import annotations

import codecs
import sys

# Stand-ins for characters of tables and numbers. A minus sign must never become a question mark.
STAND_INS = {
    **dict.fromkeys("−–—─━‐‑⁻", "-"),
    **dict.fromkeys("│┃", "|"),
    **dict.fromkeys("█▉▊▋▌▍▎▏", "#"),
    **dict.fromkeys("“”„", '"'),
    **dict.fromkeys("‘’", "'"),
    **dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹", "0123456789", strict=True)),
    **{"→": "->", "←": "<-", "≤": "<=", "≥": ">=", "≈": "~", "×": "x", "·": "-", "…": "...", "∞": "inf", "±": "+-"},
}
HANDLER = "fedhlcr-stand-ins"


def stand_in(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that cannot be encoded by similar ones, or by question marks."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    text = error.object[error.start : error.end]
    return "".join(STAND_INS.get(character, "?") for character in text), error.end


def make_printable() -> None:
    """Let standard output and standard error replace what they cannot show, where they would fail otherwise."""
    codecs.register_error(HANDLER, stand_in)
    for stream in (sys.stdout, sys.stderr):
        # a stream that tests or notebooks put in place may have no encoding
        if hasattr(stream, "reconfigure") and not str(stream.encoding).lower().startswith("utf"):
            stream.reconfigure(errors=HANDLER)
