//! OpenSSH's sshd on a free port of 127.0.0.1.

use std::fmt::Write as _;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, getuid, kill_process};
use tempfile::TempDir;

use crate::key::{Format, KeyPair, Kind};
use crate::mounts;
use crate::process::{Process, processes_below};

/// What to start, beyond what every sshd here has.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Lines of `sshd_config` that come before ours, so that they win: `MaxSessions 2`, `ForceCommand none`.
    pub config: Vec<String>,
    /// Without the SFTP subsystem.
    pub no_sftp: bool,
    /// Host key types it has; empty for Ed25519, ECDSA P-256 and RSA.
    pub host_keys: Vec<Kind>,
    /// A host certificate: the authority's private half and `ssh-keygen` arguments such as `-n 127.0.0.1`.
    pub host_certificate: Option<(KeyPair, Vec<String>)>,
    /// An authority whose user certificates are accepted: its public line.
    pub user_authority: Option<String>,
    /// Bytes of a tmpfs at [`Sshd::small`]; only as root.
    pub small: Option<u64>,
}

/// An account of the throw-away machine.
#[derive(Clone, Debug)]
pub struct Account {
    /// Its name; the login shell's, or `lease`.
    pub name: String,
    /// Its login shell.
    pub shell: String,
    /// Its home directory.
    pub home: PathBuf,
}

/// A running sshd; dropping it ends it and every process that came of it.
#[derive(Debug)]
pub struct Sshd {
    child: Child,
    dir: TempDir,
    port: u16,
    accounts: Vec<Account>,
    host_keys: Vec<KeyPair>,
    key: KeyPair,
    isolated: bool,
}

/// A start file below the home directory, and what stands in it.
type StartFile = (&'static str, &'static str);

/// Accounts with noisy start files: name, program of the shell, files and what stands in them.
const NOISY: [(&str, &str, &[StartFile]); 5] = [
    (
        "bash",
        "bash",
        &[(
            ".bashrc",
            "echo NOISE from bashrc; echo 'NOISE err' >&2; alias ls=false\n",
        )],
    ),
    (
        "fish",
        "fish",
        &[(
            ".config/fish/config.fish",
            "echo NOISE from fish\necho 'NOISE err' >&2\n",
        )],
    ),
    (
        "tcsh",
        "tcsh",
        &[(".tcshrc", "echo NOISE from tcshrc\nset nonomatch\n")],
    ),
    ("zsh", "zsh", &[(".zshenv", "echo NOISE from zshenv\n")]),
    ("busybox", "busybox", &[(".profile", "echo NOISE\n")]),
];

/// The first id that we give; ours are far from people's.
const FIRST_ID: u32 = 61_000;

impl Sshd {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// When sshd is missing or does not come up; its log is in the text.
    pub fn start(options: &Options) -> Result<Sshd> {
        let program = crate::find("sshd").context("there is no sshd; install openssh-server")?;
        let mut last = None;
        // The port is free when it is asked for and may not be when it is used.
        for _ in 0..5 {
            match Sshd::try_start(options, &program) {
                Ok(sshd) => return Ok(sshd),
                Err(e) => last = Some(e),
            }
        }
        Err(last.unwrap_or_else(|| anyhow::anyhow!("sshd did not start")))
    }

    /// Whether one can be started here.
    pub fn available() -> bool {
        crate::has("sshd") && crate::has("ssh-keygen")
    }

    fn try_start(options: &Options, program: &Path) -> Result<Sshd> {
        let dir = tempfile::Builder::new()
            .prefix("leasehold-sshd-")
            .tempdir()?;
        let isolated = getuid().is_root();
        if isolated {
            std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))?;
        }
        let accounts = if isolated {
            make_accounts(dir.path())?
        } else {
            vec![current()?]
        };
        let key = KeyPair::generate(Kind::Ed25519, Format::OpenSsh, "")?;
        let keys = dir.path().join("authorized");
        std::fs::create_dir(&keys)?;
        for account in &accounts {
            std::fs::write(keys.join(&account.name), format!("{}\n", key.public))?;
        }
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let host_keys = configure(options, dir.path(), port)?;
        let config = dir.path().join("sshd_config");
        let serve = format!("exec {} -D -e -f {}", program.display(), config.display());
        let log = std::fs::File::create(dir.path().join("log"))?;
        let mut command = if isolated {
            let mut script = String::from(
                "mount -t tmpfs tmpfs /run && mkdir /run/sshd && chmod 755 /run/sshd && ",
            );
            for file in ["passwd", "group", "shadow"] {
                write!(
                    script,
                    "mount --bind {} /etc/{file} && ",
                    dir.path().join(file).display()
                )?;
            }
            if let Some(bytes) = options.small {
                let place = dir.path().join("small");
                std::fs::create_dir_all(&place)?;
                write!(
                    script,
                    "mount -t tmpfs -o size={bytes},mode=1777 tmpfs {} && ",
                    place.display()
                )?;
            }
            script.push_str(&serve);
            let mut command = Command::new("unshare");
            // Already private: see `mounts`.
            command.args([
                "--mount",
                "--propagation",
                "unchanged",
                "--pid",
                "--fork",
                "--mount-proc",
                "--kill-child",
                "sh",
                "-c",
                &script,
            ]);
            command
        } else {
            let mut command = Command::new("sh");
            command.args(["-c", &serve]);
            command
        };
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A test's own variables are no account's.
            .env_remove("LEASEHOLD_LEASE");
        let spawned = if isolated {
            mounts::own(|| command.spawn()).context("sshd cannot have mounts of its own")?
        } else {
            command.spawn()
        };
        let child = spawned.context("sshd cannot be spawned")?;
        let mut sshd = Sshd {
            child,
            dir,
            port,
            accounts,
            host_keys,
            key,
            isolated,
        };
        sshd.wait_ready()?;
        Ok(sshd)
    }

    fn wait_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        // Whoever answers on the port may be another test's that was faster: this one says when it has it.
        let listening = format!("Server listening on 127.0.0.1 port {}.", self.port);
        loop {
            if self.log().contains(&listening)
                && let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port))
            {
                stream.set_read_timeout(Some(Duration::from_secs(5)))?;
                let mut banner = [0u8; 4];
                if stream.read_exact(&mut banner).is_ok() && &banner == b"SSH-" {
                    return Ok(());
                }
            }
            if let Some(status) = self.child.try_wait()? {
                bail!("sshd ended ({status}): {}", self.log());
            }
            if Instant::now() > deadline {
                bail!("sshd does not answer: {}", self.log());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The key that every account accepts.
    pub fn key(&self) -> &KeyPair {
        &self.key
    }

    /// Its host keys, in the order of their types in [`Options::host_keys`].
    pub fn host_keys(&self) -> &[KeyPair] {
        &self.host_keys
    }

    /// SHA-256 fingerprints of all its host keys.
    pub fn fingerprints(&self) -> Vec<String> {
        self.host_keys
            .iter()
            .map(|k| k.fingerprint.clone())
            .collect()
    }

    /// The text of a `known_hosts` file that names it by address and port.
    pub fn known_hosts(&self) -> String {
        self.host_keys.iter().fold(String::new(), |mut text, key| {
            let _ = writeln!(text, "[127.0.0.1]:{} {}", self.port, key.public);
            text
        })
    }

    /// An account by name: `lease`, `root`, or a shell's. As nobody in particular, whoever runs the test.
    pub fn account(&self, name: &str) -> Option<&Account> {
        self.accounts.iter().find(|a| a.name == name)
    }

    /// The account for work: `lease` as root, else the current user.
    pub fn worker(&self) -> &Account {
        // `accounts` is never empty.
        self.account("lease").unwrap_or(&self.accounts[0])
    }

    /// Whether it has accounts and namespaces of its own.
    pub fn is_isolated(&self) -> bool {
        self.isolated
    }

    /// Lets an account in by another key too: a line of `authorized_keys`.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn authorize(&self, account: &str, line: &str) -> Result<()> {
        let file = self.dir.path().join("authorized").join(account);
        let mut text = std::fs::read_to_string(&file)?;
        writeln!(text, "{line}")?;
        Ok(std::fs::write(file, text)?)
    }

    /// A new directory that only `account` may use, such as a parent of workspaces.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn directory(&self, account: &str, name: &str) -> Result<PathBuf> {
        let place = self.dir.path().join("srv").join(name);
        std::fs::create_dir_all(&place)?;
        if self.isolated {
            own(&place, self.id(account))?;
        }
        std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o755))?;
        Ok(place)
    }

    /// The small tmpfs of [`Options::small`], as the accounts see it.
    pub fn small(&self) -> PathBuf {
        self.dir.path().join("small")
    }

    fn id(&self, account: &str) -> u32 {
        self.accounts
            .iter()
            .position(|a| a.name == account && a.name != "root")
            .and_then(|i| u32::try_from(i).ok())
            .map_or(0, |i| FIRST_ID + i)
    }

    /// What it wrote to its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Every process that came of it: connections, shells, commands, and what they left behind.
    pub fn processes(&self) -> Vec<Process> {
        processes_below(self.child.id())
            .into_iter()
            .filter(|p| !p.arguments.contains("-D -e -f"))
            .collect()
    }

    /// Cuts every connection, as a network does: its server processes are killed, the commands live on.
    pub fn cut(&self) {
        for process in self.processes() {
            if process.name.starts_with("sshd") {
                end(process.pid);
            }
        }
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // As root the namespace takes everything with it. Else by id, children first found.
        let below = processes_below(self.child.id());
        if !self.isolated {
            for process in &below {
                end(process.pid);
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        for process in below {
            // Of an isolated one the first is the namespace's init, which ends all others.
            if self.isolated && process.parent == self.child.id() {
                end(process.pid);
            }
        }
    }
}

fn end(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

fn own(path: &Path, id: u32) -> Result<()> {
    std::os::unix::fs::chown(path, Some(id), Some(id))
        .with_context(|| format!("chown {}", path.display()))
}

fn current() -> Result<Account> {
    let name = String::from_utf8(Command::new("id").arg("-un").output()?.stdout)?;
    Ok(Account {
        name: name.trim().to_owned(),
        shell: std::env::var("SHELL").unwrap_or_else(|_| "/bin/sh".into()),
        home: std::env::var_os("HOME")
            .map(PathBuf::from)
            .unwrap_or_default(),
    })
}

/// `passwd`, `group`, `shadow` and homes below `dir`.
fn make_accounts(dir: &Path) -> Result<Vec<Account>> {
    let mut accounts = vec![Account {
        name: "lease".into(),
        shell: "/bin/sh".into(),
        home: dir.join("home/lease"),
    }];
    let mut files: Vec<&[StartFile]> = vec![&[]];
    for (name, program, start) in NOISY {
        let Some(mut shell) = crate::find(program) else {
            continue;
        };
        if name == "busybox" {
            // Its applets go by the name that they are called by.
            let applet = dir.join("ash");
            std::os::unix::fs::symlink(&shell, &applet)?;
            shell = applet;
        }
        accounts.push(Account {
            name: name.into(),
            shell: shell.to_string_lossy().into_owned(),
            home: dir.join("home").join(name),
        });
        files.push(start);
    }
    let mut passwd = format!(
        "root:x:0:0:root:{}:/bin/sh\n",
        dir.join("home/root").display()
    );
    let mut group = String::from("root:x:0:\n");
    let mut shadow = String::from("root:*:19000:0:99999:7:::\n");
    for (i, (account, start)) in accounts.iter().zip(&files).enumerate() {
        let id = FIRST_ID + u32::try_from(i)?;
        let Account { name, shell, home } = account;
        writeln!(passwd, "{name}:x:{id}:{id}::{}:{shell}", home.display())?;
        writeln!(group, "{name}:x:{id}:")?;
        writeln!(shadow, "{name}:*:19000:0:99999:7:::")?;
        std::fs::create_dir_all(home)?;
        for (file, text) in *start {
            let file = home.join(file);
            if let Some(above) = file.parent() {
                std::fs::create_dir_all(above)?;
            }
            std::fs::write(file, text)?;
        }
        // fish keeps more below .config and .local than we made.
        for entry in [".config", ".config/fish", ""] {
            let place = home.join(entry);
            if place.exists() {
                own(&place, id)?;
            }
        }
        std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o755))?;
    }
    // The account that sshd separates its privileges with.
    writeln!(passwd, "sshd:x:60999:60999::/run/sshd:/usr/sbin/nologin")?;
    writeln!(group, "tty:x:5:")?;
    std::fs::create_dir_all(dir.join("home/root"))?;
    for (file, text) in [("passwd", passwd), ("group", group), ("shadow", shadow)] {
        std::fs::write(dir.join(file), text)?;
    }
    accounts.push(Account {
        name: "root".into(),
        shell: "/bin/sh".into(),
        home: dir.join("home/root"),
    });
    Ok(accounts)
}

/// Writes host keys and `sshd_config`; gives the keys.
fn configure(options: &Options, dir: &Path, port: u16) -> Result<Vec<KeyPair>> {
    let mut text = options.config.join("\n");
    text.push('\n');
    writeln!(
        text,
        "Port {port}\nListenAddress 127.0.0.1\nPidFile none\nUsePAM no\nStrictModes no"
    )?;
    writeln!(
        text,
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password"
    )?;
    writeln!(
        text,
        "UseDNS no\nPrintMotd no\nLogLevel VERBOSE\nMaxStartups 500:30:1000"
    )?;
    writeln!(text, "AuthorizedKeysFile {}/authorized/%u", dir.display())?;
    if !options.no_sftp {
        let server = [
            "/usr/lib/openssh/sftp-server",
            "/usr/libexec/openssh/sftp-server",
            "/usr/lib/ssh/sftp-server",
        ]
        .into_iter()
        .find(|p| Path::new(p).exists())
        .unwrap_or("internal-sftp");
        writeln!(text, "Subsystem sftp {server}")?;
    }
    let kinds = if options.host_keys.is_empty() {
        vec![Kind::Ed25519, Kind::Ecdsa256, Kind::Rsa]
    } else {
        options.host_keys.clone()
    };
    let mut keys = Vec::new();
    for (i, kind) in kinds.into_iter().enumerate() {
        let key = KeyPair::generate(kind, Format::OpenSsh, "")?;
        let file = dir.join(format!("host{i}"));
        std::fs::write(&file, &key.private)?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600))?;
        std::fs::write(file.with_extension("pub"), &key.public)?;
        writeln!(text, "HostKey {}", file.display())?;
        if let Some((authority, arguments)) = &options.host_certificate {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let line = authority.sign(&key.public, &arguments)?;
            let file = dir.join(format!("host{i}-cert.pub"));
            std::fs::write(&file, format!("{line}\n"))?;
            writeln!(text, "HostCertificate {}", file.display())?;
        }
        keys.push(key);
    }
    if let Some(authority) = &options.user_authority {
        let file = dir.join("user-authority.pub");
        std::fs::write(&file, format!("{authority}\n"))?;
        writeln!(text, "TrustedUserCAKeys {}", file.display())?;
    }
    let file = dir.join("sshd_config");
    std::fs::write(&file, text)?;
    Ok(keys)
}
