-- name: ended_among [postgres] Which of these jobs have ended, and how.
SELECT id, state FROM duly.ended WHERE id = ANY (:ids::uuid[])

-- name: ended_among [sqlite] Which of these jobs have ended, and how.
SELECT id, state FROM duly.ended WHERE id IN (SELECT value FROM json_each(:batch))
