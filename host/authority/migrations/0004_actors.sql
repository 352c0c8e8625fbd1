-- Tokens of board members of several companies, of agents of one run, and of those that end by themselves.
-- companies is a JSON list of ids in order: none of an administrator, one of an agent.
CREATE TABLE tokens_of_actors (
    id           TEXT    PRIMARY KEY,
    role         TEXT    NOT NULL CHECK (role IN ('admin', 'member', 'agent')),
    companies    TEXT    NOT NULL,
    run          TEXT,
    name         TEXT    NOT NULL,
    hash         BLOB    NOT NULL UNIQUE,
    created_by   TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    -- To the minute; not part of the mac, as nothing is decided by it.
    last_used_at INTEGER,
    revoked_at   INTEGER,
    mac          BLOB    NOT NULL,
    CHECK ((role = 'admin') = (companies = '[]')),
    CHECK (run IS NULL OR role = 'agent')
);
INSERT INTO tokens_of_actors (id, role, companies, name, hash, created_by, created_at, revoked_at, mac)
SELECT id, role, CASE WHEN company_id IS NULL THEN '[]' ELSE json_array(company_id) END, name, hash, created_by,
       created_at, revoked_at, mac
FROM tokens;
DROP TABLE tokens;
ALTER TABLE tokens_of_actors RENAME TO tokens;
CREATE INDEX leases_by_run ON leases (company_id, run, created_at) WHERE run IS NOT NULL;
