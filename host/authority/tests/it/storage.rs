//! The database itself: shared writes, callers that go away, and a disk that is full.

use std::path::{Path, PathBuf};

use leasehold_authority::*;

use crate::place::*;

#[tokio::test]
async fn many_writers_at_once_are_all_durable_and_failures_stay_alone() {
    let p = Place::new().await;
    let tasks: Vec<_> = (0..300)
        .map(|i| {
            let companies = p.companies();
            // Every third is a name that is taken by then or will be.
            let name = if i % 3 == 0 {
                "same".to_owned()
            } else {
                format!("c{i}")
            };
            tokio::spawn(async move { companies.create(&operator(), &name).await })
        })
        .collect();
    let (mut made, mut taken) = (0, 0);
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(Error::Conflict {
                code: "company_name_taken",
                ..
            }) => taken += 1,
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!((made, taken), (201, 99));
    let p = p.again().await;
    assert_eq!(p.companies().list().await.unwrap().len(), 201);
    assert_eq!(p.activity().verify(None).await.unwrap().rows, 201);
}

#[tokio::test]
async fn work_that_fails_beside_others_takes_back_what_it_had_written() {
    let p = Place::new().await;
    let f = p.furnished().await;
    let tasks: Vec<_> = (0..120)
        .map(|i| {
            let (environments, company) = (p.environments(), f.company.clone());
            // Every other names a secret that is not there, which shows only after its row was written.
            let secret = if i % 2 == 0 {
                f.secret.clone()
            } else {
                "sec_none".into()
            };
            let draft = draft(&format!("e{i}"), &secret);
            tokio::spawn(async move {
                environments
                    .create(&operator(), &company, draft, vec![key_use("h")])
                    .await
            })
        })
        .collect();
    let mut made = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => made += 1,
            Err(Error::Invalid { .. }) => {}
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(made, 60);
    assert_eq!(p.count("SELECT COUNT(*) FROM environments").await, 61);
    assert_eq!(
        p.count("SELECT COUNT(*) FROM secret_bindings").await,
        2 * 61
    );
    p.activity().verify(None).await.unwrap();
}

#[tokio::test]
async fn a_write_whose_caller_went_away_is_whole_or_not_at_all() {
    let p = Place::new().await;
    for i in 0..200 {
        let companies = p.companies();
        let task =
            tokio::spawn(async move { companies.create(&operator(), &format!("c{i}")).await });
        if i % 2 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
        let _ = task.await;
    }
    p.company("last").await;
    let companies = p.companies().list().await.unwrap().len();
    let verified = p.activity().verify(None).await.unwrap();
    assert_eq!(verified.rows as usize, companies);
}

/// A small file system of its own.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn mount(at: &Path, size: &str) -> Option<Tmpfs> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o"])
            .arg(format!("size={size},mode=0700"))
            .arg("leasehold-test")
            .arg(at)
            .output();
        mounted
            .is_ok_and(|o| o.status.success())
            .then(|| Tmpfs(at.to_owned()))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount")
            .arg("-l")
            .arg(&self.0)
            .status();
    }
}

#[tokio::test]
async fn a_full_disk_is_said_and_leaves_nothing_half_done() {
    let temp = tempfile::tempdir().unwrap();
    let data = temp.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let Some(_tmpfs) = Tmpfs::mount(&data, "3m") else {
        skipped("the right to mount a tmpfs");
        return;
    };
    let authority = Authority::open(options_in(temp.path(), "main"))
        .await
        .unwrap();
    let company = authority
        .companies()
        .create(&operator(), "acme")
        .await
        .unwrap()
        .id;
    // Fill the disk, then go on until nothing more can be written.
    let ballast = data.join("ballast");
    let fill = || {
        use std::io::Write as _;
        let mut file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(&ballast)
            .unwrap();
        while file.write_all(&[0u8; 4096]).is_ok() {}
    };
    fill();
    let mut made = 0;
    let full = loop {
        let value = "x".repeat(20_000);
        match authority
            .secrets()
            .create(
                &operator(),
                new_secret(Some(&company), &format!("s{made}"), &value),
            )
            .await
        {
            Ok(_) => {
                made += 1;
                assert!(made < 1000, "the disk never fills up");
            }
            Err(e) => break e,
        }
    };
    assert!(matches!(full, Error::Full), "{full:?}");
    // Also for many at once, each of which hears of it.
    let tasks: Vec<_> = (0..20)
        .map(|i| {
            let (secrets, company) = (authority.secrets(), company.clone());
            tokio::spawn(async move {
                let value = "x".repeat(60_000);
                secrets
                    .create(
                        &operator(),
                        new_secret(Some(&company), &format!("many{i}"), &value),
                    )
                    .await
            })
        })
        .collect();
    let mut some = 0;
    for task in tasks {
        match task.await.unwrap() {
            Ok(_) => some += 1,
            Err(Error::Full) => {}
            Err(e) => panic!("{e:?}"),
        }
    }
    std::fs::remove_file(&ballast).unwrap();
    let secrets = authority
        .secrets()
        .list(Some(&company), None)
        .await
        .unwrap()
        .len();
    assert_eq!(secrets, made + some);
    let verified = authority.activity().verify(None).await.unwrap();
    assert_eq!(verified.rows as usize, secrets + 1);
    // With room again it goes on.
    authority
        .companies()
        .create(&operator(), "after")
        .await
        .unwrap();
    authority.activity().verify(None).await.unwrap();
    authority.close().await;
}
