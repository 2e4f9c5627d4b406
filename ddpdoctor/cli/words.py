"""Commands that take a script, a module or a launch line."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

WORDS = "[SCRIPT ARGS... | -m MODULE ARGS... | -- LAUNCH LINE]"


class WordsCommand(TyperCommand):
    """A command whose own options end where the script, the module or ``--`` begins."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Also note whether the words that follow stand behind ``--``."""
        given = list(args)
        rest = super().parse_args(ctx, args)
        before = given[: len(given) - len(ctx.params["words"] or ())]
        ctx.meta["is_line"] = before[-1:] == ["--"]
        return rest
