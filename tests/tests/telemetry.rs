//! A collector that is elsewhere: whom the server trusts to be it, and the key that it is sent and nobody else.

#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking, also in what it calls"
)]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use leasehold_parts::Collector;
use leasehold_tests::canary::{Canaries, files_below};
use leasehold_tests::front::{Authority, Front};
use leasehold_tests::server::Server;
use leasehold_tests::wait::until;
use rustix::process::Signal;
use tempfile::TempDir;

const KEY: &str = "canary-Collector-91b2c0";
const VARIABLE: &str = "OTEL_EXPORTER_OTLP_HEADERS";
/// What the log says once where nothing can be exported.
const TOLD: &str = "the collector takes no telemetry";

fn file(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).expect("a file");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("a mode");
    path.display().to_string()
}

/// A server with these flags, that says all it can, and these headers in its environment.
fn begun(flags: &[&str], headers: Option<&str>) -> Option<Server> {
    let flags = [flags, &["--log-level", "trace"]].concat();
    let mut server = Server::new(&flags)?;
    if let Some(headers) = headers {
        server.set_variable(VARIABLE, headers);
    }
    server.begin();
    Some(server)
}

/// Asks for something, and ends it in order: what there is to export was exported.
fn end(server: &mut Server) {
    server.call("GET", "/api/companies", None).expect(200);
    let arguments = format!("/proc/{}/cmdline", server.pid());
    let arguments = std::fs::read(arguments).expect("a process");
    server.signal(Signal::TERM);
    assert!(server.wait_end().success(), "{}", server.log());
    let canaries = Canaries::new(vec![("key", KEY.into())]);
    let mut all = files_below(server.path());
    assert!(all.iter().any(|(path, _)| path.ends_with("log")));
    all.push((Path::new("its arguments").to_owned(), arguments));
    canaries.absent_from(&all);
}

#[test]
fn a_collector_over_tls_gets_all_with_the_key_of_the_environment_and_nobody_else_sees_it() {
    let (ours, collector) = (Authority::new(), Collector::start().expect("a collector"));
    let front = Front::open_before(collector.port(), &ours);
    let folder = tempfile::tempdir().expect("a folder");
    let ca = file(&folder, "ca.pem", &ours.pem());
    let flags = ["--otlp-endpoint", &front.url(), "--otlp-ca", &ca];
    let headers = format!("Api-Key={KEY}, x-scope=a%20b");
    let Some(mut server) = begun(&flags, Some(&headers)) else {
        return;
    };
    end(&mut server);
    let got = collector.got();
    for path in ["/v1/traces", "/v1/metrics"] {
        assert!(got.iter().any(|export| export.path == path), "{path}");
    }
    for export in &got {
        assert_eq!(export.header("api-key"), [KEY], "{}", export.path);
        assert_eq!(export.header("x-scope"), ["a b"]);
        assert_eq!(export.header("content-type"), ["application/x-protobuf"]);
        let body = String::from_utf8_lossy(&export.body);
        assert!(!body.contains(KEY), "in what {} got", export.path);
    }
    let asked = collector.spans().expect("spans");
    assert!(asked.iter().any(|span| span.name == "GET /api/companies"));
    assert!(!server.log().contains(TOLD), "{}", server.log());
}

#[test]
fn a_server_that_proves_to_be_no_collector_of_ours_gets_nothing() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let collector = Collector::start().expect("a collector");
    let front = Front::open_before(collector.port(), &theirs);
    let folder = tempfile::tempdir().expect("a folder");
    let ca = file(&folder, "ca.pem", &ours.pem());
    let headers = format!("api-key={KEY}");
    let url = front.url();
    let trusting = ["--otlp-endpoint", &url, "--otlp-ca", &ca];
    // Whom the system trusts does not matter where an authority is named, and it trusts neither.
    for flags in [&trusting[..], &trusting[..2]] {
        let Some(mut server) = begun(flags, Some(&headers)) else {
            return;
        };
        end(&mut server);
        let log = server.log();
        let told: Vec<&str> = log.lines().filter(|line| line.contains(TOLD)).collect();
        assert_eq!(told.len(), 1, "{log}");
    }
    assert_eq!(front.handshakes().0, 0);
    assert!(front.handshakes().1 > 0, "it was asked");
    assert!(collector.got().is_empty());
}

#[test]
fn a_collector_that_leads_elsewhere_is_not_followed() {
    let other = Collector::start().expect("a collector");
    let collector = Collector::leading_to(other.url()).expect("a collector");
    let headers = format!("api-key={KEY}");
    let flags = ["--otlp-endpoint", collector.url()];
    let Some(mut server) = begun(&flags, Some(&headers)) else {
        return;
    };
    end(&mut server);
    assert!(!collector.got().is_empty());
    assert!(other.got().is_empty());
    assert!(server.log().contains("it answered 307"), "{}", server.log());
}

#[test]
fn a_key_goes_to_no_other_machine_in_plain() {
    let headers = format!("api-key={KEY}");
    // An address of documentation, which nobody has.
    let flags = ["--otlp-endpoint", "http://192.0.2.1:4318"];
    let Some(mut server) = begun(&flags, Some(&headers)) else {
        return;
    };
    end(&mut server);
    let why = "a secret is not sent over plain http:// to another machine";
    assert!(server.log().contains(why), "{}", server.log());
}

#[test]
fn headers_of_a_file_outweigh_the_variable_and_a_file_that_others_can_read_keeps_the_server_down() {
    let collector = Collector::start().expect("a collector");
    let folder = tempfile::tempdir().expect("a folder");
    let headers = file(&folder, "headers", &format!("api-key={KEY}\n"));
    let settings = format!(
        "otlp-endpoint = '{}'\notlp-headers-file = '{headers}'\n",
        collector.url()
    );
    let settings = file(&folder, "leasehold.toml", &settings);
    let flags = ["--config", &settings];
    let Some(mut server) = begun(&flags, None) else {
        return;
    };
    end(&mut server);
    let flags = [&flags[..], &["--otlp-headers-file", &headers]].concat();
    let Some(mut server) = begun(&flags, Some("api-key=another")) else {
        return;
    };
    end(&mut server);
    let got = collector.got();
    assert!(got.iter().all(|export| export.header("api-key") == [KEY]));
    assert!(got.len() >= 4, "both servers");

    std::fs::set_permissions(&headers, Permissions::from_mode(0o644)).expect("a mode");
    server.spawn();
    let ended = until("the server's end", || server.ended());
    assert_eq!(ended.code(), Some(2), "{}", server.log());
    let told = "otlp-headers-file";
    assert!(server.log().contains(told), "{}", server.log());
    assert!(server.log().contains("0644"), "{}", server.log());
    assert!(!server.log().contains(KEY));
}
