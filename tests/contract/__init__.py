"""The real programs against a provider that knows what it answered, then our reading of both.

``python -m tests.contract --client claude`` installs nothing of ours into them: each program comes
from its registry, runs in a home of its own, and speaks to the loopback address only.
"""
