-- Whom and what an environment can be assigned to: agents, projects, workspaces and issues; and runs, which lead to them.
-- environment_id has no foreign key: the row is authenticated, so whoever deletes an environment writes it anew.
CREATE TABLE assignees (
    kind           TEXT    NOT NULL CHECK (kind IN ('agent', 'project', 'workspace', 'issue', 'run')),
    id             TEXT    NOT NULL,
    company_id     TEXT    NOT NULL REFERENCES companies (id),
    name           TEXT,
    environment_id TEXT,
    agent_id       TEXT,
    project_id     TEXT,
    workspace_id   TEXT,
    issue_id       TEXT,
    created_at     INTEGER NOT NULL,
    updated_at     INTEGER NOT NULL,
    mac            BLOB    NOT NULL,
    PRIMARY KEY (kind, id),
    CHECK (kind <> 'run' OR environment_id IS NULL)
);
CREATE INDEX assignees_by_company ON assignees (company_id, kind, created_at, id);
CREATE INDEX assignees_by_environment ON assignees (environment_id) WHERE environment_id IS NOT NULL;
