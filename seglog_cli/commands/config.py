"""`seglog config`: configuration, and where each value comes from."""

from __future__ import annotations

from typing import Annotated

import typer

from seglog_cli.help import HelpOption
from seglog_cli.options import CONTEXT, OnePath, command, flag
from seglog_cli.session import Session

app = typer.Typer(
    help="Configuration: what counts for a log, and why.",
    rich_markup_mode=None,
    context_settings=CONTEXT,
)


@app.callback()
def group(show_help: HelpOption = False) -> None:
    """Configuration: what counts for a log, and why."""


@app.command("show", context_settings=CONTEXT)
@command
def show(
    session: Session,
    path: OnePath,
    every: Annotated[bool, flag("--all -a", "Defaults too.")] = False,
) -> None:
    """Shows each configuration value of a partition's topic, or of a log directory's broker, and its source.

    Sources, the first wins: options, environment, configuration file, the topic's configuration in the log
    directory's own __cluster_metadata-0, the brokers' there, Kafka's default. Defaults are shown with
    --all.

    Examples:
      seglog config show customers-0
      seglog config show customers-0 --set min.compaction.lag.ms=1h
      seglog config show --all --json /var/lib/kafka/data
    """
    from seglog.log.listing import resolve_path
    from seglog.log.topic_settings import topic_of
    from seglog_cli.views.settings import show_settings

    target = resolve_path(session.fs, path)
    topic = topic_of(target)
    show_settings(session.console, topic, session.config_of_target(target).resolve(topic), every)
