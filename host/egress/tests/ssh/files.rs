//! Trees in and out, over SFTP and over tar, with the same answers.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use leasehold_contract::{Code, SshSession};
use leasehold_parts::Options;
use tokio::io::AsyncReadExt;

use crate::lab::{Lab, isolated};

/// With SFTP, without, and with an account whose start file spoils it.
fn labs() -> Vec<(&'static str, Lab, &'static str)> {
    let ways = [
        ("sftp", false, "lease"),
        ("tar", true, "lease"),
        ("spoilt sftp", false, "bash"),
    ];
    let lab = |no_sftp| {
        isolated(&Options {
            no_sftp,
            ..Options::default()
        })
    };
    ways.into_iter()
        .filter_map(|(way, no_sftp, account)| Some((way, lab(no_sftp)?, account)))
        .collect()
}

fn archive(fill: impl FnOnce(&mut tar::Builder<Vec<u8>>)) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    fill(&mut builder);
    builder.into_inner().unwrap()
}

fn file(builder: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, content: &[u8]) {
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    header.set_mtime(1_600_000_000);
    builder.append_data(&mut header, path, content).unwrap();
}

fn link(builder: &mut tar::Builder<Vec<u8>>, kind: tar::EntryType, path: &str, to: &str) {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(0);
    header.set_mode(0o777);
    builder.append_link(&mut header, path, to).unwrap();
}

async fn put(
    session: &Arc<dyn SshSession>,
    root: &Path,
    bytes: Vec<u8>,
) -> Result<(), leasehold_contract::Error> {
    session
        .put(
            root.to_str().unwrap().into(),
            Box::pin(std::io::Cursor::new(bytes)),
        )
        .await
}

async fn get(session: &Arc<dyn SshSession>, root: &Path, path: &str) -> Vec<u8> {
    let mut stream = session
        .get(root.to_str().unwrap().into(), path.into())
        .await
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_goes_in_and_comes_out_as_it_was() {
    for (way, lab, account) in labs() {
        let root = lab.sshd.directory(account, "files").unwrap();
        let session = lab.open(&lab.target(account)).await.unwrap();
        let big: Vec<u8> = (0..3_000_000u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let deep = format!(
            "{}/end",
            "long-directory-name-".repeat(3) + "/" + &"another-one-".repeat(8)
        );
        let bytes = archive(|b| {
            file(b, "tree/big", 0o640, &big);
            file(b, "tree/run me; it's \"fine\"", 0o755, b"#!/bin/sh\n");
            file(b, "tree/set", 0o4755, b"x");
            file(b, "tree/empty", 0o600, b"");
            file(b, &format!("tree/{deep}"), 0o644, b"deep");
            link(b, tar::EntryType::Symlink, "tree/link", "big");
            link(b, tar::EntryType::Link, "tree/hard", "tree/big");
        });
        put(&session, &root, bytes)
            .await
            .unwrap_or_else(|e| panic!("{way}: {e}"));
        let tree = root.join("tree");
        assert_eq!(std::fs::read(tree.join("big")).unwrap(), big, "{way}");
        let mode = |p: &str| std::fs::symlink_metadata(tree.join(p)).unwrap().mode() & 0o7777;
        assert_eq!(
            (mode("big"), mode("run me; it's \"fine\""), mode("set")),
            (0o640, 0o755, 0o755),
            "{way}"
        );
        assert_eq!(
            std::fs::read_link(tree.join("link")).unwrap(),
            Path::new("big")
        );
        assert_eq!(
            std::fs::metadata(tree.join("hard")).unwrap().ino(),
            std::fs::metadata(tree.join("big")).unwrap().ino(),
            "{way}"
        );
        assert_eq!(std::fs::read(tree.join(&deep)).unwrap(), b"deep", "{way}");
        let here: Vec<_> = std::fs::read_dir(&root)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(here, ["tree"], "{way}: nothing else is left");

        let back = get(&session, &root, "tree").await;
        let out = tempfile::tempdir().unwrap();
        tar::Archive::new(&back[..]).unpack(out.path()).unwrap();
        let out = out.path().join("tree");
        assert_eq!(std::fs::read(out.join("big")).unwrap(), big, "{way}");
        assert_eq!(
            std::fs::metadata(out.join("big")).unwrap().mode() & 0o777,
            0o640,
            "{way}"
        );
        assert_eq!(
            std::fs::read_link(out.join("link")).unwrap(),
            Path::new("big"),
            "{way}"
        );
        assert_eq!(std::fs::read(out.join(&deep)).unwrap(), b"deep", "{way}");
        // One file, and all of it.
        let one = get(&session, &root, "tree/empty").await;
        let names: Vec<_> = tar::Archive::new(&one[..])
            .entries()
            .unwrap()
            .map(|e| e.unwrap().path().unwrap().into_owned())
            .collect();
        assert_eq!(names, [Path::new("empty")], "{way}");
        let whole = get(&session, &root, ".").await;
        assert!(
            tar::Archive::new(&whole[..]).entries().unwrap().count() > 5,
            "{way}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_escapes_is_refused_and_leaves_nothing_outside() {
    for (way, lab, account) in labs() {
        let root = lab.sshd.directory(account, "files").unwrap();
        let outside = lab.sshd.directory(account, "outside").unwrap();
        let session = lab.open(&lab.target(account)).await.unwrap();
        let raw = |name: &str, kind: u8, link: &str| {
            let mut header = tar::Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.as_mut_bytes()[156] = kind;
            header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
            header.set_size(0);
            header.set_mode(0o644);
            header.set_cksum();
            let mut bytes = header.as_bytes().to_vec();
            bytes.extend([0; 1024]);
            bytes
        };
        for bytes in [
            raw("../outside/x", b'0', ""),
            raw(
                &format!("{}/x", outside.display())
                    .chars()
                    .take(99)
                    .collect::<String>(),
                b'0',
                "",
            ),
            raw("a", b'2', "../outside"),
            raw("a", b'1', "../outside/y"),
            raw("pipe", b'6', ""),
        ] {
            let e = put(&session, &root, bytes).await.unwrap_err();
            assert_eq!(e.code, Code::InvalidConfig, "{way}: {e}");
        }
        // Through a link that was there, and through one that the archive makes.
        symlink(&outside, root.join("there")).unwrap();
        let through = archive(|b| file(b, "there/x", 0o644, b"x"));
        let e = put(&session, &root, through).await.unwrap_err();
        assert_eq!(e.code, Code::FailedPrecondition, "{way}: {e}");
        let through = archive(|b| {
            file(b, "real/keep", 0o644, b"x");
            link(b, tar::EntryType::Symlink, "made", "real");
            file(b, "made/x", 0o644, b"x");
        });
        put(&session, &root, through).await.unwrap_err();
        assert!(!root.join("real/x").exists(), "{way}");
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0, "{way}");
        // A link in a file's place is replaced, not followed.
        std::fs::write(outside.join("precious"), "x").unwrap();
        symlink(outside.join("precious"), root.join("file")).unwrap();
        put(&session, &root, archive(|b| file(b, "file", 0o644, b"new")))
            .await
            .unwrap();
        assert_eq!(std::fs::read(root.join("file")).unwrap(), b"new", "{way}");
        assert_eq!(
            std::fs::read(outside.join("precious")).unwrap(),
            b"x",
            "{way}"
        );

        let path = root.to_str().unwrap().to_owned();
        for from in ["../outside", "there/precious", "/etc/passwd"] {
            let e = session.get(path.clone(), from.into()).await.err().unwrap();
            assert!(
                matches!(e.code, Code::PermissionDenied | Code::InvalidConfig),
                "{way} {from}: {e}"
            );
        }
        let e = session
            .get(path.clone(), "missing".into())
            .await
            .err()
            .unwrap();
        assert_eq!(e.code, Code::NotFound, "{way}: {e}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_that_breaks_off_is_an_error_and_no_half_file_appears() {
    for (way, lab, account) in labs() {
        let root = lab.sshd.directory(account, "files").unwrap();
        let session = lab.open(&lab.target(account)).await.unwrap();
        let bytes = archive(|b| file(b, "half", 0o644, &[1; 200_000]));
        let e = put(&session, &root, bytes[..100_000].to_vec())
            .await
            .unwrap_err();
        assert_eq!(e.code, Code::InvalidConfig, "{way}: {e}");
        crate::lab::until("what was begun is cleared away", async || {
            std::fs::read_dir(&root).unwrap().count() == 0
        })
        .await;
        // Not writable, and said so.
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o555)).unwrap();
        let e = put(&session, &root, archive(|b| file(b, "x", 0o644, b"x")))
            .await
            .unwrap_err();
        assert_eq!(e.code, Code::PermissionDenied, "{way}: {e}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_stops_early_takes_nothing_with_it() {
    for (way, lab, account) in labs() {
        let root = lab.sshd.directory(account, "files").unwrap();
        std::fs::write(root.join("big"), vec![7; 20_000_000]).unwrap();
        let session = lab.open(&lab.target(account)).await.unwrap();
        let mut stream = session
            .get(root.to_str().unwrap().into(), "big".into())
            .await
            .unwrap();
        let mut some = [0; 1000];
        stream.read_exact(&mut some).await.unwrap();
        drop(stream);
        let again = get(&session, &root, "big").await;
        assert!(again.len() > 20_000_000, "{way}");
    }
}

/// The names in an archive, and what its comments say was left out.
fn contents(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
    let (mut names, mut left_out) = (Vec::new(), Vec::new());
    for entry in tar::Archive::new(bytes).entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.header().entry_type().is_pax_global_extensions() {
            for record in entry.pax_extensions().unwrap().unwrap() {
                let record = record.unwrap();
                assert_eq!(record.key(), Ok("comment"));
                left_out.push(record.value().unwrap().to_owned());
            }
        } else {
            names.push(entry.path().unwrap().display().to_string());
        }
    }
    names.sort();
    left_out.sort();
    (names, left_out)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_content_or_no_sayable_name_is_left_out_and_named() {
    use std::os::unix::ffi::OsStrExt;
    for (way, lab, account) in labs() {
        let root = lab.sshd.directory(account, "files").unwrap();
        let session = lab.open(&lab.target(account)).await.unwrap();
        let tree = root.join("tree");
        std::fs::create_dir(&tree).unwrap();
        std::fs::write(tree.join("file"), "x").unwrap();
        std::fs::hard_link(tree.join("file"), tree.join("hard")).unwrap();
        let garbled = std::ffi::OsStr::from_bytes(b"caf\xe9");
        std::fs::write(tree.join(garbled), "0123456789").unwrap();
        std::fs::write(tree.join("z"), "y").unwrap();
        let long = "p".repeat(150);
        for pipe in ["pipe", &long] {
            let made = std::process::Command::new("mkfifo")
                .arg(tree.join(pipe))
                .status();
            assert!(made.unwrap().success());
        }
        let _socket = std::os::unix::net::UnixListener::bind(tree.join("socket")).unwrap();
        let bytes = get(&session, &root, "tree").await;
        let (names, left_out) = contents(&bytes);
        assert_eq!(
            names,
            ["tree/", "tree/file", "tree/hard", "tree/z"],
            "{way}"
        );
        assert_eq!(
            left_out,
            [
                "left out: tree/caf\u{fffd} (its name is not UTF-8)".to_owned(),
                "left out: tree/pipe (a pipe)".to_owned(),
                format!("left out: tree/{long} (a pipe)"),
                "left out: tree/socket (a socket)".to_owned(),
            ],
            "{way}"
        );
        let out = tempfile::tempdir().unwrap();
        tar::Archive::new(&bytes[..]).unpack(out.path()).unwrap();
        let out = out.path().join("tree");
        assert_eq!(std::fs::read(out.join("hard")).unwrap(), b"x", "{way}");
        assert_eq!(std::fs::read(out.join("z")).unwrap(), b"y", "{way}");
        for what in ["tree/pipe", "tree/socket"] {
            let asked = session.get(root.to_str().unwrap().into(), what.into());
            let e = asked.await.err().unwrap();
            assert_eq!(e.code, Code::FailedPrecondition, "{way} {what}: {e}");
            assert!(e.message.contains(what), "{way}: {e}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_is_asked_for_is_followed_and_keeps_its_name() {
    for (way, lab, account) in labs() {
        let root = lab.sshd.directory(account, "files").unwrap();
        let outside = lab.sshd.directory(account, "outside").unwrap();
        let session = lab.open(&lab.target(account)).await.unwrap();
        std::fs::create_dir_all(root.join("real/below")).unwrap();
        std::fs::write(root.join("real/file"), "content").unwrap();
        symlink("/nowhere/else", root.join("real/away")).unwrap();
        symlink("real/file", root.join("to-file")).unwrap();
        symlink("real", root.join("to-directory")).unwrap();
        symlink("gone", root.join("dangling")).unwrap();
        std::fs::write(outside.join("precious"), "x").unwrap();
        symlink(outside.join("precious"), root.join("to-precious")).unwrap();

        let bytes = get(&session, &root, "to-file").await;
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap(), Path::new("to-file"), "{way}");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).unwrap();
        assert_eq!(text, "content", "{way}");

        let bytes = get(&session, &root, "to-directory").await;
        let (names, left_out) = contents(&bytes);
        assert_eq!(
            names,
            [
                "to-directory/",
                "to-directory/away",
                "to-directory/below/",
                "to-directory/file"
            ],
            "{way}"
        );
        assert!(left_out.is_empty(), "{way}: {left_out:?}");
        let out = tempfile::tempdir().unwrap();
        tar::Archive::new(&bytes[..]).unpack(out.path()).unwrap();
        assert_eq!(
            std::fs::read_link(out.path().join("to-directory/away")).unwrap(),
            Path::new("/nowhere/else"),
            "{way}: in a tree a link is told as it is"
        );

        for (link, code) in [
            ("dangling", Code::NotFound),
            ("to-precious", Code::PermissionDenied),
        ] {
            let asked = session.get(root.to_str().unwrap().into(), link.into());
            let e = asked.await.err().unwrap();
            assert_eq!(e.code, code, "{way} {link}: {e}");
            assert!(e.message.contains(link), "{way}: {e}");
        }
    }
}
