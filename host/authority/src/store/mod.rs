//! The one room that knows which database this is.
//!
//! Everywhere else SQL is what SQLite and PostgreSQL both speak (`$1`, `ON CONFLICT`, partial indexes,
//! `IS NOT DISTINCT FROM`), against the aliases of this module. Reads go to a small pool; every write goes
//! through [`Writer`], one connection with one transaction at a time, which many callers may share.
//!
//! Time is the database's: [`now_ms!`] stands in the statement that decides by it.

mod open;
mod writer;

pub(crate) use open::{
    Store, begin, classify, connect, create_file, discard, empty_log, exists, foreign,
};
pub(crate) use writer::{Tx, WriterParts};

/// The database.
pub(crate) type Db = sqlx::Sqlite;
/// A row of it.
pub(crate) type Row = sqlx::sqlite::SqliteRow;

/// The database's wall time, milliseconds since the epoch, as an SQL expression. The same value
/// throughout one statement.
macro_rules! now_ms {
    () => {
        "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
    };
}
pub(crate) use now_ms;

/// Whether `error` says that a unique index whose columns or name contain `hint` refused a row.
pub(crate) fn is_unique_violation(error: &sqlx::Error, hint: &str) -> bool {
    error
        .as_database_error()
        .is_some_and(|e| e.is_unique_violation() && e.message().contains(hint))
}
