"""Files, locks and throttles: everything outside the process."""
