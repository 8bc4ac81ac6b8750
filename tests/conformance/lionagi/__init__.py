"""Lionagi: exit codes, run views, verification and transitions as its own code decides them."""
