"""``tokenfleet doctor``: do the solvers run on this machine?"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def doctor(as_json: bool) -> None:
    """Try every solver on a problem whose answer is known. Exit code 1 if one does not run.

    Without its first solver the planner takes the greedy plan; `serve planner` says so in its log at the start.
    """
    from solver.child import ChildSolver
    from solver.self_test import self_test

    with ChildSolver() as child:
        found = self_test(child)
    ok = all(one.ok for one in found)
    if as_json:
        click.echo(json.dumps({"ok": ok, "solvers": [asdict(one) for one in found]}, indent=2))
    else:
        for one in found:
            state = "ok" if one.ok else f"does not run: {one.detail}"
            click.echo(f"{one.backend} ({one.version}): {state}, {one.solve_s:.1f} s")
    if not ok:
        sys.exit(1)
