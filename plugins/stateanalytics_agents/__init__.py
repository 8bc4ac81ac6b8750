"""Systems of agents as plug-ins of stateanalytics: Copilot CLI, Gemini CLI, OpenTelemetry."""
