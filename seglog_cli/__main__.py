"""`python -m seglog_cli`, and the entry point of the script `seglog`.

Until `process` has installed its signal handlers, Ctrl-C ends the process at once and in silence: Python's own handler
would print a traceback of the imports. `_signal` is built in; the module `signal` would import a good deal first.
"""

import _signal  # type: ignore[import-not-found]

if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

from seglog_cli.process import main

if __name__ == "__main__":
    main()
