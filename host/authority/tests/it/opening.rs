//! Opening: keys, locks, and whether a database is the one that it was.

use std::os::unix::fs::PermissionsExt as _;

use leasehold_authority::*;

use crate::place::*;

async fn open(root: &std::path::Path, replica: &str) -> Result<Authority, OpenError> {
    Authority::open(options_in(root, replica)).await
}

#[tokio::test]
async fn a_first_start_makes_files_that_only_the_owner_reads() {
    let p = Place::new().await;
    p.company("acme").await;
    for file in std::fs::read_dir(p.temp.path().join("data")).unwrap() {
        let file = file.unwrap();
        let mode = file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{:?}", file.path());
    }
    let key = p.temp.path().join("keys/master.key");
    assert_eq!(
        std::fs::metadata(key).unwrap().permissions().mode() & 0o777,
        0o600
    );
}

#[tokio::test]
async fn a_database_keeps_its_name_and_keys_over_a_restart() {
    let p = Place::new().await;
    let was = (p.host().to_owned(), p.incarnation().to_owned(), p.aot_key());
    let p = p.again().await;
    assert_eq!(
        (p.host(), p.incarnation()),
        (was.0.as_str(), was.1.as_str())
    );
    assert_eq!(*p.aot_key(), *was.2);
}

#[tokio::test]
async fn a_wrong_master_key_is_noticed_with_one_clear_message() {
    let p = Place::new().await;
    p.company("acme").await;
    p.authority.close().await;
    let root = p.temp.path().to_owned();
    let Place {
        temp: _temp,
        authority,
    } = p;
    drop(authority);
    std::fs::write(root.join("keys/master.key"), [9u8; 32]).unwrap();
    let refused = open(&root, "main").await.unwrap_err();
    assert!(matches!(refused, OpenError::WrongMasterKey { .. }));
    let text = refused.to_string();
    assert!(
        text.contains("master.key") && text.contains("leasehold.db"),
        "{text}"
    );
    // The same with no key at all: none is made in its place.
    std::fs::remove_file(root.join("keys/master.key")).unwrap();
    let refused = open(&root, "main").await.unwrap_err();
    assert!(
        matches!(refused, OpenError::MasterKey(MasterKeyError::Missing(_))),
        "{refused}"
    );
    assert!(!root.join("keys/master.key").exists());
}

#[tokio::test]
async fn an_edited_instance_is_refused() {
    let p = Place::new().await;
    p.edit("UPDATE instance SET incarnation = 'inc-x'").await;
    p.authority.close().await;
    let Place { temp, authority } = p;
    drop(authority);
    match open(temp.path(), "main").await.unwrap_err() {
        OpenError::Storage { error, .. } => assert!(is_corrupt::<()>(Err(*error))),
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn one_replica_is_one_process_and_two_replicas_share_a_database() {
    let p = Place::new().await;
    let refused = open(p.temp.path(), "main").await.unwrap_err();
    assert!(matches!(refused, OpenError::ReplicaRunning(_)), "{refused}");
    let second = open(p.temp.path(), "second").await.unwrap();
    assert!(matches!(
        open(p.temp.path(), "No!").await,
        Err(OpenError::ReplicaName(_))
    ));
    assert_eq!(second.host(), p.host());
    // Both write at once, each its own chain.
    let tasks: Vec<_> = (0..40)
        .map(|i| {
            let authority = if i % 2 == 0 {
                p.authority.clone()
            } else {
                second.clone()
            };
            tokio::spawn(async move {
                authority
                    .companies()
                    .create(&operator(), &format!("c{i}"))
                    .await
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap().unwrap();
    }
    let verified = second.activity().verify(None).await.unwrap();
    assert_eq!((verified.rows, verified.head.sequence), (40, 20));
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn a_replica_takes_over_what_another_left_only_after_its_claim_lapsed() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let lease = p
        .leases()
        .begin(&operator(), f.intent())
        .await
        .unwrap()
        .lease;
    let second = open(p.temp.path(), "second").await.unwrap();
    assert!(
        second.leases().claim_work(10).await.unwrap().is_empty(),
        "its claim holds"
    );
    p.edit("UPDATE leases SET claimed_until = 1").await;
    let work = second.leases().claim_work(10).await.unwrap();
    assert_eq!((work.len(), work[0].epoch), (1, 2));
    assert_eq!(work[0].claimed_by.as_deref(), Some("second"));
    // The first one comes back to life, and is refused.
    assert!(matches!(
        p.leases().unsafe_sent(&lease.id, 1).await,
        Err(Error::Stale { .. })
    ));
}

#[tokio::test]
async fn two_that_start_on_an_empty_directory_at_once_agree() {
    let temp = tempfile::tempdir().unwrap();
    let (a, b) = tokio::join!(open(temp.path(), "a"), open(temp.path(), "b"));
    let (a, b) = (a.unwrap(), b.unwrap());
    assert_eq!(a.host(), b.host());
    assert_eq!(*a.aot_key(), *b.aot_key());
}

#[tokio::test]
async fn a_database_of_a_later_version_is_refused() {
    let p = Place::new().await;
    p.edit(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (9999, 'later', TRUE, X'00', 0)",
    )
    .await;
    p.authority.close().await;
    let Place { temp, authority } = p;
    drop(authority);
    let refused = open(temp.path(), "main").await.unwrap_err();
    assert!(matches!(refused, OpenError::Schema { .. }), "{refused}");
}

#[tokio::test]
async fn a_closed_authority_answers_that_it_is_closed() {
    let p = Place::new().await;
    p.authority.close().await;
    assert!(matches!(
        p.companies().create(&operator(), "x").await,
        Err(Error::Closed)
    ));
    assert!(matches!(p.companies().list().await, Err(Error::Closed)));
}
