//! The two doors: a TCP address and a Unix socket.

use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tokio::net::{TcpListener, TcpStream, UnixListener};

use crate::settings::Listen;

/// A door cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The TCP address.
    #[error(
        "listen: {address}: {source}; is another server running there? give another one with --listen"
    )]
    Tcp {
        /// Which.
        address: SocketAddr,
        /// Why not.
        source: std::io::Error,
    },
    /// The Unix socket.
    #[error("socket: {}: {source}", path.display())]
    Unix {
        /// Which.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Something else has the socket's path.
    #[error("socket: {} is there already and is not a socket; move it away or give another path with --socket", path.display())]
    Occupied {
        /// Which.
        path: PathBuf,
    },
    /// Another server answers on the socket.
    #[error("socket: a server already listens on {}; stop it or give another path with --socket", path.display())]
    Alive {
        /// Which.
        path: PathBuf,
    },
}

/// Both doors, open.
#[derive(Debug)]
pub struct Doors {
    /// TCP, unless it is off.
    pub tcp: Option<TcpListener>,
    /// Where TCP is listened on, with the port that was taken.
    pub address: Option<SocketAddr>,
    /// The Unix socket.
    pub unix: UnixListener,
    /// Its path, removed when the server ends.
    pub path: PathBuf,
}

/// Opens both. A socket file that nobody answers on is a leftover and is replaced.
pub async fn open(listen: Listen, path: &Path) -> Result<Doors, ListenError> {
    let (tcp, address) = match listen {
        Listen::Off => (None, None),
        Listen::At(address) => {
            let failed = |source| ListenError::Tcp { address, source };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let bound = listener.local_addr().map_err(failed)?;
            (Some(listener), Some(bound))
        }
    };
    let failed = |source| ListenError::Unix {
        path: path.to_owned(),
        source,
    };
    match std::fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => {
            if tokio::net::UnixStream::connect(path).await.is_ok() {
                return Err(ListenError::Alive {
                    path: path.to_owned(),
                });
            }
            std::fs::remove_file(path).map_err(failed)?;
        }
        Ok(_) => {
            return Err(ListenError::Occupied {
                path: path.to_owned(),
            });
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
    }
    let unix = UnixListener::bind(path).map_err(failed)?;
    // Whoever connects is asked for its uid anyway; this only keeps strangers from trying.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    Ok(Doors {
        tcp,
        address,
        unix,
        path: path.to_owned(),
    })
}

/// Makes a peer that vanished noticed, and small frames leave at once.
pub fn tune(stream: &TcpStream) {
    use std::time::Duration;

    use rustix::net::sockopt;
    // Each is a help, none is needed: a kernel that refuses one serves all the same.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(30));
    let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(10));
    let _ = sockopt::set_tcp_keepcnt(stream, 4);
    let _ = sockopt::set_tcp_user_timeout(stream, 90_000);
}
