"""Hooks of mkdocs: add pages from outside docs/ to the site, and write the reference of the commands.

Links in the pages point to files of the repository, so that they work there. In the site a link to an added page
points to that page; a link to any other file becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from command_line import describe_commands  # mkdocs finds it beside this file
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
# Pages from outside docs/; the site has them under the same names.
PAGES = ("PAPER.md", "RESULTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md")
PICTURES = "experiments/results/full/*.[ps][nv]g"

LINK = re.compile(r"(!?)\[((?:[^][]|\[[^][]*\])*)\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
COMMANDS = "<!-- commands -->"
# GitHub needs a bar in code in a table to be escaped; mkdocs must not see the escape.
ROW_WITH_BAR, CODE = re.compile(r"^\|.*\\\|.*$", re.MULTILINE), re.compile(r"`[^`]*`")
# What a browser loads by itself. Links that people click are fine.
LOADED = re.compile(
    r"""<(?:script|img|iframe|link(?![^>]*rel="?canonical))\b[^>]*\b(?:src|href)="?(?:https?:)?//[^\s">]+"""
)


def on_files(files: Files, config: Any) -> Files:
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

    linked = ROW_WITH_BAR.sub(_free_bars, LINK.sub(lead, markdown))
    return linked.replace(COMMANDS, describe_commands()) if COMMANDS in linked else linked


def _free_bars(row: re.Match[str]) -> str:
    return CODE.sub(lambda code: code[0].replace(r"\|", "|"), row[0])


def on_post_page(output: str, page: Any, **_: Any) -> str:
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load something from another host: {found[0]}")
    return output
