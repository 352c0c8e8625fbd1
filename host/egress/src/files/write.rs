//! Writes a tar: ustar headers, GNU entries for long names, and comments for what is not in it. Only what
//! [`super::archive::Entry`] can say is written.

use bytes::Bytes;
use leasehold_contract::{Code, Error};

use super::archive::{Entry, Kind};
use super::pipe::{Gone, Sink};
use crate::error::quote;

/// An archive on its way to a reader.
pub(super) struct Writer {
    sink: Sink,
}

fn gone(_: Gone) -> Error {
    Error::new(Code::Cancelled, "nobody reads the archive any more")
}

impl Writer {
    pub(super) fn new(sink: Sink) -> Writer {
        Writer { sink }
    }

    /// Writes an entry's header; a file's content follows by [`Writer::content`] and [`Writer::pad`].
    pub(super) async fn entry(&self, entry: &Entry) -> Result<(), Error> {
        self.raw(header(entry)).await
    }

    pub(super) async fn content(&self, piece: Vec<u8>) -> Result<(), Error> {
        self.raw(piece).await
    }

    /// Fills up the last block of `size` bytes of content.
    pub(super) async fn pad(&self, size: u64) -> Result<(), Error> {
        match size % 512 {
            0 => Ok(()),
            n => self.raw(vec![0; 512 - n as usize]).await,
        }
    }

    /// Names what the archive does not hold, and why. Whoever does not look for it passes it over.
    pub(super) async fn left_out(&self, path: &str, why: &str) -> Result<(), Error> {
        let text = format!("left out: {} ({why})", quote(path.as_bytes()));
        self.raw(comment(&text)).await
    }

    /// The closing blocks.
    pub(super) async fn finish(&self) -> Result<(), Error> {
        self.raw(vec![0; 1024]).await
    }

    async fn raw(&self, bytes: Vec<u8>) -> Result<(), Error> {
        self.sink.send(Bytes::from(bytes)).await.map_err(gone)
    }
}

/// An entry's blocks but for its content.
pub(super) fn header(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut path = if entry.path.is_empty() {
        ".".to_owned()
    } else {
        entry.path.clone()
    };
    let (kind, link) = match &entry.kind {
        Kind::File => (tar::EntryType::Regular, None),
        Kind::Directory => {
            path.push('/');
            (tar::EntryType::Directory, None)
        }
        Kind::Symlink(to) => (tar::EntryType::Symlink, Some(to)),
        Kind::Hardlink(to) => (tar::EntryType::Link, Some(to)),
    };
    let mut header = tar::Header::new_gnu();
    let mut long = |kind: u8, text: &str| {
        let mut header = tar::Header::new_gnu();
        let name = b"././@LongLink";
        header.as_mut_bytes()[..name.len()].copy_from_slice(name);
        header.as_mut_bytes()[156] = kind;
        header.set_size(text.len() as u64 + 1);
        header.set_mode(0o644);
        header.set_cksum();
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes.resize(bytes.len() + 1 + (512 - (text.len() + 1) % 512) % 512, 0);
    };
    // The field takes 100 bytes; what is cut here stands whole in the entry before.
    let mut field = |range: std::ops::Range<usize>, text: &str, kind: u8| {
        if text.len() >= range.len() {
            long(kind, text);
        }
        let fits = text.len().min(range.len() - 1);
        header.as_mut_bytes()[range][..fits].copy_from_slice(&text.as_bytes()[..fits]);
    };
    field(0..100, &path, b'L');
    if let Some(link) = link {
        field(157..257, link, b'K');
    }
    header.set_entry_type(kind);
    header.set_size(entry.size);
    header.set_mode(entry.mode);
    header.set_mtime(entry.modified);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    bytes.extend_from_slice(header.as_bytes());
    bytes
}

/// A comment of all that follows: a global pax header.
fn comment(text: &str) -> Vec<u8> {
    // A record begins with its own length, the digits of that included.
    let rest = format!(" comment={text}\n");
    let mut length = rest.len();
    while length != rest.len() + length.to_string().len() {
        length = rest.len() + length.to_string().len();
    }
    let record = format!("{length}{rest}");
    let mut header = tar::Header::new_ustar();
    let name = b"pax_global_header";
    header.as_mut_bytes()[..name.len()].copy_from_slice(name);
    header.set_entry_type(tar::EntryType::XGlobalHeader);
    header.set_size(record.len() as u64);
    header.set_mode(0o644);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend_from_slice(record.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::archive::Reader;
    use super::*;

    #[tokio::test]
    async fn a_comment_of_every_length_is_whole_and_other_readers_pass_it_over() {
        for n in (0..120).chain(960..1010) {
            let text = "x".repeat(n);
            let mut bytes = comment(&text);
            bytes.extend([0; 1024]);
            let mut archive = tar::Archive::new(&bytes[..]);
            let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
            let mut records = entry.pax_extensions().unwrap().unwrap();
            let record = records.next().unwrap().unwrap();
            assert_eq!(
                (record.key().unwrap(), record.value().unwrap()),
                ("comment", text.as_str())
            );
            assert!(records.next().is_none());
            assert_eq!(Reader::new(&bytes[..]).next().await.unwrap(), None);
        }
    }

    #[tokio::test]
    async fn what_is_written_is_read_back_with_names_of_every_length() {
        for n in [1, 98, 99, 100, 101, 255, 511, 512, 513, 3000] {
            let entry = Entry {
                path: format!("{}/x", "ab/".repeat(n / 3) + &"c".repeat(n % 3 + 1)),
                kind: Kind::Symlink("y".repeat(n)),
                mode: 0o777,
                size: 0,
                modified: 5,
            };
            let mut bytes = header(&entry);
            bytes.extend([0; 1024]);
            let mut reader = Reader::new(&bytes[..]);
            assert_eq!(reader.next().await.unwrap(), Some(entry));
            assert_eq!(reader.next().await.unwrap(), None);
        }
    }
}
