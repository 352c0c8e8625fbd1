//! The local operator's token: a file that only this user can read, made on first start.
//!
//! Whoever can read it is the operator; where the request came from proves nothing. Only a digest stays in
//! memory, and comparing looks at every byte.

use std::io::{Read, Write};
use std::path::Path;

use cap_std::fs::{Dir, MetadataExt, OpenOptions, OpenOptionsExt, PermissionsExt};
use sha2::{Digest, Sha256};

/// The file's name in the data directory.
pub const TOKEN_FILE: &str = "operator.token";

const PREFIX: &str = "lho_";
const RANDOM_BYTES: usize = 32;

/// The operator's token, as far as the server remembers it.
#[derive(Clone)]
pub struct OperatorToken {
    digest: [u8; 32],
}

impl std::fmt::Debug for OperatorToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OperatorToken")
    }
}

/// The token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It can neither be read nor made.
    #[error("operator token file {TOKEN_FILE} in the data directory: {0}")]
    Io(#[from] std::io::Error),
    /// Others could have read or written it.
    #[error(
        "operator token file {TOKEN_FILE} in the data directory: {0}; delete the file, and the next start makes a new one"
    )]
    Untrusted(String),
    /// No random bytes.
    #[error("no random bytes from the system: {0}")]
    Random(getrandom::Error),
}

impl OperatorToken {
    /// Reads the token of `data`, or makes one. A file that others can read, that another user owns, or that
    /// holds something else is refused.
    pub fn open_or_make(data: &Dir) -> Result<OperatorToken, TokenFileError> {
        match data.open_with(
            TOKEN_FILE,
            OpenOptions::new().read(true).custom_flags(NO_FOLLOW),
        ) {
            Ok(file) => read(file),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => make(data),
            Err(e) => Err(e.into()),
        }
    }

    /// A token of this text, for tests that need no file.
    #[cfg(test)]
    pub fn of(text: &str) -> OperatorToken {
        OperatorToken {
            digest: digest(text),
        }
    }

    /// Whether `text` is the token; takes the same time whatever it is.
    pub fn matches(&self, text: &str) -> bool {
        let other = digest(text);
        let mut difference = 0u8;
        for (a, b) in self.digest.iter().zip(other) {
            difference |= a ^ b;
        }
        std::hint::black_box(difference) == 0
    }

    /// Whether `text` has the shape of an operator's token.
    pub fn looks_like_one(text: &str) -> bool {
        text.starts_with(PREFIX)
    }
}

/// Reads a token file for a client: the first line, trimmed.
pub fn read_token_file(path: &Path) -> std::io::Result<String> {
    let text = std::fs::read_to_string(path)?;
    Ok(text.lines().next().unwrap_or("").trim().to_owned())
}

const NO_FOLLOW: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn read(mut file: cap_std::fs::File) -> Result<OperatorToken, TokenFileError> {
    let metadata = file.metadata()?;
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.is_file() {
        return Err(TokenFileError::Untrusted("is not a plain file".into()));
    }
    if mode & 0o077 != 0 {
        return Err(TokenFileError::Untrusted(format!(
            "has mode {mode:04o}, so others can reach it"
        )));
    }
    let me = rustix::process::geteuid().as_raw();
    if metadata.uid() != me {
        return Err(TokenFileError::Untrusted(format!(
            "belongs to uid {}, not to this server's {me}",
            metadata.uid()
        )));
    }
    let mut text = String::new();
    (&mut file).take(256).read_to_string(&mut text)?;
    let token = text.trim();
    let random = token.strip_prefix(PREFIX).unwrap_or("");
    if random.len() != RANDOM_BYTES * 2 || !random.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(TokenFileError::Untrusted("holds no token".into()));
    }
    Ok(OperatorToken {
        digest: digest(token),
    })
}

fn make(data: &Dir) -> Result<OperatorToken, TokenFileError> {
    let mut random = [0u8; RANDOM_BYTES];
    getrandom::fill(&mut random).map_err(TokenFileError::Random)?;
    let mut token = String::from(PREFIX);
    for byte in random {
        use std::fmt::Write as _;
        let _ = write!(token, "{byte:02x}");
    }
    // Written aside and renamed, so that a crash never leaves half a token.
    let aside = format!("{TOKEN_FILE}.new");
    match data.remove_file(&aside) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(e.into()),
        _ => {}
    }
    let mut file = data.open_with(
        &aside,
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .custom_flags(NO_FOLLOW),
    )?;
    writeln!(file, "{token}")?;
    file.sync_all()?;
    data.rename(&aside, data, TOKEN_FILE)?;
    Ok(OperatorToken {
        digest: digest(&token),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room() -> (tempfile::TempDir, Dir) {
        let dir = tempfile::tempdir().unwrap();
        let open = Dir::open_ambient_dir(dir.path(), cap_std::ambient_authority()).unwrap();
        (dir, open)
    }

    #[test]
    fn the_file_is_made_once_for_the_owner_alone_and_read_again() {
        let (dir, data) = room();
        let first = OperatorToken::open_or_make(&data).unwrap();
        let path = dir.path().join(TOKEN_FILE);
        let token = read_token_file(&path).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::mode(
            &std::fs::metadata(&path).unwrap().permissions(),
        );
        assert_eq!(mode & 0o777, 0o600);
        assert!(first.matches(&token));
        let again = OperatorToken::open_or_make(&data).unwrap();
        assert!(again.matches(&token));
        assert!(!again.matches(&token[1..]));
        assert!(!again.matches(""));
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_a_link_is_refused() {
        let (dir, data) = room();
        OperatorToken::open_or_make(&data).unwrap();
        let path = dir.path().join(TOKEN_FILE);
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o640);
        std::fs::set_permissions(&path, open).unwrap();
        let error = OperatorToken::open_or_make(&data).unwrap_err();
        assert!(error.to_string().contains("0640"), "{error}");
        std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(OperatorToken::open_or_make(&data).is_err());
    }

    #[test]
    fn a_file_with_something_else_in_it_is_refused() {
        let (_dir, data) = room();
        OperatorToken::open_or_make(&data).unwrap();
        data.write(TOKEN_FILE, "lho_short\n").unwrap();
        let error = OperatorToken::open_or_make(&data).unwrap_err();
        assert!(error.to_string().contains("holds no token"), "{error}");
    }
}
