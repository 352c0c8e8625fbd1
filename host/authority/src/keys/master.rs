//! The master key's file.
//!
//! 32 random bytes in a file of mode 0600 outside the data directory: a backup of the data alone opens
//! nothing. Made on first start only, by temporary file, fsync and a rename that replaces nothing. A file
//! that others can read, or that lies in the data directory, is refused rather than mended.
//!
//! A key that is to follow lies beside it under [`MasterKey::next_path`] until the database is its own; then it
//! [takes the place](MasterKey::succeed) in one rename, and the old key stays under a name of its own.

use std::io::{Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use cap_std::fs::Dir;
use zeroize::Zeroizing;

/// Why there is no master key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MasterKeyError {
    /// The path has no file name or is not absolute.
    #[error("master key path {0:?} must be absolute and name a file")]
    Path(PathBuf),
    /// It lies in the data directory.
    #[error(
        "master key {0:?} lies inside the data directory: a backup must not hold both, choose a path outside"
    )]
    InsideDataDirectory(PathBuf),
    /// Others can read or write it, or it is someone else's.
    #[error(
        "master key {path:?} has mode {mode:04o} and owner {owner}: it must be mode 0600 and owned by the server's user or root"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner's uid.
        owner: u32,
    },
    /// Others can put another file in its place.
    #[error("directory {0:?} of the master key is writable by group or others: make it mode 0700")]
    DirectoryExposed(PathBuf),
    /// The file is not a key.
    #[error("master key {path:?} has {length} bytes: a key has exactly 32")]
    Length {
        /// The file.
        path: PathBuf,
        /// What it has.
        length: u64,
    },
    /// The database exists and its key does not.
    #[error(
        "master key {0:?} does not exist, but the database does: restore the key that belongs to it, none is made in its place"
    )]
    Missing(PathBuf),
    /// The file system failed.
    #[error("master key {path:?}: {error}")]
    Io {
        /// The file or its directory.
        path: PathBuf,
        /// What failed.
        error: std::io::Error,
    },
}

/// Where the key lies unless settings say otherwise: `/etc/leasehold/master.key` for root, else
/// `leasehold/master.key` in `$XDG_CONFIG_HOME` or `~/.config`. None: there is no home.
pub(crate) fn default_path() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/etc/leasehold/master.key"));
    }
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    absolute("XDG_CONFIG_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".config")))
        .map(|config| config.join("leasehold/master.key"))
}

/// The master key, wiped when dropped.
pub(crate) struct MasterKey(Zeroizing<[u8; 32]>);

impl MasterKey {
    pub fn bytes(&self) -> &[u8] {
        &self.0[..]
    }

    /// Where the key that is to follow the one at `path` lies.
    pub fn next_path(path: &Path) -> PathBuf {
        beside(path, "next")
    }

    /// Puts this key, which lies at [`MasterKey::next_path`], in the place of `old`, which lies at `path`. Answers where
    /// the old one stays. At every moment there is a key at `path`; done again after a crash, it ends the same.
    pub fn succeed(&self, old: &MasterKey, path: &Path) -> Result<PathBuf, MasterKeyError> {
        let io = |error| MasterKeyError::Io {
            path: path.to_owned(),
            error,
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(MasterKeyError::Path(path.to_owned()));
        };
        let dir = Dir::open_ambient_dir(parent, cap_std::ambient_authority()).map_err(io)?;
        let kept = beside(path, &format!("old-{}", old.id()));
        let kept_name = Path::new(kept.file_name().unwrap_or_default());
        let next = MasterKey::next_path(path);
        let next_name = Path::new(next.file_name().unwrap_or_default());
        place(&dir, kept_name, &old.0).map_err(io)?;
        dir.rename(next_name, &dir, name).map_err(io)?;
        dir.open(".").and_then(|d| d.sync_all()).map_err(io)?;
        Ok(kept)
    }

    /// A name for the key that tells nothing of it.
    fn id(&self) -> String {
        let mut id = [0u8; 5];
        let kdf = hkdf::Hkdf::<sha2::Sha256>::new(None, self.bytes());
        // Far below HKDF's limit, the only error there is.
        let expanded = kdf.expand(b"leasehold/1/key-id", &mut id);
        debug_assert!(expanded.is_ok());
        crate::id::base32(&id)
    }

    /// Reads the key at `path`; makes it there first if there is none and `may_create`.
    pub fn open(
        path: &Path,
        data_dir: &Dir,
        may_create: bool,
    ) -> Result<MasterKey, MasterKeyError> {
        let io = |error| MasterKeyError::Io {
            path: path.to_owned(),
            error,
        };
        let (Some(parent), Some(name), true) =
            (path.parent(), path.file_name(), path.is_absolute())
        else {
            return Err(MasterKeyError::Path(path.to_owned()));
        };
        if may_create && !parent.exists() {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(parent)
                .map_err(io)?;
        }
        let parent = match parent.canonicalize() {
            Ok(parent) => parent,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(MasterKeyError::Missing(path.to_owned()));
            }
            Err(e) => return Err(io(e)),
        };
        refuse_inside(&parent, data_dir, path).map_err(|e| e.unwrap_or_else(io))?;
        let directory = std::fs::metadata(&parent).map_err(io)?;
        if directory.mode() & 0o022 != 0 {
            return Err(MasterKeyError::DirectoryExposed(parent));
        }
        let dir = Dir::open_ambient_dir(&parent, cap_std::ambient_authority()).map_err(io)?;
        let name = Path::new(name);
        match read(&dir, name, path) {
            Err(MasterKeyError::Io { error, .. })
                if error.kind() == std::io::ErrorKind::NotFound =>
            {
                if !may_create {
                    return Err(MasterKeyError::Missing(path.to_owned()));
                }
                create(&dir, name).map_err(io)?;
                // Whatever stands there now is the key: this one, or that of a server that was faster.
                read(&dir, name, path)
            }
            other => other,
        }
    }
}

/// Walks up from `parent` and compares each directory with the data directory by device and inode, so
/// that no symbolic link or bind mount of the way hides it.
fn refuse_inside(
    parent: &Path,
    data_dir: &Dir,
    path: &Path,
) -> Result<(), Result<MasterKeyError, std::io::Error>> {
    use cap_std::fs::MetadataExt as _;
    let data = data_dir.dir_metadata().map_err(Err)?;
    for above in parent.ancestors() {
        let here = std::fs::metadata(above).map_err(Err)?;
        if (
            std::os::unix::fs::MetadataExt::dev(&here),
            std::os::unix::fs::MetadataExt::ino(&here),
        ) == (data.dev(), data.ino())
        {
            return Err(Ok(MasterKeyError::InsideDataDirectory(path.to_owned())));
        }
    }
    Ok(())
}

fn read(dir: &Dir, name: &Path, path: &Path) -> Result<MasterKey, MasterKeyError> {
    let io = |error| MasterKeyError::Io {
        path: path.to_owned(),
        error,
    };
    let mut file = dir.open(name).map_err(io)?.into_std();
    let metadata = file.metadata().map_err(io)?;
    let (mode, owner) = (metadata.mode() & 0o7777, metadata.uid());
    let ours = owner == rustix::process::geteuid().as_raw() || owner == 0;
    if mode & 0o077 != 0 || !ours {
        return Err(MasterKeyError::Exposed {
            path: path.to_owned(),
            mode,
            owner,
        });
    }
    if !metadata.is_file() || metadata.len() != 32 {
        return Err(MasterKeyError::Length {
            path: path.to_owned(),
            length: metadata.len(),
        });
    }
    let mut key = Zeroizing::new([0u8; 32]);
    file.read_exact(&mut key[..]).map_err(io)?;
    Ok(MasterKey(key))
}

/// A file beside `path` whose name has an ending more.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(ending);
    path.with_file_name(name)
}

fn create(dir: &Dir, name: &Path) -> std::io::Result<()> {
    let mut key = Zeroizing::new([0u8; 32]);
    crate::id::random(&mut key[..]).map_err(std::io::Error::other)?;
    place(dir, name, &key)
}

/// Puts a key under a name, whole and durable. What is there already stays.
fn place(dir: &Dir, name: &Path, key: &Zeroizing<[u8; 32]>) -> std::io::Result<()> {
    let mut suffix = [0u8; 8];
    crate::id::random(&mut suffix).map_err(std::io::Error::other)?;
    let temporary = format!(".master.key.{}", crate::id::base32(&suffix));
    let written = (|| {
        use cap_std::fs::OpenOptionsExt as _;
        let mut options = cap_std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = dir.open_with(&temporary, &options)?;
        file.write_all(&key[..])?;
        file.sync_all()?;
        match rustix::fs::renameat_with(
            dir,
            temporary.as_str(),
            dir,
            name,
            rustix::fs::RenameFlags::NOREPLACE,
        ) {
            Ok(()) => dir.open(".")?.sync_all(),
            // Somebody made it meanwhile: theirs holds.
            Err(rustix::io::Errno::EXIST) => dir.remove_file(&temporary),
            Err(e) => Err(e.into()),
        }
    })();
    if written.is_err() {
        let _ = dir.remove_file(&temporary);
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    struct Place {
        _temp: tempfile::TempDir,
        root: PathBuf,
        data: Dir,
    }

    fn place() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("data")).unwrap();
        let data = Dir::open_ambient_dir(root.join("data"), cap_std::ambient_authority()).unwrap();
        Place {
            _temp: temp,
            root,
            data,
        }
    }

    #[test]
    fn the_key_is_made_once_and_closed_to_others() {
        let p = place();
        let path = p.root.join("config/leasehold/master.key");
        let first = MasterKey::open(&path, &p.data, true).unwrap();
        let again = MasterKey::open(&path, &p.data, true).unwrap();
        assert_eq!(first.bytes(), again.bytes());
        assert_ne!(first.bytes(), &[0u8; 32]);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        let parent = path.parent().unwrap();
        assert_eq!(std::fs::metadata(parent).unwrap().mode() & 0o777, 0o700);
        assert_eq!(
            std::fs::read_dir(parent).unwrap().count(),
            1,
            "no temporary stays"
        );
    }

    #[test]
    fn a_key_in_the_data_directory_is_refused_also_behind_a_link() {
        let p = place();
        let inside = p.root.join("data/keys/master.key");
        assert!(matches!(
            MasterKey::open(&inside, &p.data, true),
            Err(MasterKeyError::InsideDataDirectory(_))
        ));
        std::os::unix::fs::symlink(p.root.join("data"), p.root.join("link")).unwrap();
        assert!(matches!(
            MasterKey::open(&p.root.join("link/master.key"), &p.data, true),
            Err(MasterKeyError::InsideDataDirectory(_))
        ));
    }

    #[test]
    fn an_exposed_missing_or_short_key_is_refused_with_its_reason() {
        let p = place();
        let path = p.root.join("master.key");
        assert!(matches!(
            MasterKey::open(&path, &p.data, false),
            Err(MasterKeyError::Missing(_))
        ));
        MasterKey::open(&path, &p.data, true).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        let refused = MasterKey::open(&path, &p.data, true)
            .map(|_| ())
            .unwrap_err();
        assert!(refused.to_string().contains("0640"), "{refused}");
        std::fs::write(&path, b"short").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(
            MasterKey::open(&path, &p.data, true),
            Err(MasterKeyError::Length { length: 5, .. })
        ));
        std::fs::set_permissions(&p.root, std::fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(
            MasterKey::open(&path, &p.data, true),
            Err(MasterKeyError::DirectoryExposed(_))
        ));
    }
}
