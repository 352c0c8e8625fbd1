//! The scripts that run on a target, run here under each shell that a target may have as its /bin/sh.
//!
//! What the host puts around them (the bootstrap, the supervisor) has tests of its own.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output};

/// The room of the provider that says what is sent.
#[path = "../src/script.rs"]
mod script;

const SHELLS: [&[&str]; 4] = [
    &["dash"],
    &["bash", "--posix"],
    &["bash"],
    &["busybox", "sh"],
];

/// Runs a check under every shell that is installed.
fn each_shell(check: impl Fn(&[&str])) {
    for shell in SHELLS {
        match Command::new(shell[0])
            .arg(shell.get(1).unwrap_or(&"-c"))
            .arg("-c")
            .arg(":")
            .output()
        {
            Ok(_) => check(shell),
            Err(_) => {
                assert!(
                    std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none_or(|all| all != "1"),
                    "needs {}",
                    shell[0]
                );
                println!("skipped: needs {}", shell[0]);
            }
        }
    }
}

fn run(shell: &[&str], script: &str, args: &[&str], env: &[(&str, &str)]) -> Output {
    Command::new(shell[0])
        .args(&shell[1..])
        .args(["-c", script, "sh"])
        .args(args)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .envs(env.iter().copied())
        .output()
        .expect("the shell runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn program(at: &Path, mode: u32) {
    fs::write(at, "#!/bin/sh\necho \"ran ${0##*/} $*\"\n").expect("writes");
    fs::set_permissions(at, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn a_command_gets_its_arguments_whole_its_directory_and_its_own_status() {
    each_shell(|shell| {
        let argv = [
            "/",
            "printf",
            "%s|",
            "a b",
            "",
            "'",
            "\"$HOME\"",
            "*",
            "-n",
            "é\n",
        ];
        let out = run(shell, &script::start(), &argv, &[]);
        assert_eq!(text(&out.stdout), "a b||'|\"$HOME\"|*|-n|é\n|", "{shell:?}");
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().canonicalize().expect("a path");
        let out = run(
            shell,
            &script::start(),
            &[at.to_str().expect("UTF-8"), "pwd"],
            &[],
        );
        assert_eq!(text(&out.stdout).trim(), at.to_str().expect("UTF-8"));
        let out = run(shell, &script::start(), &["/", "sh", "-c", "exit 37"], &[]);
        assert_eq!(out.status.code(), Some(37));
    });
}

#[test]
fn a_command_gets_its_variables_and_none_of_the_scripts_own() {
    each_shell(|shell| {
        let out = run(
            shell,
            &script::start(),
            &["/", "env"],
            &[("dir", "mine"), ("found", "mine"), ("rest", "mine")],
        );
        let mut names: Vec<String> = text(&out.stdout)
            .lines()
            .filter_map(|line| Some(line.split_once('=')?.0.to_owned()))
            // What shells set by themselves.
            .filter(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(&name.as_str()))
            .collect();
        names.sort();
        assert_eq!(names, ["PATH", "dir", "found", "rest"], "{shell:?}");
        assert!(text(&out.stdout).contains("dir=mine\n"));
    });
}

#[test]
fn a_program_that_is_not_there_is_127_and_one_that_cannot_run_is_126_each_with_one_line() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    program(Path::new(&at("plain")), 0o644);
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    each_shell(|shell| {
        for (program, status, told) in [
            ("no-such-program", 127, "no such program in PATH"),
            ("cd", 127, "no such program in PATH"),
            ("", 127, "name is empty"),
            ("/no/such/file", 127, "no such file"),
            ("./missing", 127, "no such file"),
            ("/usr", 126, "is a directory"),
            (&at("plain"), 126, "not executable"),
            ("plain", 126, "not executable"),
        ] {
            let out = run(
                shell,
                &script::start(),
                &["/", program, "x"],
                &[("PATH", &path)],
            );
            let stderr = text(&out.stderr);
            assert_eq!(
                out.status.code(),
                Some(status),
                "{shell:?} {program}: {stderr}"
            );
            assert!(
                stderr.starts_with("leasehold: ") && stderr.contains(told),
                "{shell:?}: {stderr}"
            );
            assert_eq!(stderr.lines().count(), 1, "{shell:?}: {stderr}");
            assert!(out.stdout.is_empty());
        }
    });
}

#[test]
fn a_directory_that_cannot_be_entered_is_126_and_the_command_does_not_run() {
    each_shell(|shell| {
        let out = run(
            shell,
            &script::start(),
            &["/no/such/dir", "echo", "ran"],
            &[],
        );
        assert_eq!(out.status.code(), Some(126));
        assert!(text(&out.stderr).contains("/no/such/dir: there is no such directory"));
        assert!(out.stdout.is_empty());
    });
}

#[test]
fn a_name_that_looks_like_an_option_is_a_program_all_the_same() {
    let dir = tempfile::tempdir().expect("a directory");
    program(&dir.path().join("-c"), 0o755);
    program(&dir.path().join("-a"), 0o755);
    let path = format!("{}:/usr/bin:/bin", dir.path().display());
    each_shell(|shell| {
        for name in ["-c", "-a"] {
            let out = run(
                shell,
                &script::start(),
                &["/", name, "x"],
                &[("PATH", &path)],
            );
            assert_eq!(
                text(&out.stdout),
                format!("ran {name} x\n"),
                "{shell:?}: {}",
                text(&out.stderr)
            );
        }
    });
}

#[test]
fn the_first_executable_in_path_wins_over_a_file_that_is_not() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (dir.path().join("1"), dir.path().join("2"));
    fs::create_dir(&first).expect("mkdir");
    fs::create_dir(&second).expect("mkdir");
    program(&first.join("tool"), 0o644);
    program(&second.join("tool"), 0o755);
    let path = format!("{}:{}:/usr/bin:/bin", first.display(), second.display());
    each_shell(|shell| {
        let out = run(shell, &script::start(), &["/", "tool"], &[("PATH", &path)]);
        assert_eq!(
            text(&out.stdout),
            "ran tool \n",
            "{shell:?}: {}",
            text(&out.stderr)
        );
    });
}

/// What the probe's script says about a key, in order.
fn said(out: &Output, key: &str) -> Vec<String> {
    text(&out.stdout)
        .lines()
        .filter_map(|line| {
            Some(
                line.split_once(' ')
                    .filter(|(k, _)| *k == key)?
                    .1
                    .to_owned(),
            )
        })
        .collect()
}

#[test]
fn the_probe_tells_what_kind_of_thing_the_path_is_and_changes_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let base = dir.path().canonicalize().expect("a path");
    fs::create_dir(base.join("real")).expect("mkdir");
    fs::write(base.join("file"), "").expect("writes");
    symlink(base.join("real"), base.join("link")).expect("symlink");
    let before = fs::metadata(&base)
        .expect("stat")
        .modified()
        .expect("mtime");
    each_shell(|shell| {
        for (path, kind, at) in [
            ("real", "directory", Some("real")),
            ("link", "symlink", Some("link")),
            ("file", "other", Some("file")),
            ("real/a/b/c", "missing", Some("real")),
            ("file/a", "missing", None),
        ] {
            let asked = base.join(path);
            let out = run(
                shell,
                &script::probe(),
                &[asked.to_str().expect("UTF-8")],
                &[],
            );
            assert_eq!(said(&out, "path"), [kind], "{shell:?} {path}: {out:?}");
            match at {
                Some(at) => {
                    assert_eq!(said(&out, "base"), [base.join(at).to_str().expect("UTF-8")])
                }
                None => assert_eq!(
                    said(&out, "blocked"),
                    [base.join("file").to_str().expect("UTF-8")]
                ),
            }
            assert!(
                text(&out.stderr).is_empty(),
                "{shell:?}: {}",
                text(&out.stderr)
            );
        }
    });
    assert_eq!(
        fs::metadata(&base)
            .expect("stat")
            .modified()
            .expect("mtime"),
        before
    );
}

#[test]
fn the_probe_tells_platform_account_free_space_and_mount() {
    each_shell(|shell| {
        let out = run(shell, &script::probe(), &["/usr"], &[]);
        assert!(
            said(&out, "platform")[0].starts_with("Linux "),
            "{shell:?}: {out:?}"
        );
        assert_eq!(said(&out, "missing"), Vec::<String>::new());
        assert!(said(&out, "free")[0].parse::<u64>().is_ok(), "{out:?}");
        // The root of a chroot is on no mount that can be seen; this is one everywhere.
        let out = run(shell, &script::probe(), &["/proc"], &[]);
        let options = said(&out, "mount")[0].clone();
        assert!(
            options.split(',').any(|o| o == "rw" || o == "ro"),
            "{options}"
        );
        let (uid, name) = said(&out, "account")[0]
            .split_once(' ')
            .map(|(u, n)| (u.to_owned(), n.to_owned()))
            .expect("two words");
        assert!(uid.parse::<u32>().is_ok() && !name.is_empty());
    });
}

#[test]
fn the_probe_tells_which_tools_are_missing() {
    let dir = tempfile::tempdir().expect("a directory");
    let all = ["awk", "cat", "uname", "id", "df", "tr", "umask"];
    for tool in all {
        for place in ["/usr/bin", "/bin"] {
            let from = Path::new(place).join(tool);
            if from.exists() {
                let _ = symlink(from, dir.path().join(tool));
            }
        }
    }
    let path = dir.path().to_str().expect("UTF-8");
    // Busybox finds its applets wherever PATH leads: it has them all.
    for shell in [&["/usr/bin/dash"][..], &["/usr/bin/bash"][..]] {
        if !Path::new(shell[0]).exists() {
            println!("skipped: needs {}", shell[0]);
            continue;
        }
        let out = run(shell, &script::probe(), &["/"], &[("PATH", path)]);
        let missing = said(&out, "missing");
        assert!(
            missing.contains(&"grep".to_owned()) && missing.contains(&"mkdir".to_owned()),
            "{missing:?}"
        );
        assert!(!missing.contains(&"awk".to_owned()), "{missing:?}");
    }
}

#[test]
fn the_directory_of_the_workspaces_is_made_only_where_there_is_nothing() {
    each_shell(|shell| {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
        fs::write(at("file"), "").expect("writes");
        symlink("/no/such", at("dangling")).expect("symlink");
        for there in ["file", "dangling", "."] {
            for script in [script::MAKE_PARENT, script::IS_ABSENT] {
                let out = run(shell, script, &[&at(there)], &[]);
                assert_eq!(out.status.code(), Some(3), "{shell:?} {there}");
            }
        }
        let new = at("a b/c");
        assert_eq!(
            run(shell, script::IS_ABSENT, &[&new], &[]).status.code(),
            Some(0)
        );
        assert!(!Path::new(&new).exists());
        assert_eq!(
            run(shell, script::MAKE_PARENT, &[&new], &[]).status.code(),
            Some(0)
        );
        let mode = fs::metadata(&new).expect("was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let below_a_file = run(shell, script::MAKE_PARENT, &[&at("file/x")], &[]);
        assert!(
            !matches!(below_a_file.status.code(), Some(0 | 3)),
            "{shell:?}"
        );
    });
}
