//! The API's manners: every refusal in one shape, every id that is none a 404, a description that is true.

use serde_json::Value;

use crate::server::Server;

#[test]
fn what_is_not_there_is_a_404_and_what_is_wrong_is_told_by_its_field() {
    let server = Server::start();
    let company = server.company("acme");
    let rows: &[(&str, String, &str, u16, &str)] = &[
        (
            "GET",
            "/api/environments/not-a-uuid".into(),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/api/environments/env_none".into(),
            "",
            404,
            "not_found",
        ),
        (
            "GET",
            "/api/environments/%00%ff".into(),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/api/environment-leases/lease_x".into(),
            "",
            404,
            "not_found",
        ),
        ("GET", "/api/executions/exe-x".into(), "", 404, "not_found"),
        ("GET", "/api/secrets/sec_x".into(), "", 404, "not_found"),
        ("GET", "/api/plugins/x".into(), "", 404, "not_found"),
        (
            "POST",
            "/api/plugins/x/grant".into(),
            r#"{"requestDigest":"0"}"#,
            404,
            "not_found",
        ),
        (
            "POST",
            "/api/plugins/x/grant".into(),
            r#"{"requestDigest":"0","without":["ssh","everything"]}"#,
            422,
            "invalid",
        ),
        ("POST", "/api/plugins/x/deny".into(), "", 404, "not_found"),
        (
            "POST",
            "/api/plugins/x/rollback".into(),
            "",
            404,
            "not_found",
        ),
        ("POST", "/api/plugins/x/reset".into(), "", 404, "not_found"),
        ("GET", "/api/companies/com_x".into(), "", 404, "not_found"),
        ("GET", "/api/nothing".into(), "", 404, "route_not_found"),
        (
            "DELETE",
            "/api/companies".into(),
            "",
            405,
            "method_not_allowed",
        ),
        (
            "GET",
            format!("/api/companies/{company}/environments?status=bogus"),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            format!("/api/companies/{company}/environments?provider=No%20Key"),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            format!("/api/companies/{company}/environments?statsu=active"),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            format!("/api/companies/{company}/environment-leases?limit=0"),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            format!("/api/companies/{company}/environment-leases?limit=many"),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            format!("/api/companies/{company}/environment-leases?cursor=bogus"),
            "",
            400,
            "bad_request",
        ),
        (
            "GET",
            "/api/activity?after=1&before=2".into(),
            "",
            400,
            "bad_request",
        ),
        (
            "PATCH",
            "/api/secrets/sec_x/versions/one".into(),
            r#"{"status":"enabled"}"#,
            400,
            "bad_request",
        ),
        ("POST", "/api/companies".into(), "{", 400, "invalid_json"),
        (
            "POST",
            "/api/companies".into(),
            r#"{"nam":"x"}"#,
            422,
            "invalid",
        ),
        (
            "POST",
            "/api/companies".into(),
            r#"{"name":""}"#,
            422,
            "invalid",
        ),
        (
            "POST",
            "/api/companies".into(),
            r#"{"name":"acme"}"#,
            409,
            "company_name_taken",
        ),
        (
            "POST",
            format!("/api/companies/{company}/environments"),
            r#"{"name":"e","driver":"bogus"}"#,
            422,
            "invalid",
        ),
    ];
    for (method, path, body, status, code) in rows {
        let answer = server.operator(method, path, body);
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (*status, *code),
            "{method} {path} {}",
            answer.body
        );
        assert!(answer.head.contains("x-request-id: "), "{}", answer.head);
        assert!(
            answer.head.contains("content-type: application/json"),
            "{}",
            answer.head
        );
    }
    let answer = server.operator(
        "GET",
        &format!("/api/companies/{company}/environments?status=bogus"),
        "",
    );
    assert!(answer.body.contains("active, archived"), "{}", answer.body);
    // Whatever is wrong is named: the parameter of the query, or of the path.
    for (path, named) in [
        ("/api/activity?limit=many", "?limit"),
        ("/api/activity?limit=1&limit=2", "limit"),
        ("/api/activity?bogus=1", "bogus"),
        ("/api/tokens?companyId=%ff", "?companyId"),
        ("/api/secrets?purpose=bogus", "?purpose"),
        ("/api/executions/not-a-uuid", "executionId"),
        ("/api/environments/ENV_A/secret-refs", "environmentId"),
        (
            "/api/companies/env_a/environments/capabilities",
            "companyId",
        ),
        ("/api/plugins/No_Key", "key"),
        ("/api/environment-leases/%2e%2e/files?path=.", "leaseId"),
    ] {
        let answer = server.operator("GET", path, "");
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (400, "bad_request"),
            "{path} {}",
            answer.body
        );
        let said = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(said.contains(named), "{path}: {said}");
    }
}

#[test]
fn a_list_goes_on_where_its_link_says_until_all_was_told_once() {
    let mut server = Server::start();
    let names: Vec<String> = (0..7).map(|n| format!("company {n}")).collect();
    // In another order than they are listed in.
    for name in names.iter().rev() {
        server.company(name);
    }
    let walk = |server: &Server, first: &str| {
        let (mut all, mut pages, mut place) = (Vec::new(), 0, Some(first.to_owned()));
        while let Some(path) = place {
            let page = server.operator("GET", &path, "");
            assert_eq!(page.status, 200, "{path} {}", page.body);
            let body = page.json();
            let items = body.as_array().or(body["items"].as_array()).unwrap();
            assert!(items.len() <= 3, "{path}");
            all.extend(
                items
                    .iter()
                    .map(|one| one.get("id").unwrap_or(&one["position"]).to_string()),
            );
            pages += 1;
            place = page.header("link").map(|link| {
                let (place, rest) = link.strip_prefix('<').unwrap().split_once('>').unwrap();
                assert_eq!(rest, "; rel=\"next\"");
                place.to_owned()
            });
        }
        (all, pages)
    };
    let (ids, pages) = walk(&server, "/api/companies?limit=3");
    assert_eq!((ids.len(), pages), (7, 3));
    let whole = server.operator("GET", "/api/companies", "").json();
    let whole = whole.as_array().unwrap();
    let told: Vec<String> = whole.iter().map(|c| c["id"].to_string()).collect();
    assert_eq!(told, ids);
    // The activity backward, and forward from its beginning.
    let created = "/api/activity?action=company.&limit=3";
    let (mut backward, pages) = walk(&server, created);
    assert_eq!((backward.len(), pages), (7, 3));
    let (forward, pages) = walk(&server, &format!("{created}&after=0"));
    backward.reverse();
    assert_eq!((forward, pages), (backward, 3));
    let ids: Vec<&str> = whole.iter().map(|c| c["id"].as_str().unwrap()).collect();
    for n in 0..4 {
        let body = format!(
            r#"{{"name":"{n}","role":"agent","companyId":"{}"}}"#,
            ids[0]
        );
        server.operator("POST", "/api/tokens", &body);
        let body = format!(r#"{{"name":"{n}","value":"v"}}"#);
        let path = format!("/api/companies/{}/secrets", ids[0]);
        server.operator("POST", &path, &body);
    }
    for path in [
        "/api/tokens?limit=3".to_owned(),
        format!("/api/companies/{}/secrets?purpose=other&limit=3", ids[0]),
    ] {
        let (all, pages) = walk(&server, &path);
        assert_eq!((all.len(), pages), (4, 2), "{path}");
    }
    for wrong in ["limit=0", "limit=501", "cursor=*"] {
        let answer = server.operator("GET", &format!("/api/companies?{wrong}"), "");
        assert_eq!(answer.code(), "bad_request", "{wrong} {}", answer.body);
    }
    // The command tells all of them, also beyond one page.
    for n in 0..110 {
        server.company(&format!("more {n}"));
    }
    let listed = server
        .home
        .leasehold()
        .args(["--json", "company", "list"])
        .output()
        .unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert_eq!(listed.as_array().unwrap().len(), 117);
    assert_eq!(
        server
            .operator("GET", "/api/companies", "")
            .json()
            .as_array()
            .unwrap()
            .len(),
        100
    );
    server.end_by("TERM");
}

#[test]
fn no_answer_is_kept_by_anybody_on_the_way_or_taken_for_another_type() {
    let server = Server::start();
    for path in [
        "/healthz",
        "/api/companies",
        "/api/secrets/sec_x",
        "/nowhere",
    ] {
        for answer in [
            server.operator("GET", path, ""),
            server.tcp("GET", path, &[], ""),
        ] {
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            assert_eq!(
                answer.header("x-content-type-options"),
                Some("nosniff"),
                "{path}"
            );
        }
    }
}

#[test]
fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    let server = Server::start_with(&[]);
    let stream = std::os::unix::net::UnixStream::connect(server.home.socket()).unwrap();
    let headers = [
        ("host", "localhost"),
        ("content-type", "application/json"),
        ("content-length", "99999999"),
    ];
    let answer = crate::server::ask(stream, "POST", "/api/companies", &headers, "").unwrap();
    assert_eq!(
        (answer.status, answer.code().as_str()),
        (413, "payload_too_large")
    );
}

#[test]
fn a_secret_is_put_in_rotated_and_deleted_and_never_answered() {
    let server = Server::start();
    let company = server.company("acme");
    let canary = "canary-9f1c2e";
    let secrets = format!("/api/companies/{company}/secrets");
    let made = server.operator(
        "POST",
        &secrets,
        &format!(r#"{{"name":"key","value":"{canary}"}}"#),
    );
    assert_eq!(made.status, 201, "{}", made.body);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let rotated = server.operator(
        "POST",
        &format!("/api/secrets/{id}/versions"),
        &format!(r#"{{"value":"{canary}2"}}"#),
    );
    assert_eq!(
        (rotated.status, &rotated.json()["version"]),
        (201, &2.into())
    );
    let wrong = server.operator(
        "POST",
        &secrets,
        &format!(r#"{{"name":"other","value":["{canary}"]}}"#),
    );
    assert_eq!(wrong.status, 422);
    let listed = server.operator("GET", &secrets, "");
    let activity = server.operator("GET", "/api/activity", "");
    for answer in [&made, &rotated, &wrong, &listed, &activity] {
        assert!(!answer.body.contains(canary), "{}", answer.body);
    }
    assert_eq!(
        server
            .operator("DELETE", &format!("/api/secrets/{id}"), "")
            .status,
        200
    );
    assert!(!server.home.log().contains(canary));
    for entry in std::fs::read_dir(server.home.path().join("data/leasehold")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes.windows(canary.len()).any(|w| w == canary.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[test]
fn every_described_route_is_there_and_refuses_strangers() {
    let server = Server::start();
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut walked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let path = fill(path);
            let method = method.to_ascii_uppercase();
            let open = operation["security"] == serde_json::json!([{}]);
            let stranger = server.tcp(&method, &path, &[], "");
            if open {
                assert_eq!(stranger.status, 200, "{method} {path}");
            } else {
                assert_eq!(stranger.status, 401, "{method} {path}");
            }
            walked += 1;
            if !operation["responses"]["200"]["content"]["text/event-stream"].is_null() {
                // It is there, and has no end.
                continue;
            }
            let known = server.operator(&method, &path, "");
            assert!(
                !matches!(
                    known.code().as_str(),
                    "route_not_found" | "method_not_allowed"
                ),
                "{method} {path}"
            );
            assert_ne!(known.status, 500, "{method} {path} {}", known.body);
        }
    }
    assert!(walked > 40, "{walked}");
}

#[test]
fn a_company_that_does_not_exist_is_a_404_to_whoever_may_see_all_of_them() {
    let server = Server::start();
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut walked = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        if path.contains("{companyId}") && !item["get"].is_null() {
            let mut asked = fill(path);
            if path.ends_with("/resolve") {
                asked.push_str("?name=x");
            }
            let answer = server.operator("GET", &asked, "");
            let told = (answer.status, answer.code());
            assert_eq!(
                told,
                (404, "not_found".to_owned()),
                "{path}: {}",
                answer.body
            );
            walked.push(path);
        }
    }
    assert!(walked.len() > 12, "{walked:?}");
}

fn fill(path: &str) -> String {
    path.split('/')
        .map(|segment| match segment {
            "{companyId}" => "com_x",
            "{environmentId}" => "env_x",
            "{executionId}" => "exe-x",
            "{leaseId}" => "lease_x",
            "{secretId}" => "sec_x",
            "{tokenId}" => "tok_x",
            "{version}" => "1",
            other if other.starts_with('{') => "x",
            other => other,
        })
        .collect::<Vec<_>>()
        .join("/")
}

#[test]
fn metrics_are_in_the_text_format_and_name_routes_not_ids() {
    let server = Server::start();
    server.operator("GET", "/api/environments/env_secretlookingid", "");
    let metrics = server.operator("GET", "/metrics", "");
    assert_eq!(metrics.status, 200, "{}", metrics.body);
    let text = metrics.body;
    assert!(
        text.contains(r#"route="/api/environments/{environmentId}""#),
        "{text}"
    );
    assert!(!text.contains("secretlookingid"), "{text}");
    assert!(text.trim_end().ends_with("# EOF"), "{text}");
    for line in text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.is_empty())
    {
        let value = line.rsplit(' ').next().unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
    }
}

#[test]
fn the_activity_is_chained_and_checked() {
    let server = Server::start();
    server.company("acme");
    let page = server.operator("GET", "/api/activity?after=0", "").json();
    let actions: Vec<&Value> = page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["action"])
        .collect();
    assert!(actions.contains(&&"company.created".into()), "{page}");
    let chain = server.operator("GET", "/api/activity/chain", "");
    assert_eq!(chain.status, 200, "{}", chain.body);
    assert!(chain.json()["rows"].as_i64().unwrap() >= 1);
}

#[test]
fn the_largest_component_is_the_one_that_the_settings_say() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("leasehold.toml");
    let upload = |limit: usize, size: usize| {
        std::fs::write(&file, format!("[limits]\ncomponent-bytes = {limit}\n")).unwrap();
        let server = Server::start_with(&["--config", file.to_str().unwrap()]);
        let stream = std::os::unix::net::UnixStream::connect(server.home.socket()).unwrap();
        let headers = [("host", "localhost"), ("content-type", "application/wasm")];
        let body = "x".repeat(size);
        crate::server::ask(stream, "POST", "/api/plugins/inspect", &headers, &body).unwrap()
    };
    assert_eq!(upload(1 << 20, (1 << 20) + 1).code(), "payload_too_large");
    // Beyond what is taken unless told otherwise: it is read, and is no component.
    let answer = upload(70 << 20, 65 << 20);
    assert_eq!(answer.code(), "invalid_component", "{}", answer.body);
    assert!(answer.body.contains("not a component"), "{}", answer.body);
}
