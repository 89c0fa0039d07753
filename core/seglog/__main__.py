"""`python -m seglog`: the command line, which is a package of its own above this one."""

import runpy

if __name__ == "__main__":
    runpy.run_module("seglog_cli", run_name="__main__", alter_sys=True)
