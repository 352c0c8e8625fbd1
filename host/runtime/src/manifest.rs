//! The checks of a manifest, before it is frozen: every violation is told at once, each with a pointer
//! into the manifest in the contract's spelling.

mod checks;

use leasehold_contract::{
    Creation, Credential, FORMATS, FieldViolation, Formats, Manifest, Mint, Operation, Role, Site,
};
use serde_json::Value;

use crate::audit::Capabilities;
use crate::schema;
use crate::settings::Ceilings;
use crate::spelling::{is_origin, is_plain, is_token, not_plain, shape};

const TITLE: usize = 80;
const SUMMARY: usize = 500;
const SCHEMA: usize = 256 << 10;
const ENTRIES: usize = 64;
const INNER: usize = 16;
const POINTER: usize = 512;
const PATH: usize = 512;
const ACQUIRE_TIMEOUT: u32 = 3_600_000;
const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

const ENDPOINTS: &[&str] = &["endpoint", "engine-endpoint"];
const DESTINATIONS: &[&str] = &["endpoint", "engine-endpoint", "ssh-target"];
const SECRET: &[&str] = &["secret"];
const REGISTRY: &[&str] = &["registry"];

/// Headers whose value is never a credential's.
const HOSTS_OWN: &[&str] = &[
    "host",
    "connection",
    "keep-alive",
    "content-length",
    "transfer-encoding",
    "te",
    "trailer",
    "upgrade",
    "accept-encoding",
    "expect",
    "http2-settings",
];

/// The schema as the component wrote it, parsed.
///
/// # Errors
/// The one violation that keeps it from being looked at.
pub(crate) fn config_schema(text: &str) -> Result<Value, FieldViolation> {
    let wrong = |message: String| FieldViolation {
        pointer: "/config-schema".to_owned(),
        message,
    };
    if text.len() > SCHEMA {
        return Err(wrong(format!(
            "has {} bytes; at most {SCHEMA} are taken",
            text.len()
        )));
    }
    let value: Value =
        serde_json::from_str(text).map_err(|e| wrong(format!("is not JSON: {e}")))?;
    if !value.is_object() {
        return Err(wrong(
            "is not an object; write a JSON Schema 2020-12".to_owned(),
        ));
    }
    Ok(value)
}

/// Everything that is wrong with a manifest; empty when nothing is.
pub(crate) fn violations(
    manifest: &Manifest,
    capabilities: Capabilities,
    ceilings: &Ceilings,
) -> Vec<FieldViolation> {
    let mut found = Found {
        manifest,
        all: Vec::new(),
    };
    found.head();
    found.schema();
    found.limits(ceilings);
    found.image();
    found.origins();
    found.features(capabilities);
    for (i, credential) in found.listed("credentials", &manifest.credentials) {
        found.credential(&format!("/credentials/{i}"), credential);
    }
    for (i, mint) in found.listed("mints", &manifest.mints) {
        found.mint(&format!("/mints/{i}"), mint);
    }
    for (i, operation) in found.listed("operations", &manifest.operations) {
        found.operation(&format!("/operations/{i}"), operation);
    }
    found.unique();
    for (i, check) in found.listed("checks", &manifest.checks) {
        found.check(&format!("/checks/{i}"), check);
    }
    found.all
}

struct Found<'a> {
    manifest: &'a Manifest,
    all: Vec<FieldViolation>,
}

impl<'a> Found<'a> {
    fn say(&mut self, pointer: &str, message: impl Into<String>) {
        self.all.push(FieldViolation {
            pointer: pointer.to_owned(),
            message: message.into(),
        });
    }

    fn listed<T>(
        &mut self,
        name: &str,
        list: &'a [T],
    ) -> std::iter::Take<std::iter::Enumerate<std::slice::Iter<'a, T>>> {
        if list.len() > ENTRIES {
            self.say(
                &format!("/{name}"),
                format!("has {} entries; at most {ENTRIES} are taken", list.len()),
            );
        }
        list.iter().enumerate().take(ENTRIES)
    }

    fn head(&mut self) {
        let m = self.manifest;
        let key = m.key.as_bytes();
        let of_key = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        if !(1..=63).contains(&key.len())
            || !of_key(&key[0])
            || !key.iter().all(|b| of_key(b) || *b == b'-')
        {
            self.say(
                "/key",
                format!("is {}; it is `[a-z0-9][a-z0-9-]{{0,62}}`", shape(&m.key)),
            );
        }
        if m.version.len() > 64 {
            self.say("/version", "is longer than 64 bytes");
        } else if let Err(e) = semver::Version::parse(&m.version) {
            self.say(
                "/version",
                format!(
                    "is {}; it is a semantic version as `1.2.3`: {e}",
                    shape(&m.version)
                ),
            );
        }
        for (pointer, text, least, most) in [
            ("/title", &m.title, 1, TITLE),
            ("/summary", &m.summary, 0, SUMMARY),
        ] {
            let length = text.chars().count();
            if length < least {
                self.say(pointer, "is empty; people see it");
            }
            if length > most {
                self.say(
                    pointer,
                    format!("has {length} characters; at most {most} are shown"),
                );
            }
            if text.chars().any(char::is_control) {
                self.say(pointer, "has a control character");
            }
        }
        if !(1..=ACQUIRE_TIMEOUT).contains(&m.acquire_timeout) {
            self.say(
                "/acquire-timeout",
                format!("is {} ms; it is 1 to {ACQUIRE_TIMEOUT}", m.acquire_timeout),
            );
        }
    }

    fn schema(&mut self) {
        let schema = &self.manifest.config_schema;
        if let Some(dialect) = schema.get("$schema")
            && dialect.as_str().map(|d| d.trim_end_matches('#')) != Some(DIALECT)
        {
            self.say(
                "/config-schema/$schema",
                format!("is {dialect}; the one dialect is {DIALECT:?}"),
            );
        }
        for pointer in schema::remote_references(schema) {
            self.say(
                &format!("/config-schema{pointer}"),
                "leaves the schema; write what it refers to into `$defs`",
            );
        }
        for (pointer, format) in schema::unchecked_formats(schema).iter().take(ENTRIES) {
            self.say(
                &format!("/config-schema{pointer}"),
                format!(
                    "is {}, which nobody checks; a format is one of the host ({}) or of JSON Schema 2020-12",
                    shape(format),
                    FORMATS.join(", ")
                ),
            );
        }
        if let Err(why) = schema::validator(schema) {
            self.say(
                "/config-schema",
                format!("is no JSON Schema 2020-12: {why}"),
            );
        }
        let formats = Formats::of(schema);
        for pointer in formats.unseen.iter().take(ENTRIES) {
            self.say(
                &format!("/config-schema{pointer}"),
                format!(
                    "stands where this host does not look; formats of the host ({}) are found through `properties`, \
                     `items`, `allOf` and `$ref`s that are pointers",
                    FORMATS.join(", ")
                ),
            );
        }
        if formats.cut {
            self.say(
                "/config-schema",
                "unfolds into more fields than this host looks through; refer to fewer `$defs` from fewer places",
            );
        }
    }

    fn limits(&mut self, ceilings: &Ceilings) {
        let limits = self.manifest.request.limits;
        let cpu = u32::try_from(ceilings.cpu.as_millis()).unwrap_or(u32::MAX);
        for (name, unit, asked, least, most) in [
            (
                "memory-mib",
                " MiB",
                limits.memory_mib,
                1,
                ceilings.memory_mib,
            ),
            ("cpu", " ms", limits.cpu, 1, cpu),
            ("exchanges", "", limits.exchanges, 0, ceilings.exchanges),
            ("body-mib", " MiB", limits.body_mib, 0, ceilings.body_mib),
        ] {
            if !(least..=most).contains(&asked) {
                self.say(
                    &format!("/request/limits/{name}"),
                    format!("is {asked}{unit}; this host allows {least} to {most}{unit}"),
                );
            }
        }
    }

    fn image(&mut self) {
        let Some(image) = &self.manifest.image else {
            return;
        };
        self.field("/image/field", &image.field, &[]);
        for (name, pointers) in [
            ("excludes", &image.excludes),
            ("identity-fields", &image.identity_fields),
        ] {
            for (i, pointer) in self.inner(&format!("/image/{name}"), pointers) {
                self.field(&format!("/image/{name}/{i}"), pointer, &[]);
            }
        }
        if image.excludes.contains(&image.field) {
            self.say("/image/excludes", "has the image's own field");
        }
    }

    fn inner<'b, T>(
        &mut self,
        at: &str,
        list: &'b [T],
    ) -> std::iter::Take<std::iter::Enumerate<std::slice::Iter<'b, T>>> {
        if list.len() > INNER {
            self.say(
                at,
                format!("has {} entries; at most {INNER} are taken", list.len()),
            );
        }
        list.iter().enumerate().take(INNER)
    }

    fn origins(&mut self) {
        let origins = &self.manifest.request.origins;
        for (i, origin) in self.listed("request/origins", origins) {
            if !is_origin(origin) {
                self.say(
                    &format!("/request/origins/{i}"),
                    format!(
                        "is {}; it is `scheme://host:port` of http or https, the host may begin with `*.`",
                        shape(origin)
                    ),
                );
            }
        }
    }

    fn features(&mut self, capabilities: Capabilities) {
        let f = self.manifest.features;
        for (has, name) in [
            (f.stdin, "stdin"),
            (f.tty, "tty"),
            (f.separate_stderr, "separate-stderr"),
            (f.attach, "attach"),
            (f.signal_group, "signal-group"),
        ] {
            if has && !capabilities.execution {
                self.say(
                    "/features",
                    format!("has `{name}`, and the component does not export `execution`"),
                );
            }
        }
    }

    /// A pointer to a field of the configuration, of one of `formats` where any are named.
    fn field(&mut self, at: &str, pointer: &str, formats: &[&str]) {
        if pointer.len() > POINTER || schema::segments(pointer).is_none_or(|s| s.is_empty()) {
            self.say(
                at,
                format!("is {}; it is a JSON pointer as `/a/b`", shape(pointer)),
            );
            return;
        }
        let fields = schema::fields_at(&self.manifest.config_schema, pointer);
        if fields.is_empty() {
            self.say(
                at,
                format!("is {pointer:?}; the configuration's schema has no such field"),
            );
        } else if !formats.is_empty() && !schema::has_format(&fields, formats) {
            self.say(
                at,
                format!(
                    "is {pointer:?}; that field has no format of {}",
                    formats.join(", ")
                ),
            );
        }
    }

    /// A pointer into a request or an answer.
    fn pointer(&mut self, at: &str, pointer: &str) {
        if pointer.len() > POINTER || schema::segments(pointer).is_none() {
            self.say(
                at,
                format!("is {}; it is a JSON pointer as `/a/b`", shape(pointer)),
            );
        }
    }

    fn credential(&mut self, at: &str, credential: &Credential) {
        let of_registry = |site: &Site| *site == Site::RegistryAuth;
        let all = !credential.sites.is_empty() && credential.sites.iter().all(of_registry);
        if !all && credential.sites.iter().any(of_registry) {
            self.say(
                &format!("{at}/sites"),
                "has registry-auth beside others; it is of a field of format registry, they are of one of format secret",
            );
        }
        let formats = if all { REGISTRY } else { SECRET };
        self.field(&format!("{at}/pointer"), &credential.pointer, formats);
        self.sites(at, &credential.sites);
        self.destinations(at, &credential.to);
    }

    fn destinations(&mut self, at: &str, to: &[String]) {
        if to.is_empty() {
            self.say(
                &format!("{at}/to"),
                "is empty; name the endpoints that it goes to",
            );
        }
        for (i, pointer) in self.inner(&format!("{at}/to"), to) {
            self.field(&format!("{at}/to/{i}"), pointer, DESTINATIONS);
        }
    }

    fn sites(&mut self, at: &str, sites: &[Site]) {
        if sites.is_empty() {
            self.say(
                &format!("{at}/sites"),
                "is empty; without a site its placeholder works nowhere",
            );
        }
        for (i, site) in self.inner(&format!("{at}/sites"), sites) {
            let at = format!("{at}/sites/{i}");
            match site {
                Site::Header(name, template) => {
                    let lower = name.to_ascii_lowercase();
                    if !is_token(name) {
                        self.say(&at, format!("{} is no header's name", shape(name)));
                    } else if HOSTS_OWN.contains(&lower.as_str()) || lower.starts_with("proxy-") {
                        self.say(&at, format!("the header {lower} is the host's own"));
                    }
                    if template.matches("{}").count() != 1
                        || template.len() > 128
                        || !template.bytes().all(|b| (0x20..0x7f).contains(&b))
                    {
                        self.say(
                            &at,
                            format!(
                                "the template is {}; it has one `{{}}`, as `Bearer {{}}`",
                                shape(template)
                            ),
                        );
                    }
                }
                Site::Basic(pointer) => self.field(&at, pointer, &[]),
                Site::RegistryAuth | Site::SshUsername => {}
            }
        }
    }

    fn mint(&mut self, at: &str, mint: &Mint) {
        self.field(&format!("{at}/endpoint"), &mint.endpoint, ENDPOINTS);
        self.method(&format!("{at}/method"), &mint.method);
        self.template(&format!("{at}/path"), &mint.path);
        if mint.pointers.is_empty() {
            self.say(
                &format!("{at}/pointers"),
                "is empty; name the values that are secret",
            );
        }
        for (i, pointer) in self.inner(&format!("{at}/pointers"), &mint.pointers) {
            self.pointer(&format!("{at}/pointers/{i}"), pointer);
        }
        self.sites(at, &mint.sites);
        for (i, site) in mint.sites.iter().enumerate().take(INNER) {
            if *site == Site::RegistryAuth {
                self.say(
                    &format!("{at}/sites/{i}"),
                    "is registry-auth, which is of a field of format registry; a minted value works in a header",
                );
            }
        }
        self.destinations(at, &mint.to);
    }

    fn method(&mut self, at: &str, method: &str) {
        if !is_token(method) || method.len() > 16 || method.bytes().any(|b| b.is_ascii_lowercase())
        {
            self.say(
                at,
                format!(
                    "is {}; it is a method in upper case, as `POST`",
                    shape(method)
                ),
            );
        }
    }

    /// A path whose placeholders are whole segments; gives those that it has.
    fn template(&mut self, at: &str, path: &str) -> Vec<&'static str> {
        let mut has = Vec::new();
        if !path.starts_with('/')
            || path.len() > PATH
            || !path.bytes().all(|b| b.is_ascii_graphic())
            || path.contains(['?', '#'])
        {
            self.say(
                at,
                format!("is {}; it is an absolute path without a query", shape(path)),
            );
            return has;
        }
        if path.contains("//") {
            self.say(at, "has an empty segment, which no request's path has");
        }
        for segment in path.split('/') {
            match segment {
                "{resource}" => has.push("{resource}"),
                "{child}" => has.push("{child}"),
                "{acquisition}" => has.push("{acquisition}"),
                "*" => {}
                "." | ".." => self.say(at, "has a segment `.` or `..`"),
                other if !is_plain(other) => self.say(at, not_plain(other)),
                other if other.contains(['{', '}', '*']) => self.say(
                    at,
                    format!(
                        "has the segment {other:?}; a placeholder is a whole segment, one of {{resource}}, \
                         {{child}}, {{acquisition}}, *"
                    ),
                ),
                other if other.contains(['%', ';', '\\']) => self.say(
                    at,
                    format!("has the segment {other:?}; no request's path has `%`, `;` or a backslash here"),
                ),
                _ => {}
            }
        }
        has
    }

    fn operation(&mut self, at: &str, operation: &Operation) {
        self.field(&format!("{at}/endpoint"), &operation.endpoint, ENDPOINTS);
        self.method(&format!("{at}/method"), &operation.method);
        let opens = operation.method == "GET"
            && self.manifest.request.streams
            && matches!(operation.role, Role::Act | Role::Shared);
        if matches!(operation.method.as_str(), "GET" | "HEAD") && !opens {
            self.say(
                &format!("{at}/method"),
                "is GET or HEAD, which need no operation but one by GET that opens a stream: of role act or shared, with request.streams",
            );
        }
        let has = self.template(&format!("{at}/path"), &operation.path);
        match &operation.role {
            Role::Create(made) | Role::CreateChild(made) => self.creation(at, made),
            Role::Act if has.is_empty() => self.say(
                &format!("{at}/path"),
                "names nothing of the lease; an operation that acts has {resource}, {child} or {acquisition}",
            ),
            Role::Act | Role::Read | Role::Shared => {}
        }
    }

    fn creation(&mut self, at: &str, made: &Creation) {
        if made.id.is_empty() {
            self.say(
                &format!("{at}/role/id"),
                "is empty; name where the id stands in the answer",
            );
        }
        self.pointer(&format!("{at}/role/id"), &made.id);
        if let Some(labels) = &made.labels {
            self.pointer(&format!("{at}/role/labels"), labels);
        }
    }

    fn unique(&mut self) {
        let manifest = self.manifest;
        let creates = manifest
            .operations
            .iter()
            .filter(|o| matches!(o.role, Role::Create(_)))
            .count();
        if creates > 1 {
            self.say(
                "/operations",
                format!("has {creates} of role create; one makes the environment"),
            );
        }
        for (i, credential) in manifest.credentials.iter().enumerate().take(ENTRIES) {
            if manifest.credentials[..i]
                .iter()
                .any(|c| c.pointer == credential.pointer)
            {
                self.say(
                    &format!("/credentials/{i}/pointer"),
                    format!("is {:?} a second time", credential.pointer),
                );
            }
        }
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
