//! Somebody with a shell and the database's file: rows are edited while no server runs.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection as _, Row as _, SqliteConnection};

/// Does something with the database in a file.
fn with<T>(file: &Path, work: impl AsyncFnOnce(&mut SqliteConnection) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let url = format!("sqlite://{}", file.display());
        let mut db = SqliteConnection::connect(&url).await.expect("a database");
        let done = work(&mut db).await;
        db.close().await.expect("the database closes");
        done
    })
}

/// Runs a statement and answers how many rows it changed.
///
/// # Panics
/// When the database does not take it.
#[track_caller]
pub fn edit(file: &Path, sql: &str) -> u64 {
    with(file, async |db| {
        let done = sqlx::query(AssertSqlSafe(sql.to_owned())).execute(db).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"))
            .rows_affected()
    })
}

/// The first column of every row that a question has, as text.
///
/// # Panics
/// When the database does not take it.
#[track_caller]
pub fn ask(file: &Path, sql: &str) -> Vec<String> {
    with(file, async |db| {
        let rows = sqlx::query(AssertSqlSafe(sql.to_owned()))
            .fetch_all(db)
            .await;
        let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
        rows.iter().map(|row| row.get(0)).collect()
    })
}
