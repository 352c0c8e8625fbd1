-- HTTP egress: which endpoints somebody typed, and what egress itself saw in answers.

-- Pointers of the fields that were endpoints when the configuration was saved, as JSON. Part of the row's mac.
ALTER TABLE environments ADD COLUMN endpoints TEXT NOT NULL DEFAULT '[]';
ALTER TABLE leases ADD COLUMN endpoints TEXT NOT NULL DEFAULT '[]';

-- What egress saw being made for a lease, or the host itself found to be the lease's. Operations act on these alone;
-- what a provider says (lease_journal) is never here.
CREATE TABLE lease_made (
    lease_id TEXT    NOT NULL REFERENCES leases (id),
    kind     TEXT    NOT NULL CHECK (kind IN ('environment', 'child')),
    resource TEXT    NOT NULL,
    epoch    INTEGER NOT NULL,
    at       INTEGER NOT NULL,
    mac      BLOB    NOT NULL,
    PRIMARY KEY (lease_id, kind, resource)
);
CREATE UNIQUE INDEX lease_made_once ON lease_made (lease_id) WHERE kind = 'environment';

-- Minted values that calls kept for later calls of their lease, sealed for it; gone with it.
CREATE TABLE lease_kept (
    lease_id TEXT NOT NULL REFERENCES leases (id),
    name     TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    method   TEXT NOT NULL,
    path     TEXT NOT NULL,
    pointer  TEXT NOT NULL,
    sealed   BLOB NOT NULL,
    PRIMARY KEY (lease_id, name)
);
