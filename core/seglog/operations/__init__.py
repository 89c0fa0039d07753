"""One module a verb: what the command line, the library and Spark call."""
