"""One module a verb: `backup`, `groups`, `rebuild`, `replicas`, `restore`, `transplant`."""
