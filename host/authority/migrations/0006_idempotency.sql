-- What was asked for under which Idempotency-Key, and what was answered. A row lives for a day.
CREATE TABLE idempotency_keys (
    -- Whose key it is: a token's id, or the operator.
    actor      TEXT    NOT NULL,
    idempotency_key TEXT NOT NULL,
    -- A keyed digest of the whole request: a secret in it cannot be found from it.
    request    BLOB    NOT NULL,
    -- The replica that works on it.
    claimed_by TEXT,
    -- What it made, written in the transaction that made it.
    made       TEXT,
    -- The answer; none where it held a secret that is shown once, or was lost.
    status     INTEGER,
    answer     TEXT,
    created_at INTEGER NOT NULL,
    mac        BLOB    NOT NULL,
    PRIMARY KEY (actor, idempotency_key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
