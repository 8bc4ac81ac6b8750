"""Every rule that calls work stale, stuck, slow or dead, and how far they agree."""
