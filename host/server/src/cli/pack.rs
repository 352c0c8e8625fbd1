//! Packs a local file or tree into a tar that is sent while it is made.
//!
//! The tree is looked at before anything is sent, so that a name that no server takes is refused while nothing has
//! happened yet. Links in a tree stay links. What has no content, a pipe, a socket or a device, is left out and named:
//! nothing is opened that could block.

use std::ffi::OsStr;
use std::fs::{self, FileType, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use super::exit::CliError;

/// Names in a message, at most.
const NAMED: usize = 10;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Directory,
    File,
    Link,
}

/// A local file or tree that can be sent.
#[derive(Debug)]
pub struct Tree {
    /// What it is, where it lies, and its name in the archive; a directory before what is in it.
    items: Vec<(Kind, PathBuf, PathBuf)>,
    /// What is not sent, and why.
    pub left_out: Vec<String>,
}

/// What has no content, by its name for a person.
fn contentless(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a pipe"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}

/// Names, the first ones only where they are many.
pub fn named(names: &[String]) -> String {
    let mut text = names[..names.len().min(NAMED)].join(", ");
    if names.len() > NAMED {
        text.push_str(&format!(" and {} more", names.len() - NAMED));
    }
    text
}

/// A failure with the path that it is about.
fn at(path: &Path, error: &io::Error) -> CliError {
    CliError::Usage(format!("{}: {error}", path.display()))
}

impl Tree {
    /// Looks at `from`; a link that is named itself is followed.
    pub fn of(from: &Path) -> Result<Tree, CliError> {
        let found = fs::symlink_metadata(from).map_err(|e| at(from, &e))?;
        let real = match fs::canonicalize(from) {
            Err(e) if found.is_symlink() => {
                let to = fs::read_link(from).map_err(|e| at(from, &e))?;
                return Err(CliError::Usage(format!(
                    "{}: is a link to {}, and that cannot be followed: {e}",
                    from.display(),
                    to.display()
                )));
            }
            real => real.map_err(|e| at(from, &e))?,
        };
        let Some(name) = from.file_name().or(real.file_name()).map(PathBuf::from) else {
            return Err(CliError::Usage(format!(
                "{}: the root of this machine has no name to copy; name a directory in it",
                from.display()
            )));
        };
        let kind = fs::metadata(&real).map_err(|e| at(from, &e))?.file_type();
        let mut tree = Tree {
            items: Vec::new(),
            left_out: Vec::new(),
        };
        let mut garbled = Vec::new();
        note_name(&name, name.as_os_str(), &mut garbled);
        if kind.is_dir() {
            tree.walk(real, name, &mut garbled)?;
        } else if kind.is_file() {
            tree.items.push((Kind::File, real, name));
        } else {
            return Err(CliError::Usage(format!(
                "{}: is {}, which has no content to copy",
                from.display(),
                contentless(kind)
            )));
        }
        if garbled.is_empty() {
            return Ok(tree);
        }
        Err(CliError::Usage(format!(
            "nothing was copied: a name that is not UTF-8 cannot be sent; rename {}",
            named(&garbled)
        )))
    }

    fn walk(
        &mut self,
        real: PathBuf,
        name: PathBuf,
        garbled: &mut Vec<String>,
    ) -> Result<(), CliError> {
        let mut waiting = vec![(real, name)];
        while let Some((place, name)) = waiting.pop() {
            let entries = fs::read_dir(&place).and_then(Iterator::collect::<io::Result<Vec<_>>>);
            let mut entries = entries.map_err(|e| at(&place, &e))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            self.items.push((Kind::Directory, place, name.clone()));
            for entry in entries {
                let kind = entry.file_type().map_err(|e| at(&entry.path(), &e))?;
                let below = name.join(entry.file_name());
                note_name(&below, &entry.file_name(), garbled);
                if kind.is_dir() {
                    waiting.push((entry.path(), below));
                } else if kind.is_file() {
                    self.items.push((Kind::File, entry.path(), below));
                } else if kind.is_symlink() {
                    let to = fs::read_link(entry.path()).map_err(|e| at(&entry.path(), &e))?;
                    note_name(&below, to.as_os_str(), garbled);
                    self.items.push((Kind::Link, entry.path(), below));
                } else {
                    let why = format!("{} ({})", below.display(), contentless(kind));
                    self.left_out.push(why);
                }
            }
        }
        Ok(())
    }

    /// Writes the archive. An error leaves it without its end.
    pub fn pack<W: Write>(&self, to: W) -> io::Result<W> {
        let mut archive = tar::Builder::new(to);
        archive.follow_symlinks(false);
        archive.sparse(false);
        for (kind, place, name) in &self.items {
            let packed = match kind {
                Kind::File => append_file(&mut archive, place, name),
                Kind::Directory => archive.append_dir(name, place),
                Kind::Link => archive.append_path_with_name(place, name),
            };
            packed.map_err(|e| match e.kind() {
                // Nobody reads the archive any more: that is not the file's fault.
                io::ErrorKind::BrokenPipe => e,
                kind => io::Error::new(kind, format!("{}: {e}", place.display())),
            })?;
        }
        archive.into_inner()
    }
}

/// Keeps `path` where `name`, a part of it or where it leads, is not UTF-8.
fn note_name(path: &Path, name: &OsStr, garbled: &mut Vec<String>) {
    if name.to_str().is_none() {
        garbled.push(format!("{path:?}"));
    }
}

/// A file's entry: as many bytes as it had when it was opened, for its header comes first.
fn append_file<W: Write>(
    archive: &mut tar::Builder<W>,
    place: &Path,
    name: &Path,
) -> io::Result<()> {
    // What was a file when the tree was looked at may be a pipe by now, or a link.
    let flags = OFlags::NONBLOCK | OFlags::NOFOLLOW;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(place)?;
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("is no file any more"));
    }
    let mut header = tar::Header::new_gnu();
    header.set_metadata(&found);
    let mut content = file.take(found.len());
    archive.append_data(&mut header, name, &mut content)?;
    if content.limit() > 0 {
        return Err(io::Error::other("became shorter while it was read"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    fn said(from: &Path) -> String {
        Tree::of(from).unwrap_err().to_string()
    }

    #[test]
    fn a_tree_is_packed_but_for_what_has_no_content_and_that_is_named() {
        let room = tempfile::tempdir().unwrap();
        let from = room.path().join("from");
        fs::create_dir_all(from.join("deep")).unwrap();
        fs::write(from.join("deep/file"), "x").unwrap();
        symlink("nowhere", from.join("link")).unwrap();
        let _socket = UnixListener::bind(from.join("socket")).unwrap();
        let sparse = fs::File::create(from.join("sparse")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        let tree = Tree::of(&from).unwrap();
        assert_eq!(tree.left_out, ["from/socket (a socket)"]);
        let bytes = tree.pack(Vec::new()).unwrap();
        let mut packed: Vec<(String, tar::EntryType)> = tar::Archive::new(&bytes[..])
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                let name = entry.path().unwrap().display().to_string();
                (name, entry.header().entry_type())
            })
            .collect();
        packed.sort_by(|a, b| a.0.cmp(&b.0));
        // No holes: their entries are of a kind that not every reader knows.
        let wanted = [
            ("from", tar::EntryType::Directory),
            ("from/deep", tar::EntryType::Directory),
            ("from/deep/file", tar::EntryType::Regular),
            ("from/link", tar::EntryType::Symlink),
            ("from/sparse", tar::EntryType::Regular),
        ];
        let wanted = wanted.map(|(name, kind)| (name.to_owned(), kind));
        assert_eq!(packed, wanted);
    }

    #[test]
    fn what_cannot_be_sent_is_told_before_anything_is() {
        let room = tempfile::tempdir().unwrap();
        let from = room.path();
        let _socket = UnixListener::bind(from.join("socket")).unwrap();
        assert!(said(&from.join("socket")).contains("is a socket"));
        assert!(said(Path::new("/")).contains("no name"));
        assert!(said(&from.join("none")).contains("none"));
        symlink("gone", from.join("dangling")).unwrap();
        let text = said(&from.join("dangling"));
        assert!(text.contains("dangling: is a link to gone"), "{text}");
        let tree = from.join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join(OsStr::from_bytes(b"caf\xe9")), "x").unwrap();
        symlink(OsStr::from_bytes(b"\xff"), tree.join("link")).unwrap();
        let text = said(&tree);
        assert!(text.contains(r#""tree/caf\xE9", "tree/link""#), "{text}");
    }

    #[test]
    fn a_link_that_is_named_itself_is_followed_and_keeps_its_name() {
        let room = tempfile::tempdir().unwrap();
        fs::write(room.path().join("file"), "content").unwrap();
        symlink("file", room.path().join("link")).unwrap();
        let tree = Tree::of(&room.path().join("link")).unwrap();
        let bytes = tree.pack(Vec::new()).unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        assert_eq!(entry.path().unwrap(), Path::new("link"));
        assert_eq!(io::read_to_string(&mut entry).unwrap(), "content");
    }
}
