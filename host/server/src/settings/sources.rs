//! Where components may come from, and whose signature they must have: the tables below `[plugins]` in the settings file.
//!
//! A file, and no rows that the API changes: whoever only has an administrator's token can neither add a registry nor take
//! a key away. Paths and names stand here; keys, authorities and passwords are read where they are used.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use leasehold_egress::{Host, Origin, Parsed, RegistryName, Scheme, is_one_registry};
use serde::Deserialize;

use super::SettingsError;

/// The word for a component that needs no signature.
const ANYONE: &str = "anyone";
/// The longest name of a key.
const LONGEST_KEY: usize = 64;
/// How long a pull may take where nothing is said.
const PULL: Duration = Duration::from_secs(300);

/// Whose signature a component needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SignedBy {
    /// Nobody's.
    #[default]
    Anyone,
    /// That of one of these keys, by their names; never empty.
    Keys(Vec<String>),
}

/// A registry that components may be pulled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSettings {
    /// Which.
    pub registry: RegistryName,
    /// The repositories in it: a name, or all below one that ends with `/`. Empty: all.
    pub repositories: Vec<String>,
    /// Whose signature they need.
    pub signed_by: SignedBy,
    /// Spoken to over `http://`; only of an address of this machine.
    pub plain_http: bool,
    /// The account, and the name of the instance's secret that has its password.
    pub account: Option<(String, String)>,
    /// Who may give tokens for it, beside itself.
    pub realm: Option<Origin>,
    /// The file with the certificate authorities of the registry and its realm; none: the system's.
    pub ca: Option<PathBuf>,
}

impl SourceSettings {
    /// Whether this repository is among those that may be used.
    pub fn covers(&self, repository: &str) -> bool {
        self.repositories.is_empty()
            || self
                .repositories
                .iter()
                .any(|one| match one.ends_with('/') {
                    true => repository.starts_with(one.as_str()),
                    false => repository == one,
                })
    }
}

/// Everything about where components come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentSources {
    /// Files with public keys, by the name that they are shown by.
    pub keys: BTreeMap<String, PathBuf>,
    /// Whose signature a component needs that is sent as a file.
    pub files: SignedBy,
    /// The registries.
    pub registries: Vec<SourceSettings>,
    /// How long everything that one pull asks may take together.
    pub pull: Duration,
}

impl Default for ComponentSources {
    fn default() -> ComponentSources {
        ComponentSources {
            keys: BTreeMap::new(),
            files: SignedBy::Anyone,
            registries: Vec::new(),
            pull: PULL,
        }
    }
}

/// `signed-by` as it is written: the word `anyone`, or names of keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenSignedBy(SignedBy);

impl<'de> Deserialize<'de> for WrittenSignedBy {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<WrittenSignedBy, D::Error> {
        struct Written;

        impl<'de> serde::de::Visitor<'de> for Written {
            type Value = SignedBy;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("\"anyone\", or names of keys as [\"acme\"]")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<SignedBy, E> {
                match word {
                    ANYONE => Ok(SignedBy::Anyone),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(word), &self)),
                }
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut all: A,
            ) -> Result<SignedBy, A::Error> {
                let mut names = Vec::new();
                while let Some(name) = all.next_element()? {
                    names.push(name);
                }
                match names.is_empty() {
                    false => Ok(SignedBy::Keys(names)),
                    true => Err(serde::de::Error::invalid_length(0, &self)),
                }
            }
        }

        from.deserialize_any(Written).map(WrittenSignedBy)
    }
}

/// The table `[plugins.files]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileFiles {
    /// Whose signature a component needs that is sent as a file.
    pub signed_by: WrittenSignedBy,
}

/// A table `[[plugins.sources]]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileSource {
    /// `registry = "registry.example.org"`, with a port where it has one of its own.
    pub registry: String,
    /// Whose signature is needed; never left out, so that nobody trusts anyone by accident.
    pub signed_by: WrittenSignedBy,
    /// `repositories = ["acme/", "tools/ssh"]`
    pub repositories: Option<Vec<String>>,
    /// `true`: over `http://`, of an address of this machine.
    pub plain_http: Option<bool>,
    /// The account's name.
    pub username: Option<String>,
    /// The name of the instance's secret that has its password.
    pub password_secret: Option<String>,
    /// `realm = "https://auth.example.org"`
    pub realm: Option<String>,
    /// A file with certificates in PEM.
    pub ca: Option<PathBuf>,
}

/// What the file says of all this, before it was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) keys: Option<BTreeMap<String, PathBuf>>,
    pub(super) files: Option<FileFiles>,
    pub(super) sources: Option<Vec<FileSource>>,
    pub(super) pull_seconds: Option<u64>,
}

impl Written {
    /// Looked at, and laid over the defaults.
    pub(super) fn resolve(self) -> Result<ComponentSources, SettingsError> {
        let keys = self.keys.unwrap_or_default();
        for (name, path) in &keys {
            checked_key(name)?;
            absolute("plugins.keys", name, path)?;
        }
        let pull = self.pull_seconds.map_or(PULL, Duration::from_secs);
        if pull.is_zero() {
            return Err(SettingsError::invalid(
                "plugins.pull-seconds",
                "must be at least 1",
            ));
        }
        let files = match self.files {
            Some(files) => known(files.signed_by, &keys)
                .map_err(|message| SettingsError::invalid("plugins.files", message))?,
            None => SignedBy::Anyone,
        };
        let mut registries: Vec<SourceSettings> = Vec::new();
        for source in self.sources.unwrap_or_default() {
            let source = source.resolve(&keys)?;
            let is_same = |one: &&SourceSettings| {
                // One that is spoken to in plain and over TLS is one registry too: a reference does not say by which.
                [one.plain_http, source.plain_http]
                    .iter()
                    .any(|plain| is_one_registry(&one.registry, &source.registry, *plain))
            };
            if let Some(one) = registries.iter().find(is_same) {
                return Err(invalid(format!(
                    "the registry {} stands there twice{}; put its repositories into one table",
                    source.registry,
                    match one.registry == source.registry {
                        true => String::new(),
                        false => format!(", as {} too", one.registry),
                    }
                )));
            }
            registries.push(source);
        }
        Ok(ComponentSources {
            keys,
            files,
            registries,
            pull,
        })
    }
}

fn invalid(message: impl Into<String>) -> SettingsError {
    SettingsError::invalid("plugins.sources", message)
}

fn absolute(
    setting: &'static str,
    name: &str,
    path: &std::path::Path,
) -> Result<(), SettingsError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(SettingsError::invalid(
        setting,
        format!(
            "{name}: `{}` is not absolute; write the whole path",
            path.display()
        ),
    ))
}

/// The name of a key is shown to people, and stands in messages beside others.
fn checked_key(name: &str) -> Result<(), SettingsError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=LONGEST_KEY).contains(&name.len()) && name.chars().all(is_plain) {
        return Ok(());
    }
    Err(SettingsError::invalid(
        "plugins.keys",
        format!(
            "{:?} is no name of a key; write 1 to {LONGEST_KEY} letters, digits, `-`, `_` and `.`",
            name.chars().take(LONGEST_KEY).collect::<String>()
        ),
    ))
}

/// Names of keys that there are.
fn known(written: WrittenSignedBy, keys: &BTreeMap<String, PathBuf>) -> Result<SignedBy, String> {
    if let SignedBy::Keys(names) = &written.0
        && let Some(unknown) = names.iter().find(|name| !keys.contains_key(*name))
    {
        return Err(format!(
            "signed-by: there is no key {unknown:?}; name its file in [plugins.keys], as {unknown} = \"/etc/leasehold/{unknown}.pub\""
        ));
    }
    Ok(written.0)
}

impl FileSource {
    fn resolve(self, keys: &BTreeMap<String, PathBuf>) -> Result<SourceSettings, SettingsError> {
        let registry: RegistryName = self
            .registry
            .parse()
            .map_err(|e| invalid(format!("registry: {e}")))?;
        let of = |message: String| invalid(format!("{registry}: {message}"));
        let signed_by = known(self.signed_by, keys).map_err(of)?;
        let plain_http = self.plain_http.unwrap_or(false);
        if plain_http && !registry.is_loopback_address() {
            return Err(of(
                "plain-http is only for an address of this machine, as 127.0.0.1:5000; a name may lead elsewhere".to_owned(),
            ));
        }
        let account = match (self.username, self.password_secret) {
            (Some(username), Some(secret)) => {
                Some((checked_username(username).map_err(of)?, secret))
            }
            (None, None) => None,
            _ => {
                return Err(of(
                    "username and password-secret belong together; give both or neither".to_owned(),
                ));
            }
        };
        let realm = match self.realm {
            Some(realm) => Some(checked_realm(&realm).map_err(of)?),
            None => None,
        };
        if let Some(ca) = &self.ca {
            absolute("plugins.sources", &format!("{registry}: ca"), ca)?;
        }
        let repositories = self.repositories.unwrap_or_default();
        if let Some(wrong) = repositories.iter().find(|name| !is_repository(name)) {
            return Err(of(format!(
                "repositories: `{wrong}` is no repository; write a name as tools/ssh, or tools/ for all below it"
            )));
        }
        Ok(SourceSettings {
            registry: registry.clone(),
            repositories,
            signed_by,
            plain_http,
            account,
            realm,
            ca: self.ca,
        })
    }
}

/// Of Basic, a name has no colon (RFC 7617, 2).
fn checked_username(name: String) -> Result<String, String> {
    match name.is_empty() || name.contains(|c: char| c == ':' || c.is_control()) {
        true => Err("username is empty, or has a colon or a control character".to_owned()),
        false => Ok(name),
    }
}

fn checked_realm(realm: &str) -> Result<Origin, String> {
    let parsed = Parsed::of(realm).map_err(|e| format!("realm: {}", e.message))?;
    if parsed.path != "/" || parsed.query.is_some() {
        return Err("realm is an origin, as https://auth.example.org, without a path".to_owned());
    }
    let here = matches!(&parsed.origin.host, Host::Ip(ip) if ip.is_loopback());
    if parsed.origin.scheme == Scheme::Http && !here {
        return Err(
            "realm is http://, which is only for an address of this machine; write https://"
                .to_owned(),
        );
    }
    Ok(parsed.origin)
}

/// A repository, or the beginning of some, by the grammar of references.
fn is_repository(name: &str) -> bool {
    let bare = name.strip_suffix('/').unwrap_or(name);
    !bare.contains([':', '@'])
        && format!("oci://registry.example/{bare}")
            .parse::<leasehold_egress::Reference>()
            .is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(table: &str) -> Result<ComponentSources, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        struct Tables {
            keys: Option<BTreeMap<String, PathBuf>>,
            files: Option<FileFiles>,
            sources: Option<Vec<FileSource>>,
            pull_seconds: Option<u64>,
        }
        let tables: Tables = toml::from_str(table).map_err(|e| e.to_string())?;
        let written = Written {
            keys: tables.keys,
            files: tables.files,
            sources: tables.sources,
            pull_seconds: tables.pull_seconds,
        };
        written.resolve().map_err(|e| e.to_string())
    }

    #[test]
    fn sources_are_read_with_everything_that_they_say() {
        let read = read(
            "pull-seconds = 20
             keys.acme = '/etc/leasehold/acme.pub'
             files.signed-by = ['acme']
             [[sources]]
             registry = 'Registry.Example:5000'
             repositories = ['acme/', 'tools/ssh']
             signed-by = ['acme']
             username = 'ci'
             password-secret = 'registry'
             realm = 'https://auth.example'
             ca = '/etc/leasehold/ca.pem'
             [[sources]]
             registry = '127.0.0.1:5000'
             signed-by = 'anyone'
             plain-http = true",
        )
        .unwrap();
        assert_eq!(read.pull, Duration::from_secs(20));
        assert_eq!(read.files, SignedBy::Keys(vec!["acme".into()]));
        let [one, two] = read.registries.as_slice() else {
            panic!("{read:?}");
        };
        assert_eq!(one.registry.to_string(), "registry.example:5000");
        assert_eq!(one.account, Some(("ci".into(), "registry".into())));
        assert_eq!(
            one.realm.as_ref().unwrap().to_string(),
            "https://auth.example"
        );
        for (repository, covered) in [
            ("acme/ssh", true),
            ("acme/a/b", true),
            ("acme", false),
            ("acmes/ssh", false),
            ("tools/ssh", true),
            ("tools/ssh2", false),
        ] {
            assert_eq!(one.covers(repository), covered, "{repository}");
        }
        assert!(two.plain_http && two.covers("anything"));
        assert_eq!(two.signed_by, SignedBy::Anyone);
    }

    #[test]
    fn a_source_that_cannot_be_is_told_by_its_field() {
        let source = |more: &str| {
            format!("[[sources]]\nregistry = 'r.example'\nsigned-by = 'anyone'\n{more}\n")
        };
        for (table, words) in [
            (
                "[[sources]]\nregistry = 'r.example'".to_owned(),
                "signed-by",
            ),
            (
                "[[sources]]\nregistry = 'r.example'\nsigned-by = 'none'".to_owned(),
                "anyone",
            ),
            (
                "[[sources]]\nregistry = 'r.example'\nsigned-by = []".to_owned(),
                "anyone",
            ),
            (
                "[[sources]]\nregistry = 'r.example'\nsigned-by = ['acme']".to_owned(),
                "r.example: signed-by: there is no key \"acme\"",
            ),
            (
                "files.signed-by = ['acme']".to_owned(),
                "plugins.files: signed-by: there is no key \"acme\"",
            ),
            (
                "keys.\"\" = '/acme.pub'".to_owned(),
                "\"\" is no name of a key",
            ),
            (
                "keys.\"a\\u001b[2J\" = '/acme.pub'".to_owned(),
                "is no name of a key",
            ),
            (
                "keys.\"a b\" = '/acme.pub'".to_owned(),
                "is no name of a key",
            ),
            (
                format!("keys.{} = '/acme.pub'", "a".repeat(65)),
                "is no name of a key",
            ),
            ("keys.acme = 'acme.pub'".to_owned(), "not absolute"),
            ("pull-seconds = 0".to_owned(), "pull-seconds"),
            (
                "[[sources]]\nregistry = 'u@r.example'\nsigned-by = 'anyone'".to_owned(),
                "user-info",
            ),
            (
                "[[sources]]\nregistry = 'https://r.example'\nsigned-by = 'anyone'".to_owned(),
                "registry",
            ),
            (source("") + &source(""), "r.example stands there twice;"),
            (
                source("") + "[[sources]]\nregistry = 'R.example:443'\nsigned-by = 'anyone'\n",
                "twice",
            ),
            (
                "[[sources]]\nregistry = '127.0.0.1'\nsigned-by = 'anyone'\nplain-http = true\n\
                 [[sources]]\nregistry = '127.0.0.1:80'\nsigned-by = 'anyone'\n"
                    .to_owned(),
                "127.0.0.1:80 stands there twice, as 127.0.0.1 too",
            ),
            (
                "[[sources]]\nregistry = '127.0.0.1:443'\nsigned-by = 'anyone'\n\
                 [[sources]]\nregistry = '127.0.0.1'\nsigned-by = 'anyone'\n"
                    .to_owned(),
                "127.0.0.1 stands there twice, as 127.0.0.1:443 too",
            ),
            (source("plain-http = true"), "plain-http"),
            (source("username = 'ci'"), "belong together"),
            (source("password-secret = 'ci'"), "belong together"),
            (source("username = 'a:b'\npassword-secret = 'x'"), "colon"),
            (source("realm = 'auth.example'"), "realm"),
            (
                source("realm = 'https://auth.example/token'"),
                "without a path",
            ),
            (source("realm = 'http://auth.example'"), "https://"),
            (
                source("ca = 'ca.pem'"),
                "r.example: ca: `ca.pem` is not absolute",
            ),
            (source("repositories = ['']"), "repositories"),
            (source("repositories = ['a:b']"), "repositories"),
            (source("repositories = ['A/']"), "repositories"),
            (source("password = 'x'"), "unknown field"),
        ] {
            let refused = read(&table).unwrap_err();
            assert!(refused.contains(words), "{table}: {refused}");
            assert!(!refused.contains('\u{1b}'), "{refused:?}");
        }
    }
}
