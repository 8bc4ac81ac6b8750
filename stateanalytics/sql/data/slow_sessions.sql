SELECT * FROM running_sessions
WHERE age_s > (SELECT slow_after_s FROM snapshot)
ORDER BY age_s DESC, source, session_id
