-- part: token_columns A token without its hash.
SELECT id, kind, name, scopes, tenant, created_at, created_by, expires_at, last_used_at FROM duly.tokens

-- name: insert_token Let somebody in from now on. Says nothing if this is a repetition.
INSERT INTO duly.tokens (id, hash, kind, name, scopes, tenant, created_at, created_by, expires_at)
VALUES (:id::uuid, :hash::text, :kind::text, :name::text, :scopes::text, :tenant::text, :now, :created_by::text, :now + :lasts_us::bigint)
ON CONFLICT DO NOTHING RETURNING id

-- name: find_token Whose token has this hash, if it still holds; and how long ago that was last asked.
SELECT id, kind, name, scopes, tenant, created_at, created_by, expires_at, last_used_at, :now - COALESCE(last_used_at, 0) FROM duly.tokens
WHERE hash = :hash::text AND (expires_at IS NULL OR expires_at > :now)

-- name: use_token Note that a token was used.
UPDATE duly.tokens SET last_used_at = :now WHERE id = :id::uuid

-- name: list_tokens Every token that holds, newest first.
@token_columns
WHERE expires_at IS NULL OR expires_at > :now ORDER BY id DESC LIMIT :n::integer

-- name: get_token One token, whether or not it holds.
@token_columns
WHERE id = :id::uuid

-- name: delete_token Let somebody in no more.
DELETE FROM duly.tokens WHERE id = :id::uuid

-- name: forget_tokens Those that hold no more.
DELETE FROM duly.tokens WHERE expires_at <= :now
