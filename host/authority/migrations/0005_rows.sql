-- Environments without a company are shared by all of them; one may be the server's own, made from its settings.
-- SQLite drops no NOT NULL: the table is made anew, and what refers to it.
CREATE TABLE environments_of_all (
    id              TEXT    PRIMARY KEY,
    company_id      TEXT    REFERENCES companies (id),
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
    endpoints       TEXT    NOT NULL DEFAULT '[]',
    managed         INTEGER NOT NULL DEFAULT 0,
    CHECK (driver <> 'local' OR company_id IS NULL),
    CHECK (managed = 0 OR company_id IS NULL)
);
INSERT INTO environments_of_all (id, company_id, name, description, driver, provider, config, env_vars, metadata, status,
                                 revision, target_revision, created_at, updated_at, mac, endpoints)
SELECT id, company_id, name, description, driver, provider, config, env_vars, metadata, status, revision, target_revision,
       created_at, updated_at, mac, endpoints
FROM environments;

CREATE TABLE bindings_of_all (
    environment_id TEXT    NOT NULL REFERENCES environments_of_all (id) ON DELETE CASCADE,
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
INSERT INTO bindings_of_all (environment_id, pointer, secret_id, selector, version, sites, destinations, wrapped, bound_by,
                             bound_at)
SELECT environment_id, pointer, secret_id, selector, version, sites, destinations, wrapped, bound_by, bound_at
FROM secret_bindings;

-- First what refers to the other: dropping that would cascade.
DROP TABLE secret_bindings;
DROP TABLE environments;
ALTER TABLE environments_of_all RENAME TO environments;
ALTER TABLE bindings_of_all RENAME TO secret_bindings;
CREATE INDEX secret_bindings_by_secret ON secret_bindings (secret_id);
CREATE INDEX environments_by_provider ON environments (provider);
-- That a name is also not both a company's and shared is held by whoever writes, as there is one at a time.
CREATE UNIQUE INDEX environments_of_company ON environments (company_id, name) WHERE company_id IS NOT NULL;
CREATE UNIQUE INDEX environments_shared ON environments (name) WHERE company_id IS NULL;
CREATE UNIQUE INDEX environments_local ON environments (driver) WHERE driver = 'local';
CREATE UNIQUE INDEX environments_managed ON environments (managed) WHERE managed = 1;

-- What is leased where nothing says otherwise: of a company, or, under the empty name, of the instance.
CREATE TABLE default_environments (
    company_id     TEXT    PRIMARY KEY,
    environment_id TEXT    NOT NULL REFERENCES environments (id),
    set_by         TEXT    NOT NULL,
    set_at         INTEGER NOT NULL,
    mac            BLOB    NOT NULL
);
CREATE INDEX default_environments_by_environment ON default_environments (environment_id);
