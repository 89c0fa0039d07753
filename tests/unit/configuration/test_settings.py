"""Which source wins, and what is said of a value that cannot be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seglog.configuration.precedence import Settings
from seglog.configuration.settings import load_settings
from seglog.errors import ConfigError, RefusedError, UntrustedLinkError
from seglog.storage.filesystem import OpenMode
from seglog.storage.local import LocalFile, LocalFileSystem
from tests.support.other_users import OTHER, acting_as_user, needs_root, planted_link

YAML = """\
# a comment
segment.bytes: 1GiB
delete.retention.ms: 1d
log.cleaner.dedupe.buffer.size: 128MiB
topics:
  "customers*": {cleanup.policy: compact, min.compaction.lag.ms: 1h}
  customers-old:
    cleanup.policy: [compact, delete]
    segment.bytes: 100MiB
"""


def load(tmp_path: Path, text: str | None = None, **options) -> Settings:
    if text is not None:
        (tmp_path / "seglog.yaml").write_text(text)
    options.setdefault("environment", {"HOME": str(tmp_path / "home")})
    return load_settings(LocalFileSystem(), working_directory=tmp_path, **options)


def origin(settings: Settings, key: str, topic: str | None = None, **stored) -> tuple[object, str]:
    found = settings.resolve(topic, **stored).settings[key]
    return found.value, found.origin


def test_without_any_source_all_is_kafkas_default(tmp_path: Path) -> None:
    resolved = load(tmp_path).resolve("t")
    assert resolved.log.segment_bytes == 1 << 30 and not resolved.policy_known and resolved.warnings == ()
    assert {setting.origin for setting in resolved.settings.values()} == {"default"}


def test_a_topics_entry_wins_over_a_pattern_and_that_over_the_top_level(tmp_path: Path) -> None:
    settings = load(tmp_path, YAML)
    file = tmp_path / "seglog.yaml"
    assert origin(settings, "segment.bytes", "orders") == (1 << 30, f"{file}:2")
    assert origin(settings, "cleanup.policy", "customers-new") == (frozenset({"compact"}), f"{file}:6")
    assert origin(settings, "cleanup.policy", "customers-old")[0] == frozenset({"compact", "delete"})
    assert origin(settings, "segment.bytes", "customers-old") == (100 << 20, f"{file}:9")
    assert settings.resolve("orders").cleaner.dedupe_buffer_size == 128 << 20
    assert settings.resolve("customers").policy_known and not settings.resolve("orders").policy_known


def test_an_option_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    environment = {"SEGLOG_SEGMENT_BYTES": "2MiB", "SEGLOG_RETENTION_MS": "1h", "HOME": "/nowhere"}
    settings = load(tmp_path, YAML, environment=environment, overrides=["segment.bytes=3MiB"])
    assert origin(settings, "segment.bytes", "customers-old") == (3 << 20, "--set")
    assert origin(settings, "retention.ms") == (3_600_000, "SEGLOG_RETENTION_MS")
    assert origin(settings, "segment.bytes", chosen={"segment.bytes": 4096}) == (4096, "option")


def test_the_clusters_own_configuration_wins_over_defaults_only(tmp_path: Path) -> None:
    settings = load(tmp_path, YAML)
    stored = {"cleanup.policy": ("compact", "metadata:7"), "segment.bytes": ("5", "m:8"), "leader.x": ("1", "m:9")}
    brokers = {"log.retention.hours": ("2", "m:1"), "log.cleaner.delete.retention.ms": ("3", "m:2")}
    resolved = settings.resolve("orders", stored=stored, stored_brokers=brokers)
    assert resolved.settings["cleanup.policy"].origin == "metadata:7" and resolved.policy_known
    assert resolved.log.segment_bytes == 5  # the file's top level holds defaults of every topic
    assert resolved.log.retention_ms == 7_200_000
    assert resolved.log.delete_retention_ms == 3  # as a dynamic value wins over server.properties
    assert settings.resolve("customers-old", stored=stored).log.segment_bytes == 100 << 20  # the file's own entry


def test_a_synonym_in_a_strong_source_wins_over_the_name_in_a_weak_one(tmp_path: Path) -> None:
    settings = load(tmp_path, "retention.ms: 5\n", overrides=["log.retention.hours=1"])
    assert origin(settings, "retention.ms") == (3_600_000, "--set")
    settings = load(tmp_path, "log.retention.hours: 1\nlog.retention.ms: 7\nretention.ms: 5\n")
    assert origin(settings, "retention.ms")[0] == 5


def test_what_a_broker_refuses_is_taken_with_a_warning(tmp_path: Path) -> None:
    assert "segment.bytes" in load(tmp_path, "segment.bytes: 1000\n").resolve("t").warnings[0]
    unknown = load(tmp_path, "", environment={"SEGLOG_SEGMENT_BYTE": "1", "HOME": "/x"}).resolve("t").warnings
    assert "SEGLOG_SEGMENT_BYTE" in unknown[0]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("segment.byte: 1\n", 1, "did you mean segment.bytes"),
        ("a: 1\n", 1, "no configuration key"),
        ("# c\nsegment.bytes: many\n", 2, "segment.bytes"),
        ("retention.ms: -5\n", 1, "retention.ms"),
        ("segment.bytes: 1\nsegment.bytes: 2\n", 2, "is set twice"),
        ("segment.bytes:\n", 1, "missing"),
        ("segment.bytes: {a: 1}\n", 1, "text, a number"),
        ("- a\n", 1, "mapping"),
        ("topics: 5\n", 1, "mapping"),
        ("topics:\n  a:\n    log.cleaner.threads: 2\n", 3, "broker's key"),
        ("topics:\n  a:\n    cleanup.policy: shrink\n", 3, "cleanup.policy"),
        ("segment.bytes: [1\n", 2, ""),
        ("x: \t@\n", 1, ""),
    ],
)
def test_errors_name_file_and_line(tmp_path: Path, text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, text)
    assert error.value.path == tmp_path / "seglog.yaml" and error.value.line == line
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["\x00", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass")])
def test_nonsense_is_an_error_and_no_traceback(tmp_path: Path, text: str | bytes) -> None:
    (tmp_path / "seglog.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError):
        load(tmp_path)


@pytest.mark.parametrize("text", ["segment.bytes", "nothing=1", "segment.bytes=x"])
def test_wrong_options_are_errors(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError):
        load(tmp_path, overrides=[text])


def test_files_are_looked_for_in_order(tmp_path: Path) -> None:
    home = tmp_path / "home" / "seglog"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("segment.bytes: 3MiB\n")
    environment = {"XDG_CONFIG_HOME": str(tmp_path / "home")}
    assert load(tmp_path, environment=environment).path == home / "config.yaml"
    (tmp_path / "seglog.yaml").write_text("segment.bytes: 4MiB\n")
    assert load(tmp_path, environment=environment).path == tmp_path / "seglog.yaml"
    (tmp_path / "own.yaml").write_text("")
    assert load(tmp_path, environment={**environment, "SEGLOG_CONFIG": "own.yaml"}).path == tmp_path / "own.yaml"
    with pytest.raises(ConfigError, match="does not exist"):
        load(tmp_path, config=Path("missing.yaml"))


@needs_root
def test_places_that_this_user_cannot_look_into_are_said_and_not_used(tmp_path: Path) -> None:
    """`sudo -u kafka seglog …` in root's home."""
    for name in ("here", "home"):
        (tmp_path / name).mkdir(mode=0o700)
        (tmp_path / name / "seglog.yaml").write_text("segment.bytes: 4MiB\n")
    with acting_as_user():
        settings = load(tmp_path / "here", environment={"HOME": str(tmp_path / "home")})
        with pytest.raises(ConfigError, match="cannot be read: Permission denied"):
            load(tmp_path, config=tmp_path / "here" / "seglog.yaml")
    assert settings.path is None
    assert settings.warnings == (
        f"{tmp_path / 'here' / 'seglog.yaml'} is not used: Permission denied",
        f"{tmp_path / 'home' / '.config' / 'seglog' / 'config.yaml'} is not used: Permission denied",
    )


@needs_root
@pytest.mark.parametrize("where", ["working directory", "SEGLOG_CONFIG", "XDG_CONFIG_HOME", "HOME"])
@pytest.mark.parametrize("doubt", ["owner", "group", "everybody", "owner of the directory", "directory of everybody"])
def test_root_takes_no_configuration_that_others_may_write_unless_it_is_named(
    tmp_path: Path, where: str, doubt: str
) -> None:
    path, environment = tmp_path / "seglog.yaml", {"HOME": str(tmp_path / "nobody")}
    if where == "SEGLOG_CONFIG":
        path = tmp_path / "shared" / "any.yaml"
        environment["SEGLOG_CONFIG"] = str(path)
    elif where != "working directory":
        path = tmp_path / "shared" / (".config" if where == "HOME" else "") / "seglog" / "config.yaml"
        environment[where] = str(tmp_path / "shared")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("retention.ms: 1\n")
    assert load(tmp_path, environment=environment).path == path
    if doubt == "owner":
        os.chown(path, OTHER, OTHER)
    elif doubt == "owner of the directory":
        os.chown(path.parent, OTHER, OTHER)
    else:
        named = path.parent if "directory" in doubt else path
        named.chmod({"group": 0o664, "everybody": 0o646}.get(doubt, 0o1777))
    with pytest.raises(RefusedError, match=rf"Name it with --config {path}, use --config"):
        load(tmp_path, environment=environment)
    assert load(tmp_path, environment=environment, config=path).path == path


@needs_root
def test_root_takes_no_configuration_that_takes_the_place_of_its_own_when_it_is_opened(tmp_path: Path) -> None:
    class Swapping(LocalFileSystem):
        def open(self, path: Path, mode: OpenMode) -> LocalFile:
            os.chown(path, OTHER, OTHER)
            return super().open(path, mode)

    (tmp_path / "seglog.yaml").write_text("retention.ms: 1\n")
    with pytest.raises(RefusedError, match="belongs to nobody"):
        load_settings(Swapping(), working_directory=tmp_path, environment={})


@needs_root
@pytest.mark.parametrize("environment", [{}, {"SEGLOG_CONFIG": os.devnull}])
def test_the_null_device_is_no_configuration(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "seglog.yaml").write_text("retention.ms: 1\n")
    os.chown(tmp_path / "seglog.yaml", OTHER, OTHER)
    named = None if environment else Path(os.devnull)
    settings = load(tmp_path, environment={"HOME": str(tmp_path), **environment}, config=named)
    assert settings.path is None and origin(settings, "retention.ms")[1] == "default"


@needs_root
def test_a_link_of_another_user_is_no_configuration(tmp_path: Path) -> None:
    (tmp_path / "any.yaml").write_text("retention.ms: 1\n")
    planted_link(tmp_path / "seglog.yaml", tmp_path / "any.yaml")
    with pytest.raises(UntrustedLinkError):
        load(tmp_path)


def test_users_other_than_root_take_the_configuration_that_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "seglog.yaml").write_text("retention.ms: 1\n")
    (tmp_path / "seglog.yaml").chmod(0o666)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert load(tmp_path).path == tmp_path / "seglog.yaml"


SERVER_PROPERTIES = """\
# a broker's own file
process.roles=broker,controller
node.id : 7
log.dirs=/a,\\
    /b
! another comment
log.segment.bytes = 2097152
log.retention.hours=2
log.cleanup.policy=compact
listeners=PLAINTEXT://:9092
"""


def test_a_brokers_server_properties_are_a_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(SERVER_PROPERTIES)
    settings = load(tmp_path, config=file)
    assert origin(settings, "segment.bytes", "orders") == (2 << 20, str(file))
    assert origin(settings, "retention.ms", "orders") == (7_200_000, str(file))
    assert settings.resolve(None).broker.node_id == 7
    assert settings.resolve("orders").warnings == ()  # a broker has many keys that seglog has not
    stored = {"segment.bytes": ("5", "metadata:8")}
    assert origin(settings, "segment.bytes", "orders", stored=stored) == (5, "metadata:8")  # as in a broker
    assert origin(load(tmp_path, config=file, overrides=["node.id=8"]), "segment.bytes")[0] == 2 << 20


@pytest.mark.parametrize(
    "line", ["log.segment.bytes=many", "node.id=x", "log.cleanup.policy=shred", "log.retention.hours=\\u12"]
)
def test_a_wrong_value_in_server_properties_names_the_file(line: str, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs=/a\n{line}\n")
    with pytest.raises(ConfigError, match=r"server\.properties"):
        load(tmp_path, config=file).resolve("orders")
