"""kcat as a member of a group: BOOTSTRAP TOPICS ISOLATION GROUP COUNT; writes what it shows as lines of the matrix."""

from __future__ import annotations

import base64
import json
import subprocess
import sys


def main() -> None:
    """Runs kcat until it has shown COUNT records."""
    bootstrap, topics, isolation, group, count = sys.argv[1:]
    settings = (f"isolation.level={isolation}", "auto.offset.reset=earliest", "check.crcs=true")
    command = ["kcat", "-q", "-J", "-b", bootstrap, "-c", count]
    command += [word for setting in settings for word in ("-X", setting)]
    done = subprocess.run([*command, "-G", group, *topics.split(",")], stdout=subprocess.PIPE, check=True)
    for line in done.stdout.splitlines():
        shown = json.loads(line.decode(errors="surrogateescape"))
        names = shown.get("headers", [])
        headers = [(name, coded(data)) for name, data in zip(names[::2], names[1::2], strict=True)]
        place = shown["topic"], shown["partition"], shown["offset"], shown["ts"]
        sys.stdout.write(json.dumps([*place, coded(shown["key"]), coded(shown["payload"]), headers]) + "\n")


def coded(text: str | None) -> str | None:
    """Bytes that kcat shows as text, in base64."""
    return None if text is None else base64.b64encode(text.encode(errors="surrogateescape")).decode()


if __name__ == "__main__":
    main()
