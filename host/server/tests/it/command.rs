//! The command line: what it prints, and what its exit codes say.

use std::io::Write;
use std::process::{Output, Stdio};

use crate::server::{Home, Server};

fn run(home: &Home, args: &[&str]) -> (i32, String, String) {
    told(home.leasehold().args(args).output().unwrap())
}

fn told(out: Output) -> (i32, String, String) {
    (
        out.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&out.stdout).into_owned(),
        String::from_utf8_lossy(&out.stderr).into_owned(),
    )
}

#[test]
fn exit_codes_say_what_happened() {
    let server = Server::start();
    let home = &server.home;
    assert_eq!(run(home, &["company", "create", "acme"]).0, 0);
    assert_eq!(run(home, &["company", "create", "acme"]).0, 5);
    assert_eq!(run(home, &["company", "bogus"]).0, 2);
    assert_eq!(run(home, &["env", "list", "--status", "bogus"]).0, 2);
    assert_eq!(run(home, &["lease", "get", "lease_none"]).0, 3);
    assert_eq!(run(home, &["env", "get", "nobody"]).0, 3);
    assert_eq!(run(home, &["exec", "lease_none", "--", "true"]).0, 125);
    assert_eq!(run(home, &["cp", "./a", "./b"]).0, 2);

    let tcp = format!("http://127.0.0.1:{}", server.port);
    assert_eq!(run(home, &["--server", &tcp, "company", "list"]).0, 4);
    let token_file = home.path().join("data/leasehold/operator.token");
    let token_file = token_file.to_str().unwrap();
    let (code, out, _) = run(
        home,
        &[
            "--server",
            &tcp,
            "--token-file",
            token_file,
            "company",
            "list",
        ],
    );
    assert_eq!(code, 0);
    assert!(out.contains("acme"), "{out}");
    assert_eq!(
        run(home, &["--server", "http://127.0.0.1:1", "company", "list"]).0,
        6
    );
    assert_eq!(
        run(home, &["--server", "gopher://x", "company", "list"]).0,
        2
    );
    assert_eq!(run(&Home::new(), &["company", "list"]).0, 6);
}

#[test]
fn a_value_of_a_secret_comes_by_standard_input_and_is_in_no_argument_and_no_output() {
    let server = Server::start();
    let home = &server.home;
    run(home, &["company", "create", "acme"]);
    let set = |value: &str| {
        let mut child = home
            .leasehold()
            .args(["secret", "set", "key", "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(value.as_bytes())
            .unwrap();
        told(child.wait_with_output().unwrap())
    };
    let (code, out, err) = set("canary-77ab");
    assert_eq!(code, 0, "{err}");
    assert!(!format!("{out}{err}").contains("canary"), "{out}{err}");
    let (_, out, _) = set("canary-78ab");
    let answer: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(answer["version"], 2);
    assert_eq!(set("").0, 2);
    assert_eq!(run(home, &["secret", "delete", "key"]).0, 0);
}

#[test]
fn json_is_the_answer_of_the_api_and_a_table_is_for_people() {
    let server = Server::start();
    let home = &server.home;
    run(home, &["company", "create", "acme"]);
    let (_, out, _) = run(home, &["company", "list", "--json"]);
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(rows[0]["name"], "acme");
    let (_, out, _) = run(home, &["company", "list"]);
    assert!(out.starts_with("ID") && out.contains("acme"), "{out}");
    let (_, secret, _) = run(home, &["token", "create", "ci", "--role", "agent"]);
    assert!(secret.starts_with("lht_"), "{secret}");
    assert_eq!(secret.lines().count(), 1);
}

#[test]
fn completions_are_printed_for_every_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (code, out, _) = run(&home, &["completions", shell]);
        assert_eq!(code, 0);
        assert!(out.contains("leasehold"), "{shell}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let home = Home::new();
    let mut child = home
        .leasehold()
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let (code, _, err) = told(child.wait_with_output().unwrap());
    assert_eq!((code, err.as_str()), (0, ""));
}

#[test]
fn a_mistake_is_told_in_one_message_with_its_mend() {
    let server = Server::start();
    let home = &server.home;
    run(home, &["company", "create", "acme"]);
    std::fs::write(home.path().join("bytes"), [0xff, 0xfe]).unwrap();
    std::fs::write(home.path().join("plain"), "two words").unwrap();
    let bytes = home.path().join("bytes");
    let plain = home.path().join("plain");
    let (bytes, plain) = (bytes.to_str().unwrap(), plain.to_str().unwrap());
    let cases: &[(&[&str], i32, &str)] = &[
        (&["lease", "get", ""], 2, "<LEASE>"),
        (
            &["lease", "renew", "lease_1", "--ttl", "-5"],
            2,
            "write it like 90s",
        ),
        (&["secret", "set", "k", "--file", bytes], 2, "base64"),
        (&["env", "create", "--name", "x"], 2, "--host"),
        (&["probe"], 2, "--host"),
        (&["env", "host-key", "box:ssh"], 2, "HOST:PORT"),
        (&["env", "host-key", "127.0.0.1:1"], 6, "127.0.0.1:1"),
        (&["env", "host-key", "[::1]:1"], 6, "[::1]:1"),
        (
            &["--token-file", plain, "company", "list"],
            2,
            "token create",
        ),
        (&["--server", "unix:", "company", "list"], 2, "no socket"),
        (&["cp", "", "lease_1:."], 2, "a path is empty"),
        (&["cp", "/dev/null", "lease_1:."], 2, "is a device"),
        // Another code than its command's own.
        (&["exec", "--bogus", "lease_1", "true"], 125, "--bogus"),
        (&["exec", "lease_1"], 125, "<ARGV>"),
    ];
    for (arguments, code, words) in cases {
        let (got, out, said) = run(home, arguments);
        assert_eq!((got, out.as_str()), (*code, ""), "{arguments:?}: {said}");
        assert!(said.contains(words), "{arguments:?}: {said}");
    }
}

#[test]
fn an_admin_token_for_one_company_is_refused_with_the_roles_that_take_one() {
    let server = Server::start();
    let home = &server.home;
    run(home, &["company", "create", "acme"]);
    let create = ["token", "create", "boss", "--role", "admin"];
    let (code, _, said) = run(home, &[create.as_slice(), &["-C", "acme"]].concat());
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("member or agent"), "{said}");
    let (_, listed, _) = run(home, &["token", "list"]);
    assert!(!listed.contains("boss"), "{listed}");
    assert_eq!(run(home, &create).0, 0);
    let company = server.operator("GET", "/api/companies", "").json()[0]["id"].clone();
    let body = serde_json::json!({"name": "boss", "role": "admin", "companyId": company});
    let refused = server.operator("POST", "/api/tokens", &body.to_string());
    assert_eq!(
        (
            refused.status,
            refused.json()["details"]["violations"][0]["pointer"].as_str()
        ),
        (422, Some("/companyId"))
    );
}
