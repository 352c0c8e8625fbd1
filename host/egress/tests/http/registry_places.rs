//! Where a registry may send its client, and what is shown to whom: with a resolver and a dialler that write down all that
//! they are asked.

use leasehold_egress::{Parsed, RegistrySource};
use leasehold_parts::{FalseRegistry, Reply};
use serde_json::json;

use crate::registry_lab::{BASIC, COMPONENT, Lab, PASSWORD, challenge};
use crate::server::within;

fn bearer(realm: &str) -> Reply {
    challenge(&format!(
        "Bearer realm=\"{realm}\",service=\"the service\",scope=\"repository:other/tool:pull,push\""
    ))
}

fn token() -> Reply {
    Reply::new(
        200,
        json!({ "token": "the-token", "expires_in": 300 }).to_string(),
    )
}

#[tokio::test]
async fn a_realm_that_is_neither_the_registry_nor_granted_is_neither_resolved_nor_dialled() {
    let other = FalseRegistry::start().unwrap();
    other.lay("/token", token());
    let (own, port) = ("OWN", other.port());
    for realm in [
        "https://auth.example/token".to_owned(),
        format!("http://127.0.0.1:{port}/token"),
        format!("http://2130706433:{port}/token"),
        format!("http://127.1:{port}/token"),
        format!("http://[::ffff:127.0.0.1]:{port}/token"),
        "http://127.0.0.1/token".to_owned(),
        format!("https://127.0.0.1:{own}/token"),
        format!("http://localhost:{own}/token"),
        format!("http://user:pw@127.0.0.1:{own}/token"),
        format!("http://127.0.0.1:{own}@auth.example/token"),
        format!("http://127.0.0.1:{own}\\\\@auth.example/token"),
        format!("http://127.0.0.1:{own}/token#auth.example"),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://[fd00:ec2::254]/token".to_owned(),
        "http://10.0.0.1/token".to_owned(),
        "//auth.example/token".to_owned(),
        "/token".to_owned(),
        "auth.example".to_owned(),
        "unix:///var/run/docker.sock".to_owned(),
        String::new(),
    ] {
        let lab = Lab::with_account();
        let realm = realm.replace(own, &lab.registry.port().to_string());
        lab.registry.lay("/token", token());
        lab.registry.lay(&lab.path("manifests/1.0"), bearer(&realm));
        let (reason, told) = within(lab.refused()).await;
        assert!(matches!(reason, "realm" | "challenge"), "{realm}: {told}");
        assert!(lab.resolved().is_empty(), "{realm} was looked up");
        assert!(lab.dialled_elsewhere().is_empty(), "{realm} was dialled");
        assert_eq!(lab.shown(), [], "{realm} was shown something");
        assert!(!told.contains("pw"), "{told}");
    }
    assert!(other.heard().is_empty());
}

#[tokio::test]
async fn a_token_is_got_of_the_registry_itself_with_our_own_least_scope() {
    let lab = Lab::with_account();
    let realm = format!("http://{}/token?x=y", lab.registry.authority());
    let path = lab.path("manifests/1.0");
    let manifest = lab.begin(":1.0").await.unwrap().resolved().manifest;
    let there = Reply::new(
        200,
        leasehold_parts::manifest(&[leasehold_parts::descriptor("application/wasm", COMPONENT)])
            .to_string(),
    );
    lab.registry.lay_each(&path, vec![bearer(&realm), there]);
    lab.registry.lay("/token", token());
    lab.registry.take_heard();
    let pull = lab.begin(":1.0").await.unwrap();
    assert_eq!(pull.resolved().manifest, manifest);
    pull.component().await.unwrap();
    let asked = "/token?x=y&service=the+service&scope=repository%3Aacme%2Ftool%3Apull";
    assert_eq!(
        lab.shown(),
        [
            (asked.to_owned(), BASIC.to_owned()),
            (path, "Bearer the-token".to_owned()),
            (lab.component_path(), "Bearer the-token".to_owned()),
        ]
    );
}

#[tokio::test]
async fn a_granted_realm_gets_the_account_and_the_registry_gets_only_its_token() {
    let auth = FalseRegistry::start().unwrap();
    auth.lay(
        "/token",
        Reply::new(200, json!({ "access_token": "granted" }).to_string()),
    );
    let mut lab = Lab::with_account();
    let realm = format!("http://{}", auth.authority());
    lab.source.realm = Some(Parsed::of(&realm).unwrap().origin);
    lab.registry
        .lay(&lab.component_path(), bearer(&format!("{realm}/token")));
    let (reason, told) = within(lab.refused()).await;
    // The token is not accepted either.
    assert_eq!(reason, "unauthenticated", "{told}");
    let heard = auth.heard();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].header("authorization"), BASIC);
    assert_eq!(
        lab.shown(),
        [(lab.component_path(), "Bearer granted".to_owned())]
    );
}

#[tokio::test]
async fn basic_is_answered_once_and_no_answer_repeats_the_password() {
    let lab = Lab::with_account();
    let path = lab.path("manifests/1.0");
    lab.registry.lay(&path, challenge("Basic realm=\"r\""));
    let (reason, told) = within(lab.refused()).await;
    assert_eq!(reason, "unauthenticated", "{told}");
    assert_eq!(lab.shown(), [(path.clone(), BASIC.to_owned())]);

    // A registry that says back what it heard.
    for status in [401, 403, 404, 500] {
        let echo = format!("{{\"errors\":[{{\"code\":\"{PASSWORD}\",\"message\":\"{BASIC}\"}}]}}");
        let reply = Reply::new(status, echo)
            .with("www-authenticate", "Basic realm=\"r\"")
            .with("retry-after", PASSWORD);
        lab.registry.lay(&path, reply);
        let (_, told) = within(lab.refused()).await;
        assert!(!told.contains("canary") && !told.contains("Y2k6"), "{told}");
    }

    let anybody = Lab::published();
    anybody.registry.lay(&path, challenge("Basic realm=\"r\""));
    let (reason, told) = within(anybody.refused()).await;
    assert_eq!(reason, "no-credential", "{told}");
}

#[tokio::test]
async fn a_challenge_that_cannot_be_followed_is_told_as_that() {
    for (header, words) in [
        ("Negotiate", "negotiate"),
        ("Bearer service=\"x\"", "no realm"),
        ("Bearer realm=\"x", "without an end"),
        ("Bearer realm=x, realm=y", "twice"),
    ] {
        let lab = Lab::with_account();
        lab.registry
            .lay(&lab.path("manifests/1.0"), challenge(header));
        let (reason, told) = within(lab.refused()).await;
        assert_eq!(reason, "challenge", "{header}: {told}");
        assert!(told.contains(words), "{header}: {told}");
        assert_eq!(lab.shown(), [], "{header}");
    }
    let lab = Lab::with_account();
    let bare = Reply::refusal(401, "UNAUTHORIZED");
    lab.registry.lay(&lab.path("manifests/1.0"), bare);
    let (reason, told) = within(lab.refused()).await;
    assert_eq!(reason, "challenge", "{told}");
}

#[tokio::test]
async fn a_token_that_is_none_is_told_as_that() {
    for (reply, reason) in [
        (Reply::new(200, "{}"), "malformed"),
        (Reply::new(200, "not json"), "malformed"),
        (Reply::new(200, "{\"token\":\"\"}"), "malformed"),
        (Reply::refusal(401, "UNAUTHORIZED"), "unauthenticated"),
        (Reply::refusal(403, "DENIED"), "denied"),
        (Reply::refusal(429, "TOOMANYREQUESTS"), "rate-limited"),
        (
            Reply::new(302, "").with("location", "https://auth.example/"),
            "redirect",
        ),
        (Reply::new(200, vec![b' '; 300 << 10]), "too-large"),
    ] {
        let lab = Lab::with_account();
        let realm = format!("http://{}/token", lab.registry.authority());
        lab.registry.lay(&lab.path("manifests/1.0"), bearer(&realm));
        lab.registry.lay("/token", reply);
        let error = within(lab.pull()).await.unwrap_err();
        assert_eq!(error.stage, leasehold_egress::Stage::Token, "{error}");
        assert_eq!(error.why.reason(), reason, "{error}");
        assert!(lab.resolved().is_empty() && lab.dialled_elsewhere().is_empty());
    }
}

#[tokio::test]
async fn a_redirect_to_where_it_must_not_lead_is_neither_resolved_nor_dialled() {
    let other = FalseRegistry::start().unwrap();
    other.lay("/blob", Reply::new(200, COMPONENT));
    let (own, port) = ("OWN", other.port());
    for location in [
        format!("http://127.0.0.1:{port}/blob"),
        format!("https://127.0.0.1:{port}/blob"),
        format!("https://[::ffff:127.0.0.1]:{port}/blob"),
        format!("https://[64:ff9b::7f00:1]:{port}/blob"),
        format!("https://2130706433:{port}/blob"),
        format!("https://127.0.0.1:{own}/blob"),
        "https://10.0.0.1/blob".to_owned(),
        "https://192.168.0.1/blob".to_owned(),
        "https://100.64.0.1/blob".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://[fd00:ec2::254]/latest".to_owned(),
        "https://[fe80::1]/blob".to_owned(),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "http://store.example/blob".to_owned(),
        "https://user:pw@store.example/blob".to_owned(),
        format!("http://ci:pw@127.0.0.1:{own}/blob"),
        "https://store.example./blob".to_owned(),
        "https://store.example/blob#x".to_owned(),
        "ftp://store.example/blob".to_owned(),
        "file:///etc/passwd".to_owned(),
        "unix:///var/run/docker.sock".to_owned(),
        String::new(),
    ] {
        let lab = Lab::with_account();
        let location = location.replace(own, &lab.registry.port().to_string());
        let reply = Reply::new(307, "").with("location", &location);
        lab.registry.lay(&lab.component_path(), reply);
        let (reason, told) = within(lab.refused()).await;
        assert!(
            matches!(reason, "redirect" | "unreachable"),
            "{location}: {reason}: {told}"
        );
        assert!(lab.resolved().is_empty(), "{location} was looked up");
        assert!(lab.dialled_elsewhere().is_empty(), "{location} was dialled");
        for other in ["pw", "endpoint", "declared site"] {
            assert!(!told.contains(other), "{location}: {told}");
        }
    }
    assert!(other.heard().is_empty());
}

#[tokio::test]
async fn a_redirect_to_a_name_that_leads_inside_is_not_dialled() {
    let lab = Lab::with_account();
    let reply = Reply::new(302, "").with("location", "https://store.example/blob");
    lab.registry.lay(&lab.component_path(), reply);
    let (reason, told) = within(lab.refused()).await;
    assert_eq!(reason, "unreachable", "{told}");
    assert!(told.contains("10.0.0.1"), "{told}");
    assert_eq!(lab.resolved(), ["store.example"]);
    assert!(lab.dialled_elsewhere().is_empty());
}

#[tokio::test]
async fn a_blob_elsewhere_at_the_registry_is_fetched_without_the_account_and_a_loop_ends() {
    let lab = Lab::with_account();
    let path = lab.path("manifests/1.0");
    let there = Reply::new(
        200,
        leasehold_parts::manifest(&[leasehold_parts::descriptor("application/wasm", COMPONENT)])
            .to_string(),
    );
    lab.registry
        .lay_each(&path, vec![challenge("Basic realm=\"r\""), there]);
    let moved = |to: &str| Reply::new(307, "").with("location", to);
    lab.registry
        .lay(&lab.component_path(), moved("/store/a?sig=x"));
    lab.registry.lay("/store/a", moved("b"));
    lab.registry.lay("/store/b", Reply::new(200, COMPONENT));
    let (bytes, _) = lab.pull().await.unwrap();
    assert_eq!(bytes, COMPONENT);
    let shown: Vec<String> = lab.shown().into_iter().map(|(path, _)| path).collect();
    assert!(
        shown.contains(&lab.component_path()) && !shown.iter().any(|path| path.contains("store")),
        "{shown:?}"
    );

    lab.registry.lay("/store/b", moved("/store/a"));
    let (reason, told) = within(lab.refused()).await;
    assert_eq!(reason, "redirect", "{told}");
    assert!(told.contains("more than 3"), "{told}");
    // What it gives in the end is still looked at.
    lab.registry
        .lay("/store/b", Reply::new(200, vec![0; COMPONENT.len()]));
    assert_eq!(within(lab.refused()).await.0, "digest");
}

#[tokio::test]
async fn only_a_blob_may_lie_elsewhere() {
    for path in ["manifests/1.0", "signature"] {
        let lab = Lab::with_account();
        let manifest = lab.begin(":1.0").await.unwrap().resolved().manifest;
        let path = match path {
            "signature" => lab.path(&format!("manifests/sha256-{}.sig", manifest.hex())),
            path => lab.path(path),
        };
        let reply = Reply::new(302, "").with("location", "/elsewhere");
        lab.registry.lay(&path, reply);
        let (reason, told) = within(lab.refused()).await;
        assert_eq!(reason, "redirect", "{told}");
        let asked = lab.registry.take_heard();
        assert!(
            !asked.iter().any(|one| one.contains("elsewhere")),
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn a_registry_is_asked_only_for_what_is_its_own_and_over_tls_unless_it_was_typed_otherwise() {
    let lab = Lab::with_account();
    let other = "oci://other.example/acme/tool:1.0".parse().unwrap();
    let error = lab.client().pull(&lab.source, &other).await.unwrap_err();
    assert_eq!(error.why.reason(), "malformed", "{error}");
    assert!(lab.resolved().is_empty() && lab.registry.take_heard().is_empty());
    // Without `plain` not a byte of HTTP is spoken.
    let secure = RegistrySource {
        plain: false,
        ..lab.source.clone()
    };
    let reference = lab.reference(":1.0");
    let error = within(lab.client().pull(&secure, &reference))
        .await
        .unwrap_err();
    assert_eq!(error.why.reason(), "unreachable", "{error}");
    assert!(lab.registry.heard().is_empty());
    // In plain nobody is asked but an address of this machine.
    for name in ["registry.example", "10.0.0.1:5000", "localhost:5000"] {
        let plain = RegistrySource {
            registry: name.parse().unwrap(),
            ..lab.source.clone()
        };
        let reference = format!("oci://{name}/acme/tool:1.0").parse().unwrap();
        let asked = lab.client().pull(&plain, &reference).await;
        let told = asked.unwrap_err().to_string();
        assert!(told.contains("an address of this machine"), "{told}");
    }
    assert!(lab.resolved().is_empty());
    assert!(lab.dialled_elsewhere().is_empty());
}
