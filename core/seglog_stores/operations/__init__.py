"""One module a verb: `fetch`; and the transaction indexes that it makes anew."""
