"""The only place that opens files: private copies of stores, typed tables, findings."""
