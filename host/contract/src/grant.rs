//! What an administrator allowed a component, and what an instance allows any component.
//!
//! Pure values: what was asked for, what was granted and what the instance allows are each a bound, and what a call
//! gets is the narrowest of them. Invariant: no function here gives more than it was given.

use serde::{Deserialize, Serialize};

use crate::manifest::{Limits, Manifest};

/// A part of a request that a grant can leave out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// Scripts over SSH.
    Ssh,
    /// Streams to endpoints.
    Streams,
    /// Every origin beyond the endpoints of the configuration.
    Origins,
    /// Every request other than GET and HEAD.
    Operations,
    /// Every credential, also those that a backend mints.
    Credentials,
}

impl Part {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Part; 5] = [
        Part::Ssh,
        Part::Streams,
        Part::Origins,
        Part::Operations,
        Part::Credentials,
    ];

    /// The part as it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Ssh => "ssh",
            Part::Streams => "streams",
            Part::Origins => "origins",
            Part::Operations => "operations",
            Part::Credentials => "credentials",
        }
    }
}

impl std::str::FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Part, String> {
        Part::ALL
            .into_iter()
            .find(|part| part.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<&str> = Part::ALL.iter().map(|part| part.as_str()).collect();
                format!(
                    "is no part that a grant can leave out; those are {}",
                    known.join(", ")
                )
            })
    }
}

/// What a component may do beyond computing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Open SSH sessions to the configured targets.
    pub ssh: bool,
    /// Open streams to the configured endpoints.
    pub streams: bool,
    /// Origins, as the manifest spells them, that it may send requests without credentials to.
    pub origins: Vec<String>,
    /// Send the operations that its manifest declares.
    pub operations: bool,
    /// Use the credentials that its manifest declares, and those that its backend mints.
    pub credentials: bool,
    /// The most that one call may use.
    pub limits: Limits,
}

/// What an instance allows any component, whatever was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// SSH sessions.
    pub ssh: bool,
    /// Streams.
    pub streams: bool,
    /// Origins beyond the endpoints of a configuration.
    pub origins: bool,
    /// The most that one call may use.
    pub limits: Limits,
}

impl Limits {
    /// The lesser of each.
    pub fn min(self, other: Limits) -> Limits {
        Limits {
            memory_mib: self.memory_mib.min(other.memory_mib),
            cpu: self.cpu.min(other.cpu),
            exchanges: self.exchanges.min(other.exchanges),
            body_mib: self.body_mib.min(other.body_mib),
        }
    }
}

impl Grant {
    /// Everything that a manifest asks for.
    pub fn asked(manifest: &Manifest) -> Grant {
        Grant {
            ssh: manifest.request.ssh,
            streams: manifest.request.streams,
            origins: manifest.request.origins.clone(),
            operations: !manifest.operations.is_empty(),
            credentials: !manifest.credentials.is_empty() || !manifest.mints.is_empty(),
            limits: manifest.request.limits,
        }
    }

    /// Whether this part is in it.
    pub fn has(&self, part: Part) -> bool {
        match part {
            Part::Ssh => self.ssh,
            Part::Streams => self.streams,
            Part::Origins => !self.origins.is_empty(),
            Part::Operations => self.operations,
            Part::Credentials => self.credentials,
        }
    }

    /// The same without these parts.
    #[must_use]
    pub fn without(mut self, parts: &[Part]) -> Grant {
        for part in parts {
            match part {
                Part::Ssh => self.ssh = false,
                Part::Streams => self.streams = false,
                Part::Origins => self.origins.clear(),
                Part::Operations => self.operations = false,
                Part::Credentials => self.credentials = false,
            }
        }
        self
    }

    /// Of what this manifest asks for, what is in here too: the grant of a revision that asks for no more, and the
    /// bound of any grant of it.
    #[must_use]
    pub fn of(&self, manifest: &Manifest) -> Grant {
        let asked = Grant::asked(manifest);
        Grant {
            ssh: asked.ssh && self.ssh,
            streams: asked.streams && self.streams,
            origins: asked
                .origins
                .into_iter()
                .filter(|origin| self.origins.iter().any(|granted| covers(granted, origin)))
                .collect(),
            operations: asked.operations && self.operations,
            credentials: asked.credentials && self.credentials,
            limits: asked.limits.min(self.limits),
        }
    }

    /// What is left of it below the instance's ceiling.
    #[must_use]
    pub fn below(&self, ceiling: &Ceiling) -> Grant {
        Grant {
            ssh: self.ssh && ceiling.ssh,
            streams: self.streams && ceiling.streams,
            origins: if ceiling.origins {
                self.origins.clone()
            } else {
                Vec::new()
            },
            limits: self.limits.min(ceiling.limits),
            ..self.clone()
        }
    }

    /// Whether it holds nothing that `other` does not hold.
    pub fn is_within(&self, other: &Grant) -> bool {
        let limits = self.limits.min(other.limits);
        Part::ALL
            .into_iter()
            .filter(|part| *part != Part::Origins)
            .all(|part| !self.has(part) || other.has(part))
            && self
                .origins
                .iter()
                .all(|origin| other.origins.iter().any(|wide| covers(wide, origin)))
            && limits == self.limits
    }
}

/// Whether every origin that `narrow` names is one that `wide` names: the same scheme and port, and the same host or
/// one below a `*.`.
pub fn covers(wide: &str, narrow: &str) -> bool {
    if wide == narrow {
        return true;
    }
    let parts = |origin: &'_ str| -> Option<(String, String, String)> {
        let (scheme, rest) = origin.split_once("://")?;
        let (host, port) = rest.rsplit_once(':')?;
        Some((scheme.to_owned(), host.to_owned(), port.to_owned()))
    };
    let (Some((scheme, host, port)), Some((of, at, by))) = (parts(wide), parts(narrow)) else {
        return false;
    };
    let Some(below) = host.strip_prefix('*') else {
        return false;
    };
    let at = at.strip_prefix('*').unwrap_or(&at);
    (scheme, port) == (of, by) && at.len() > below.len() && at.ends_with(below)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(memory_mib: u32) -> Limits {
        Limits {
            memory_mib,
            cpu: 100,
            exchanges: 5,
            body_mib: 1,
        }
    }

    fn grant() -> Grant {
        Grant {
            ssh: true,
            streams: true,
            origins: vec!["https://*.example.com:443".into()],
            operations: true,
            credentials: true,
            limits: limits(64),
        }
    }

    #[test]
    fn an_origin_is_covered_by_itself_and_by_a_pattern_above_it_alone() {
        for (wide, narrow, is) in [
            ("https://a.test:443", "https://a.test:443", true),
            ("https://*.a.test:443", "https://b.a.test:443", true),
            ("https://*.a.test:443", "https://*.b.a.test:443", true),
            ("https://*.a.test:443", "https://a.test:443", false),
            ("https://*.a.test:443", "https://ba.test:443", false),
            ("https://*.a.test:443", "http://b.a.test:443", false),
            ("https://*.a.test:443", "https://b.a.test:8443", false),
            ("https://b.a.test:443", "https://*.a.test:443", false),
            ("https://*.b.a.test:443", "https://*.a.test:443", false),
            ("https://*.a.test:443", "nonsense", false),
        ] {
            assert_eq!(covers(wide, narrow), is, "{wide} {narrow}");
        }
    }

    #[test]
    fn every_part_that_is_left_out_is_gone_and_the_rest_stays() {
        for part in Part::ALL {
            let left = grant().without(&[part]);
            for other in Part::ALL {
                assert_eq!(left.has(other), other != part, "{part:?} {other:?}");
            }
            assert!(left.is_within(&grant()));
            assert!(!grant().is_within(&left));
            assert_eq!(part.as_str().parse(), Ok(part));
        }
        assert!("root".parse::<Part>().is_err());
    }

    #[test]
    fn a_ceiling_only_takes_away() {
        let ceiling = Ceiling {
            ssh: false,
            streams: false,
            origins: false,
            limits: limits(8),
        };
        let left = grant().below(&ceiling);
        assert!(left.is_within(&grant()));
        assert_eq!(
            (left.ssh, left.streams, left.origins.len(), left.limits),
            (false, false, 0, limits(8))
        );
        assert!(left.operations && left.credentials);
        let wide = Ceiling {
            ssh: true,
            streams: true,
            origins: true,
            limits: limits(4096),
        };
        assert_eq!(grant().below(&wide), grant());
    }
}
