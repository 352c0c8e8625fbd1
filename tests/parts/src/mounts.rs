//! Mounts that nobody else sees, also where the file system's root is a chroot.
//!
//! `unshare --mount` makes the root mount private first, and cannot where the root is no mount: in a chroot the mount
//! that it lies on is out of sight. Without that a mount made here would show up on the machine. Nothing here mounts
//! anything; the thread that is given its own mounts ends with the work, so that no other work runs in them.

use std::ffi::CStr;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

/// Runs `work` on a thread whose mounts are its own; programs that it starts have them too.
///
/// # Errors
/// When this process may not have mounts of its own (it is not root's), or `work` panicked.
pub(crate) fn own<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T> {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                separate()?;
                Ok(work())
            })
            .join()
            .unwrap_or_else(|_| Err(Error::other("starting in own mounts panicked")))
    })
}

/// Gives this thread a mount namespace in which nothing propagates.
fn separate() -> Result<()> {
    // SAFETY: the thread gets copies of its root, working directory and mounts; no memory or descriptor is concerned.
    checked(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) })?;
    match make_private() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {}
        made => return made,
    }
    // The root is no mount. Its mount is reached from outside of it, and left again.
    let root = std::fs::File::open("/")?;
    let inside = tempfile::tempdir()?;
    // The working directory is behind the new root, so that `..` goes up to the very top.
    chdir(c"/")?;
    let inside = std::ffi::CString::new(inside.path().as_os_str().as_encoded_bytes())?;
    chroot(&inside)?;
    let place = || std::fs::metadata(".").map(|m| (m.dev(), m.ino()));
    loop {
        let here = place()?;
        chdir(c"..")?;
        if place()? == here {
            break;
        }
    }
    chroot(c".")?;
    let made = make_private();
    // SAFETY: the descriptor is open.
    checked(unsafe { libc::fchdir(root.as_raw_fd()) })?;
    chroot(c".")?;
    made
}

fn make_private() -> Result<()> {
    let flags = libc::MS_REC | libc::MS_PRIVATE;
    // SAFETY: the path is a C string; what is null is not read for a change of propagation.
    checked(unsafe {
        libc::mount(
            std::ptr::null(),
            c"/".as_ptr(),
            std::ptr::null(),
            flags,
            std::ptr::null(),
        )
    })
}

fn chdir(path: &CStr) -> Result<()> {
    // SAFETY: the path is a C string.
    checked(unsafe { libc::chdir(path.as_ptr()) })
}

fn chroot(path: &CStr) -> Result<()> {
    // SAFETY: the path is a C string.
    checked(unsafe { libc::chroot(path.as_ptr()) })
}

fn checked(answer: i32) -> Result<()> {
    if answer == 0 {
        Ok(())
    } else {
        Err(Error::last_os_error())
    }
}
