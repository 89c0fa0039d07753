"""`python -m seglog_cli`, and what the script `seglog` calls.

Until `process` has taken over the signals, Ctrl-C ends the process as it ends one that knows of no signals, at once and
in silence: Python's own handler would show where the imports were. `signal` itself imports a good deal; the module
within it is there from the start.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from seglog_cli.process import main

if __name__ == "__main__":
    main()
