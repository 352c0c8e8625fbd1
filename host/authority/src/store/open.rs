//! Opening the database, and what its errors mean.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use sqlx::{ConnectOptions as _, Connection as _};

use super::writer::{Writer, WriterParts};
use super::{Tx, now_ms};
use crate::error::{Error, Result};

/// How long a statement waits for another process's write.
const BUSY: Duration = Duration::from_secs(10);
/// Connections that read.
const READERS: u32 = 4;
/// Connections that look through the activity, which may take long, and keep nobody else from reading.
const SEARCHERS: u32 = 2;

/// The database: readers and the one writer.
pub(crate) struct Store {
    readers: SqlitePool,
    searchers: SqlitePool,
    writer: Writer,
}

fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .busy_timeout(BUSY)
        .statement_cache_capacity(256)
        // Freed pages are overwritten: what was deleted is gone from the file too.
        .pragma("secure_delete", "ON")
        .pragma("temp_store", "MEMORY")
        .pragma("trusted_schema", "OFF")
        .disable_statement_logging()
}

/// Whether there is a database at `path`.
pub(crate) fn exists(path: &Path) -> std::io::Result<bool> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.len() > 0),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(e),
    }
}

/// Makes the empty file, readable by the owner alone; SQLite gives its companions the same mode.
pub(crate) fn create_file(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .map(|_| ())
}

/// Connects, and brings the schema up to date.
pub(crate) async fn connect(
    path: &Path,
) -> std::result::Result<sqlx::SqliteConnection, sqlx::migrate::MigrateError> {
    let mut connection = options(path)
        .connect()
        .await
        .map_err(sqlx::migrate::MigrateError::Execute)?;
    sqlx::migrate!("./migrations").run(&mut connection).await?;
    Ok(connection)
}

/// What runs inside the database and is none of the migrations': there are no triggers and no views of ours.
pub(crate) async fn foreign(connection: &mut sqlx::SqliteConnection) -> Result<Option<String>> {
    Ok(sqlx::query_scalar(
        "SELECT type || ' ' || name FROM sqlite_master WHERE type IN ('trigger', 'view') LIMIT 1",
    )
    .fetch_optional(connection)
    .await?)
}

impl Store {
    /// The store over a connection that [`connect`] made.
    pub async fn new(
        path: &Path,
        connection: sqlx::SqliteConnection,
        parts: WriterParts,
    ) -> Result<Store> {
        let pool = |most: u32| {
            SqlitePoolOptions::new()
                .max_connections(most)
                .idle_timeout(None)
                .max_lifetime(None)
                .test_before_acquire(false)
                .acquire_timeout(Duration::from_secs(30))
        };
        let reading = options(path).pragma("query_only", "ON");
        Ok(Store {
            readers: pool(READERS)
                .min_connections(1)
                .connect_with(reading.clone())
                .await?,
            searchers: pool(SEARCHERS).connect_lazy_with(reading),
            writer: Writer::start(connection, parts),
        })
    }

    /// For statements that change nothing.
    pub fn read(&self) -> &SqlitePool {
        &self.readers
    }

    /// For statements that change nothing and may look at every row there is.
    pub fn search(&self) -> &SqlitePool {
        &self.searchers
    }

    /// Runs `work` in a transaction and returns once it is durable. When `work` fails, or the process
    /// ends before the commit, nothing of it ever was. Goes on to its end when the caller goes away.
    pub async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx) -> futures_util::future::BoxFuture<'t, Result<T>>
            + Send
            + 'static,
    {
        self.writer.write(work).await
    }

    /// The end of this replica's activity chain, after each commit that moved it.
    pub fn recorded(&self) -> tokio::sync::watch::Receiver<i64> {
        self.writer.recorded()
    }

    /// The database's wall time.
    pub async fn now(&self) -> Result<i64> {
        Ok(sqlx::query_scalar(concat!("SELECT ", now_ms!()))
            .fetch_one(&self.readers)
            .await?)
    }

    /// Ends the writer after what it has been given, and all that read: the last connection that closes leaves no log behind.
    pub async fn close(&self) {
        self.searchers.close().await;
        self.writer.close().await;
        self.readers.close().await;
    }
}

/// A transaction of a connection that is not the writer's: one that writes from its first statement on.
pub(crate) async fn begin(
    connection: &mut sqlx::SqliteConnection,
) -> Result<sqlx::Transaction<'_, super::Db>> {
    Ok(connection.begin_with("BEGIN IMMEDIATE").await?)
}

/// Moves the log into the database's file and empties it: nothing that was overwritten stays behind.
pub(crate) async fn empty_log(connection: &mut sqlx::SqliteConnection) -> Result<()> {
    sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)")
        .execute(connection)
        .await?;
    Ok(())
}

/// Closes a connection whose opening failed.
pub(crate) async fn discard(connection: sqlx::SqliteConnection) {
    let _ = connection.close().await;
}

/// What a database error means here.
pub(crate) fn classify(error: sqlx::Error) -> Error {
    /// SQLITE_FULL.
    const FULL: i64 = 13;
    /// SQLITE_IOERR_SHMSIZE: the index of the log cannot grow.
    const IOERR_SHMSIZE: i64 = 4874;

    match &error {
        sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => return Error::Closed,
        sqlx::Error::Database(e) => {
            let code = e.code().and_then(|c| c.parse::<i64>().ok()).unwrap_or(0);
            if code == IOERR_SHMSIZE || code & 0xff == FULL {
                return Error::Full;
            }
        }
        _ => {}
    }
    Error::Storage(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_commit_is_flushed_to_the_disk_and_references_hold() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("x.db");
        create_file(&path).unwrap();
        let mut db = connect(&path).await.unwrap();
        for (pragma, value) in [
            ("PRAGMA journal_mode", "wal"),
            ("PRAGMA synchronous", "2"),
            ("PRAGMA foreign_keys", "1"),
            ("PRAGMA secure_delete", "1"),
        ] {
            let row = sqlx::query(pragma).fetch_one(&mut db).await.unwrap();
            let is: String = sqlx::Row::try_get_unchecked::<String, _>(&row, 0).unwrap();
            assert_eq!(is, value, "{pragma}");
        }
    }
}
