//! What is in the activity that nobody asked to be written: refusals of the policy, at the door and by egress, questions that
//! reach a machine, and what is taken away.

use serde_json::{Value, json};

use crate::activity::{get, items, leasehold};
use crate::leased::Leased;
use crate::server::Server;

#[test]
fn what_the_policy_refuses_is_in_the_activity_with_who_what_and_which_row() {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let (member_id, member) = server.token_of("member", Some(&own));
    let (_, stranger) = server.token_of("member", Some(&foreign));
    let (gone_id, gone) = server.token_of("admin", None);
    server.operator("DELETE", &format!("/api/tokens/{gone_id}"), "");
    for _ in 0..3 {
        assert_eq!(get(&server, &member, "/api/secrets/sec_1").status, 403);
    }
    let hidden = format!("/api/companies/{foreign}");
    assert_eq!(get(&server, &member, &hidden).status, 404);
    assert_eq!(get(&server, &gone, "/api/companies").status, 401);
    let guess = "lho_".to_owned() + &"0".repeat(64);
    assert_eq!(get(&server, &guess, "/api/companies").status, 401);
    // What is not there is nobody's to be refused, and what is left out of a list neither.
    assert_eq!(
        server.operator("GET", "/api/companies/com_none", "").status,
        404
    );
    assert_eq!(get(&server, &member, "/api/companies").status, 200);

    let denied = server.operator("GET", "/api/activity?outcome=denied&after=0", "");
    let mut told: Vec<Value> = items(&denied)
        .into_iter()
        .map(|row| {
            json!([
                row["action"],
                row["actorId"],
                row["subjectKind"],
                row["subjectId"],
                row["details"]["operation"],
                row["details"]["code"],
                row["details"]["owner"],
                row["companyId"],
            ])
        })
        .collect();
    told.sort_by_key(Value::to_string);
    told.dedup();
    let mut wanted = vec![
        json!([
            "access.denied",
            member_id,
            "secret",
            "sec_1",
            "getSecret",
            "forbidden",
            null,
            own
        ]),
        json!([
            "access.denied",
            member_id,
            "company",
            foreign,
            "getCompany",
            "not_found",
            foreign,
            null
        ]),
        json!([
            "token.refused",
            null,
            "token",
            gone_id,
            null,
            null,
            null,
            null
        ]),
        json!([
            "token.refused",
            null,
            "token",
            "unknown",
            null,
            null,
            null,
            null
        ]),
    ];
    wanted.sort_by_key(Value::to_string);
    assert_eq!(told, wanted, "{}", denied.body);
    assert!(!denied.body.contains(&gone) && !denied.body.contains(&guess));

    // Its own company sees what one of its people tried, and neither sees that it knocked at the other's.
    let of = |token: &str, company: &str| {
        let path = format!("/api/companies/{company}/activity?action=access.");
        items(&get(&server, token, &path)).len()
    };
    assert!(of(&member, &own) >= 1);
    assert_eq!(of(&stranger, &foreign), 0);
}

#[test]
fn a_question_for_a_host_key_and_an_export_are_in_the_activity_with_their_end() {
    let server = Server::start();
    let (own, foreign) = (server.company("own"), server.company("foreign"));
    let nowhere = r#"{"host":"127.0.0.1","port":1}"#;
    let asked = server.operator("POST", "/api/ssh/host-key", nowhere);
    assert_eq!(asked.status, 502, "{}", asked.body);
    if leasehold_parts::Sshd::available() {
        let sshd = leasehold_parts::Sshd::start(&leasehold_parts::Options::default()).unwrap();
        let body = json!({"host": "127.0.0.1", "port": sshd.port()}).to_string();
        let shown = server.operator("POST", "/api/ssh/host-key", &body);
        assert_eq!(shown.status, 200, "{}", shown.body);
        let rows = server.operator("GET", "/api/activity?action=ssh.&outcome=done", "");
        let rows = items(&rows);
        assert_eq!(rows.len(), 1, "{rows:?}");
        let place = format!("127.0.0.1:{}", sshd.port());
        assert_eq!(
            (&rows[0]["subjectId"], &rows[0]["details"]["fingerprints"]),
            (&json!(place), &json!(1))
        );
    } else {
        leasehold_parts::skipped("openssh-server");
    }
    let failed = server.operator("GET", "/api/activity?action=ssh.&outcome=failed", "");
    let failed = items(&failed);
    assert_eq!(failed.len(), 1, "{failed:?}");
    let row = &failed[0];
    assert_eq!(
        json!([
            row["action"],
            row["actorKind"],
            row["companyId"],
            row["subjectKind"],
            row["subjectId"],
            row["details"]
        ]),
        json!([
            "ssh.host_key_fetched",
            "local-operator",
            null,
            "machine",
            "127.0.0.1:1",
            {"host": "127.0.0.1", "port": 1, "fingerprints": 0}
        ])
    );
    let export = server.operator("GET", &format!("/api/companies/{own}/export"), "");
    assert_eq!(export.status, 200, "{}", export.body);
    // Its own people see that it was taken away, and others do not.
    let of = |company: &str| {
        let (_, member) = server.token_of("member", Some(company));
        let path = format!("/api/companies/{company}/activity?action=company.exported");
        items(&get(&server, &member, &path))
    };
    let seen = of(&own);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(
        (
            &seen[0]["subjectId"],
            &seen[0]["outcome"],
            &seen[0]["actor"]
        ),
        (&json!(own), &json!("done"), &row["actor"])
    );
    assert_eq!(of(&foreign), [] as [Value; 0]);
}

#[test]
fn what_came_under_a_foreign_name_or_from_a_foreign_page_is_recorded_and_pushes_no_refused_token_out()
 {
    let server = Server::start();
    for n in 0..40 {
        let name = format!("evil-{n}.example");
        let refused = server.tcp("GET", "/api/companies", &[("host", &name)], "");
        assert_eq!(refused.code(), "host_not_allowed", "{}", refused.body);
    }
    let page = [
        ("origin", "http://evil.example"),
        ("content-type", "application/json"),
    ];
    for _ in 0..3 {
        let refused = server.tcp("POST", "/api/companies", &page, "{}");
        assert_eq!(refused.code(), "origin_not_allowed", "{}", refused.body);
    }
    let guess = "lho_".to_owned() + &"0".repeat(64);
    assert_eq!(get(&server, &guess, "/api/companies").status, 401);

    let denied = server.operator("GET", "/api/activity?outcome=denied&after=0&limit=500", "");
    let rows = items(&denied);
    let of = |kind: &str| {
        let of = rows.iter().filter(|row| row["subjectKind"] == kind);
        of.collect::<Vec<_>>()
    };
    let names = of("host");
    assert!((20..=21).contains(&names.len()), "{}", denied.body);
    let first = names
        .iter()
        .find(|row| row["subjectId"] == "evil-0.example");
    let first = first.unwrap();
    assert_eq!(
        (
            &first["action"],
            &first["actorKind"],
            &first["details"]["route"]
        ),
        (
            &json!("door.refused"),
            &json!("nobody"),
            &json!("/api/companies")
        )
    );
    let pages = of("origin");
    let times = pages.iter().map(|row| row["times"].as_i64().unwrap());
    assert!(times.sum::<i64>() >= 1, "{}", denied.body);
    for page in pages {
        assert_eq!(page["subjectId"], "http://evil.example", "{page}");
        assert_eq!(page["actor"], "a foreign page", "{page}");
        let details = &page["details"];
        assert_eq!(
            (&details["code"], &details["method"], &details["route"]),
            (
                &json!("origin_not_allowed"),
                &json!("POST"),
                &json!("/api/companies")
            )
        );
    }
    assert_eq!(of("token").len(), 1, "{}", denied.body);
}

#[test]
fn a_target_that_shows_another_key_than_it_should_is_recorded_as_refused_and_members_are_not_told_where()
 {
    let Some(leased) = Leased::new() else { return };
    let server = &leased.server;
    let (port, print) = (
        leased.sshd.port().to_string(),
        &leased.sshd.key().fingerprint,
    );
    let account = leased.sshd.worker().name.clone();
    let place = leased.sshd.directory(&account, "others").unwrap();
    let mut create = vec!["env", "create", "--name", "false", "--host", "127.0.0.1"];
    create.extend(["--port", &port, "--user", &account, "--key", "key"]);
    create.extend([
        "--workspace",
        place.to_str().unwrap(),
        "--fingerprint",
        print,
    ]);
    let (well, _, complaint) = leasehold(server, &create);
    assert!(well, "{complaint}");
    let path = format!("/api/companies/{}/environments", leased.company);
    let listed = server.operator("GET", &path, "").json();
    let listed = listed.as_array().unwrap().iter();
    let found = listed.clone().find(|one| one["name"] == "false").unwrap();
    let id = found["id"].as_str().unwrap();
    let probed = server.operator("POST", &format!("/api/environments/{id}/probe"), "");
    assert_eq!(probed.json()["ok"], false, "{}", probed.body);

    let denied = server.operator("GET", "/api/activity?action=egress.denied&after=0", "");
    let rows = items(&denied);
    let row = rows.iter().find(|row| row["details"]["environment"] == id);
    let row = row.unwrap_or_else(|| panic!("none of it: {}", denied.body));
    assert_eq!(
        (&row["outcome"], &row["companyId"]),
        (&json!("denied"), &json!(leased.company))
    );
    assert_eq!(
        (&row["details"]["act"], &row["details"]["plugin"]),
        (&json!("open"), &json!("ssh"))
    );
    let told = row["details"]["target"].as_str().unwrap();
    assert!(told.ends_with(&format!("@127.0.0.1:{port}")), "{row}");
    let reason = row["details"]["reason"].as_str().unwrap();
    assert!(reason.contains("host key"), "{row}");
    // Its company's members see that, and not where.
    let (_, member) = server.token_of("member", Some(&leased.company));
    let path = format!(
        "/api/companies/{}/activity?action=egress.denied",
        leased.company
    );
    let seen = get(server, &member, &path);
    assert!(!items(&seen).is_empty(), "{}", seen.body);
    for hidden in [&format!("127.0.0.1:{port}"), "host key"] {
        assert!(!seen.body.contains(hidden), "{hidden}: {}", seen.body);
    }
}

#[test]
fn refusals_are_not_lost_when_the_server_is_ended_in_order() {
    let mut server = Server::start();
    let own = server.company("own");
    let (_, member) = server.token_of("member", Some(&own));
    for _ in 0..40 {
        assert_eq!(get(&server, &member, "/api/tokens").status, 403);
    }
    assert!(server.end_by("TERM").success());
    server.again();
    let denied = server.operator("GET", "/api/activity?outcome=denied", "");
    let times = items(&denied)
        .iter()
        .map(|row| row["times"].as_i64().unwrap())
        .sum::<i64>();
    assert_eq!(times, 40, "{}", denied.body);
}
