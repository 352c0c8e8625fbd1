-- Leasehold's founding schema. Times are milliseconds since 1970-01-01T00:00:00Z by the database's clock.
-- Columns named mac authenticate the rest of their row under a key that is derived from the master key.

CREATE TABLE instance (
    id           INTEGER PRIMARY KEY CHECK (id = 1),
    host         TEXT    NOT NULL,
    salt         BLOB    NOT NULL,
    key_check    BLOB    NOT NULL,
    incarnation  TEXT    NOT NULL,
    incarnations INTEGER NOT NULL,
    -- The subkeys of what stands outside the database, sealed; none until the master key was changed once.
    carried      BLOB,
    created_at   INTEGER NOT NULL,
    mac          BLOB    NOT NULL
);

CREATE TABLE companies (
    id         TEXT    PRIMARY KEY,
    name       TEXT    NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
);

CREATE TABLE tokens (
    id         TEXT    PRIMARY KEY,
    company_id TEXT    REFERENCES companies (id),
    name       TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role IN ('admin', 'member', 'agent')),
    hash       BLOB    NOT NULL UNIQUE,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER,
    mac        BLOB    NOT NULL,
    CHECK ((role = 'admin') = (company_id IS NULL))
);

CREATE TABLE components (
    digest TEXT    PRIMARY KEY,
    size   INTEGER NOT NULL,
    bytes  BLOB    NOT NULL
);

-- current_digest is what new leases use, previous_digest one step back, pending_digest what waits for its grant.
CREATE TABLE plugins (
    plugin_key      TEXT    PRIMARY KEY,
    enabled         INTEGER NOT NULL,
    current_digest  TEXT,
    previous_digest TEXT,
    pending_digest  TEXT,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    mac             BLOB    NOT NULL
);

CREATE TABLE plugin_revisions (
    digest       TEXT    PRIMARY KEY,
    plugin_key   TEXT    NOT NULL,
    number       INTEGER NOT NULL,
    version      TEXT    NOT NULL,
    driver       TEXT    NOT NULL,
    manifest     TEXT    NOT NULL,
    capabilities TEXT    NOT NULL,
    size         INTEGER NOT NULL,
    grant_id     TEXT,
    installed_at INTEGER NOT NULL,
    removed_at   INTEGER,
    mac          BLOB    NOT NULL,
    UNIQUE (plugin_key, number)
);

-- What was shown to whoever allowed a revision, what of it was allowed, and who that was. carried_from names the grant
-- of the revision before, where this one asked for no more than that. Never changed, only added to.
CREATE TABLE grants (
    id             TEXT    PRIMARY KEY,
    digest         TEXT    NOT NULL REFERENCES plugin_revisions (digest),
    asks           TEXT    NOT NULL,
    request_digest TEXT    NOT NULL,
    granted        TEXT    NOT NULL,
    carried_from   TEXT,
    granted_by     TEXT    NOT NULL,
    granted_at     INTEGER NOT NULL,
    mac            BLOB    NOT NULL
);
CREATE INDEX grants_by_digest ON grants (digest, granted_at);

-- A secret without a company is the instance's own: an administrator may bind it in any company.
CREATE TABLE secrets (
    id          TEXT    PRIMARY KEY,
    company_id  TEXT    REFERENCES companies (id),
    name        TEXT    NOT NULL,
    purpose     TEXT    NOT NULL CHECK (purpose IN ('key', 'password', 'token', 'certificate', 'other')),
    description TEXT,
    latest      INTEGER NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL,
    mac         BLOB    NOT NULL,
    UNIQUE (company_id, name)
);
CREATE UNIQUE INDEX secrets_of_instance ON secrets (name) WHERE company_id IS NULL;

-- What is destroyed is a record without a value.
CREATE TABLE secret_versions (
    secret_id  TEXT    NOT NULL REFERENCES secrets (id) ON DELETE CASCADE,
    version    INTEGER NOT NULL,
    status     TEXT    NOT NULL CHECK (status IN ('enabled', 'disabled', 'destroyed')),
    sealed     BLOB,
    wrapped    BLOB,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    mac        BLOB    NOT NULL,
    PRIMARY KEY (secret_id, version),
    CHECK ((status = 'destroyed') = (sealed IS NULL) AND (sealed IS NULL) = (wrapped IS NULL))
);

-- Who had which value for what. No foreign keys: the record outlives what it tells of.
CREATE TABLE secret_accesses (
    position     INTEGER PRIMARY KEY,
    at           INTEGER NOT NULL,
    secret_id    TEXT    NOT NULL,
    version      INTEGER NOT NULL,
    company_id   TEXT    NOT NULL,
    environment  TEXT,
    lease_id     TEXT,
    run          TEXT,
    actor_kind   TEXT    NOT NULL,
    actor_id     TEXT,
    actor        TEXT    NOT NULL,
    purpose      TEXT    NOT NULL,
    pointer      TEXT    NOT NULL,
    destinations TEXT    NOT NULL
);
CREATE INDEX secret_accesses_by_secret ON secret_accesses (secret_id, position);

CREATE TABLE environments (
    id              TEXT    PRIMARY KEY,
    company_id      TEXT    NOT NULL REFERENCES companies (id),
    name            TEXT    NOT NULL,
    description     TEXT,
    driver          TEXT    NOT NULL,
    provider        TEXT    NOT NULL,
    config          TEXT    NOT NULL,
    env_vars        TEXT    NOT NULL,
    metadata        TEXT,
    status          TEXT    NOT NULL CHECK (status IN ('active', 'archived')),
    revision        INTEGER NOT NULL,
    target_revision INTEGER NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL,
    mac             BLOB    NOT NULL,
    UNIQUE (company_id, name)
);
CREATE INDEX environments_by_provider ON environments (provider);

-- The right to use one secret at one place of one environment: the data key, wrapped for that place alone.
CREATE TABLE secret_bindings (
    environment_id TEXT    NOT NULL REFERENCES environments (id) ON DELETE CASCADE,
    pointer        TEXT    NOT NULL,
    secret_id      TEXT    NOT NULL REFERENCES secrets (id),
    selector       TEXT    NOT NULL,
    version        INTEGER NOT NULL,
    sites          TEXT    NOT NULL,
    destinations   TEXT    NOT NULL,
    wrapped        BLOB    NOT NULL,
    bound_by       TEXT    NOT NULL,
    bound_at       INTEGER NOT NULL,
    PRIMARY KEY (environment_id, pointer)
);
CREATE INDEX secret_bindings_by_secret ON secret_bindings (secret_id);

-- Lease rows are never deleted. environment_id has no foreign key: the record outlives the environment.
CREATE TABLE leases (
    id              TEXT    PRIMARY KEY,
    company_id      TEXT    NOT NULL REFERENCES companies (id),
    environment_id  TEXT    NOT NULL,
    environment     TEXT    NOT NULL,
    target_revision INTEGER NOT NULL,
    plugin_digest   TEXT    NOT NULL,
    provider        TEXT    NOT NULL,
    driver          TEXT    NOT NULL,
    purpose         TEXT    NOT NULL,
    config          TEXT    NOT NULL,
    env_vars        TEXT    NOT NULL,
    secret_versions TEXT    NOT NULL,
    -- Whose account it uses, and the same once more where it has that account for itself.
    account_key     TEXT,
    exclusive_key   TEXT,
    ttl             INTEGER,
    agent           TEXT,
    run             TEXT,
    workspace_ref   TEXT,
    issue           TEXT,
    idempotency_key TEXT,
    request_digest  BLOB    NOT NULL,
    acquisition     TEXT    NOT NULL UNIQUE,
    incarnation     TEXT    NOT NULL,
    fingerprint     TEXT    NOT NULL,
    created_by      TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    intent_mac      BLOB    NOT NULL,

    status          TEXT    NOT NULL CHECK (status IN ('acquiring', 'active', 'releasing', 'retained',
                                                       'pending_cleanup', 'released', 'failed', 'abandoned')),
    epoch           INTEGER NOT NULL,
    unsafe_sent     INTEGER NOT NULL DEFAULT 0,
    resource        TEXT,
    handle          TEXT,
    workspace       TEXT,
    proof           TEXT,
    absent_since    INTEGER,
    acquired_at     INTEGER,
    host_until      INTEGER,
    attested_until  INTEGER,
    expires_at      INTEGER,
    last_used_at    INTEGER,
    reason          TEXT,
    failure         TEXT,
    attempts        INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER,
    released_at     INTEGER,
    updated_at      INTEGER NOT NULL,
    claimed_by      TEXT,
    claim_epoch     INTEGER NOT NULL DEFAULT 0,
    claimed_until   INTEGER
);
CREATE UNIQUE INDEX leases_exclusive ON leases (exclusive_key)
    WHERE exclusive_key IS NOT NULL AND status NOT IN ('released', 'failed', 'abandoned');
CREATE INDEX leases_by_account ON leases (account_key)
    WHERE account_key IS NOT NULL AND status NOT IN ('released', 'failed', 'abandoned');
CREATE UNIQUE INDEX leases_idempotency ON leases (company_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL;
CREATE INDEX leases_by_environment ON leases (environment_id, created_at);
CREATE INDEX leases_by_company ON leases (company_id, created_at);
CREATE INDEX leases_by_digest ON leases (plugin_digest);
CREATE INDEX leases_due ON leases (expires_at) WHERE status = 'active' AND expires_at IS NOT NULL;
CREATE INDEX leases_at_work ON leases (status, next_attempt_at)
    WHERE status IN ('acquiring', 'releasing', 'pending_cleanup');

CREATE TABLE lease_secrets (
    lease_id     TEXT    NOT NULL REFERENCES leases (id) DEFERRABLE INITIALLY DEFERRED,
    pointer      TEXT    NOT NULL,
    secret_id    TEXT    NOT NULL REFERENCES secrets (id),
    version      INTEGER NOT NULL,
    sites        TEXT    NOT NULL,
    destinations TEXT    NOT NULL,
    wrapped      BLOB    NOT NULL,
    PRIMARY KEY (lease_id, pointer)
);
CREATE INDEX lease_secrets_by_secret ON lease_secrets (secret_id);

CREATE TABLE lease_journal (
    lease_id  TEXT    NOT NULL REFERENCES leases (id),
    sequence  INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    thing     TEXT    NOT NULL,
    resource  TEXT    NOT NULL,
    reference TEXT,
    at        INTEGER NOT NULL,
    PRIMARY KEY (lease_id, sequence)
);

-- One unreleased lease at most for one resource of one account at one endpoint.
CREATE TABLE resource_claims (
    endpoint    TEXT    NOT NULL,
    account     TEXT    NOT NULL,
    resource    TEXT    NOT NULL,
    lease_id    TEXT    NOT NULL REFERENCES leases (id),
    claimed_at  INTEGER NOT NULL,
    PRIMARY KEY (endpoint, account, resource)
);
CREATE INDEX resource_claims_by_lease ON resource_claims (lease_id);

CREATE TABLE executions (
    id            TEXT    PRIMARY KEY,
    lease_id      TEXT    NOT NULL REFERENCES leases (id),
    company_id    TEXT    NOT NULL,
    epoch         INTEGER NOT NULL,
    argv          TEXT    NOT NULL,
    env_names     TEXT    NOT NULL,
    cwd           TEXT,
    stdin         INTEGER NOT NULL,
    tty           INTEGER NOT NULL,
    status        TEXT    NOT NULL CHECK (status IN ('begun', 'running', 'settled')),
    reference     TEXT,
    outcome       TEXT,
    exit_code     INTEGER,
    signal        TEXT,
    reason        TEXT,
    cancelled     INTEGER NOT NULL DEFAULT 0,
    created_by    TEXT    NOT NULL,
    begun_at      INTEGER NOT NULL,
    started_at    INTEGER,
    settled_at    INTEGER,
    claimed_by    TEXT,
    claim_epoch   INTEGER NOT NULL DEFAULT 0,
    claimed_until INTEGER,
    CHECK ((status = 'settled') = (outcome IS NOT NULL))
);
CREATE INDEX executions_by_lease ON executions (lease_id, begun_at);
CREATE INDEX executions_open ON executions (lease_id) WHERE status <> 'settled' OR outcome = 'unknown';

-- position grows in the order of commits; (replica, sequence) is a chain: each mac covers the one before.
CREATE TABLE activity (
    position     INTEGER PRIMARY KEY,
    replica      TEXT    NOT NULL,
    sequence     INTEGER NOT NULL,
    at           INTEGER NOT NULL,
    company_id   TEXT,
    actor_kind   TEXT    NOT NULL,
    actor_id     TEXT,
    actor        TEXT    NOT NULL,
    action       TEXT    NOT NULL,
    subject_kind TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    details      TEXT    NOT NULL,
    mac          BLOB    NOT NULL,
    UNIQUE (replica, sequence)
);
CREATE INDEX activity_by_company ON activity (company_id, position);
