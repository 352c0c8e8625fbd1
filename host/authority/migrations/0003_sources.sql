-- Where a revision's component came from, and whose signature it has, as JSON. Part of the row's mac where it is there.
ALTER TABLE plugin_revisions ADD COLUMN source TEXT;
