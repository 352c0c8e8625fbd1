//! A Unix socket that belongs to another user, as a container engine of that user's has.
//!
//! Users are a thread's before they are a process's: one that ends at once becomes the other user and listens, so that file
//! and peer are that user's, and this process stays what it is.

use std::io::{Error, Result};
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Listens at a path as this user. The directory must be one that the user may write to.
///
/// # Errors
/// When this process may not become that user (it is not root's), or the path cannot be listened at.
pub fn listen_as(user: u32, path: &Path) -> Result<UnixListener> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                become_user(user)?;
                UnixListener::bind(path)
            })
            .join()
            .unwrap_or_else(|_| Err(Error::other("listening as another user panicked")))
    })
}

fn become_user(user: u32) -> Result<()> {
    // The C library would change every thread of the process; the system call changes the one that makes it.
    // SAFETY: three numbers are passed, and no memory.
    let changed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
    match changed {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
