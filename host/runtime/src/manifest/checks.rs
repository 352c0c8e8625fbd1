//! What a manifest's checks must be for the host to make them as they are written.
//!
//! Pure. A check that could never hold, or that would be made otherwise than it says, is refused before it is believed.

use leasehold_contract::{Check, Claim, Expectation, Site};

use super::{ENDPOINTS, Found, PATH};
use crate::spelling::{is_plain, not_plain, shape};

/// The longest that two asks of one check are held apart, in milliseconds: a release waits as long.
const APART: u32 = 60_000;

impl Found<'_> {
    pub(super) fn check(&mut self, at: &str, check: &Check) {
        self.field(&format!("{at}/endpoint"), &check.endpoint, ENDPOINTS);
        self.check_path(&format!("{at}/path"), check);
        if let Some(pointer) = &check.credential {
            self.shown(&format!("{at}/credential"), pointer);
        }
        if check.apart > APART {
            self.say(
                &format!("{at}/apart"),
                format!("is {} ms; at most {APART} are waited", check.apart),
            );
        }
        if check.apart > 0 && check.claim != Claim::Gone {
            self.say(
                &format!("{at}/apart"),
                "is set, and only a check of `gone` is made twice; leave it 0",
            );
        }
        let owned = |check: &Check| check.claim == Claim::Owned;
        if check.claim == Claim::Gone && !self.manifest.checks.iter().any(owned) {
            self.say(
                &format!("{at}/claim"),
                "is `gone` without a check of `owned`: what was never found is not found gone; add that check",
            );
        }
        if check.expect.is_empty() {
            self.say(
                &format!("{at}/expect"),
                "is empty; a check expects something",
            );
        }
        for (i, expectation) in self.inner(&format!("{at}/expect"), &check.expect) {
            let at = format!("{at}/expect/{i}");
            match expectation {
                Expectation::Status(status) => {
                    if !(100..=599).contains(status) {
                        self.say(&at, format!("is {status}; a status is 100 to 599"));
                    }
                }
                Expectation::Value(pointer) | Expectation::OwnerLabel(pointer) => {
                    self.pointer(&at, pointer);
                }
                Expectation::AbsentFrom(list, id) => {
                    self.pointer(&at, list);
                    self.pointer(&at, id);
                }
                Expectation::File | Expectation::Tar => {
                    if check.claim != Claim::Platform {
                        self.say(&at, "is a file; only a check of `platform` reads one");
                    }
                }
            }
        }
        if check.claim == Claim::Owned
            && !check
                .expect
                .iter()
                .any(|e| matches!(e, Expectation::OwnerLabel(_)))
        {
            self.say(
                &format!("{at}/expect"),
                "has no owner label; a check of `owned` looks for it",
            );
        }
    }

    /// The credential of a check: one of the manifest, with a header for the host to show it in.
    fn shown(&mut self, at: &str, pointer: &str) {
        let credentials = &self.manifest.credentials;
        let Some(credential) = credentials.iter().find(|c| c.pointer == pointer) else {
            self.say(
                at,
                format!(
                    "is {}; no credential of the manifest is that",
                    shape(pointer)
                ),
            );
            return;
        };
        let header = |site: &Site| matches!(site, Site::Header(..) | Site::Basic(_));
        if !credential.sites.iter().any(header) {
            self.say(
                at,
                format!(
                    "is {}, whose sites have no header; a check shows its credential in one",
                    shape(pointer)
                ),
            );
        }
    }

    /// A path with a query, whose placeholders are whole segments or whole values.
    fn check_path(&mut self, at: &str, check: &Check) {
        let path = check.path.as_str();
        if !path.starts_with('/')
            || path.len() > PATH
            || !path.bytes().all(|b| b.is_ascii_graphic())
            || path.contains('#')
        {
            self.say(
                at,
                format!(
                    "is {}; it is an absolute path, with a query if need be",
                    shape(path)
                ),
            );
            return;
        }
        let (before, query) = path.split_once('?').unwrap_or((path, ""));
        let values = query
            .split('&')
            .map(|pair| pair.split_once('=').map_or("", |(_, value)| value));
        let names = query
            .split('&')
            .map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
        let mut has_path = false;
        for part in before.split('/').chain(values) {
            match part {
                "{resource}" | "{lease}" => {}
                "{path}" => has_path = true,
                "." | ".." => self.say(at, "has a segment `.` or `..`"),
                other if !is_plain(other) => self.say(at, not_plain(other)),
                other if other.contains(['{', '}']) => self.say(
                    at,
                    format!(
                        "has {other:?}; a placeholder is a whole segment or value, one of {{resource}}, \
                         {{lease}}, {{path}}"
                    ),
                ),
                _ => {}
            }
        }
        if names.into_iter().any(|name| name.contains(['{', '}'])) {
            self.say(at, "has a placeholder in the name of a query's value");
        }
        if has_path != (check.claim == Claim::Platform) {
            self.say(at, "has {path} exactly where the claim is `platform`");
        }
    }
}
