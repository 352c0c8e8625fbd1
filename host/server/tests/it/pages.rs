//! Lists page by page: every one that takes a cursor goes on by its link, also while things come and go.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::leased::Leased;
use crate::rows::{environments, id, install, null_draft};
use crate::server::{Answer, Server};

fn items(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let body = answer.json();
    let items = body.as_array().or(body["items"].as_array());
    items.expect("a list").clone()
}

/// What names a thing in its list.
fn named(thing: &Value) -> String {
    let names = ["id", "position", "version", "key"];
    let name = names.iter().find_map(|name| thing.get(name));
    name.unwrap_or_else(|| panic!("{thing}")).to_string()
}

/// The page at a path: the names of its things, and where it goes on.
fn page(server: &Server, path: &str) -> (Vec<String>, Option<String>) {
    let answer = server.operator("GET", path, "");
    let names = items(&answer).iter().map(named).collect();
    let next = answer.header("link").map(|link| {
        let (place, rest) = link.strip_prefix('<').unwrap().split_once('>').unwrap();
        assert_eq!(rest, "; rel=\"next\"");
        place.to_owned()
    });
    (names, next)
}

/// Two things at least of every kind that is listed, and the ids of what their lists belong to.
fn house() -> Option<(Leased, BTreeMap<&'static str, String>)> {
    let leased = Leased::new()?;
    let (server, company) = (&leased.server, &leased.company);
    install(server, "null")?;
    server.company("another");
    server.token_of("admin", None);
    server.token_of("admin", None);
    let post = |path: &str, body: Value| {
        let made = server.operator("POST", path, &body.to_string());
        assert!(made.status < 300, "{path}: {}", made.body);
        made
    };
    let of_company = format!("/api/companies/{company}/secrets");
    let secret = id(&post(&of_company, json!({"name": "one", "value": "v"})));
    post(
        &format!("/api/secrets/{secret}/versions"),
        json!({"value": "w"}),
    );
    for name in ["two", "three"] {
        post("/api/secrets", json!({"name": name, "value": "v"}));
    }
    let mut draft = null_draft("nothing");
    let reference = json!({"type": "secret_ref", "secretId": secret, "version": "latest"});
    draft["envVars"] = json!({ "A": reference });
    let environment = id(&post(&environments(company), draft));
    let leases = format!("/api/environments/{environment}/leases");
    post(&leases, json!({}));
    post(&leases, json!({}));
    for _ in 0..2 {
        post(&leased.path("/executions"), json!({"argv": ["true"]}));
    }
    for kind in ["agents", "projects", "workspaces", "issues", "runs"] {
        for name in ["a", "b"] {
            let path = format!("/api/companies/{company}/{kind}");
            post(&path, json!({"id": format!("{kind} {name}")}));
        }
    }
    let ids = BTreeMap::from([
        ("companyId", company.clone()),
        ("environmentId", environment),
        ("leaseId", leased.lease.clone()),
        ("secretId", secret),
    ]);
    Some((leased, ids))
}

#[test]
fn every_list_that_takes_a_cursor_goes_on_by_its_link_and_tells_each_thing_once() {
    let Some((leased, ids)) = house() else { return };
    let server = &leased.server;
    let document = server.tcp("GET", "/api/openapi.json", &[], "").json();
    let mut walked = Vec::new();
    for (route, methods) in document["paths"].as_object().unwrap() {
        let parameters = methods["get"]["parameters"].as_array();
        let mut parameters = parameters.into_iter().flatten();
        if !parameters.any(|parameter| parameter["name"] == "cursor") {
            continue;
        }
        let mut path = route.clone();
        for (name, id) in &ids {
            path = path.replace(&format!("{{{name}}}"), id);
        }
        let (whole, more) = page(server, &format!("{path}?limit=500"));
        assert_eq!(more, None, "{route} ends");
        assert!(whole.len() >= 2, "{route} has {whole:?}");
        let mut told = Vec::new();
        let mut place = Some(format!("{path}?limit=1"));
        // The last page of some is empty: they do not look whether more is there.
        for _ in 0..=whole.len() {
            let Some(path) = place.take() else { break };
            let (names, next) = page(server, &path);
            assert!(names.len() <= 1, "{path}");
            told.extend(names);
            place = next;
        }
        assert_eq!(place, None, "{route} goes on for ever");
        assert_eq!(told, whole, "{route}");
        walked.push(route.as_str());
    }
    assert!(walked.len() >= 15, "{walked:?}");
}

#[test]
fn a_page_goes_on_behind_what_was_told_whatever_came_and_went_since() {
    let Some((leased, ids)) = house() else { return };
    let (server, company) = (&leased.server, &ids["companyId"]);
    let make = |name: &str| {
        let draft = null_draft(name).to_string();
        id(&server.operator("POST", &environments(company), &draft))
    };
    let (b, c, d) = (make("b"), make("c"), make("d"));
    let quoted = |id: &str| json!(id).to_string();
    // `box`, `local` and `nothing` are there, too.
    let (first, next) = page(server, &format!("{}?limit=3", environments(company)));
    assert_eq!((&first[0], &first[2]), (&quoted(&b), &quoted(&c)));
    // The last that was told goes, and others come before it and behind it.
    let gone = server.operator("DELETE", &format!("/api/environments/{c}"), "");
    assert_eq!(gone.status, 200, "{}", gone.body);
    make("a");
    let cc = make("cc");
    let (second, _) = page(server, &next.expect("more"));
    assert_eq!(&second[..2], [quoted(&cc), quoted(&d)]);
}
