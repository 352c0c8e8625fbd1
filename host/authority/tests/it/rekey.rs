//! Another master key: everything is under it, what stands outside stays valid, and a crash leaves one that opens.

use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_authority::*;
use sqlx::{Connection as _, Row as _, SqliteConnection};

use crate::place::*;

const ROOT: &str = "LEASEHOLD_TEST_REKEY_ROOT";

/// A place with a row in every table that the master key authenticates or seals, and a bearer token.
async fn furnished() -> (Place, Furniture, Lease, String) {
    let p = Place::new().await;
    let f = p.furnished().await;
    let other = p.company("other").await;
    let new = NewToken {
        name: "ci".into(),
        role: Role::Member {
            companies: [f.company.clone(), other].into(),
        },
        expires_in: Some(3600),
    };
    let (_, bearer) = p.tokens().create(&operator(), new).await.unwrap();
    let intent = AcquireIntent {
        idempotency_key: Some("once".into()),
        ..f.intent()
    };
    let lease = p.leases().begin(&operator(), intent).await.unwrap().lease;
    let leases = p.leases();
    leases
        .made_environment(&lease.id, 1, claim("room-1"))
        .await
        .unwrap();
    leases.keep(&lease.id, 1, kept("session")).await.unwrap();
    p.secrets()
        .put_version(&operator(), &f.secret, bytes("value two"))
        .await
        .unwrap();
    let id = &f.environment.id;
    p.environments()
        .set_default(&operator(), Some(&f.company), Some(id))
        .await
        .unwrap();
    let instance = p.secrets();
    let shared = instance
        .create(&operator(), new_secret(None, "of all", "value three"))
        .await
        .unwrap();
    p.environments()
        .create_shared(
            &operator(),
            draft("everybody's", &shared.id),
            vec![key_use("10.0.0.5")],
        )
        .await
        .unwrap();
    (p, f, lease, bearer.to_string())
}

async fn closed(p: Place) -> tempfile::TempDir {
    p.authority.close().await;
    let Place { temp, authority } = p;
    drop(authority);
    temp
}

async fn rekey_now(root: &Path) -> Result<Rekeyed, OpenError> {
    Authority::rekey(options_in(root, "main"), &operator()).await
}

async fn rekey(root: &Path) -> Result<Rekeyed, OpenError> {
    once_free(|| rekey_now(root)).await
}

/// Everything opens, and is what it was.
async fn whole(authority: &Authority, f: &Furniture, lease: &Lease, bearer: &str) {
    let secrets = authority.secrets();
    let id = &f.environment.id;
    let value = secrets.resolve(id, "env:TOKEN", &by()).await.unwrap();
    assert_eq!(&**value.value, b"value two");
    let pinned = secrets
        .resolve_pinned(&lease.id, "/target/privateKey", &by())
        .await
        .unwrap();
    assert_eq!(&**pinned.value, b"value one");
    assert_eq!(secrets.versions(&f.secret).await.unwrap().len(), 2);
    let made = authority.leases().made(&lease.id).await.unwrap();
    assert_eq!(made.resource.as_deref(), Some("room-1"));
    let session = &authority.leases().kept(&lease.id).await.unwrap()[0];
    assert_eq!(session.value, kept("session").value);
    let now = authority.leases().get(&lease.id).await.unwrap();
    assert_eq!(now.labels, lease.labels, "what stands on targets is ours");
    assert!(
        authority
            .tokens()
            .authenticate(bearer)
            .await
            .unwrap()
            .is_some()
    );
    assert_eq!(authority.tokens().list(None).await.unwrap().len(), 1);
    authority.plugins().get("ssh").await.unwrap();
    authority.environments().get(id).await.unwrap();
    let defaults = authority.environments().defaults(Some(&f.company)).await;
    assert_eq!(defaults.unwrap().company.as_ref(), Some(id));
    let all = EnvironmentFilter::default();
    let seen = authority
        .environments()
        .list(&f.company, &all)
        .await
        .unwrap();
    let shared = seen.iter().find(|e| e.company_id.is_none()).unwrap();
    let by = Accessor {
        company: Some(f.company.clone()),
        ..by()
    };
    let value = secrets.resolve(&shared.id, "env:TOKEN", &by).await.unwrap();
    assert_eq!(&**value.value, b"value three");
    authority.activity().verify(None).await.unwrap();
    let repeated = AcquireIntent {
        idempotency_key: Some("once".into()),
        ..f.intent()
    };
    let begun = authority
        .leases()
        .begin(&operator(), repeated)
        .await
        .unwrap();
    assert!(!begun.fresh && begun.lease.id == lease.id);
}

/// Every column of the schema that a key made, with its rows' content.
async fn made_by_keys(root: &Path) -> Vec<(String, Vec<Vec<u8>>)> {
    let url = format!("sqlite://{}", root.join("data/leasehold.db").display());
    let mut db = SqliteConnection::connect(&url).await.unwrap();
    let columns = sqlx::query(
        "SELECT t.name AS tab, c.name AS col FROM sqlite_schema t JOIN pragma_table_info(t.name) c
         WHERE t.type = 'table' AND c.type = 'BLOB' AND t.name NOT LIKE '\\_%' ESCAPE '\\' ORDER BY 1, 2",
    )
    .fetch_all(&mut db)
    .await
    .unwrap();
    let mut all = Vec::new();
    for row in columns {
        let (table, column): (String, String) = (row.get("tab"), row.get("col"));
        let sql = format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY rowid");
        let rows: Vec<Vec<u8>> = sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_all(&mut db)
            .await
            .unwrap();
        all.push((format!("{table}.{column}"), rows));
    }
    all
}

#[tokio::test]
async fn everything_is_under_the_new_key_and_what_stands_outside_stays_valid() {
    let (p, f, lease, bearer) = furnished().await;
    let head = p.activity().head().await.unwrap();
    let aot = p.aot_key();
    let temp = closed(p).await;
    let key = temp.path().join("keys/master.key");
    let (old_key, before) = (
        std::fs::read(&key).unwrap(),
        made_by_keys(temp.path()).await,
    );
    let done = rekey(temp.path()).await.unwrap();
    assert_ne!(std::fs::read(&key).unwrap(), old_key);
    assert_eq!(std::fs::read(&done.old_key).unwrap(), old_key);
    assert!(done.rows.unwrap() > 10);

    // Whoever adds a column that a key makes decides here what another master key means for it.
    let after = made_by_keys(temp.path()).await;
    // Values are sealed by data keys, which are wrapped anew; hashes and digests have keys that are carried over; a
    // component's bytes are nobody's.
    let stays = [
        "components.bytes",
        "leases.request_digest",
        "secret_versions.sealed",
        "tokens.hash",
    ];
    for ((column, before), (_, after)) in before.iter().zip(&after) {
        if column == "instance.carried" {
            assert_eq!((before.len(), after.len()), (0, 1));
            continue;
        }
        assert!(!before.is_empty(), "{column} has no row in this test");
        for (before, after) in before.iter().zip(after) {
            assert_eq!(
                before == after,
                stays.contains(&column.as_str()),
                "{column}"
            );
        }
    }

    let authority = opened(temp.path()).await.unwrap();
    whole(&authority, &f, &lease, &bearer).await;
    assert_ne!(
        *authority.aot_key(),
        *aot,
        "compiled components are made anew"
    );
    // The end of the chain that somebody kept is found in the record of the change.
    let last = &authority
        .activity()
        .list(&ActivityFilter::default())
        .await
        .unwrap()[0];
    assert_eq!(last.action, "instance.rekeyed");
    let hex: String = head.mac.iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(last.details["ends"]["main"]["mac"], hex);
    authority.activity().verify(Some(&head)).await.unwrap();
    let forged = Head {
        mac: vec![7; 32],
        ..head.clone()
    };
    assert!(is_corrupt(authority.activity().verify(Some(&forged)).await));
    authority.close().await;
    drop(authority);

    // The old key opens nothing any more; and the change can be made again.
    let new_key = std::fs::read(&key).unwrap();
    std::fs::write(&key, &old_key).unwrap();
    let refused = opened(temp.path()).await;
    assert!(matches!(refused, Err(OpenError::WrongMasterKey { .. })));
    std::fs::write(&key, &new_key).unwrap();
    let again = rekey(temp.path()).await.unwrap();
    assert_ne!(again.old_key, done.old_key);
    let authority = opened(temp.path()).await.unwrap();
    whole(&authority, &f, &lease, &bearer).await;
}

#[tokio::test]
async fn a_key_is_not_changed_under_a_running_server_or_without_a_database() {
    let (p, ..) = furnished().await;
    let refused = rekey_now(p.temp.path()).await.unwrap_err();
    assert!(matches!(refused, OpenError::ReplicaRunning(_)), "{refused}");
    let second = Authority::open(options_in(p.temp.path(), "second"))
        .await
        .unwrap();
    let temp = closed(p).await;
    opened(temp.path()).await.unwrap().close().await;
    let refused = rekey_now(temp.path()).await.unwrap_err();
    assert!(matches!(refused, OpenError::ReplicaRunning(_)), "{refused}");
    second.close().await;
    drop(second);
    rekey(temp.path()).await.unwrap();
    let empty = tempfile::tempdir().unwrap();
    let refused = rekey(empty.path()).await.unwrap_err();
    assert!(matches!(refused, OpenError::NoDatabase(_)), "{refused}");
    assert!(!empty.path().join("keys").exists(), "no key is made");
}

#[tokio::test]
async fn an_edited_row_is_not_blessed_by_a_new_key() {
    let edits: [&'static str; 7] = [
        "UPDATE tokens SET role = 'agent'",
        "UPDATE plugins SET enabled = 0",
        "UPDATE plugin_revisions SET version = '6.6.6'",
        "UPDATE grants SET granted_by = 'nobody'",
        "UPDATE environments SET provider = 'other'",
        "UPDATE leases SET config = '{}'",
        "UPDATE activity SET actor = 'somebody else' WHERE position = 2",
    ];
    let secrets: [&'static str; 3] = [
        "UPDATE secrets SET latest = 1",
        "UPDATE secret_bindings SET destinations = '[]'",
        "UPDATE lease_secrets SET version = 2",
    ];
    for sql in edits.into_iter().chain(secrets) {
        let (p, ..) = furnished().await;
        assert!(p.edit(sql).await > 0, "{sql}");
        let temp = closed(p).await;
        let before = made_by_keys(temp.path()).await;
        let refused = rekey(temp.path()).await.unwrap_err();
        assert!(
            matches!(&refused, OpenError::Storage { error, .. } if matches!(**error, Error::Corrupt { .. })),
            "{sql}: {refused}"
        );
        assert_eq!(made_by_keys(temp.path()).await, before, "{sql}");
        opened(temp.path()).await.unwrap();
    }
}

/// Not a test of its own: the change that is killed.
#[tokio::test]
#[ignore = "run by the test below, in a process of its own"]
async fn a_change_of_the_key_that_is_killed() {
    if let Some(root) = std::env::var_os(ROOT) {
        rekey(root.as_ref()).await.unwrap();
    }
}

/// The calls by which keys and rows get to the disk.
const CALLS: [&str; 6] = [
    "write",
    "pwrite64",
    "fsync",
    "fdatasync",
    "renameat",
    "renameat2",
];

/// Runs the change in a process of its own, killed at the nth of these calls in whichever thread comes to it first.
/// Answers whether it lived to its end.
fn killed_at(root: &Path, call: &str, nth: usize) -> bool {
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null"])
        .args(["-e", &format!("trace={call}")])
        .args(["-e", &format!("inject={call}:signal=SIGKILL:when={nth}")])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "rekey::a_change_of_the_key_that_is_killed"])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(ROOT, root)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    status.success()
}

/// A copy of a place, for one death.
fn copy(from: &Path) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    let done = Command::new("cp")
        .arg("-a")
        .arg(from.join("."))
        .arg(to.path())
        .status()
        .unwrap();
    assert!(done.success());
    to
}

#[tokio::test]
async fn a_change_that_is_killed_at_any_write_leaves_a_key_that_opens_everything() {
    let traced = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status()
        .is_ok_and(|status| status.success());
    if !traced {
        return skipped("strace, and leave to trace processes");
    }
    let (p, f, lease, bearer) = furnished().await;
    let place = closed(p).await;
    let old_key = std::fs::read(place.path().join("keys/master.key")).unwrap();
    let (mut under_old, mut under_new) = (0, 0);
    for call in CALLS {
        for nth in 1.. {
            let temp = copy(place.path());
            if killed_at(temp.path(), call, nth) {
                break;
            }
            let key = temp.path().join("keys/master.key");
            let authority = opened(temp.path())
                .await
                .unwrap_or_else(|e| panic!("killed at {call} {nth}: {e}"));
            whole(&authority, &f, &lease, &bearer).await;
            authority.close().await;
            drop(authority);
            match std::fs::read(&key).unwrap() == old_key {
                true => under_old += 1,
                false => under_new += 1,
            }
            // And it can be made, or was.
            rekey(temp.path()).await.unwrap();
            assert_ne!(std::fs::read(&key).unwrap(), old_key);
            let authority = opened(temp.path()).await.unwrap();
            whole(&authority, &f, &lease, &bearer).await;
        }
    }
    println!("killed {under_old} times before the new key was in place, {under_new} times after");
    assert!(under_old > 3 && under_new > 0);
}
