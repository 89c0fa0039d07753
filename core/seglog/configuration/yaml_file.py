"""The configuration file in YAML: Kafka's keys at the top level, those of single topics below `topics`.

Every value keeps its line, so that a wrong one is an error with file and line. `settings` imports this module
when there is a file to read: importing PyYAML takes 10 ms.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from seglog.configuration.keys import key_named
from seglog.configuration.precedence import Layer, Written, layer_of
from seglog.errors import ConfigError

TOPICS = "topics"


def parse_yaml(path: Path, data: bytes) -> tuple[Layer, dict[str, Layer]]:
    """Returns the top level of a file, and its `topics` in file order. `path` is for messages. Raises ConfigError."""
    try:
        root = yaml.compose(data.decode(), Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(error.problem or "not YAML", path, mark.line + 1 if mark else None) from error
    except yaml.reader.ReaderError as error:
        raise ConfigError(f"not YAML: a character at position {error.position} is not allowed", path) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8: the byte at position {error.start} is wrong", path) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"not YAML: {' '.join(str(error).split())}", path) from error
    except RecursionError as error:
        raise ConfigError("nested too deeply", path) from error
    if root is None:
        return {}, {}
    topics: dict[str, Layer] = {}
    values: list[tuple[yaml.Node, yaml.Node]] = []
    for name, value in _entries(path, root, "a mapping of Kafka's keys"):
        if name.value == TOPICS:
            for pattern, settings in _entries(path, value, "a mapping of topic names or patterns"):
                topics[pattern.value] = _file_layer(path, _entries(path, settings, "a mapping of keys"), topic=True)
        else:
            values.append((name, value))
    return _file_layer(path, iter(values), topic=False), topics


def _entries(path: Path, node: yaml.Node, expected: str) -> Iterator[tuple[yaml.Node, yaml.Node]]:
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{expected} is expected here", path, node.start_mark.line + 1)
    seen: dict[str, int] = {}
    for name, value in node.value:
        line = name.start_mark.line + 1
        if not isinstance(name, yaml.ScalarNode):
            raise ConfigError("a key must be plain text", path, line)
        if name.value in seen:
            raise ConfigError(f"{name.value} is set twice (first in line {seen[name.value]})", path, line)
        seen[name.value] = line
        yield name, value


def _file_layer(path: Path, entries: Iterator[tuple[yaml.Node, yaml.Node]], *, topic: bool) -> Layer:
    written: list[Written] = []
    for name, value in entries:
        line = name.start_mark.line + 1
        try:
            key = key_named(name.value)
            if topic and not key.topic_level:
                raise ConfigError(f"{name.value} is a broker's key; a topic cannot set it")
            text = _text(value)
            key.parse(text, name.value)
        except (ConfigError, ValueError) as error:
            raise ConfigError(str(error), path, line) from error
        written.append((name.value, text, f"{path}:{line}"))
    return layer_of(written)


def _text(value: yaml.Node) -> str:
    if isinstance(value, yaml.ScalarNode):
        if value.tag == "tag:yaml.org,2002:null":
            raise ConfigError("a value is missing")
        return str(value.value)
    if isinstance(value, yaml.SequenceNode) and all(isinstance(item, yaml.ScalarNode) for item in value.value):
        return ",".join(str(item.value) for item in value.value)
    raise ConfigError("a value must be text, a number or a list of these")
