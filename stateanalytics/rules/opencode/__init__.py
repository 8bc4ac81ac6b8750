"""opencode's event logs folded into executions, steps, tool calls, inputs and sessions."""
