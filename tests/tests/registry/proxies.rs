//! A proxy that the environment names: neither a component's requests nor a registry's go there, and no command of the client.

use std::net::TcpListener;

use leasehold_parts::{RegistryOptions, Rooms};
use leasehold_tests::front::{Authority, Front};
use leasehold_tests::http::text;
use leasehold_tests::shape::{changed, modest};
use serde_json::{Value, json};

use crate::house::{House, pushed, registry, source};

const TOKEN: &str = "canary-Token-proxied";

/// Every spelling that programs look for.
const NAMES: [&str; 10] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "FTP_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "ftp_proxy",
    "CGI_HTTP_PROXY",
    "Http_Proxy",
];

/// A lease's whole life at this endpoint, with a command whose stream is an upgraded connection.
fn live(house: &House, name: &str, endpoint: &Value) {
    let token = json!({ "type": "secret_value", "value": TOKEN });
    let draft = json!({
        "name": name, "driver": "sandbox", "provider": "cabin",
        "config": { "endpoint": endpoint, "token": token },
    });
    let environment = text(&house.server.environment(&draft).expect(201)["id"]);
    let lease = house.server.acquire(&environment).expect(201);
    assert_eq!(lease["proof"], "owned", "the host's own look: {lease}");
    let lease = text(&lease["id"]);
    let ran = house
        .server
        .exec(&lease, &json!({ "argv": ["sh", "-c", "exit 3"] }))
        .expect(200);
    assert_eq!(ran["execution"]["exitCode"], 3, "its stream: {ran}");
    assert_eq!(house.server.release(&lease)["status"], "released");
}

#[test]
fn no_proxy_of_the_environment_hears_of_a_request_a_stream_a_registry_or_a_command_of_the_client() {
    // Whoever connects is kept waiting here until somebody looks.
    let proxy = TcpListener::bind("127.0.0.1:0").expect("a port");
    proxy.set_nonblocking(true).expect("a listener");
    let at = format!("http://{}", proxy.local_addr().expect("an address"));
    let authority = Authority::new();
    let of_registry = authority.identity("127.0.0.1");
    let plain = registry(&RegistryOptions::default());
    let tls = registry(&RegistryOptions {
        account: false,
        tls: Some((of_registry.certificate, of_registry.key)),
    });
    let (Some(plain), Some(tls)) = (plain, tls) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).expect("a file");
    let ca = ca.display().to_string();
    let settings = format!(
        "{}[[plugins.sources]]\nregistry = '{}'\nsigned-by = 'anyone'\nca = '{ca}'\n",
        source(&plain.authority(), "'anyone'", ""),
        tls.authority(),
    );
    let variables = NAMES.map(|name| (name, at.as_str()));
    let Some(house) = House::begun_with(&settings, &variables) else {
        return;
    };
    let begun = std::fs::read(format!("/proc/{}/environ", house.server.pid())).expect("a process");
    let named = |name: &str| {
        let wanted = format!("{name}={at}");
        begun.split(|b| *b == 0).any(|one| one == wanted.as_bytes())
    };
    assert!(
        NAMES.into_iter().all(named),
        "the server was begun with all"
    );

    // Registries: published to by the client, pulled from by the server.
    let first = house.shape("first.wasm", &modest());
    let name = format!("oci://{}/shape:1", plain.authority());
    pushed(house.push(&first, &name, &[]));
    house.granted(&name);
    let second = house.shape("second.wasm", &changed(json!({ "version": "1.0.1" })));
    let name = format!("oci://{}/shape:2", tls.authority());
    let push = ["--json", "plugin", "push", &second, &name, "--ca", &ca];
    pushed(house.server.run(&push));
    house.granted(&name);
    assert_eq!(house.plugin()["version"], "1.0.1");

    // Components' requests and streams, in plain and over TLS with an identity.
    house.server.install("cabin").expect(201);
    let rooms = Rooms::start(TOKEN).expect("a room server");
    live(&house, "plain", &json!(rooms.url()));
    let clients = Authority::new();
    let front = Front::before(rooms.port(), &authority, &clients);
    let known = clients.identity("leasehold");
    let key = json!({ "type": "secret_value", "value": known.key });
    let endpoint = json!({
        "url": format!("{}/v1", front.url()), "ca": authority.pem(),
        "clientCertificate": known.certificate, "clientKey": key,
    });
    live(&house, "tls", &endpoint);
    assert!(!rooms.heard().is_empty() && front.handshakes().0 > 0);

    // The client that is told of a server at a TCP address.
    let token = house.server.token();
    let ran = house
        .server
        .leasehold()
        .env(
            "LEASEHOLD_SERVER",
            format!("http://127.0.0.1:{}", house.server.port()),
        )
        .env("LEASEHOLD_TOKEN", token)
        .args(["plugin", "list"])
        .output()
        .expect("the client runs");
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );

    let came = proxy.accept().map(|(_, from)| from);
    assert!(came.is_err(), "somebody went to the proxy: {came:?}");
}
