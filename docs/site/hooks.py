"""What MkDocs shows beside docs/: a page for each check at /checks/CODE/, and the documents at the top."""

import re
from itertools import groupby
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from ddpdoctor import registry
from ddpdoctor.report.detail import in_order
from ddpdoctor.report.pages import DOCUMENTATION, check_page

ROOT = Path(__file__).parents[2]
FAMILIES = {"gpu": "GPU"}
PROJECT = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)#]+)(#[^)]*)?\)")
_NAMED = re.compile(r"\[(?P<name>[\w.-]+\.md)\]\((?P=name)(?P<anchor>#[^)]*)?\)")
"""A link whose text is the name of its file; on the site, the title of the page."""
_TO_CHECK = re.compile(r"\((?:checks\.md)?#dd(\d{3})-[a-z0-9-]+\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The site's address, and the pages that are not files."""
    config.site_url = DOCUMENTATION or config.site_url
    sections: dict[str, Any] = {title: pages for entry in config.nav or () for title, pages in entry.items()}
    sections["Checks"] += [
        {
            FAMILIES.get(family.value, family.value.capitalize()): [
                {f"{check.code} {check.name}": f"checks/{check.code}.md"} for check in checks
            ]
        }
        for family, checks in groupby(in_order(registry.all_checks()), key=lambda check: check.family)
    ]
    sections["Project"] += [f"project/{name}" for name in PROJECT]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for check in registry.all_checks():
        files.append(File.generated(config, f"checks/{check.code}.md", content=check_page(check)))
    for name in PROJECT:
        files.append(File.generated(config, f"project/{name}", content=(ROOT / name).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The same links as in the repository, where the files of the site are elsewhere."""
    path = page.file.src_uri
    if path == "checks.md":  # each has its own page
        markdown = markdown.partition("\n## ")[0]
    if path.startswith("project/"):
        return re.sub(r"\]\((?:docs/|(?=README\.md))", "](../", markdown)
    titles = _titles(config)
    markdown = _NAMED.sub(
        lambda link: link[0].replace(link["name"], titles.get(link["name"], link["name"]), 1), markdown
    )
    markdown = _TO_CHECK.sub(r"(checks/DD\1.md)", markdown)
    return _OUTSIDE.sub(
        lambda link: f"[{link[1]}](project/{link[2]})" if link[2] in PROJECT else link[1], markdown
    )


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """A name for the theme's dialog, for people who use a screen reader."""
    search = 'data-md-component="search" role="dialog"'
    return output.replace(search, f'{search} aria-label="Search"')


def _titles(config: MkDocsConfig) -> dict[str, str]:
    """The titles in the navigation, by file."""
    entries = [entry for section in config.nav or () for pages in section.values() for entry in pages]
    return {
        file: title
        for entry in entries
        if isinstance(entry, dict)
        for title, file in entry.items()
        if isinstance(file, str)
    }
