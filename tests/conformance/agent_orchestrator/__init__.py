"""Agent Orchestrator: polls, probes, recovery, reports and dates as its own code decides them."""
