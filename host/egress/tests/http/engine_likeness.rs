//! Plain endpoints behind which an engine is: asked once, refused as one, and nobody else is held up.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Incoming;
use hyper::{Request, Response};
use leasehold_contract::{Code, NoStream};
use leasehold_egress::{Endpoint, HttpFacts};

use crate::engine_dock::{Dock, EXEC};
use crate::server::{Reply, Server, reply, serve, typed};

const VERSION: &str = r#"{"Platform":{"Name":"linux/amd64/debian-12"},"Components":[{"Name":"Podman Engine"}],"ApiVersion":"1.41"}"#;

/// A server that answers `/version` and the rest as it is told to, and counts each.
struct Backend {
    server: Server,
    asked: Arc<AtomicUsize>,
    used: Arc<AtomicUsize>,
}

impl Backend {
    async fn new(
        at: &'static str,
        version: impl Fn() -> Response<Reply> + Clone + Send + Sync + 'static,
    ) -> Backend {
        let (asked, used) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let counts = (asked.clone(), used.clone());
        let server = serve(move |request: Request<Incoming>| {
            assert!(!request.headers().contains_key("authorization"));
            let answer = if request.uri().path() == at {
                counts.0.fetch_add(1, Ordering::SeqCst);
                version()
            } else if request.uri().path().ends_with("/version") {
                reply(404, "")
            } else {
                counts.1.fetch_add(1, Ordering::SeqCst);
                reply(200, "{}")
            };
            async move { answer }
        })
        .await;
        Backend {
            server,
            asked,
            used,
        }
    }

    fn counts(&self) -> (usize, usize) {
        (
            self.asked.load(Ordering::SeqCst),
            self.used.load(Ordering::SeqCst),
        )
    }

    /// What a component's requests go by, whose endpoint begins at this path.
    async fn dock(&self, base: &str) -> Dock {
        let mut dock = Dock::new().await;
        let endpoint = Endpoint {
            url: format!("{}{base}", self.server.url()),
            destination: typed(&self.server.url()),
        };
        dock.facts = HttpFacts {
            endpoints: [("/engine".to_owned(), endpoint)].into(),
            children: [EXEC.to_owned()].into(),
            ..dock.facts
        };
        dock
    }
}

#[tokio::test]
async fn a_plain_endpoint_that_answers_like_an_engine_is_refused_as_one_by_every_way_out() {
    for (at, base) in [
        ("/version", ""),
        ("/version", "/containers"),
        ("/version", "/v1.41"),
        ("/docker/version", "/docker"),
    ] {
        let backend = Backend::new(at, || reply(200, VERSION)).await;
        let dock = backend.dock(base).await;
        let call = dock.call();
        let start = || dock.ask("POST", &format!("/exec/{EXEC}/start"));
        for _ in 0..2 {
            let error = call
                .http_send(dock.ask("GET", "/json"))
                .await
                .expect_err(at);
            assert_eq!(error.code, Code::PermissionDenied, "{error}");
            assert!(error.message.contains("engine-endpoint"), "{error}");
        }
        call.http_open(dock.ask("GET", "/json"))
            .await
            .map(drop)
            .expect_err(at);
        call.http_download(dock.ask("GET", "/json"))
            .await
            .map(drop)
            .expect_err(at);
        let none = call.upgrade(start(), "tcp".into()).await.err();
        assert!(matches!(none, Some(NoStream::Failed(_))), "{none:?}");
        assert_eq!(
            backend.counts(),
            (1, 0),
            "{at} {base}: asked once, used never"
        );
        let book = dock.book();
        let (asked, rest) = book.split_first().expect("it is on record");
        assert!(
            asked.starts_with("let through") && asked.ends_with(" GET /version"),
            "{asked}"
        );
        assert!(
            rest.iter().all(|line| line.starts_with("refused")),
            "{rest:?}"
        );
    }
}

#[tokio::test]
async fn an_engine_that_names_itself_in_its_headers_is_known_by_them() {
    for (name, value) in [
        ("server", "Docker/20.10.24 (linux)"),
        ("libpod-api-version", "4.3.1"),
        ("docker-experimental", "false"),
    ] {
        let backend = Backend::new("/version", move || {
            let mut answer = reply(403, "no");
            answer.headers_mut().insert(name, value.parse().unwrap());
            answer
        })
        .await;
        let dock = backend.dock("").await;
        dock.call()
            .http_send(dock.ask("GET", "/json"))
            .await
            .expect_err(name);
        assert_eq!(backend.counts(), (1, 0), "{name}");
    }
}

#[tokio::test]
async fn a_backend_that_is_no_engine_is_asked_once_and_serves_whatever_it_says_to_that() {
    let answers: [fn() -> Response<Reply>; 8] = [
        || reply(404, "not here"),
        || reply(401, r#"{"ApiVersion":"1.41","Components":[]}"#),
        || reply(500, ""),
        || reply(200, ""),
        || reply(200, "1.2.3"),
        || reply(200, r#"{"version":"1.2.3","apiVersion":"2"}"#),
        || reply(200, vec![b'x'; 1 << 20]),
        || {
            let mut moved = reply(302, "");
            let to = "http://127.0.0.1:9/".parse().unwrap();
            moved.headers_mut().insert("location", to);
            moved
        },
    ];
    for answer in answers {
        let backend = Backend::new("/version", answer).await;
        let dock = backend.dock("").await;
        let call = dock.call();
        let requests = (0..20).map(|_| call.http_send(dock.ask("GET", "/json")));
        for answered in futures_util::future::join_all(requests).await {
            assert_eq!(answered.expect("an answer").head.status, 200);
        }
        assert_eq!(backend.counts(), (1, 20), "asked once by all of them");
    }
}

#[tokio::test]
async fn a_backend_that_keeps_silent_about_its_version_serves_and_is_not_waited_for_again() {
    let asked = Arc::<AtomicUsize>::default();
    let counted = asked.clone();
    let server = serve(move |request: Request<Incoming>| {
        let silent = request.uri().path() == "/version";
        counted.fetch_add(usize::from(silent), Ordering::SeqCst);
        async move {
            if silent {
                std::future::pending::<()>().await;
            }
            reply(200, "{}")
        }
    })
    .await;
    let mut dock = Dock::new().await;
    let endpoint = Endpoint::of(&server.url(), true, None).unwrap();
    dock.facts.endpoints = [("/engine".to_owned(), endpoint)].into();
    let call = dock.call();
    for _ in 0..3 {
        let answer = call.http_send(dock.ask("GET", "/json")).await;
        assert_eq!(answer.expect("an answer").head.status, 200);
    }
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_endpoint_beside_an_engine_at_one_origin_is_the_engine() {
    let backend = Backend::new("/version", || reply(404, "")).await;
    let mut dock = backend.dock("").await;
    let engine = Endpoint::engine(&backend.server.url(), true, None).unwrap();
    dock.facts.endpoints.insert("/other".into(), engine);
    let error = dock.call().http_send(dock.ask("GET", "/json")).await;
    let error = error.expect_err("the policy does not know it");
    assert!(error.message.contains("the engine policy"), "{error}");
    assert_eq!(backend.counts(), (0, 0));
}
