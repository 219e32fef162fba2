"""Entry point of ``tokenfleet``: one command group, commands loaded only when they are called."""

from __future__ import annotations

import errno
import importlib
import sys

import click

from data.errors import TokenFleetError
from data.version import __version__

COMMANDS = {
    "check": "planner.cli.check:check",
    "compare": "planner.cli.compare:compare",
    "demo": "planner.cli.demo:demo",
    "doctor": "planner.cli.doctor:doctor",
    "explain": "planner.cli.ask:explain",
    "forecast": "planner.cli.forecast:forecast",
    "models": "planner.cli.models:models",
    "plan": "planner.cli.plan:plan",
    "report": "planner.cli.ask:report",
    "route": "planner.cli.ask:route",
    "schema": "planner.cli.check:schema",
    "serve": "planner.cli.serve:serve",
    "simulate": "planner.cli.simulate:simulate",
    "token": "planner.cli.ask:token",
    "trace": "planner.cli.trace:trace",
    "train": "planner.cli.train:train",
}
"""Command name to ``module:attribute``; a module is imported when its command runs or shows its help."""
BAD_PATH = {
    errno.ENOENT, errno.EACCES, errno.EPERM, errno.EISDIR, errno.ENOTDIR,
    errno.EEXIST, errno.EROFS, errno.ENAMETOOLONG, errno.ELOOP,
}  # fmt: skip
"""System errors that another path on the command line mends: bad input. All others (disk full) are failures."""


class LazyGroup(click.Group):
    """A group whose commands are imported on first use, so that start-up stays fast and solvers stay out."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """All command names, sorted."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, imported now."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tokenfleet")
def cli() -> None:
    """Match LLM requests to GPU capacity: route, admit, place, and measure Goodput."""


def main(argv: list[str] | None = None) -> None:
    """Run the command line; exit code 0 done, 1 failed, 2 bad usage or input, 3 infeasible."""
    try:
        # Without the stand-alone mode click gives the code of `context.exit` back instead of ending with it.
        code = cli.main(args=argv, prog_name="tokenfleet", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except TokenFleetError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        click.echo(f"error: {place}{error.strerror or error}", err=True)
        sys.exit(2 if error.errno in BAD_PATH else 1)
    if isinstance(code, int) and code:
        sys.exit(code)


if __name__ == "__main__":
    main()
