//! Reads a tar (ustar, with GNU and pax names) as it comes, and refuses what would leave the directory it is
//! unpacked in.

use std::collections::HashSet;

use leasehold_contract::{ByteStream, Code, Error};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::GARBLED;
use crate::error::quote;

const BLOCK: usize = 512;
/// The most that a name may take in its own entry; PATH_MAX is 4096.
const NAME: u64 = 64 * 1024;
/// The most that is remembered of what was left out.
const LEFT_OUT: usize = 1000;

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    /// Where it leads, relative to its own directory, never out of the root.
    Symlink(String),
    /// Another file of the tree, by its path from the root.
    Hardlink(String),
}

/// An entry that may be unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// From the root, no `.`, `..` or empty parts; empty for the root itself.
    pub(super) path: String,
    pub(super) kind: Kind,
    /// Permission bits only.
    pub(super) mode: u32,
    pub(super) size: u64,
    /// Seconds since 1970.
    pub(super) modified: u64,
}

/// Reads entries and, between them, the content of a file.
pub(super) struct Reader<R = ByteStream> {
    inner: R,
    /// Content of the current entry that is not read yet.
    left: u64,
    padding: u64,
    /// Links may lead anywhere, and what is no file is left out: the archive is only read.
    lenient: bool,
    /// What was left out, and why.
    left_out: Vec<(String, &'static str)>,
    /// Links that the archive has made so far: nothing is unpacked through one.
    links: HashSet<String>,
}

fn broken(why: impl std::fmt::Display) -> Error {
    Error::new(
        Code::InvalidConfig,
        format!("the archive cannot be read: {why}"),
    )
}

fn refused(path: &str, why: &str) -> Error {
    Error::new(
        Code::InvalidConfig,
        format!(
            "the archive's entry {:?} is refused: {why}",
            quote(path.as_bytes())
        ),
    )
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(inner: R) -> Reader<R> {
        Reader {
            inner,
            left: 0,
            padding: 0,
            lenient: false,
            left_out: Vec::new(),
            links: HashSet::new(),
        }
    }

    /// The next entry of an archive that goes to a reader, not to a target: its links are told as they are, and devices,
    /// pipes and names that are not UTF-8 are left out.
    pub(super) async fn next_to_read(&mut self) -> Result<Option<Entry>, Error> {
        self.lenient = true;
        self.next().await
    }

    /// What [`Reader::next_to_read`] has left out so far.
    pub(super) fn left_out(&self) -> &[(String, &'static str)] {
        &self.left_out
    }

    /// The next entry; none at the end. Content that was not read is passed over.
    pub(super) async fn next(&mut self) -> Result<Option<Entry>, Error> {
        let (mut long_path, mut long_link) = (None, None);
        let mut pax_size = None;
        // Whether a name of the entry is not UTF-8.
        let mut garbled = false;
        loop {
            self.skip().await?;
            let Some(header) = self.header().await? else {
                return Ok(None);
            };
            let size = header.entry_size().map_err(broken)?;
            let kind = header.as_bytes()[156];
            match kind {
                b'L' => long_path = Some(self.text(size, &mut garbled).await?),
                b'K' => long_link = Some(self.text(size, &mut garbled).await?),
                b'x' => {
                    for (key, value) in pax(&self.bytes(size).await?)? {
                        match key.as_str() {
                            "path" => long_path = Some(value),
                            "linkpath" => long_link = Some(value),
                            "size" => pax_size = Some(value.parse().map_err(broken)?),
                            _ => {}
                        }
                    }
                }
                // Of all entries: comments and the like.
                b'g' => {
                    self.bytes(size).await?;
                }
                _ => {
                    let size = pax_size.unwrap_or(size);
                    garbled |= long_path.is_none() && !is_text(&header.path_bytes());
                    if matches!(kind, b'1' | b'2') && long_link.is_none() {
                        garbled |= !is_text(&header.link_name_bytes().unwrap_or_default());
                    }
                    let why = match kind {
                        b'3' | b'4' => Some("a device"),
                        b'6' => Some("a pipe"),
                        _ => garbled.then_some(GARBLED),
                    };
                    let Some(why) = why.filter(|_| self.lenient) else {
                        return self
                            .judge(&header, kind, size, long_path, long_link)
                            .map(Some);
                    };
                    let name = long_path.take().unwrap_or_else(|| {
                        String::from_utf8_lossy(&header.path_bytes()).into_owned()
                    });
                    if self.left_out.len() < LEFT_OUT {
                        self.left_out.push((inside(&name).unwrap_or(name), why));
                    }
                    if matches!(kind, b'0' | 0 | b'7') {
                        self.left = size;
                        self.padding = pad(size);
                    }
                    (long_link, pax_size, garbled) = (None, None, false);
                }
            }
        }
    }

    /// Content of the current entry; empty at its end.
    pub(super) async fn content(&mut self, most: usize) -> Result<Vec<u8>, Error> {
        let want = self.left.min(most as u64) as usize;
        let mut piece = vec![0; want];
        self.inner.read_exact(&mut piece).await.map_err(broken)?;
        self.left -= want as u64;
        Ok(piece)
    }

    fn judge(
        &mut self,
        header: &::tar::Header,
        kind: u8,
        size: u64,
        long_path: Option<String>,
        long_link: Option<String>,
    ) -> Result<Entry, Error> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec())
                .map_err(|_| refused(&String::from_utf8_lossy(bytes), "its name is not UTF-8"))
        };
        let named = match long_path {
            Some(name) => name,
            None => text(&header.path_bytes())?,
        };
        let path = inside(&named).map_err(|why| refused(&named, why))?;
        let link = || match &long_link {
            Some(link) => Ok(link.clone()),
            None => text(&header.link_name_bytes().unwrap_or_default()),
        };
        let mut content = 0;
        let kind = match kind {
            b'0' | 0 | b'7' if named.ends_with('/') => Kind::Directory,
            b'0' | 0 | b'7' => {
                content = size;
                Kind::File
            }
            b'5' => Kind::Directory,
            b'2' => {
                let to = link()?;
                if !self.lenient {
                    leads_inside(&path, &to).map_err(|why| refused(&named, why))?;
                }
                Kind::Symlink(to)
            }
            b'1' => {
                let to = link()?;
                Kind::Hardlink(inside(&to).map_err(|why| refused(&named, why))?)
            }
            b'3' | b'4' => return Err(refused(&named, "it is a device")),
            b'6' => return Err(refused(&named, "it is a pipe")),
            _ => return Err(refused(&named, "it is of a kind that is not unpacked")),
        };
        if path.is_empty() && kind != Kind::Directory {
            return Err(refused(&named, "it has no name"));
        }
        if !self.lenient {
            self.remember(&named, &path, &kind)?;
        }
        self.left = content;
        self.padding = pad(content);
        Ok(Entry {
            path,
            kind,
            mode: header.mode().map_err(broken)? & 0o777,
            size: content,
            modified: header.mtime().unwrap_or(0),
        })
    }

    /// Keeps links, and refuses what goes through one.
    fn remember(&mut self, named: &str, path: &str, kind: &Kind) -> Result<(), Error> {
        let mut ways = vec![path];
        if let Kind::Hardlink(to) = kind {
            ways.push(to);
        }
        for way in ways {
            let parts = way.match_indices('/').map(|(i, _)| &way[..i]);
            if parts.into_iter().any(|part| self.links.contains(part)) {
                return Err(refused(named, "it goes through a link of the archive"));
            }
        }
        match kind {
            Kind::Symlink(_) => {
                self.links.insert(path.to_owned());
            }
            Kind::Hardlink(to) if self.links.contains(to.as_str()) => {
                return Err(refused(named, "it is a hard link to a link"));
            }
            _ => {
                self.links.remove(path);
            }
        }
        Ok(())
    }

    async fn skip(&mut self) -> Result<(), Error> {
        let mut rest = std::mem::take(&mut self.left) + std::mem::take(&mut self.padding);
        let mut buffer = [0u8; 8192];
        while rest > 0 {
            let want = rest.min(buffer.len() as u64) as usize;
            self.inner
                .read_exact(&mut buffer[..want])
                .await
                .map_err(broken)?;
            rest -= want as u64;
        }
        Ok(())
    }

    /// The next header; none at the end, after which the rest of the stream has been read.
    async fn header(&mut self) -> Result<Option<::tar::Header>, Error> {
        let mut header = ::tar::Header::new_old();
        let block = header.as_mut_bytes();
        let mut have = 0;
        while have < BLOCK {
            let n = self.inner.read(&mut block[have..]).await.map_err(broken)?;
            if n == 0 && have == 0 {
                // Without the closing blocks: some writers leave them out.
                return Ok(None);
            }
            if n == 0 {
                return Err(broken("it ends within a header"));
            }
            have += n;
        }
        if block.iter().all(|b| *b == 0) {
            let mut rest = [0u8; 8192];
            while self.inner.read(&mut rest).await.map_err(broken)? > 0 {}
            return Ok(None);
        }
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(i, b)| {
                if (148..156).contains(&i) {
                    32
                } else {
                    u32::from(*b)
                }
            })
            .sum();
        if header.cksum().map_err(broken)? != sum {
            return Err(broken(
                "a header's checksum is wrong; is it a plain tar, not compressed?",
            ));
        }
        Ok(Some(header))
    }

    async fn bytes(&mut self, size: u64) -> Result<Vec<u8>, Error> {
        if size > NAME {
            return Err(broken("a name in it is too long"));
        }
        let mut bytes = vec![0; size as usize];
        self.inner.read_exact(&mut bytes).await.map_err(broken)?;
        self.padding = pad(size);
        self.skip().await?;
        Ok(bytes)
    }

    async fn text(&mut self, size: u64, garbled: &mut bool) -> Result<String, Error> {
        let mut bytes = self.bytes(size).await?;
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        match String::from_utf8(bytes) {
            Ok(text) => Ok(text),
            Err(e) if self.lenient => {
                *garbled = true;
                Ok(String::from_utf8_lossy(e.as_bytes()).into_owned())
            }
            Err(_) => Err(broken("a name in it is not UTF-8")),
        }
    }
}

fn is_text(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok()
}

fn pad(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

/// `length key=value\n` records (pax, "Extended Header").
fn pax(bytes: &[u8]) -> Result<Vec<(String, String)>, Error> {
    let wrong = || broken("an extended header is malformed");
    let mut records = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let space = rest.iter().position(|b| *b == b' ').ok_or_else(wrong)?;
        let length: usize = std::str::from_utf8(&rest[..space])
            .ok()
            .and_then(|n| n.parse().ok())
            .filter(|n| *n > space + 1 && *n <= rest.len())
            .ok_or_else(wrong)?;
        let record = &rest[space + 1..length - 1];
        rest = &rest[length..];
        let equals = record.iter().position(|b| *b == b'=').ok_or_else(wrong)?;
        let key = String::from_utf8_lossy(&record[..equals]).into_owned();
        match String::from_utf8(record[equals + 1..].to_vec()) {
            Ok(value) => records.push((key, value)),
            Err(_) if key == "path" || key == "linkpath" => {
                return Err(broken("a name in it is not UTF-8"));
            }
            Err(_) => {}
        }
    }
    Ok(records)
}

/// A path from the root without `.` and empty parts, or why it is refused.
fn inside(path: &str) -> Result<String, &'static str> {
    if path.starts_with('/') {
        return Err("its path is absolute");
    }
    if path.contains('\0') {
        return Err("its path has a NUL");
    }
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => return Err("its path has a part .."),
            other => parts.push(other),
        }
    }
    Ok(parts.join("/"))
}

/// Whether a link at `path` leads to a place below the root at every step.
fn leads_inside(path: &str, to: &str) -> Result<(), &'static str> {
    if to.starts_with('/') {
        return Err("it is a link to an absolute path");
    }
    if to.is_empty() || to.contains('\0') {
        return Err("it is a link to nowhere");
    }
    let mut depth = path.split('/').count() as i64 - 1;
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        if depth < 0 {
            return Err("it is a link that leads out");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(fill: impl FnOnce(&mut ::tar::Builder<Vec<u8>>)) -> Vec<u8> {
        let mut builder = ::tar::Builder::new(Vec::new());
        fill(&mut builder);
        builder.into_inner().unwrap()
    }

    fn raw(name: &str, kind: u8, link: &str) -> Vec<u8> {
        let mut header = ::tar::Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link.as_bytes());
        header.as_mut_bytes()[156] = kind;
        header.set_size(0);
        header.set_mode(0o4755);
        header.set_mtime(0);
        header.set_cksum();
        let mut all = header.as_bytes().to_vec();
        all.extend([0; 1024]);
        all
    }

    async fn all(bytes: &[u8]) -> Result<Vec<(Entry, Vec<u8>)>, Error> {
        let mut reader = Reader::new(bytes);
        let mut out = Vec::new();
        while let Some(entry) = reader.next().await? {
            let mut content = Vec::new();
            loop {
                let piece = reader.content(7).await?;
                if piece.is_empty() {
                    break;
                }
                content.extend(piece);
            }
            out.push((entry, content));
        }
        Ok(out)
    }

    #[tokio::test]
    async fn long_names_and_contents_are_read_as_they_were_written() {
        let long = format!("{}/file", "d".repeat(90).repeat(3));
        let bytes = tar_of(|b| {
            let mut header = ::tar::Header::new_gnu();
            header.set_size(700);
            header.set_mode(0o644);
            b.append_data(&mut header, &long, &[7u8; 700][..]).unwrap();
        });
        let got = all(&bytes).await.unwrap();
        assert_eq!(got.len(), 1);
        assert_eq!(got[0].0.path, long);
        assert_eq!(got[0].1, [7u8; 700]);
    }

    #[tokio::test]
    async fn what_would_leave_the_root_is_refused_by_name() {
        for (name, kind, link) in [
            ("/etc/passwd", b'0', ""),
            ("../x", b'0', ""),
            ("a/../../x", b'0', ""),
            ("a", b'2', "/etc"),
            ("a", b'2', "../x"),
            ("a/b", b'2', "../../x"),
            ("a/b", b'2', "c/../../../x/a"),
            ("a", b'1', "../x"),
            ("a", b'3', ""),
            ("a", b'4', ""),
            ("a", b'6', ""),
            ("a", b'S', ""),
        ] {
            let e = all(&raw(name, kind, link)).await.unwrap_err();
            assert_eq!(e.code, Code::InvalidConfig);
            assert!(e.message.contains(name), "{name} {link}: {e}");
        }
        let fine = all(&raw("a/b", b'2', "../c")).await.unwrap();
        assert_eq!(fine[0].0.kind, Kind::Symlink("../c".into()));
        // No setuid.
        assert_eq!(fine[0].0.mode, 0o755);
    }

    #[tokio::test]
    async fn an_archive_that_is_cut_or_compressed_is_an_error() {
        let bytes = raw("a", b'0', "");
        assert!(all(&bytes[..300]).await.is_err());
        assert!(all(b"\x1f\x8b\x08garbage garbage").await.is_err());
        let whole = tar_of(|b| {
            let mut header = ::tar::Header::new_gnu();
            header.set_size(700);
            header.set_mode(0o644);
            b.append_data(&mut header, "f", &[7u8; 700][..]).unwrap();
        });
        assert!(all(&whole[..900]).await.is_err());
    }
}
