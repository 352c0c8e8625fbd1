//! Where a redirect of a blob leads, and whether it is followed.
//!
//! Pure. Registries keep their blobs with storage services, and send whoever asks there. What is fetched is checked by its
//! digest, so that it matters little who gives it; that nothing of ours is asked by it matters: it must be `https`, and a
//! public address, or the registry itself.

use url::Url;

use super::error::RegistryFault;
use crate::error::quote;
use crate::http::{Origin, Parsed, Scheme};

/// Hops of one blob.
pub(super) const MOST: usize = 3;

/// Reads a Location that was answered at `from`.
///
/// # Errors
/// `Redirect`, saying why it is not followed.
pub(super) fn read(from: &Parsed, location: Option<&str>) -> Result<Parsed, RegistryFault> {
    let refuse = |what: String| Err(RegistryFault::Redirect(what));
    let Some(location) = location else {
        return refuse("it says no Location".to_owned());
    };
    if location
        .chars()
        .any(|c| c.is_control() || c.is_whitespace() || c == '\\')
    {
        return refuse("its Location has characters that no URL has".to_owned());
    }
    let absolute = if location.contains("://") {
        location.to_owned()
    } else {
        let base = format!("{}{}", from.origin, from.path);
        match Url::parse(&base).and_then(|base| base.join(location)) {
            Ok(joined) => joined.to_string(),
            Err(_) => return refuse("its Location is no URL".to_owned()),
        }
    };
    Parsed::of(&absolute).map_err(|e| RegistryFault::Redirect(e.message))
}

/// Whether a blob may be fetched there.
///
/// # Errors
/// `Redirect`, saying why not.
pub(super) fn may(registry: &Origin, to: &Origin) -> Result<(), RegistryFault> {
    if to == registry || to.scheme == Scheme::Https {
        return Ok(());
    }
    Err(RegistryFault::Redirect(format!(
        "{} is plain http://",
        quote(to.to_string().as_bytes())
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(location: &str) -> Result<String, String> {
        let from = Parsed::of("https://r.example/v2/a/blobs/x").unwrap();
        read(&from, Some(location))
            .and_then(|to| may(&from.origin, &to.origin).map(|()| to))
            .map(|to| match to.query {
                Some(query) => format!("{}{}?{query}", to.origin, to.path),
                None => format!("{}{}", to.origin, to.path),
            })
            .map_err(|e| e.to_string())
    }

    #[test]
    fn a_location_is_read_against_where_it_was_answered() {
        for (location, leads) in [
            (
                "https://store.example/b?sig=1%2F2",
                "https://store.example/b?sig=1%2F2",
            ),
            ("/blobs/x", "https://r.example/blobs/x"),
            ("y", "https://r.example/v2/a/blobs/y"),
            ("//store.example/b", "https://store.example/b"),
        ] {
            assert_eq!(to(location).as_deref(), Ok(leads), "{location}");
        }
    }

    #[test]
    fn a_location_that_fools_its_reader_or_is_in_plain_is_not_followed() {
        for location in [
            "http://store.example/b",
            "http://r.example/b",
            "https://user:pw@store.example/b",
            "//user@store.example/b",
            "https://store.example./b",
            "https://store.example/b#x",
            "https:\\\\store.example/b",
            "https://store.example/a b",
            "ftp://store.example/b",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "https://",
        ] {
            let refused = to(location).unwrap_err();
            assert!(refused.contains("not followed"), "{location}: {refused}");
            assert!(!refused.contains("pw"), "{refused}");
        }
        let from = Parsed::of("https://r.example/v2/").unwrap();
        assert!(read(&from, None).is_err());
    }
}
