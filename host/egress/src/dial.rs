//! Reaches an address: dials all that a name resolved to, in turn. No proxy is taken from the environment.
//!
//! [`dial`] is for SSH targets, which an administrator typed, so every range may be dialled. HTTP checks the addresses
//! before it dials them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use leasehold_contract::Error;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::error::unavailable;

/// How long one address may try alone before the next is dialled beside it (RFC 8305, 5).
const HEAD_START: Duration = Duration::from_millis(250);

/// A TCP connection with `nodelay`; the caller holds the deadline. `target` is for messages.
pub(crate) async fn dial(target: &str, host: &str, port: u16) -> Result<TcpStream, Error> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((host, port))
        .await
        .map_err(|e| {
            unavailable(
                target,
                format_args!("the name {host} does not resolve ({e}); check host"),
            )
        })?
        .collect();
    if found.is_empty() {
        return Err(unavailable(
            target,
            format_args!("the name {host} resolves to no address; check host"),
        ));
    }
    match first(found, TcpStream::connect).await {
        Ok(stream) => {
            let _ = stream.set_nodelay(true);
            Ok(stream)
        }
        Err(last) => Err(unreached(
            target,
            last,
            "check port and that sshd runs there",
        )),
    }
}

/// The first of these addresses that `connect` reaches; else the last one that failed, and why.
pub(crate) async fn first<T, F, C>(
    found: Vec<SocketAddr>,
    connect: C,
) -> Result<T, Option<(SocketAddr, io::Error)>>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
    C: Fn(SocketAddr) -> F,
{
    let mut waiting = alternate(found);
    let mut trying = JoinSet::new();
    let mut last = None;
    loop {
        if let Some(address) = waiting.pop_front() {
            let connecting = connect(address);
            trying.spawn(async move { (address, connecting.await) });
        } else if trying.is_empty() {
            return Err(last);
        }
        let done = if waiting.is_empty() {
            trying.join_next().await
        } else {
            match tokio::time::timeout(HEAD_START, trying.join_next()).await {
                Ok(done) => done,
                Err(_) => continue,
            }
        };
        match done {
            Some(Ok((_, Ok(stream)))) => return Ok(stream),
            Some(Ok((address, Err(e)))) => last = Some((address, e)),
            Some(Err(_)) | None => {}
        }
    }
}

/// What [`first`] failed with, as an error of the contract; `refused` is the mend where the port is closed.
pub(crate) fn unreached(
    target: &str,
    last: Option<(SocketAddr, io::Error)>,
    refused: &str,
) -> Error {
    match last {
        Some((address, e)) if e.kind() == io::ErrorKind::ConnectionRefused => unavailable(
            target,
            format_args!("{address} refuses the connection; {refused}"),
        ),
        Some((address, e)) => unavailable(
            target,
            format_args!(
                "{address} cannot be reached ({e}); check host, port and the network between"
            ),
        ),
        None => unavailable(target, "no address could be dialled"),
    }
}

/// The resolver's order, the two families in turn.
fn alternate(found: Vec<SocketAddr>) -> VecDeque<SocketAddr> {
    let six_first = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut a, mut b): (VecDeque<_>, VecDeque<_>) =
        found.into_iter().partition(|s| s.is_ipv6() == six_first);
    let mut out = VecDeque::new();
    while let Some(one) = a.pop_front() {
        out.push_back(one);
        out.extend(b.pop_front());
    }
    out.extend(b);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_are_tried_in_turn() {
        let a = |s: &str| s.parse::<SocketAddr>().unwrap();
        let order = alternate(vec![a("[::1]:1"), a("[::2]:1"), a("1.1.1.1:1")]);
        assert_eq!(order, [a("[::1]:1"), a("1.1.1.1:1"), a("[::2]:1")]);
    }

    #[tokio::test]
    async fn an_address_that_refuses_gives_way_to_one_that_answers() {
        let bind = || tokio::net::TcpListener::bind("127.0.0.1:0");
        let (listener, gone) = (bind().await.unwrap(), bind().await.unwrap());
        let (there, refuses) = (listener.local_addr().unwrap(), gone.local_addr().unwrap());
        drop(gone);
        let stream = first(vec![refuses, there], TcpStream::connect)
            .await
            .unwrap();
        assert_eq!(stream.peer_addr().unwrap(), there);
        let e = dial("u@h:1", "127.0.0.1", refuses.port())
            .await
            .unwrap_err();
        assert!(e.message.starts_with("u@h:1: "), "{e}");
        assert!(e.message.contains("refuses"), "{e}");
    }
}
