"""The basis of everything else: canonical frames, facts, windows of time, and safe text."""
