//! Which engines are reached at all: whose a socket is, by which path, and what counts as this machine.

use std::os::unix::fs::{PermissionsExt, symlink};

use leasehold_contract::Code;
use leasehold_egress::{Endpoint, HostRoots, Secret, TlsSettings};
use tempfile::TempDir;
use tokio::net::UnixListener;

use crate::engine_dock::Dock;
use crate::server::{LONG, reply, serve};
use crate::tls::{authority, server, signed};

/// A user that is neither root, nor whoever runs this.
const SOMEBODY: u32 = 54_321;

/// What a request to the engine comes to.
async fn version(dock: &Dock) -> Result<u16, leasehold_contract::Error> {
    let answer = dock.call().http_send(dock.ask("GET", "/version")).await?;
    Ok(answer.head.status)
}

#[tokio::test]
async fn a_socket_of_ones_own_user_is_root_on_this_machine_and_hears_no_byte_unless_it_is_named() {
    let mut dock = Dock::new().await;
    dock.roots = HostRoots::default();
    let error = version(&dock).await.expect_err("it is ours, or root's");
    assert_eq!(error.code, Code::PermissionDenied, "{error}");
    for part in [
        "root on this machine",
        &format!("--allow-host-root={}", dock.path),
    ] {
        assert!(error.message.contains(part), "{error}");
    }
    dock.roots = HostRoots::of(&[&format!("{}2", dock.path)]).unwrap();
    version(&dock).await.expect_err("another one is named");
    assert_eq!(dock.heard().len(), 0);
    dock.roots = HostRoots::of(&[&dock.path]).unwrap();
    assert_eq!(version(&dock).await, Ok(200));
}

#[tokio::test]
async fn a_socket_whose_queue_is_full_is_waited_for_and_given_up_at_the_deadline_of_connecting() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().canonicalize().unwrap().join("engine.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    // A queue of one, and somebody in it already whom nobody serves: the kernel takes one more than it is told.
    rustix::net::listen(&listener, 0).unwrap();
    let mut queue = vec![std::os::unix::net::UnixStream::connect(&path).unwrap()];
    let full = || {
        let (family, kind) = (
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
        );
        let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(family, kind, flags, None).unwrap();
        let address = rustix::net::SocketAddrUnix::new(&path).unwrap();
        let done = rustix::net::connect(&socket, &address);
        (socket, done)
    };
    let (_held, mut done) = full();
    while done.is_ok() {
        let (socket, next) = full();
        queue.push(socket.into());
        done = next;
    }
    assert_eq!(done, Err(rustix::io::Errno::AGAIN));
    let mut dock = Dock::new().await;
    let url = format!("unix://{}", path.display());
    dock.roots = HostRoots::of(&[&url]).unwrap();
    let endpoint = Endpoint::engine(&url, true, None).unwrap();
    dock.facts.endpoints = [("/engine".to_owned(), endpoint)].into();
    dock.connect = std::time::Duration::from_millis(50);
    let error = version(&dock).await.expect_err("nobody makes room");
    assert_eq!(error.code, Code::Unavailable, "{error}");
    for part in [
        path.to_str().unwrap(),
        "not connected within",
        "takes no more",
    ] {
        assert!(error.message.contains(part), "{error}");
    }
    dock.connect = LONG;
    // Room is made while somebody waits: those before are served, and then it is.
    let waiting = version(&dock);
    let serving = async {
        listener.set_nonblocking(true).unwrap();
        let mut listener = Some(UnixListener::from_std(listener).unwrap());
        for _ in 0..queue.len() {
            listener.as_mut().unwrap().accept().await.unwrap();
        }
        let (stream, _) = listener.take().unwrap().accept().await.unwrap();
        crate::server::speak(stream, |_| async { reply(200, "{}") }).await;
    };
    let done = tokio::select! {
        done = waiting => done,
        () = serving => panic!("it was served and not asked"),
    };
    assert_eq!(done, Ok(200));
}

/// A directory that everybody may write to, and the path of a socket in it.
fn open_directory() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let path = dir.path().canonicalize().unwrap().join("engine.sock");
    (dir, path.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn a_socket_of_another_user_is_reached_and_one_that_root_made_for_another_is_not() {
    let (dir, path) = open_directory();
    let listener = match leasehold_parts::listen_as(SOMEBODY, path.as_ref()) {
        Ok(listener) => listener,
        Err(error) => return leasehold_parts::skipped(&format!("the rights of root ({error})")),
    };
    listener.set_nonblocking(true).unwrap();
    let listener = UnixListener::from_std(listener).unwrap();
    let mut dock = Dock::behind(dir, path.clone(), listener);
    dock.roots = HostRoots::default();
    assert_eq!(version(&dock).await, Ok(200));
    // Who owns the file may put another in its place.
    std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    let error = version(&dock).await.expect_err("its file is root's");
    assert!(error.message.contains("root on this machine"), "{error}");
    // And who listens is who is commanded, whoever owns the file.
    std::fs::remove_file(&path).unwrap();
    let (other, _) = open_directory();
    let listener = UnixListener::bind(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(SOMEBODY), None).unwrap();
    let mut dock = Dock::behind(other, path, listener);
    dock.roots = HostRoots::default();
    version(&dock).await.expect_err("root listens");
    assert_eq!(dock.heard().len(), 0);
}

#[tokio::test]
async fn a_socket_is_reached_by_its_real_path_and_by_no_link() {
    let dock = Dock::new().await;
    let real = std::path::Path::new(&dock.path);
    let dir = real.parent().unwrap();
    symlink(real, dir.join("link.sock")).unwrap();
    symlink(dir, dir.join("link")).unwrap();
    std::fs::write(dir.join("file.sock"), "").unwrap();
    for (name, told) in [
        ("link.sock", dock.path.as_str()),
        ("link/engine.sock", dock.path.as_str()),
        ("file.sock", "not a socket"),
        ("none.sock", "No such file"),
    ] {
        let path = dir.join(name);
        let mut lured = Dock::new().await;
        let url = format!("unix://{}", path.display());
        lured.roots = HostRoots::of(&[&url]).unwrap();
        let endpoint = Endpoint::engine(&url, true, None).unwrap();
        lured.facts.endpoints = [("/engine".to_owned(), endpoint)].into();
        let error = version(&lured).await.expect_err(name);
        assert_eq!(error.code, Code::Unavailable, "{error}");
        assert!(error.message.contains(told), "{error}");
    }
    assert_eq!(dock.accepted(), 0);
}

#[tokio::test]
async fn an_engine_that_nobody_typed_is_not_reached() {
    let mut dock = Dock::new().await;
    if let Some(endpoint) = dock.facts.endpoints.get_mut("/engine") {
        endpoint.destination.typed = false;
    }
    version(&dock).await.expect_err("it is a default");
    assert_eq!(dock.accepted(), 0);
}

#[tokio::test]
async fn an_engine_over_tcp_on_this_machine_is_root_on_it_whoever_runs_it() {
    let engine = serve(|_| async { reply(200, "{}") }).await;
    let mut dock = Dock::new().await;
    let endpoint = Endpoint::engine(&engine.url(), true, None).unwrap();
    dock.facts.endpoints = [("/engine".to_owned(), endpoint)].into();
    let error = version(&dock).await.expect_err("loopback is this machine");
    assert_eq!(error.code, Code::PermissionDenied, "{error}");
    let flag = format!("--allow-host-root={}", engine.url());
    assert!(error.message.contains(&flag), "{error}");
    assert_eq!(engine.accepted(), 0);
    dock.roots = HostRoots::of(&[engine.url()]).unwrap();
    assert_eq!(version(&dock).await, Ok(200));
    // The policy stands in front of it as of any.
    let error = dock.call().http_send(dock.ask("GET", "/info")).await;
    assert!(
        error
            .expect_err("not on the list")
            .message
            .contains("the engine policy")
    );
    assert_eq!(dock.accepted(), 0);
}

#[tokio::test]
async fn an_engine_over_tls_is_commanded_with_the_key_of_its_endpoint_and_by_nobody_else() {
    let (ours, clients) = (authority(), authority());
    let engine = server(&ours, "127.0.0.1", Some(&clients)).await;
    let url = format!("https://{}", engine.at);
    let (certificate, key) = signed(&clients, "leasehold");
    let key = Secret::new(key.serialize_pem());
    let identity = certificate.pem();
    let with = TlsSettings::new(Some(&ours.pem()), Some((&identity, &key))).unwrap();
    let without = TlsSettings::new(Some(&ours.pem()), None).unwrap();
    let mut dock = Dock::new().await;
    let to = |tls| {
        [(
            "/engine".to_owned(),
            Endpoint::engine(&url, true, Some(tls)).unwrap(),
        )]
    };
    dock.facts.endpoints = to(with).into();
    dock.roots = HostRoots::default();
    let error = version(&dock).await.expect_err("it is on this machine");
    assert!(error.message.contains("root on this machine"), "{error}");
    dock.roots = HostRoots::of(&[&url]).unwrap();
    assert_eq!(version(&dock).await, Ok(200));
    dock.facts.endpoints = to(without).into();
    let error = version(&dock).await.expect_err("nobody is shown");
    assert_eq!(error.code, Code::Unauthenticated, "{error}");
}
