"""`python -m seglog_cli`: the same as `seglog`."""

from seglog_cli.process import main

main()
