//! The documents that go on where the README's first hour ends, typed: each from its top to its bottom, with what it shows of
//! what its commands print.

use leasehold_parts::{Collector, has, skipped};
use leasehold_tests::machine::Machine;
use leasehold_tests::wait::until;

use crate::page::Page;

/// Whoever follows a page, with what the pages take for granted.
fn page() -> Option<Page> {
    if !has("curl") || !has("jq") {
        skipped("curl and jq");
        return None;
    }
    Page::after_the_first_hour()
}

#[test]
fn environments_are_shared_kept_and_set_as_defaults_as_the_page_says_though_the_server_is_killed() {
    let Some(page) = page() else { return };
    let mut page = page.killing();
    page.follow(
        "docs/environments.md",
        &[
            "build.example.org",
            "build.example.org:22",
            "--user ci",
            "/srv/leases",
        ],
    );
    assert!(page.typed() > 30, "only {} commands", page.typed());
}

#[test]
fn an_environment_is_chosen_and_leased_as_the_page_says_though_the_server_is_killed() {
    let Some(page) = page() else { return };
    let mut page = page.killing();
    let Some(spare) = Machine::start() else {
        return;
    };
    let worker = spare.sshd.worker().name.clone();
    let key = page.reader.machine.sshd.key().public.clone();
    spare.sshd.authorize(&worker, &key).expect("it is let in");
    spare.directory("leases");
    page.stands_for(
        "spare.example.org",
        &format!("127.0.0.1 --port {}", spare.sshd.port()),
    );
    page.follow("docs/selection.md", &["spare.example.org", "/srv/leases"]);
    let leased = page.said_of("leasehold lease acquire --require");
    assert!(leased.contains("lease_"), "{leased}");
    page.reader.all_released(4);
}

#[test]
fn tokens_are_made_used_and_revoked_as_the_page_says_though_the_server_is_killed() {
    let Some(page) = page() else { return };
    let mut page = page.killing();
    page.follow("docs/access.md", &["127.0.0.1:7717"]);
    assert!(page.typed() > 10, "only {} commands", page.typed());
}

#[test]
fn what_happened_is_read_watched_proven_and_taken_away_as_the_page_says() {
    let Some(mut page) = page() else { return };
    page.follow("docs/activity.md", &[]);
    assert!(
        page.said_of("leasehold activity --subject")
            .contains("lease.released")
    );
    assert!(page.reader.folder.join("activity.ndjson").is_file());
}

#[test]
fn a_collector_is_told_what_the_page_says() {
    let Some(mut page) = page() else { return };
    let collector = Collector::start().expect("a collector");
    page.stands_for("http://127.0.0.1:4318", collector.url());
    page.follow("docs/telemetry.md", &["http://127.0.0.1:4318"]);
    let spans = until("the spans of both commands", || {
        let spans = collector.spans().expect("spans");
        let there = |name: &str| spans.iter().any(|span| span.name == name);
        (there("GET /api/companies") && there("probe") && there("ssh run")).then_some(spans)
    });
    let asked = spans.iter().find(|span| span.parent == "00f067aa0ba902b7");
    let asked = asked.expect("a span below the one of the request");
    assert_eq!(asked.name, "GET /api/companies");
    assert_eq!(asked.trace, "4bf92f3577b34da6a3ce929d0e0e4736");
}

#[test]
fn edits_pages_and_what_is_done_once_are_as_the_page_says_though_the_server_is_killed() {
    let Some(page) = page() else { return };
    let mut page = page.killing();
    page.follow("docs/api.md", &["~/.local/share/leasehold"]);
    assert!(page.typed() > 20, "only {} commands", page.typed());
}
