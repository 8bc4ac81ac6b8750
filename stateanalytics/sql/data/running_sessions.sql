SELECT source, system, entity_id AS session_id, name, kind, agent, model,
       started_at, age_s, silence_s, effective_state, severity
FROM entity_states
WHERE entity_type = 'session' AND lifecycle = 'running'
ORDER BY severity, silence_s DESC NULLS LAST, source, session_id
