"""One module a verb: `export`, `latest`, `schemas`, `sql`, `where`; the command line and the library call them."""
