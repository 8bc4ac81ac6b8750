"""Every rule of lionagi that calls work stale, stuck, slow or dead."""
