//! A real container engine: Podman's service on a socket in a folder of its own, with one image and no network.
//!
//! It runs in namespaces of its own, with its storage and all that it keeps in its folder: nothing of the machine's
//! is touched, no container outlives it. The image is made of what the machine has, so that nothing is fetched.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Signal, getuid};
use tempfile::TempDir;

use crate::mounts;

/// The image that the engine has: busybox with its applets.
pub const IMAGE: &str = "localhost/box:1";

/// What Podman is told instead of the machine's own settings: no control groups, no limits above a container's own, its
/// records in files. Of the usual runtimes crun alone can do without control groups, which are the machine's.
const CONTAINERS: &str = r#"
[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
log_driver = "k8s-file"
netns = "none"

[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
"#;

/// The engine; dropped, it and its containers end.
#[derive(Debug)]
pub struct Podman {
    child: Child,
    dir: TempDir,
}

impl Podman {
    /// What is missing to start one here; none where nothing is.
    pub fn missing() -> Option<&'static str> {
        if !getuid().is_root() {
            return Some("the rights of root, for a container engine");
        }
        [
            "podman", "crun", "conmon", "busybox", "unshare", "chroot", "tar", "ldd",
        ]
        .into_iter()
        .find(|program| !crate::has(program))
    }

    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up, or cannot have the image; what it said is in the text.
    pub fn start() -> Result<Podman> {
        let dir = tempfile::Builder::new()
            .prefix("leasehold-podman-")
            .tempdir()?;
        let at = dir.path();
        std::fs::write(at.join("containers.conf"), CONTAINERS)?;
        std::fs::write(
            at.join("storage.conf"),
            format!(
                "[storage]\ndriver = \"vfs\"\nrunroot = \"{0}/run\"\ngraphroot = \"{0}/storage\"\n",
                at.display()
            ),
        )?;
        rootfs(&at.join("rootfs"))?;
        // Engines want a root that is a mount, which a chroot's is not: this one is, and has all that is there.
        let machine = at.join("machine");
        std::fs::create_dir(&machine)?;
        let enter = format!(
            "mount --rbind / '{1}' && exec chroot '{1}' sh '{0}/serve'",
            at.display(),
            machine.display()
        );
        let serve = format!(
            "mount -t tmpfs tmpfs /run && \
             {{ [ -d /sys/fs/cgroup ] || mount -t sysfs sysfs /sys; }} && \
             mount -t cgroup2 cgroup2 /sys/fs/cgroup && \
             tar -C '{0}/rootfs' -cf '{0}/rootfs.tar' . && \
             podman import -q '{0}/rootfs.tar' {IMAGE} && \
             exec podman system service --time=0 'unix://{0}/podman.sock'\n",
            at.display()
        );
        std::fs::write(at.join("serve"), serve)?;
        let log = std::fs::File::create(at.join("log"))?;
        let mut command = Command::new("unshare");
        // Already private: see `mounts`.
        command
            .args(["--mount", "--propagation", "unchanged", "--pid", "--fork"])
            .args(["--mount-proc", "--kill-child", "sh", "-c", &enter])
            .env("CONTAINERS_CONF", at.join("containers.conf"))
            .env("CONTAINERS_STORAGE_CONF", at.join("storage.conf"))
            .env("HOME", at)
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        let spawned = mounts::own(|| command.spawn()).context("podman cannot have own mounts")?;
        let mut podman = Podman {
            child: spawned.context("podman cannot be spawned")?,
            dir,
        };
        podman.wait()?;
        Ok(podman)
    }

    fn wait(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(60);
        let log = self.dir.path().join("log");
        let said = || std::fs::read_to_string(&log).unwrap_or_default();
        while UnixStream::connect(self.socket()).is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("podman ended with {status}: {}", said());
            }
            if Instant::now() > deadline {
                bail!("podman does not answer: {}", said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// The socket of its API.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("podman.sock")
    }

    /// What it said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        // `unshare` takes the first process of the namespace with it, and that one every other.
        if let Some(pid) = i32::try_from(self.child.id())
            .ok()
            .and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

/// A root directory with busybox, the libraries that it needs, and its applets.
fn rootfs(at: &Path) -> Result<()> {
    let busybox = crate::find("busybox").context("there is no busybox")?;
    for part in ["bin", "tmp", "etc", "proc", "sys", "dev"] {
        std::fs::create_dir_all(at.join(part))?;
    }
    std::fs::copy(&busybox, at.join("bin/busybox"))?;
    // One that is linked statically has none, and `ldd` fails.
    let needed = Command::new("ldd").arg(&busybox).output()?;
    for word in String::from_utf8_lossy(&needed.stdout).split_whitespace() {
        let Some(inside) = word.strip_prefix('/').filter(|_| Path::new(word).is_file()) else {
            continue;
        };
        let to = at.join(inside);
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::copy(word, to)?;
    }
    for applet in [
        "sh", "cat", "echo", "env", "id", "pwd", "sleep", "wc", "ls", "hostname",
    ] {
        std::os::unix::fs::symlink("busybox", at.join("bin").join(applet))?;
    }
    std::fs::write(at.join("etc/passwd"), "root:x:0:0:root:/:/bin/sh\n")?;
    Ok(())
}
