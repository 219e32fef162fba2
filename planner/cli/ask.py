"""``tokenfleet route``, ``explain``, ``report`` and ``token``: a running router from the shell."""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import TYPE_CHECKING, Any

import click

from planner.cli.router_options import CONNECTION, REQUEST, connected, options, query

if TYPE_CHECKING:
    from rich.table import Table

    from router.client import Placement, Refusal
    from router.pb.v1 import router_pb2 as pb

PIPE_WIDTH = 200
PARTS = ("meets_targets", "completion_s", "harm_s", "lost_tokens", "value", "price", "score")


@click.command()
@options(REQUEST)
@click.option("--keep", is_flag=True, help="Keep the lease open; end it with `tokenfleet report`.")
@options(CONNECTION)
@click.pass_context
def route(context: click.Context, /, **given: Any) -> None:
    """Ask a running router where a request should go.

    A question from the shell gives its lease back at once, unless --keep says that a request will follow.
    Exit code 1: refused.
    """
    from router.client import Attempt, Placement

    with connected(given) as client:
        answer = client.ask(query(given))
        if isinstance(answer, Placement) and not given["keep"]:
            Attempt(answer, client.send).cancel()
    if given["as_json"]:
        click.echo(json.dumps(dataclasses.asdict(answer), ensure_ascii=False))
    else:
        _print_answer(answer)
    if not isinstance(answer, Placement):
        context.exit(1)


@click.command()
@options(REQUEST, CONNECTION)
def explain(**given: Any) -> None:
    """Ask a running router why a request would go where it would go; nothing is charged."""
    with connected(given) as client:
        reply = client.explain(query(given))
    if given["as_json"]:
        from google.protobuf.json_format import MessageToDict

        click.echo(json.dumps(MessageToDict(reply, preserving_proto_field_name=True), ensure_ascii=False))
    else:
        _print_explanation(reply)


@click.command()
@click.argument("lease_id", type=click.IntRange(min=0))
@click.option("--finished", "output_tokens", type=click.IntRange(min=0), help="It ended with so many tokens.")
@click.option("--cancelled", is_flag=True, help="The client went away.")
@click.option("--failed", "http_status", type=click.IntRange(0, 599), help="The engine failed; 0 = no answer.")
@options(CONNECTION)
def report(
    lease_id: int, output_tokens: int | None, cancelled: bool, http_status: int | None, **given: Any
) -> None:
    """Tell a running router how a kept lease ended."""
    from data.errors import InputError
    from router.pb.v1 import router_pb2 as pb

    events = []
    if output_tokens is not None:
        events.append(pb.ReportEvent(lease_id=lease_id, finished=pb.Finished(output_tokens=output_tokens)))
    if cancelled:
        events.append(pb.ReportEvent(lease_id=lease_id, cancelled=pb.Cancelled()))
    if http_status is not None:
        events.append(pb.ReportEvent(lease_id=lease_id, error=pb.Error(http_status=http_status)))
    if len(events) != 1:
        raise InputError("a lease ends in one way", expected="one of --finished, --cancelled and --failed")
    with connected(given) as client:
        summary = client.report(events)
    if given["as_json"]:
        click.echo(json.dumps({"accepted": summary.accepted, "unknown_lease": summary.unknown_lease}))
    elif summary.accepted:
        click.echo(f"lease {lease_id} has ended")
    if not summary.accepted:
        raise InputError("not open", field="lease", value=lease_id, expected="a lease that has not ended")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Machine output on stdout.")
def token(as_json: bool) -> None:
    """Make a bearer token for a client, and the digest that goes into the router's clients file."""
    from router.serving.auth import new_token, token_digest

    made = new_token()
    if as_json:
        click.echo(json.dumps({"token": made, "token_sha256": token_digest(made)}))
        return
    click.echo(f"token (give it to the client, keep no copy): {made}")
    click.echo(f"token_sha256 (for the clients file):         {token_digest(made)}")


def _print_answer(answer: Placement | Refusal) -> None:
    from router.client import Placement

    if not isinstance(answer, Placement):
        retry = "" if answer.retry_after_s is None else f"; retry after {answer.retry_after_s:.1f} s"
        click.echo(f"refused: {answer.reason} ({answer.http_status}){retry}  {answer.message}".rstrip())
        return
    click.echo(f"{answer.endpoint_id}  {answer.address}  site {answer.site}")
    click.echo(
        f"TTFT {_times(answer.ttft_p50_s, answer.ttft_p90_s)}, TPOT {_times(answer.tpot_p50_s, answer.tpot_p90_s)}"
    )
    click.echo(f"predicted hit {answer.predicted_hit_tokens} tokens, class {answer.workload_class or '-'}")
    click.echo(f"lease {answer.lease_id}, model {answer.model_version}, plan {answer.plan_id or '-'}")
    if answer.degraded:
        click.echo("degraded: " + ", ".join(answer.degraded))


def _times(middle_s: float | None, upper_s: float | None) -> str:
    if middle_s is None:
        return "not predicted"
    upper = "" if upper_s is None else f" (90 %: {1000 * upper_s:.0f} ms)"
    return f"{1000 * middle_s:.0f} ms{upper}"


def _site_table(choice: pb.SiteChoice) -> Table:
    """The permitted sites and what each would cost, in milliseconds."""
    from rich.table import Table

    parts = ("network_s", "queue_s", "compute_s", "harm_s", "late_s", "price_s", "share_s", "trust_s", "stay_s")
    shown = (part.removesuffix("_s") for part in (*parts, "total_s"))
    table = Table("", "site", "why", *shown, title=f"site by {choice.rule}, ms")
    for option in choice.options:
        numbers = [f"{1000 * getattr(option, part):.4g}" for part in (*parts, "total_s")]
        table.add_row("*" if option.chosen else "", option.site, option.reason or "-", *numbers)
    return table


def _print_explanation(reply: pb.ExplainReply) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    decision = reply.decision
    # A pipe has no width of its own: nothing is cut there.
    console = Console() if sys.stdout.isatty() else Console(width=PIPE_WIDTH)
    if decision.HasField("refusal"):
        console.print(f"refused: {decision.refusal.reason}  {decision.refusal.message}".rstrip(), markup=False)
    console.print(f"class {decision.workload_class or '-'} ({reply.class_rule or 'as given'})", markup=False)
    if reply.HasField("site_choice"):
        console.print(_site_table(reply.site_choice))
    name = Column("endpoint", no_wrap=True, overflow="fold")
    table = Table("", name, "TTFT ms", "TPOT ms", "hit", *(part.replace("_", " ") for part in PARTS))
    for candidate in reply.candidates:
        numbers = [f"{getattr(candidate, part):.4g}" for part in PARTS]
        table.add_row(
            "*" if candidate.chosen else "",
            candidate.endpoint_id,
            f"{1000 * candidate.ttft.p50_s:.0f}",
            f"{1000 * candidate.tpot.p50_s:.1f}",
            str(candidate.hit_tokens),
            *numbers,
        )
    console.print(table)
    for rejected in reply.rejected:
        console.print(f"not {rejected.endpoint_id}: {rejected.reason}", markup=False)
