-- A run that is over: its leases end with it, and no other begins for it.
ALTER TABLE assignees ADD COLUMN ended_at INTEGER CHECK (ended_at IS NULL OR kind = 'run');
