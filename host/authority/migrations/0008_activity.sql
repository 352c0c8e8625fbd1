-- How it ended, and how often it was the same. Both are part of the row's mac where they are not as they always were.
ALTER TABLE activity ADD COLUMN outcome TEXT NOT NULL DEFAULT 'done'
    CHECK (outcome IN ('done', 'denied', 'failed', 'unknown'));
ALTER TABLE activity ADD COLUMN times INTEGER NOT NULL DEFAULT 1 CHECK (times > 0);
CREATE INDEX activity_by_subject ON activity (subject, position);
