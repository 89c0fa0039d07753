"""`seglog config`: configuration, and where each value comes from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from seglog_cli.help_option import HelpOption
from seglog_cli.options import CONTEXT, MetadataDirectory, SpokenFor, argument, command, flag, kafka_named
from seglog_cli.parameters import PlainCommand, with_default
from seglog_cli.session import Session
from seglog_cli.views.settings import show_settings

app = typer.Typer(cls=with_default("show"), rich_markup_mode=None, context_settings=CONTEXT)


@app.callback()
def group(show_help: HelpOption = False) -> None:
    """Shows which configuration values apply to a log, and why.

    `seglog config PATH` is short for `seglog config show PATH`.
    """


@app.command("show", cls=PlainCommand, context_settings=CONTEXT)
@command(urls=["path", "metadata_dir"])
def show(
    session: Session,
    path: Annotated[
        Path | None,
        argument("PATH", "A partition directory or a log directory (default: the current directory)."),
    ] = None,
    every: Annotated[bool, flag("--all -a", "Show defaults too.")] = False,
    metadata_dir: MetadataDirectory = None,
    kafka_version: SpokenFor = None,
) -> None:
    """Shows each configuration value of a partition's topic, or of a log directory's broker, and its source.

    Only values that are set somewhere are shown; --all shows Kafka's defaults too. A value that lets more records go
    than the cluster's metadata says is marked.

    As in a broker, a value set for the topic itself wins over every default. It is looked for in this order: options
    and --set, the environment, the topic's entry in the configuration file, and the topic's own configuration in the
    cluster's metadata (__cluster_metadata-0).

    A default is looked for in this order: the metadata of this broker, then of all brokers; the brokers' names
    (log.retention.hours) in --set and the environment; the top level of the file; and Kafka's own default.

    Kafka's defaults are those of the release that wrote the log directory, as far as it is recognised, and else of 4.3;
    --kafka-version chooses another one. The topics of a cluster with ZooKeeper have their configuration there.

    Examples:
      seglog config customers-0
      seglog config show customers-0 --set min.compaction.lag.ms=1h
      seglog config show --all --json /var/lib/kafka/data
    """
    from seglog.configuration.key_history import of_release
    from seglog.configuration.settings import topic_of
    from seglog.configuration.writers import IN_ZOOKEEPER, release_for
    from seglog.operations.workspace import Sources
    from seglog.scan.listing import log_directory_of, refuse_file, resolve_path

    (path,) = session.paths_or_here(None if path is None else [path])
    target = resolve_path(session.fs, path)
    refuse_file(target)
    topic = topic_of(target)
    settings = session.config_of(log_directory_of(target), Sources(metadata_directory=metadata_dir))
    release = release_for(settings.writer, kafka_named(kafka_version))
    show_settings(session.console, topic, of_release(settings.resolve(topic), release), every)
    if settings.writer is not None and settings.writer.is_unusual:
        session.console.message(f"{settings.writer.sentence}; defaults are those of Kafka {release}")
        if settings.writer.zookeeper:
            session.console.warning(IN_ZOOKEEPER)
