"""Hooks of mkdocs: add pages from outside docs/ to the site, write the reference, and count words.

Links in the pages point to files of the repository, so that they work there. In the site a link to an added page
points to that page; a link to any other file becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import reference_pages  # mkdocs finds it beside this file
from command_line import describe_commands
from mkdocs.exceptions import PluginError
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Pages from outside docs/; the site has them under the same names.
PAGES = ("PAPER.md", "RESULTS.md", "CHANGELOG.md", "SECURITY.md")
PICTURES = "experiments/results/full/*.[ps][nv]g"

LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
COMMANDS = "<!-- commands -->"
# GitHub needs a bar in code in a table to be escaped; mkdocs must not see the escape.
ROW_WITH_BAR, CODE = re.compile(r"^\|.*\\\|.*$", re.MULTILINE), re.compile(r"`[^`]*`")
# What a browser loads by itself. Links that people click are fine.
LOADED = re.compile(
    r"""<(?:script|img|iframe|link(?![^>]*rel="?canonical))\b[^>]*\b(?:src|href)="?(?:https?:)?//[^\s">]+"""
)
# Nobody reads more; a new page is worth cutting an old one for.
MOST_WORDS = 80_000
SCRIPT, TAG = re.compile(r"<(script|style|svg)\b.*?</\1>", re.DOTALL), re.compile(r"<[^>]+>")
words: dict[str, int] = {}  # of each page of this build
log = get_plugin_logger("fedhlcr")


def on_config(config: Any) -> Any:
    """Put the generated pages of the reference below their overviews."""
    reference = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    for place, entry in enumerate(reference):
        title, path = next(iter(entry.items()))
        overview = Path(path).stem
        if overview in reference_pages.OVERVIEWS:
            reference[place] = {title: [{"Overview": path}, *reference_pages.navigation(overview)]}
    return config


def on_files(files: Files, config: Any) -> Files:
    for path, markdown in reference_pages.pages().items():
        files.append(File.generated(config, path, content=markdown))
    for name in (*PAGES, *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob(PICTURES))):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    uri = page.file.src_uri
    here = uri if uri in PAGES else f"docs/{uri}"

    def lead(match: re.Match[str]) -> str:
        picture, text, target, anchor = match.groups(default="")
        path = posixpath.normpath(posixpath.join(posixpath.dirname(here), target))
        there = path.removeprefix("docs/")
        if files.get_file_from_path(there) is None or (there == path and there not in PAGES and not picture):
            # the strict build reports broken links within docs/
            return match[0] if path.startswith("docs/") else text
        return f"{picture}[{text}]({posixpath.relpath(there, posixpath.dirname(uri) or '.')}{anchor})"

    markdown = reference_pages.fill_in(markdown, Path(uri).stem)
    linked = ROW_WITH_BAR.sub(_free_bars, LINK.sub(lead, markdown))
    return linked.replace(COMMANDS, describe_commands()) if COMMANDS in linked else linked


def _free_bars(row: re.Match[str]) -> str:
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def on_page_content(html: str, page: Any, **_: Any) -> None:
    tokens = TAG.sub(" ", SCRIPT.sub("", html)).split()
    # brackets and operators of code are no words
    words[page.file.src_uri] = sum(any(letter.isalnum() for letter in token) for token in tokens)


def on_post_build(**_: Any) -> None:
    total = sum(words.values())
    log.info("%d words on %d pages", total, len(words))
    if total > MOST_WORDS:
        longest = sorted(words, key=words.__getitem__)[-5:]
        raise PluginError(f"the site has {total} words; keep it within {MOST_WORDS}. Longest: {', '.join(longest)}")


def on_post_page(output: str, page: Any, **_: Any) -> str:
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load something from another host: {found[0]}")
    return output
