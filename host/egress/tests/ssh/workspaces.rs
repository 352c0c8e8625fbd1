//! Workspaces: whose they are, what is refused, what a crash leaves.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use leasehold_contract::{Code, Ended};
use leasehold_egress::Ownership;
use leasehold_parts::Options;

use crate::lab::{isolated, lab};

#[tokio::test(flavor = "multi_thread")]
async fn a_workspace_is_private_ours_and_the_same_when_asked_for_again() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let (lease, workspace) = lab.leased("a1").await;
    assert_eq!(workspace.path, format!("{}/a1/work", lease.parent));
    assert_eq!(workspace.resource, "a1");
    let mode = std::fs::metadata(format!("{}/a1", lease.parent))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(lease.make().await.unwrap(), workspace);
    let owned = lab
        .ssh
        .verify_owned(&lease.target, &lease.mark(), &lease.parent)
        .await
        .unwrap();
    assert_eq!(owned, Ownership::Ours(lease.scope.labels.clone()));
    let listed = lease
        .session()
        .await
        .list_workspaces(lease.parent.clone())
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (listed[0].resource.as_str(), listed[0].condition.as_str()),
        ("a1", "ready")
    );
    assert_eq!(
        listed[0].labels[0],
        ("leasehold-owner".into(), lease.scope.owner_label.clone())
    );
    // What a command does to its own directory does not reach the marker.
    let (_, _, ended) = lease
        .all("x", "rm -rf ./* ./.[!.]*; cd .. && rm -rf work")
        .await;
    assert_eq!(ended, Ended::Exited(0));
    let (_, _, ended) = lease.all("y", "pwd").await;
    assert_eq!(ended, Ended::Exited(0), "its directory is made again");
    lease.remove().await.unwrap();
    lease.remove().await.unwrap();
    let owned = lab
        .ssh
        .verify_owned(&lease.target, &lease.mark(), &lease.parent)
        .await
        .unwrap();
    assert_eq!(owned, Ownership::Absent);
    assert_eq!(
        lease
            .session()
            .await
            .list_workspaces(lease.parent.clone())
            .await
            .unwrap(),
        []
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_ours_is_neither_taken_nor_removed() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let parent = Path::new(&lease.parent);
    let mut thief = lab.lease(&lab.worker(), "a1");
    thief.scope.owner_label = "another-owner-0123456789".into();
    assert_eq!(thief.make().await.unwrap_err().code, Code::AlreadyExists);
    assert_eq!(thief.remove().await.unwrap_err().code, Code::AlreadyExists);
    let whose = lab
        .ssh
        .verify_owned(&thief.target, &thief.mark(), &thief.parent)
        .await
        .unwrap();
    assert_eq!(whose, Ownership::Foreign);
    let Err(e) = thief.start("x", "true").await else {
        panic!("it started")
    };
    assert_eq!(e.code, Code::FailedPrecondition, "{e}");
    assert!(parent.join("a1/.leasehold/owner").exists());
    // The same owner with other labels is another request.
    let mut changed = lab.lease(&lab.worker(), "a1");
    changed.scope.labels = vec![("leasehold-request".into(), "other".into())];
    assert_eq!(changed.make().await.unwrap_err().code, Code::AlreadyExists);

    // A directory of somebody's, a file, and links.
    std::fs::create_dir(parent.join("b1")).unwrap();
    std::fs::write(parent.join("b1/precious"), "x").unwrap();
    std::fs::write(parent.join("b2"), "x").unwrap();
    symlink("/etc", parent.join("b3")).unwrap();
    symlink("nowhere", parent.join("b4")).unwrap();
    std::fs::create_dir_all(parent.join("b5/.leasehold")).unwrap();
    symlink("/etc/passwd", parent.join("b5/.leasehold/owner")).unwrap();
    for name in ["b1", "b2", "b3", "b4", "b5"] {
        let lease = lab.lease(&lab.worker(), name);
        let e = lease.make().await.unwrap_err();
        assert_eq!(e.code, Code::AlreadyExists, "{name}: {e}");
        let e = lease.remove().await.unwrap_err();
        assert_eq!(e.code, Code::AlreadyExists, "{name}: {e}");
        assert!(
            parent.join(name).symlink_metadata().is_ok(),
            "{name} is still there"
        );
    }
    assert!(parent.join("b1/precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_a_crash_left_half_made_is_completed_or_removed() {
    let Some(lab) = lab(&Options::default()) else {
        return;
    };
    let lease = lab.lease(&lab.worker(), "a1");
    let place = Path::new(&lease.parent).join("a1");
    let half: [&[&str]; 4] = [
        &[],
        &[".leasehold"],
        &[".leasehold/x", "work"],
        &[".leasehold/owner.new/", "work"],
    ];
    for remove in [false, true] {
        for dirs in half {
            let name = lab.worker();
            // Made by the account itself, as a crash would have left it.
            let session = lab.open(&lab.target(&name)).await.unwrap();
            let list = dirs
                .iter()
                .map(|d| format!("a1/{}", d.trim_end_matches('/')))
                .collect::<Vec<_>>()
                .join(" ");
            let script = format!("cd {} && mkdir -p a1 {list}", lease.parent);
            crate::lab::run(&session, &script).await.unwrap();
            let listed = session.list_workspaces(lease.parent.clone()).await.unwrap();
            assert!(
                listed.iter().all(|w| w.condition == "incomplete"),
                "{listed:?}"
            );
            if remove {
                lease
                    .remove()
                    .await
                    .unwrap_or_else(|e| panic!("{dirs:?}: {e}"));
            } else if dirs.contains(&".leasehold/owner.new/") {
                // A directory where the marker is to be: not of our making, and told.
                lease.make().await.unwrap_err();
                lease.remove().await.unwrap();
            } else {
                lease
                    .make()
                    .await
                    .unwrap_or_else(|e| panic!("{dirs:?}: {e}"));
                lease.remove().await.unwrap();
            }
            assert!(!place.exists());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn removal_follows_no_link_and_is_stopped_by_no_permission() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let (lease, _) = lab.leased("a1").await;
    let outside = lab.sshd.directory(&lab.worker(), "outside").unwrap();
    std::fs::write(outside.join("precious"), "x").unwrap();
    let script = format!(
        "ln -s {0} out; ln -s {0}/precious file; mkdir -p a/b 'c d' -- -e; touch a/b/f 'c d/g' -- -f; chmod 000 a/b a; chmod 500 'c d'",
        outside.display()
    );
    let (_, err, ended) = lease.all("x", &script).await;
    assert_eq!((err.as_str(), ended), ("", Ended::Exited(0)));
    lease.remove().await.unwrap();
    assert!(lease.gone().await.confirmed());
    assert!(outside.join("precious").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_parent_that_is_missing_or_may_not_be_written_is_told_with_its_name() {
    let Some(lab) = isolated(&Options::default()) else {
        return;
    };
    let user = lab.worker();
    let mut lease = lab.lease(&user, "a1");
    lease.parent = "/no/such/place".into();
    let e = lease.make().await.unwrap_err();
    assert_eq!(e.code, Code::InvalidConfig, "{e}");
    assert!(
        e.message.contains("/no/such/place") && e.message.contains(&user),
        "{e}"
    );
    // Somebody else's.
    let place = lab.sshd.directory("root", "of-root").unwrap();
    lease.parent = place.to_str().unwrap().into();
    let e = lease.make().await.unwrap_err();
    assert_eq!(e.code, Code::PermissionDenied, "{e}");
    assert!(
        e.message.contains("of-root") && e.message.contains("Permission denied"),
        "{e}"
    );
    assert!(lease.gone().await.confirmed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_at_making_and_at_starting_and_removal_still_works() {
    let Some(lab) = isolated(&Options {
        small: Some(256 * 1024),
        ..Options::default()
    }) else {
        return;
    };
    let mut lease = lab.lease(&lab.worker(), "a1");
    lease.parent = lab.sshd.small().to_str().unwrap().into();
    lease.make().await.unwrap();
    let (_, err, _) = lease.all("fill", "cat /dev/zero >big").await;
    assert!(err.contains("No space left"), "{err}");
    let Err(e) = lease.start("x", "echo ran").await else {
        panic!("it ran without a record")
    };
    assert_eq!(e.code, Code::QuotaExceeded, "{e}");
    let mut second = lab.lease(&lab.worker(), "a2");
    second.parent = lease.parent.clone();
    let e = second.make().await.unwrap_err();
    assert_eq!(e.code, Code::QuotaExceeded, "{e}");
    second.remove().await.unwrap();
    lease.remove().await.unwrap();
    assert!(lease.gone().await.confirmed() && second.gone().await.confirmed());
}
