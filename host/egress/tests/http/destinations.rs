//! Which destinations are reached: every spelling, with a resolver and a dialler that only write down what they are asked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use leasehold_contract::{Code, Error, NoStream};
use leasehold_egress::{
    Destination, Dialler, Host, HostRoots, HttpSettings, Origin, OriginPattern, Parsed, Resolver,
    Stream, Transport, UnixPeer, Wire,
};

use crate::rules_lab::Lab;
use crate::server::{ask, bounds, pool, reply, serve, settings, wire};

/// Knows one answer to every name; reaches nothing.
#[derive(Default)]
struct Ledger {
    addresses: Vec<IpAddr>,
    asked: Mutex<Vec<String>>,
    dialled: Mutex<Vec<SocketAddr>>,
}

#[async_trait]
impl Resolver for Ledger {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(name.to_owned());
        Ok(self.addresses.clone())
    }
}

#[async_trait]
impl Dialler for Ledger {
    async fn tcp(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        self.dialled.lock().unwrap().push(address);
        Err(io::ErrorKind::ConnectionRefused.into())
    }

    async fn unix(&self, _socket: &Path) -> io::Result<UnixPeer> {
        Err(io::ErrorKind::NotFound.into())
    }
}

impl Ledger {
    fn knowing(addresses: &[&str]) -> Arc<Ledger> {
        Arc::new(Ledger {
            addresses: addresses.iter().map(|a| a.parse().unwrap()).collect(),
            ..Ledger::default()
        })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    fn dialled(&self) -> Vec<String> {
        let dialled = self.dialled.lock().unwrap();
        dialled.iter().map(|at| at.ip().to_string()).collect()
    }
}

/// What a GET of this URL ends with.
async fn get(ledger: &Arc<Ledger>, url: &str, typed: bool, secret: bool) -> Error {
    let transport = Transport::over(settings(), ledger.clone(), ledger.clone());
    let mut wire = wire("GET", url);
    wire.destination.typed = typed;
    wire.carries_secret = secret;
    let answer = transport.exchange(&pool(), wire, &bounds()).await;
    answer.err().expect("nothing can be reached")
}

/// What is no URL, whoever reads it as one.
const FOOLING: &[&str] = &[
    "",
    "/path",
    "//example.com/",
    "example.com",
    "ftp://example.com/",
    "file:///etc/passwd",
    "HTTP://example.com/",
    "http:example.com",
    "http:/example.com",
    "http:///example.com",
    "http://",
    "http://:80/",
    "http://user@example.com/",
    "http://user:password@example.com/",
    "http://@example.com/",
    "http://:@example.com/",
    "http://good.example@evil.example/",
    "http://example.com\\@evil.example/",
    "http:\\\\example.com/",
    "http://example.com\t/",
    "http://exam\nple.com/",
    " http://example.com/",
    "http://example.com/\0",
    "http://example.com/#fragment",
    "http://example.com/#",
    "http://example.com./",
    "http://example.com.:80/",
    "http://127.0.0.1./",
    "http://127.0.0.1\u{3002}/",
    "http://127\u{ff0e}0.0.1/",
    "http://example%2ecom/",
    "http://%31%32%37.0.0.1/",
    "http://[fe80::1%25lo]/",
    "http://[::1/",
    "http://[::1]]/",
    "http://[127.0.0.1]/",
    "http://1.2.3.4.5/",
    "http://256.0.0.1/",
    "http://4294967296/",
    "http://0x100000000/",
    "http://08.0.0.1/",
    "http://example.com:0/",
    "http://example.com:65536/",
    "http://example.com:http/",
    "http://example.com:80:80/",
    "http://a..b/",
    "http://exa mple.com/",
    "http://exa<mple.com/",
    "http://exa*mple.com/",
    "http://xn--zz--/",
];

#[test]
fn a_url_that_fools_its_reader_is_not_one() {
    for url in FOOLING {
        let error = Parsed::of(url).err();
        assert_eq!(error.map(|e| e.code), Some(Code::InvalidConfig), "{url:?}");
    }
}

#[test]
fn a_refusal_does_not_repeat_the_password_of_a_url() {
    let error = Parsed::of("https://me:hunter22@example.com/?key=hunter22").unwrap_err();
    assert!(!error.message.contains("hunter22"), "{error}");
    assert!(error.message.contains("example.com"), "{error}");
}

#[test]
fn every_notation_of_a_host_becomes_one() {
    for (url, host) in [
        ("http://2130706433/", "127.0.0.1"),
        ("http://0x7f000001/", "127.0.0.1"),
        ("http://017700000001/", "127.0.0.1"),
        ("http://0177.0.0.1/", "127.0.0.1"),
        ("http://0x7f.0.0.0x1/", "127.0.0.1"),
        ("http://127.1/", "127.0.0.1"),
        ("http://127.0.1/", "127.0.0.1"),
        ("http://[0:0:0:0:0:0:0:1]/", "[::1]"),
        ("http://[0000::0001]:80/", "[::1]"),
        ("http://EXAMPLE.com:80/", "example.com"),
        ("http://b\u{fc}cher.example/", "xn--bcher-kva.example"),
        ("http://B\u{dc}CHER.example/", "xn--bcher-kva.example"),
        ("http://\u{ff11}\u{ff12}\u{ff17}.0.0.1/", "127.0.0.1"),
        ("http://\u{2460}27.0.0.1/", "127.0.0.1"),
    ] {
        let origin = Parsed::of(url).unwrap().origin;
        assert_eq!(origin.to_string(), format!("http://{host}"), "{url}");
    }
    let origin = Parsed::of("https://example.com:443/a?b").unwrap().origin;
    assert_eq!(origin.to_string(), "https://example.com");
    assert_eq!(origin.port, 443);
}

/// Hosts that are no public address, as a URL may spell them.
const NOT_PUBLIC: &[&str] = &[
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "169.254.0.1",
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.31.196.1",
    "192.52.193.1",
    "192.88.99.1",
    "192.168.0.1",
    "192.175.48.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "168.63.129.16",
    "[::]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:8.8.8.8]",
    "[::ffff:169.254.169.254]",
    "[::127.0.0.1]",
    "[::ffff:0:127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b::8.8.8.8]",
    "[64:ff9b:1::10.0.0.1]",
    "[64:ff9b:1:ffff::1]",
    "[100::1]",
    "[100:0:0:1::1]",
    "[2001::1]",
    "[2001:0:4136:e378:8000:63bf:3fff:fdd2]",
    "[2001:10::1]",
    "[2001:20::1]",
    "[2001:1ff::1]",
    "[2001:db8::1]",
    "[2002:7f00:1::]",
    "[2002:808:808::]",
    "[2620:4f:8000::1]",
    "[3fff::1]",
    "[3fff:fff::1]",
    "[5f00::1]",
    "[fc00::1]",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fdff::1]",
    "[fe80::1]",
    "[febf::1]",
    "[fec0::1]",
    "[ff02::1]",
    "[4000::1]",
    "[2606:4700::5efe:10.0.0.1]",
    "[2606:4700::200:5efe:10.0.0.1]",
];

#[tokio::test]
async fn an_address_that_is_not_public_is_neither_resolved_nor_dialled_for_a_pattern() {
    for host in NOT_PUBLIC {
        let ledger = Ledger::knowing(&["8.8.8.8"]);
        let error = get(&ledger, &format!("https://{host}/"), false, false).await;
        assert_eq!(error.code, Code::PermissionDenied, "{host}: {error}");
        assert!(ledger.asked().is_empty(), "{host} was looked up");
        assert!(ledger.dialled().is_empty(), "{host} was dialled");
    }
}

#[tokio::test]
async fn a_public_address_is_dialled_for_a_pattern() {
    for host in [
        "8.8.8.8",
        "1.1.1.1",
        "100.63.255.255",
        "172.32.0.1",
        "192.0.1.1",
        "198.17.0.1",
        "223.255.255.255",
    ] {
        let ledger = Ledger::knowing(&[]);
        let error = get(&ledger, &format!("https://{host}/"), false, false).await;
        assert_eq!(error.code, Code::Unavailable, "{error}");
        assert_eq!(ledger.dialled(), [host]);
    }
    let ledger = Ledger::knowing(&[]);
    get(&ledger, "https://[2606:4700::1111]/", false, false).await;
    assert_eq!(ledger.dialled(), ["2606:4700::1111"]);
}

#[tokio::test]
async fn a_granted_name_is_looked_up_once_and_dialled_only_if_every_address_is_public() {
    for bad in [
        "10.0.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "::1",
        "fe80::1",
        "::ffff:8.8.8.8",
    ] {
        let ledger = Ledger::knowing(&["8.8.8.8", bad]);
        let error = get(&ledger, "https://api.example.com/", false, false).await;
        assert_eq!(error.code, Code::PermissionDenied, "{bad}: {error}");
        assert_eq!(ledger.asked(), ["api.example.com"]);
        assert!(ledger.dialled().is_empty(), "dialled beside {bad}");
    }
    let ledger = Ledger::knowing(&["8.8.8.8", "1.1.1.1"]);
    get(&ledger, "https://api.example.com/", false, false).await;
    assert_eq!(ledger.asked().len(), 1);
    let mut dialled = ledger.dialled();
    dialled.sort();
    assert_eq!(dialled, ["1.1.1.1", "8.8.8.8"]);
}

#[tokio::test]
async fn what_an_administrator_typed_is_dialled_as_typed_and_a_name_never_leads_to_metadata() {
    for host in [
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[::1]",
    ] {
        let ledger = Ledger::knowing(&[]);
        let error = get(&ledger, &format!("https://{host}/"), true, false).await;
        assert_eq!(error.code, Code::Unavailable, "{host}: {error}");
        assert_eq!(ledger.dialled(), [host.trim_matches(['[', ']'])]);
    }
    for private in ["10.0.0.1", "127.0.0.1", "fd12::1"] {
        let ledger = Ledger::knowing(&[private]);
        get(&ledger, "https://daytona.internal/", true, false).await;
        assert_eq!(ledger.dialled(), [private]);
    }
    for metadata in [
        "169.254.169.254",
        "169.254.1.1",
        "fe80::1",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "2002:a9fe:a9fe::1",
    ] {
        let ledger = Ledger::knowing(&["10.0.0.1", metadata]);
        let error = get(&ledger, "https://daytona.internal/", true, false).await;
        assert_eq!(error.code, Code::PermissionDenied, "{metadata}: {error}");
        assert!(ledger.dialled().is_empty(), "dialled beside {metadata}");
    }
}

#[tokio::test]
async fn a_secret_leaves_this_machine_over_tls_only() {
    for (url, address) in [
        ("http://10.0.0.1/", "10.0.0.1"),
        ("http://8.8.8.8/", "8.8.8.8"),
        ("http://daytona.internal/", "10.0.0.1"),
    ] {
        let ledger = Ledger::knowing(&[address]);
        let error = get(&ledger, url, true, true).await;
        assert_eq!(error.code, Code::PermissionDenied, "{url}: {error}");
        assert!(ledger.dialled().is_empty(), "{url} was dialled");
        // Without one it may go, and over TLS it may.
        assert_eq!(get(&ledger, url, true, false).await.code, Code::Unavailable);
        let https = url.replace("http://", "https://");
        assert_eq!(
            get(&ledger, &https, true, true).await.code,
            Code::Unavailable
        );
    }
    for (url, addresses) in [
        ("http://127.0.0.1/", &[][..]),
        ("http://localhost/", &["127.0.0.1", "::1"]),
    ] {
        let ledger = Ledger::knowing(addresses);
        assert_eq!(
            get(&ledger, url, true, true).await.code,
            Code::Unavailable,
            "{url}"
        );
    }
    let ledger = Ledger::knowing(&["127.0.0.1", "10.0.0.1"]);
    let error = get(&ledger, "http://localhost/", true, true).await;
    assert_eq!(error.code, Code::PermissionDenied, "{error}");
}

#[test]
fn a_pattern_covers_its_origin_or_one_or_more_labels_below_it_and_nothing_else() {
    let covers = |pattern: &str, url: &str| {
        let origin = Parsed::of(url).unwrap().origin;
        OriginPattern::of(pattern).unwrap().covers(&origin)
    };
    for (pattern, url) in [
        ("https://api.example.com", "https://api.example.com/x"),
        ("https://api.example.com", "https://API.example.com:443/"),
        ("https://*.example.com", "https://a.example.com/"),
        ("https://*.example.com", "https://a.b.example.com/"),
        ("https://*.example.com:8443", "https://a.example.com:8443/"),
        (
            "https://*.B\u{fc}cher.example",
            "https://a.xn--bcher-kva.example/",
        ),
        ("http://1.1.1.1", "http://0x01010101/"),
    ] {
        assert!(covers(pattern, url), "{pattern} {url}");
    }
    for (pattern, url) in [
        ("https://api.example.com", "http://api.example.com/"),
        ("https://api.example.com", "https://api.example.com:444/"),
        ("https://api.example.com", "https://x.api.example.com/"),
        ("https://*.example.com", "https://example.com/"),
        ("https://*.example.com", "https://evilexample.com/"),
        (
            "https://*.example.com",
            "https://a.example.com.evil.example/",
        ),
        ("https://*.example.com", "https://a.example.com:8443/"),
        ("http://1.1.1.1", "http://1.1.1.2/"),
    ] {
        assert!(!covers(pattern, url), "{pattern} {url}");
    }
    for pattern in [
        "*",
        "https://*",
        "https://*.com",
        "https://*.1.1.1.1",
        "https://a.*.com",
        "https://*a.example.com",
        "https://example.com/",
        "https://example.com/v1",
        "https://example.com?x",
        "https://u@example.com",
        "*://example.com",
        "https://example.com:*",
        "example.com",
        "https://*.*.example.com",
        "wss://example.com",
    ] {
        assert!(OriginPattern::of(pattern).is_err(), "{pattern}");
    }
}

#[tokio::test]
async fn a_socket_is_reached_behind_its_stand_in_which_no_resolver_sees() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("engine.sock");
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(crate::server::speak(stream, |request| async move {
                let host = request.headers()["host"].to_str().unwrap().to_owned();
                reply(200, format!("{host} {}", request.uri()))
            }));
        }
    });
    let origin = Origin::stand_in(&path);
    assert!(matches!(&origin.host, Host::Name(name) if name.ends_with(".socket.invalid")));
    assert_eq!(Parsed::of(&origin.to_string()).unwrap().origin, origin);
    let to = |typed| Destination {
        origin: origin.clone(),
        typed,
        tls: None,
        unix: Some(path.clone()),
        engine: true,
    };
    let request = |typed| Wire {
        destination: to(typed),
        carries_secret: true,
        ..wire("GET", &format!("{origin}/version"))
    };
    // Whoever runs this test made the socket, and runs what is behind it.
    let transport = Transport::new(HttpSettings {
        host_roots: HostRoots::of(&[path.to_str().unwrap()]).unwrap(),
        ..settings()
    });
    let answer = ask(&transport, request(true)).await.unwrap();
    assert_eq!(answer, (200, "localhost /version".to_owned()));
    // Not as what a pattern covers.
    let error = ask(&transport, request(false)).await.unwrap_err();
    assert_eq!(error.code, Code::PermissionDenied, "{error}");
    // And without its socket the stand-in leads nowhere.
    let ledger = Ledger::knowing(&[]);
    let error = get(&ledger, &origin.to_string(), true, false).await;
    assert_eq!(error.code, Code::Unavailable, "{error}");
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let elsewhere = serve(|_| async { reply(200, "elsewhere") }).await;
    let location = format!("{}/", elsewhere.url());
    let server = serve(move |_| {
        let location = location.clone();
        async move {
            let mut answer = reply(302, "moved");
            answer
                .headers_mut()
                .insert("location", location.parse().unwrap());
            answer
        }
    })
    .await;
    let (status, body) = ask(&crate::server::transport(), wire("GET", &server.url()))
        .await
        .unwrap();
    assert_eq!((status, body.as_str()), (302, "moved"));
    assert_eq!(elsewhere.accepted(), 0);
}

#[tokio::test]
async fn what_is_not_granted_is_neither_looked_up_nor_dialled_however_it_is_spelled() {
    let ledger = Ledger::knowing(&["93.184.216.34"]);
    let mut lab = Lab::leased(|_| async { reply(200, "{}") }).await;
    lab.transport = Transport::over(settings(), ledger.clone(), ledger.clone());
    let own = lab.server.at;
    let call = lab.call();
    for url in [
        "http://api.example/",
        "https://api.example./",
        "http://API.EXAMPLE:80/",
        "http://b\u{fc}cher.example/",
        "http://xn--bcher-kva.example/",
        "http://\u{ff11}27.0.0.1/",
        "http://localhost/",
        "http://169.254.169.254/latest/meta-data",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://0251.0376.0251.0376/",
        "http://127.1/",
        "http://[::ffff:169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[fe80::1%25eth0]/",
        &format!("http://{own}@api.example/v1"),
        &format!("http://user:password@{own}/v1"),
        &format!("http://api.example\\@{own}/v1"),
        &format!("https://{own}/v1"),
        &format!("http://{}:{}/v1", own.ip(), own.port() ^ 1),
        "unix:///run/podman/podman.sock",
        "file:///etc/passwd",
    ] {
        let request = leasehold_contract::HttpRequest {
            url: url.to_owned(),
            ..lab.ask("GET", "")
        };
        let error = call.http_send(request).await.unwrap_err();
        assert_eq!(error.code, Code::PermissionDenied, "{url}: {error}");
    }
    assert_eq!(ledger.asked(), Vec::<String>::new());
    assert_eq!(ledger.dialled(), Vec::<String>::new());
    // The same door lets through what was typed, and dials it.
    let _ = call.http_send(lab.ask("GET", "")).await;
    assert!(ledger.dialled().iter().all(|at| at == "127.0.0.1"));
    assert!(!ledger.dialled().is_empty());
}

/// Every way in which a component can ask for a URL is refused.
async fn refused_at_the_door(lab: &Lab, url: &str) {
    let call = lab.call();
    let request = || leasehold_contract::HttpRequest {
        url: url.to_owned(),
        headers: Vec::new(),
        ..lab.ask("GET", "")
    };
    let stream = |none: Option<NoStream>| match none {
        Some(NoStream::Failed(error)) => Some(error),
        _ => None,
    };
    for (how, error) in [
        ("send", call.http_send(request()).await.err()),
        ("open", call.http_open(request()).await.err()),
        ("download", call.http_download(request()).await.err()),
        (
            "upload",
            call.http_upload(request(), Vec::new()).await.err(),
        ),
        (
            "upgrade",
            stream(call.upgrade(request(), "tcp".into()).await.err()),
        ),
        (
            "websocket",
            stream(call.websocket(request(), Vec::new()).await.err()),
        ),
    ] {
        let code = error.map(|error| error.code);
        assert_eq!(code, Some(Code::PermissionDenied), "{how} {url:?}");
    }
}

#[tokio::test]
async fn no_long_spelling_of_anything_passes_the_door_though_its_origin_was_granted() {
    let ledger = Ledger::knowing(&["8.8.8.8"]);
    let mut lab = Lab::leased(|_| async { reply(200, "{}") }).await;
    lab.transport = Transport::over(settings(), ledger.clone(), ledger.clone());
    // What covers the names of the table.
    let origins = ["http://*.example.com:80", "http://example.com:80"].map(str::to_owned);
    std::sync::Arc::make_mut(&mut lab.facts.asked).origins = origins.to_vec();
    lab.grant.origins = origins.to_vec();
    for url in FOOLING {
        refused_at_the_door(&lab, url).await;
    }
    for host in NOT_PUBLIC {
        for scheme in ["http", "https"] {
            let origin = format!("{scheme}://{host}");
            OriginPattern::of(&origin).expect("it can be granted");
            std::sync::Arc::make_mut(&mut lab.facts.asked).origins = vec![origin.clone()];
            lab.grant.origins = vec![origin.clone()];
            refused_at_the_door(&lab, &format!("{origin}/")).await;
        }
    }
    assert_eq!(ledger.asked(), Vec::<String>::new());
    assert_eq!(ledger.dialled(), Vec::<String>::new());
    assert_eq!(lab.server.accepted(), 0);
    // The same door lets a public one through that was granted so, and looks up the name.
    for (origin, asked) in [
        ("https://1.1.1.1", ""),
        ("https://api.example.com", "api.example.com"),
    ] {
        std::sync::Arc::make_mut(&mut lab.facts.asked).origins = vec![origin.to_owned()];
        lab.grant.origins = vec![origin.to_owned()];
        let request = leasehold_contract::HttpRequest {
            url: format!("{origin}/"),
            headers: Vec::new(),
            ..lab.ask("GET", "")
        };
        let error = lab.call().http_send(request).await.unwrap_err();
        assert_eq!(error.code, Code::Unavailable, "{origin}: {error}");
        assert_eq!(ledger.asked().last().map_or("", String::as_str), asked);
    }
    assert_eq!(ledger.dialled(), ["1.1.1.1", "8.8.8.8"]);
}
