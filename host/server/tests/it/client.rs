//! `exec` and `cp` on a real target: what they pass on, and how they end.

use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::leased::Leased;

#[test]
fn exec_passes_the_commands_own_end_and_cp_brings_files_back_as_they_were() {
    let Some(leased) = Leased::new() else { return };
    let lease = leased.lease.as_str();
    let code = |args: &[&str]| leased.exec(args).output().unwrap().status.code();
    for own in [0, 1, 42, 125, 255] {
        assert_eq!(
            code(&["-n", lease, "--", "sh", "-c", &format!("exit {own}")]),
            Some(own)
        );
    }
    assert_eq!(
        code(&["-n", lease, "--", "sh", "-c", "kill -TERM $$"]),
        Some(143)
    );
    assert_eq!(code(&["-n", lease, "--", "no-such-program"]), Some(127));
    assert_eq!(
        code(&["-n", "--cwd", "/no/such/place", lease, "--", "true"]).map(|c| c != 0),
        Some(true)
    );
    assert_eq!(code(&["-n", "lease_none", "--", "true"]), Some(125));

    let from = leased.server.home.path().join("from");
    std::fs::create_dir_all(from.join("deep/er")).unwrap();
    std::fs::write(
        from.join("deep/er/bytes"),
        (0..=255).cycle().take(200_000).collect::<Vec<u8>>(),
    )
    .unwrap();
    std::fs::write(from.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("deep/er/bytes", from.join("link")).unwrap();
    let cp = |a: &str, b: &str| {
        let out = leased
            .server
            .home
            .leasehold()
            .args(["cp", a, b])
            .output()
            .unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let back = leased.server.home.path().join("back");
    std::fs::create_dir(&back).unwrap();
    let (from, back) = (from.to_str().unwrap(), back.to_str().unwrap());
    assert_eq!(cp(from, &format!("{lease}:.")), (Some(0), String::new()));
    assert_eq!(cp(&format!("{lease}:from"), back), (Some(0), String::new()));
    let same = Command::new("diff")
        .args(["-r", "--no-dereference", from, &format!("{back}/from")])
        .output()
        .unwrap();
    assert!(
        same.status.success(),
        "{}",
        String::from_utf8_lossy(&same.stdout)
    );
    assert_eq!(cp(&format!("{lease}:nowhere"), back).0, Some(3));
}

#[test]
fn a_command_whose_output_nobody_takes_is_ended_as_by_a_closed_pipe() {
    let Some(leased) = Leased::new() else { return };
    let lease = leased.lease.as_str();
    // What it ends by, and how the client ends.
    let ended = |script: &str, out: Stdio, read: usize| {
        let mut client = leased
            .exec(&["-n", lease, "--", "sh", "-c", script])
            .stdout(out)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        if let Some(mut out) = client.stdout.take() {
            out.read_exact(&mut vec![0; read]).unwrap();
        }
        let out = client.wait_with_output().unwrap();
        let rows = leased
            .server
            .operator("GET", &leased.path("/executions"), "")
            .json();
        let rows = rows.as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["argv"][2] == script);
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
            row.map(|row| (row["outcome"].clone(), row["signal"].clone())),
        )
    };
    let signal = |name: &str| Some(("signalled".into(), name.into()));
    assert_eq!(
        ended("exec yes", Stdio::piped(), 2),
        (Some(141), String::new(), signal("PIPE"))
    );
    // It wrote once more than was read, and is silent since: the failed write alone is what is known.
    assert_eq!(
        ended(
            "echo a; sleep 0.5; echo b; exec sleep 1000",
            Stdio::piped(),
            2
        ),
        (Some(141), String::new(), signal("PIPE"))
    );
    assert_eq!(
        ended("trap '' PIPE; while :; do echo y; done", Stdio::piped(), 2),
        (Some(141), String::new(), signal("KILL"))
    );
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let (code, said, by) = ended("exec yes yes", full.into(), 0);
    assert_eq!((code, by), (Some(125), signal("PIPE")));
    assert!(said.contains("the output: No space left"), "{said}");
    // Whoever reads to the end gets everything.
    let script = "head -c 3000000 /dev/zero; exit 3";
    let out = leased
        .exec(&["-n", lease, "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!((out.status.code(), out.stdout.len()), (Some(3), 3_000_000));
}

#[test]
fn cp_names_what_it_leaves_out_and_refuses_what_it_cannot_send() {
    use std::os::unix::fs::symlink;
    let Some(leased) = Leased::new() else { return };
    let lease = leased.lease.as_str();
    let home = leased.server.home.path();
    let cp = |from: &str, to: &str| {
        let out = leased
            .server
            .home
            .leasehold()
            .current_dir(home)
            .args(["cp", from, to])
            .output()
            .unwrap();
        (
            out.status.code(),
            String::from_utf8_lossy(&out.stderr).into_owned(),
        )
    };
    let inside = |script: &str| {
        let out = leased
            .exec(&["-n", lease, "--", "sh", "-c", script])
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let from = home.join("from");
    std::fs::create_dir(&from).unwrap();
    std::fs::write(from.join("file"), "x").unwrap();
    symlink("file", from.join("link")).unwrap();
    std::fs::File::create(from.join("sparse"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let mkfifo = Command::new("mkfifo").arg(from.join("pipe")).status();
    assert!(mkfifo.unwrap().success());
    let there = format!("{lease}:.");

    let (code, said) = cp("from", &there);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("from/pipe (a pipe)"), "{said}");
    assert_eq!(
        inside("ls from; readlink from/link; wc -c <from/sparse"),
        "file\nlink\nsparse\nfile\n1048576\n"
    );
    // A link by itself is what it leads to, under its own name.
    assert_eq!(cp("from/link", &there), (Some(0), String::new()));
    assert_eq!(inside("test -L link || cat link"), "x");

    let (code, said) = cp("from/pipe", &there);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("from/pipe: is a pipe"), "{said}");
    symlink("gone", home.join("dangling")).unwrap();
    let (code, said) = cp("dangling", &there);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("dangling: is a link to gone"), "{said}");
    let odd = home.join("odd");
    std::fs::create_dir(&odd).unwrap();
    std::fs::write(odd.join("a"), "x").unwrap();
    std::fs::write(odd.join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
    let (code, said) = cp("odd", &there);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(r#""odd/\xFF""#), "{said}");
    assert_eq!(inside("ls -d odd"), "", "nothing of it was sent");
    let out = home.join("out");
    std::fs::create_dir(&out).unwrap();
    symlink("/etc/passwd", out.join("away")).unwrap();
    let (code, said) = cp("out", &there);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("out/away"), "{said}");

    inside(
        "mkdir back; cd back; echo y >file; ln -s /etc/passwd away; mkfifo pipe; ln -s gone dangling",
    );
    let back = format!("{lease}:back");
    let (code, said) = cp(&back, ".");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("back/pipe (a pipe)"), "{said}");
    assert_eq!(std::fs::read(home.join("back/file")).unwrap(), b"y\n");
    for (link, to) in [("away", "/etc/passwd"), ("dangling", "gone")] {
        let made = std::fs::read_link(home.join("back").join(link)).unwrap();
        assert_eq!(made.to_str(), Some(to));
    }
    for (what, word) in [("pipe", "is a pipe"), ("dangling", "is a link")] {
        let (code, said) = cp(&format!("{back}/{what}"), ".");
        assert_ne!(code, Some(0), "{said}");
        assert!(said.contains(word), "{said}");
    }
}
