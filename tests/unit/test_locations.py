"""What people write for where a log lies, and the one place that says which of it is a path."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import seglog
from seglog.errors import ConfigError, UnsupportedError
from seglog.locations import parse_location
from seglog.remote_path import RemotePath
from seglog_cli.app import run


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/a/b", "/a/b"),
        ("a b/c", "a b/c"),
        ("orders:1-0", "orders:1-0"),  # no scheme: nothing follows the colon that begins a path
        ("file:/a/b%20c", "/a/b c"),
        ("file:///a/b", "/a/b"),
        ("FILE://localhost/a", "/a"),
        ("file:/logs#old/t-0?x", "/logs#old/t-0?x"),  # and not /logs, which is another directory
        ("file:/a%ff\udcfe", "/a\udcff\udcfe"),  # a byte of a name is one, whatever the encoding
    ],
)
def test_paths_and_file_uris_are_paths(text: str, path: str) -> None:
    assert parse_location(text) == Path(path)
    assert parse_location(Path(path)) == Path(path)


URLS = [
    ("s3://bucket/kafka/orders-0", "s3", "bucket", "kafka/orders-0"),
    ("S3://bucket/a%20b#1/", "s3", "bucket", "a%20b#1"),  # keys are what they are
    ("s3:/bucket/x", "s3", "bucket", "x"),
    ("gs://bucket", "gs", "bucket", ""),
    ("az://container/x", "az", "container", "x"),
    ("https://host:8443/a%20b/c", "https", "host:8443", "a b/c"),
]


@pytest.mark.parametrize(("text", "scheme", "store", "key"), URLS)
def test_a_url_is_a_path_that_keeps_it(text: str, scheme: str, store: str, key: str) -> None:
    path = parse_location(text)
    assert isinstance(path, RemotePath)
    assert (path.scheme, path.store, path.key) == (scheme, store, key)
    assert str(path).lower() == text.lower().replace(":/b", "://b").replace(":///b", "://b").rstrip("/")
    assert parse_location(str(path)) == parse_location(path) == path
    assert pickle.loads(pickle.dumps(path / "x")) == path / "x"
    assert str(path / "x") == f"{path}/x" and (path / "x").parent == path and (path / "x").name == "x"
    assert path.resolve() == path.absolute() == path
    if scheme == "s3":
        assert parse_location(Path(text.lower())) == path


@pytest.mark.parametrize(
    "text",
    [
        "s3://id:secret@bucket/x",
        "s3://id:sec/secret@bucket/x",
        "https://user:secret@host/x",
        "https://host/x?signature=secret",
        "s3://bucket/x?X-Amz-Signature=secret",
        "https://host/x#secret",
        "hdfs://user:secret@host/x",
    ],
)
def test_credentials_in_a_url_are_refused_and_not_repeated(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises((ConfigError, UnsupportedError)) as caught:
        parse_location(text)
    assert "secret" not in str(caught.value)
    assert run(["ls", "--json", text]) in (2, 13)
    assert "secret" not in "".join(capsys.readouterr())


@pytest.mark.parametrize("text", ["s3://", "s3:///x", "s3://bucket/a//b", "s3://bucket/../x", "https://h/a%2Fb"])
def test_a_url_with_an_empty_part_is_none(text: str) -> None:
    with pytest.raises(ConfigError, match=r"needs a bucket or host and a key, and no part may be empty"):
        parse_location(text)


def test_a_file_whose_name_looks_like_a_url_is_a_file() -> None:
    path = parse_location("./s3:/x")
    assert path == Path.cwd() / "s3:/x" and not isinstance(path, RemotePath)
    assert parse_location(path) == path


ELSEWHERE = ["hdfs://name/logs", "hdfs:/logs", "swift://b/x"]


@pytest.mark.parametrize("text", ELSEWHERE)
def test_another_file_system_is_named_and_what_to_do(text: str) -> None:
    scheme = text.partition(":")[0]
    for location in (text, Path(text)):
        with pytest.raises(UnsupportedError, match=f"not {scheme}; mount it, and name the mounted path"):
            parse_location(location)


def test_another_machine_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="it names another machine, host; name a path on this one"):
        parse_location("file://host/a")


@pytest.mark.parametrize("text", ["", "file:", "file://", "file://localhost", "/a\0b", "file:/a%00b"])
def test_what_can_be_no_path_is_refused_and_is_not_the_working_directory(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"an empty path|a path cannot contain a NUL"):
        parse_location(text)
    assert run(["retain", text]) == 2
    assert "path" in capsys.readouterr().err


COMMANDS = ("ls", "read", "verify", "append", "stats", "dump-log --files", "spark verify", "config show")


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_says_so_of_what_it_is_given(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "hdfs://bucket/kafka/orders-0"]) == 13
    message = capsys.readouterr().err
    assert "hdfs://bucket/kafka/orders-0: seglog reads s3:, gs:, az:, http:, https: and mounted file systems" in message
    assert "no such file" not in message


def test_the_library_says_so() -> None:
    with pytest.raises(UnsupportedError, match="mounted file systems"), seglog.open_log("hdfs://name/orders-0"):
        pass
    with pytest.raises(UnsupportedError, match="mounted file systems"):
        list(seglog.verify(Path("hdfs://name/orders-0")))


@pytest.mark.parametrize("location", ["a\0b", "file:/a%00b", "\ud83d"])
def test_what_no_file_can_be_called_is_wrong_usage(
    location: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"a path cannot contain (a NUL|half a character)"):
        parse_location(location)
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    partition = str(tmp_path / "orders-0")
    for arguments in (
        ["ls", location],
        ["append", partition, location],
        ["export", partition, "--format", "csv", "-o", location],
        ["undo", location],
        ["dump-log", "--files", location],
        ["salvage", partition, "-o", location],
    ):
        assert run(arguments) in (2, 10), arguments  # a name of a run is no URI
        assert capsys.readouterr().err.count("error: ") == 1


def test_a_configured_directory_that_no_file_can_be_called_names_its_key(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "orders-0").mkdir()
    (tmp_path / "orders-0" / f"{0:020d}.log").write_bytes(b"")
    for key, said in (("metadata.log.dir", "metadata.log.dir"), ("log.dirs", "log.dirs"), ("log.dir", "log.dirs")):
        (tmp_path / "seglog.yaml").write_text(f'{key}: "a\\0b"\n')
        assert run(["config", "show", "--config", str(tmp_path / "seglog.yaml"), str(tmp_path / "orders-0")]) == 2
        assert capsys.readouterr().err == f"error: {said}: 'a\\x00b': a path cannot contain a NUL\n"


@pytest.mark.parametrize(
    "written", ["s3a://bucket/a/b", "s3n://bucket/a/b", "S3A://bucket/a/b", Path("s3a://bucket/a/b")]
)
def test_hadoops_spelling_of_s3_is_read(written: str | Path) -> None:
    assert str(parse_location(written)) == "s3://bucket/a/b"


@pytest.mark.parametrize("scheme", ["abfs", "abfss", "wasb", "wasbs"])
def test_hadoops_spelling_of_azure_is_answered_with_ours(scheme: str) -> None:
    with pytest.raises(UnsupportedError, match="write az://logs/kafka/t-0, and set AZURE_STORAGE_ACCOUNT_NAME=acct"):
        parse_location(f"{scheme}://logs@acct.dfs.core.windows.net/kafka/t-0")
    with pytest.raises(UnsupportedError, match="write az://CONTAINER/KEY") as caught:
        parse_location(f"{scheme}://logs:se/cret@x")
    assert "cret" not in str(caught.value)
