SELECT source, system, entity_id AS session_id, name, kind, agent, model,
       ended_at, duration_s, reason_code, reason_message
FROM entity_states
WHERE entity_type = 'session' AND outcome = 'failed'
  AND ended_at > as_of() - INTERVAL 24 HOURS AND ended_at <= as_of()
ORDER BY ended_at DESC, source, session_id
