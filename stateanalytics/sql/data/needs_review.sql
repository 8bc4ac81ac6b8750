SELECT session.source, session.system, session.entity_id AS session_id,
       session.name, session.kind, session.agent, session.model,
       count(*) AS n_plays, string_agg(DISTINCT play.raw_status, ', ' ORDER BY play.raw_status)
         AS play_statuses
FROM entities AS play
JOIN entities AS session
  ON session.source = play.source AND session.system = play.system
 AND session.entity_type = 'session' AND session.entity_id = play.session_id
WHERE play.entity_type = 'play' AND play.raw_status IN ('gated', 'escalated', 'blocked')
GROUP BY ALL
ORDER BY session.source, session_id
