"""One module a verb: `fetch`."""
