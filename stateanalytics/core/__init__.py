"""What everything else stands on: the canonical frames, facts, windows of time, safe text."""
