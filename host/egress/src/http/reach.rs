//! Reaches a destination: resolves its name once, checks every address, dials the ones checked, and shakes hands.
//!
//! A socket is opened component by component, through no symbolic link, and what was opened is what is connected to. An
//! engine that is root on this machine is connected to, where the kernel says so only then, and gets no byte.
//!
//! Resolver and dialler are traits so that a test can see that nothing was asked and nothing was dialled.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use leasehold_contract::{Code, Error};
use rustix::fs::{FileType, Mode, OFlags, fstat, open, openat};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::address::{is_loopback, refusal};
use super::origin::{Host, Scheme};
use super::settings::HttpSettings;
use super::tls::{TlsSettings, inside, refused};
use super::{Destination, Wire};
use crate::dial::{first, unreached};
use crate::engine::{self, Owners};
use crate::error::{failed, unavailable};

/// Bytes both ways to a peer.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Stream for T {}

/// Looks names up.
#[async_trait]
pub trait Resolver: Send + Sync + 'static {
    /// All addresses of the name.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// Opens connections.
#[async_trait]
pub trait Dialler: Send + Sync + 'static {
    /// To this address, which was checked.
    async fn tcp(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>>;
    /// To this socket, which an administrator typed; nothing is written.
    async fn unix(&self, socket: &Path) -> io::Result<UnixPeer>;
}

/// A connection to a Unix socket, and whose it is.
pub struct UnixPeer {
    /// The connection.
    pub stream: Box<dyn Stream>,
    /// The user id that the socket's file belongs to.
    pub file: u32,
    /// The user id of the process that listens.
    pub peer: u32,
}

/// How long a Unix socket that takes no more connections is left alone.
const FULL: Duration = Duration::from_millis(10);

/// The operating system's resolver and sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

#[async_trait]
impl Resolver for System {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        // The port is not part of the question.
        Ok(tokio::net::lookup_host((name, 0))
            .await?
            .map(|at| at.ip())
            .collect())
    }
}

#[async_trait]
impl Dialler for System {
    async fn tcp(&self, address: SocketAddr) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        keepalive(&stream)?;
        Ok(Box::new(stream))
    }

    async fn unix(&self, socket: &Path) -> io::Result<UnixPeer> {
        let (opened, file) = open_socket(socket)?;
        // Whatever stands at the path by now: this leads to what was opened.
        let path = format!("/proc/self/fd/{}", opened.as_raw_fd());
        let stream = loop {
            match UnixStream::connect(&path).await {
                // More wait there than it takes (connect(2), EAGAIN), and nobody tells when a place is free: whoever asked
                // holds the deadline.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => sleep(FULL).await,
                done => break done?,
            }
        };
        let peer = stream.peer_cred()?.uid();
        Ok(UnixPeer {
            stream: Box::new(stream),
            file,
            peer,
        })
    }
}

/// Opens a socket by its path, through no symbolic link, without connecting to it; and the user that it belongs to.
fn open_socket(path: &Path) -> io::Result<(OwnedFd, u32)> {
    const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut at = open("/", FLAGS, Mode::empty())?;
    for part in path.components().skip_while(|c| *c == Component::RootDir) {
        let Component::Normal(name) = part else {
            return Err(io::Error::other("the path is not in its one spelling"));
        };
        at = openat(&at, name, FLAGS, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&at)?.st_mode) == FileType::Symlink {
            return Err(io::Error::other(match std::fs::canonicalize(path) {
                Ok(real) => format!(
                    "a symbolic link lies on the way to it; its real path is {}",
                    real.display()
                ),
                Err(_) => "a symbolic link lies on the way to it; write its real path".to_owned(),
            }));
        }
    }
    let found = fstat(&at)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket {
        return Err(io::Error::other("it is not a socket"));
    }
    Ok((at, found.st_uid))
}

/// A peer that vanished is noticed within two minutes, also where nobody writes for hours.
fn keepalive(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(stream, Duration::from_secs(15))?;
    sockopt::set_tcp_keepcnt(stream, 4)?;
    Ok(())
}

/// A connection that stands, before HTTP is spoken over it.
pub(super) struct Reached {
    pub(super) stream: Gauged,
    pub(super) gauge: Arc<Gauge>,
    /// Bytes to it stay on this machine.
    pub(super) local: bool,
}

/// What reaches destinations.
pub(super) struct Reach {
    pub(super) resolver: Arc<dyn Resolver>,
    pub(super) dialler: Arc<dyn Dialler>,
}

impl Reach {
    /// Connects, and secures the connection where the scheme says so. Each stage has its own deadline.
    ///
    /// # Errors
    /// `permission-denied` for an address that the destination may not have, `untrusted-peer`, `unauthenticated`, else
    /// `unavailable`: nothing was sent.
    pub(super) async fn open(
        &self,
        to: &Destination,
        secret: bool,
        settings: &HttpSettings,
    ) -> Result<Reached, Error> {
        let name = to.to_string();
        let (stream, local) = timeout(settings.connect, self.connect(to, secret, &name, settings))
            .await
            .map_err(|_| {
                let mend = match to.unix {
                    Some(_) => "it takes no more connections; check whether the engine still works",
                    None => "check host, port and the network between",
                };
                let time = span(settings.connect);
                unavailable(&name, format_args!("not connected within {time}; {mend}"))
            })??;
        let stream = match to.origin.scheme {
            Scheme::Http => stream,
            Scheme::Https if to.unix.is_some() => stream,
            Scheme::Https => timeout(settings.tls, secure(to, stream, &name))
                .await
                .map_err(|_| {
                    unavailable(
                        &name,
                        format_args!(
                            "the server took the connection and did not finish the TLS handshake within {}",
                            span(settings.tls)
                        ),
                    )
                })??,
        };
        let gauge = Arc::new(Gauge::new());
        Ok(Reached {
            stream: Gauged {
                inner: stream,
                gauge: gauge.clone(),
            },
            gauge,
            local,
        })
    }

    async fn connect(
        &self,
        to: &Destination,
        secret: bool,
        name: &str,
        settings: &HttpSettings,
    ) -> Result<(Box<dyn Stream>, bool), Error> {
        let may_be_root = settings.host_roots.allow(to);
        if let Some(socket) = &to.unix {
            if !to.typed {
                return Err(failed(
                    Code::PermissionDenied,
                    name,
                    "a Unix socket is reached only as an endpoint that an administrator typed",
                ));
            }
            if !to.engine {
                return Err(failed(
                    Code::PermissionDenied,
                    name,
                    "a Unix socket is reached only as a container engine, behind the engine policy",
                ));
            }
            let UnixPeer { stream, file, peer } = self.dialler.unix(socket).await.map_err(|e| {
                unavailable(
                    name,
                    format_args!(
                        "the socket cannot be reached ({e}); check its path and its rights"
                    ),
                )
            })?;
            let own = rustix::process::geteuid().as_raw();
            if let Some(whose) = (Owners { file, peer }).host_root(own)
                && !may_be_root
            {
                let what = engine::refusal(to, whose);
                return Err(failed(Code::PermissionDenied, name, what));
            }
            return Ok((stream, true));
        }
        let addresses = self.addresses(to, secret, name).await?;
        if to.engine && !may_be_root && addresses.iter().any(|at| engine::is_this_machine(at.ip()))
        {
            let what = engine::refusal(
                to,
                "this machine, and over TCP nobody can say to which user",
            );
            return Err(failed(Code::PermissionDenied, name, what));
        }
        let local = addresses.iter().all(|at| is_loopback(at.ip()));
        let dialler = self.dialler.clone();
        let stream = first(addresses, move |at| {
            let dialler = dialler.clone();
            async move { dialler.tcp(at).await }
        })
        .await
        .map_err(|last| unreached(name, last, "check port and that the server runs"))?;
        Ok((stream, local))
    }

    /// The addresses to dial: all that the name has, each checked, or none.
    async fn addresses(
        &self,
        to: &Destination,
        secret: bool,
        name: &str,
    ) -> Result<Vec<SocketAddr>, Error> {
        let found = match &to.origin.host {
            Host::Ip(ip) => vec![*ip],
            Host::Name(host) => {
                let found = self.resolver.resolve(host).await.map_err(|e| {
                    unavailable(
                        name,
                        format_args!("the name {host} does not resolve ({e}); check the host"),
                    )
                })?;
                if found.is_empty() {
                    return Err(unavailable(
                        name,
                        format_args!("the name {host} resolves to no address; check the host"),
                    ));
                }
                found
            }
        };
        // One bad address among good ones is a zone that cannot be trusted with the choice.
        if let Some(why) = found
            .iter()
            .find_map(|ip| refusal(&to.origin.host, to.typed, *ip))
        {
            return Err(failed(Code::PermissionDenied, name, why));
        }
        let local = found.iter().all(|ip| is_loopback(*ip));
        plain(to, secret, local, name)?;
        Ok(found
            .into_iter()
            .map(|ip| SocketAddr::new(ip, to.origin.port))
            .collect())
    }
}

/// Refuses a secret in plain, and a word to an engine, to anything but this machine.
pub(super) fn plain(to: &Destination, secret: bool, local: bool, name: &str) -> Result<(), Error> {
    if to.origin.scheme != Scheme::Http || to.unix.is_some() || local {
        return Ok(());
    }
    let what = match (to.engine, secret) {
        (true, _) => "a container engine of another machine is not commanded over plain http://",
        (false, true) => "a secret is not sent over plain http:// to another machine",
        (false, false) => return Ok(()),
    };
    Err(failed(
        Code::PermissionDenied,
        name,
        format_args!("{what}; use https://"),
    ))
}

async fn secure(
    to: &Destination,
    stream: Box<dyn Stream>,
    name: &str,
) -> Result<Box<dyn Stream>, Error> {
    let tls = match &to.tls {
        Some(tls) => tls.clone(),
        None => TlsSettings::new(None, None)?,
    };
    let server = match &to.origin.host {
        Host::Ip(ip) => ServerName::IpAddress((*ip).into()),
        Host::Name(host) => ServerName::try_from(host.clone()).map_err(|_| {
            failed(
                Code::InvalidConfig,
                name,
                "the host is no name that a certificate can carry",
            )
        })?,
    };
    match TlsConnector::from(tls.config.clone())
        .connect(server, stream)
        .await
    {
        Ok(stream) => Ok(Box::new(stream)),
        Err(e) => Err(match inside(&e) {
            Some(tls) => refused(name, tls),
            None => unavailable(
                name,
                format_args!("the connection was lost in the TLS handshake ({e})"),
            ),
        }),
    }
}

/// A span of time for a message.
pub(super) fn span(time: Duration) -> String {
    if time.subsec_millis() == 0 {
        format!("{} s", time.as_secs())
    } else {
        format!("{} ms", time.as_millis())
    }
}

/// How much was written over a connection, and when last.
pub(super) struct Gauge {
    since: Instant,
    written: AtomicU64,
    last: AtomicU64,
}

impl Gauge {
    fn new() -> Gauge {
        Gauge {
            since: Instant::now(),
            written: AtomicU64::new(0),
            last: AtomicU64::new(0),
        }
    }

    /// Bytes of HTTP that were handed on.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// When the last of them were.
    pub(super) fn last_write(&self) -> Instant {
        self.since + Duration::from_millis(self.last.load(Ordering::Acquire))
    }

    fn wrote(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Ordering::AcqRel);
        let now = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Release);
    }
}

/// A stream that tells its [`Gauge`] what is written.
pub(super) struct Gauged {
    inner: Box<dyn Stream>,
    gauge: Arc<Gauge>,
}

impl AsyncRead for Gauged {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl Gauged {
    fn counted(&self, done: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = &done {
            self.gauge.wrote(*bytes);
        }
        done
    }
}

impl AsyncWrite for Gauged {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.counted(done)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let done = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
        self.counted(done)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

impl Wire {
    /// The name of where it goes, for messages.
    pub(super) fn name(&self) -> String {
        self.destination.to_string()
    }
}
