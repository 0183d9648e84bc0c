"""The commands and their options. Each command imports what it needs when it runs, so that the others start fast."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Argument, Option

__all__ = ["app"]

app = typer.Typer(
    help="Learns where keys should go: skew-free partitioning for Spark.",
    add_completion=False,
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Json = Annotated[bool, Option("--json", help="Print one JSON document and nothing else.")]


def _version(show: bool) -> None:
    if show:
        from unskew.core.version import __version__

        typer.echo(f"unskew {__version__}")
        raise typer.Exit


@app.callback()
def _unskew(
    context: typer.Context,
    version: Annotated[  # noqa: ARG001 - done by its callback
        bool, Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def policies(as_json: Json = False) -> None:
    """List the planners and the routers, and whether they may split a key."""
    from unskew.cli.policies import policy_list

    typer.echo(policy_list(as_json=as_json))


@app.command()
def whatif(
    file: Annotated[str, Argument(metavar="FILE", help="Parquet, CSV or text (one key a line), or a folder.")],
    column: Annotated[
        list[str] | None, Option(metavar="NAME", help="The key column; repeat it for a key of several columns.")
    ] = None,
    partitions: Annotated[str, Option(metavar="N", help="Number of partitions.")] = "16",
    policies: Annotated[
        str, Option(metavar="A,B,...", help="Planners and routers to try beside hash; all planners when left out.")
    ] = "",
    batch: Annotated[str, Option(metavar="ROWS", help="Rows of a micro-batch.")] = "100000",
    window: Annotated[
        str,
        Option(
            metavar="ROWS",
            help="Rows that a policy sees (a planner: whole batches); its record of batches when left out.",
        ),
    ] = "",
    slide: Annotated[
        str, Option(metavar="ROWS", help="By how much the window moves on; a fiftieth of it when left out.")
    ] = "",
    time: Annotated[
        str, Option(metavar="NAME", help="The column of times: --window and --slide are then in seconds.")
    ] = "",
    agents: Annotated[str, Option(metavar="N", help="Partitioners of each router, each with every N-th row.")] = "1",
    dsync: Annotated[
        str, Option(metavar="ROWS", help="Rows of the stream after which agents that can cooperate do so.")
    ] = "",
    fresh: Annotated[
        str,
        Option(
            metavar="previous|same|auto",
            help="Plan from the batches before, from the batch itself, or by what would have been cheapest so far.",
        ),
    ] = "previous",
    count_cost: Annotated[
        str, Option(metavar="SHARE", help="What counting a batch first costs, in even shares of the batch.")
    ] = "0.10",
    capacities: Annotated[
        str, Option(metavar="C,C,...", help="Relative capacity of each partition; equal when left out.")
    ] = "",
    weights: Annotated[str, Option(metavar="C,C,...", help="The same as --capacities.")] = "",
    seed: Annotated[str, Option(metavar="N", help="Seed of the policies that draw.")] = "7",
    key_type: Annotated[
        list[str] | None,
        Option(
            "--type", metavar="TYPE", help="Spark type of each key column; left out: the file's own, string for CSV."
        ),
    ] = None,
    as_json: Json = False,
    plot: Annotated[
        str | None, Option(metavar="FILE", help="Draw the load of each partition (.png, .svg, .pdf).")
    ] = None,
    save_plans: Annotated[
        str | None, Option(metavar="DIR", help="Write the last plan of each policy as DIR/<policy>.plan.")
    ] = None,
) -> None:
    """Replay the keys of a file through policies and say what each would have done."""
    from unskew.cli.whatif.command import WhatifOptions, run

    options = WhatifOptions.of(
        file=file,
        columns=column or (),
        types=key_type or (),
        partitions=partitions,
        policies=policies,
        batch=batch,
        window=window,
        slide=slide,
        time=time,
        agents=agents,
        dsync=dsync,
        fresh=fresh,
        count_cost=count_cost,
        capacities=capacities,
        weights=weights,
        seed=seed,
        as_json=as_json,
        plot=plot,
        save_plans=save_plans,
    )
    run(options)


@app.command()
def events(
    paths: Annotated[
        list[str] | None,
        Argument(
            metavar="PATH...",
            help="Event logs, folders of them, or zips from a history server; with --history-server applications.",
        ),
    ] = None,
    history_server: Annotated[
        str, Option(metavar="URL", help="Read the newest 20 logs of this history server, or those of PATH.")
    ] = "",
    top: Annotated[str, Option(metavar="N", help="Stages to show, those that lost most first.")] = "20",
    as_json: Json = False,
    html: Annotated[
        str | None, Option(metavar="FILE", help="Write a page with pictures of task times beside even ones.")
    ] = None,
    fail_above: Annotated[
        str, Option(metavar="SHARE", help="Exit code 1 if an application lost more of its time to skew, as 20%.")
    ] = "",
) -> None:
    """Say which stages of past Spark jobs waited for their longest task, why, and what to write. Needs no Spark."""
    from unskew.cli.events.command import EventsOptions, run

    options = EventsOptions.of(
        paths=paths or (), server=history_server, top=top, fail_above=fail_above, as_json=as_json, html=html
    )
    raise typer.Exit(run(options))


@app.command()
def demo(
    batches: Annotated[str, Option(metavar="N", help="Batches of the stream.  [9]")] = "",
    rows: Annotated[str, Option(metavar="N", help="Rows of a batch.  [120000]")] = "",
    partitions: Annotated[str, Option(metavar="N", help="Partitions, and tasks at a time.  [16]")] = "",
    seed: Annotated[str, Option(metavar="N", help="Seed of the stream.  [7]")] = "",
    out: Annotated[str, Option(metavar="DIR", help="Where the report goes.")] = "demo-report",
    service: Annotated[
        str, Option(metavar="TARGET", help="A service that runs already, as grpc://host:8081; else its own.")
    ] = "",
    quick: Annotated[bool, Option("--quick", help="A small one, to see that it runs.")] = False,
) -> None:
    """Run a stream of hot keys on a local Spark, by hash and by unskew side by side; needs Java 17 or newer."""
    from unskew.cli.demo.command import DemoOptions, run

    sizes = {"batches": batches, "rows": rows, "partitions": partitions, "seed": seed}
    raise typer.Exit(run(DemoOptions.of(**sizes, out=out, service=service, quick=quick)))


class _NumbersAreKeys(typer.core.TyperCommand):
    """``unskew explain PLAN -5`` asks for the key -5, not for an option."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.ignore_unknown_options = any(arg[:1] == "-" and arg[1:2].isdigit() for arg in args)
        return super().parse_args(ctx, args)


@app.command(cls=_NumbersAreKeys)
def explain(
    plan: Annotated[str, Argument(metavar="PLAN", help="A plan file, as --save-plans writes it.")],
    key: Annotated[
        list[str] | None, Argument(metavar="KEY...", help="The key, one value for each of its columns.")
    ] = None,
    key_hash: Annotated[str, Option("--hash", metavar="0x...", help="The key's hash instead of the key.")] = "",
    null: Annotated[
        list[str] | None, Option(metavar="N", help="The key's N-th part is NULL; its KEY is left out. May be repeated.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Say where a key's rows go under a plan, and why."""
    from unskew.cli.explain import explanation
    from unskew.cli.output import path_of

    typer.echo(explanation(path_of("PLAN", plan), key or (), key_hash, null or (), as_json=as_json))


_PASS_THROUGH = {"ignore_unknown_options": True, "allow_extra_args": True}


@app.command(context_settings=_PASS_THROUGH, add_help_option=False)
def serve(context: typer.Context) -> None:
    """Run the service: plans over gRPC and REST, until SIGTERM. `unskew serve --help` lists its settings."""
    from unskew.cli.serve import run

    run(context.args)


config = typer.Typer(help="The settings of the service.", rich_markup_mode=None)
app.add_typer(config, name="config")


@config.command(context_settings=_PASS_THROUGH, add_help_option=False)
def check(context: typer.Context) -> None:
    """Check and print the settings that `unskew serve` would have here. Takes its flags, and --json."""
    from unskew.cli.serve import settings_text

    typer.echo(settings_text(context.args))
