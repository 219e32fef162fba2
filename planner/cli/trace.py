"""``tokenfleet trace``: convert, describe and make up request traces."""

from __future__ import annotations

import importlib
import importlib.util

import click

COMMANDS = {
    "convert": "planner.cli.trace_convert:convert",
    "stats": "planner.cli.trace_stats:stats",
    "synth": "planner.cli.trace_synth:synth",
}
"""Command name to ``module:attribute``; a module is imported when its command runs or shows its help."""


class TraceGroup(click.Group):
    """The commands whose modules are installed, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names of the commands that are there, sorted."""
        return sorted(name for name, target in COMMANDS.items() if importlib.util.find_spec(target.split(":")[0]))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name, imported now."""
        if cmd_name not in self.list_commands(ctx):
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=TraceGroup)
def trace() -> None:
    """Convert and describe request traces of public formats, and make up new ones.

    Formats: Mooncake, Azure LLM 2023, BurstGPT, ServeGen, Qwen-Bailian, agentic sessions, vLLM benchmark results
    and TokenFleet's own (Parquet). A format is recognised by the file's content.
    """
