#!/usr/bin/env bash
# pip 26.3 with hatchling 1.33.0: "Preparing metadata" builds the whole wheel, compiled parts too.
#
# PEP 517 has a hook that gives a project's metadata without a build, and hatchling has it.
# Expected: `pip install --dry-run` of a hatchling project calls that hook, as other front ends do.
# Seen: hatchling hides the hook from pip (it looks for PIP_BUILD_TRACKER in the environment), so that pip builds the
# wheel: a build hook that compiles for a minute does so during "Preparing metadata", even in a dry run.
set -euo pipefail
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install -q pip==26.3 hatchling==1.33.0
mkdir -p "$work/project/pack"
cd "$work/project"
touch pack/__init__.py
cat > pyproject.toml <<'END'
[build-system]
requires = ["hatchling==1.33.0"]
build-backend = "hatchling.build"
[project]
name = "pack"
version = "1"
[tool.hatch.build.targets.wheel.hooks.custom]
END
cat > hatch_build.py <<'END'
from pathlib import Path
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

class Compiles(BuildHookInterface):
    def initialize(self, version, build_data):
        Path(self.root, "compiled").touch()
END
"$work/venv/bin/pip" --version | cut -d' ' -f1-2
has_hook='import hatchling.build; print(hasattr(hatchling.build, "prepare_metadata_for_build_wheel"))'
outside="$("$work/venv/bin/python" -c "$has_hook")"
within="$(PIP_BUILD_TRACKER=x "$work/venv/bin/python" -c "$has_hook")"
"$work/venv/bin/python" -c 'import hatchling.build as build; build.prepare_metadata_for_build_wheel("'"$work"'")'
by_hook="$([ -e compiled ] && echo compiled || echo "did not compile")"
"$work/venv/bin/pip" install -q --dry-run --no-deps .
by_pip="$([ -e compiled ] && echo compiled || echo "did not compile")"
echo "hatchling has the hook: $outside, under pip: $within; the hook $by_hook, pip's dry run $by_pip"
[ "$outside $within $by_hook $by_pip" = "True False did not compile compiled" ]
