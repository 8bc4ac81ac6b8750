SELECT play.source, play.system, play.session_id,
       play.entity_id AS play_id, play.name AS play_name,
       session.raw_status AS session_status, play.raw_status AS play_status,
       session.outcome AS session_outcome, play.outcome AS play_outcome
FROM entity_states AS play
LEFT JOIN entity_states AS session
  ON session.source = play.source AND session.system = play.system
 AND session.entity_type = 'session' AND session.entity_id = play.session_id
WHERE play.entity_type = 'play'
ORDER BY play.source, play_id
