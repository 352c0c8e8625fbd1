//! `WWW-Authenticate`: challenges by the grammar of RFC 9110, 11.6.1.
//!
//! Pure. A header that is not by the grammar is refused whole: where a client guesses, a server chooses what it guesses.

/// The longest header that is read.
const LONGEST: usize = 8 * 1024;

/// One way in that a server offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    /// In lower case.
    pub(super) scheme: String,
    /// Names in lower case, each once, and values.
    pub(super) parameters: Vec<(String, String)>,
}

impl Challenge {
    /// A parameter's value.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let mut all = self.parameters.iter();
        all.find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }
}

/// Every challenge of a header's value.
///
/// # Errors
/// What the grammar does not have, as a sentence's end.
pub(super) fn read(header: &str) -> Result<Vec<Challenge>, &'static str> {
    if header.len() > LONGEST {
        return Err("is longer than 8 KiB");
    }
    let mut at = Reader { rest: header };
    let mut challenges: Vec<Challenge> = Vec::new();
    at.separators();
    while !at.rest.is_empty() {
        let word = at.token().ok_or("has something that is no token")?;
        let spaces = at.spaces();
        if let Some(challenge) = challenges.last_mut()
            && at.rest.starts_with('=')
        {
            // A further parameter of the challenge before.
            let value = at.value()?;
            put(challenge, word, value)?;
        } else {
            let mut challenge = Challenge {
                scheme: word.to_ascii_lowercase(),
                parameters: Vec::new(),
            };
            if spaces > 0 {
                at.first(&mut challenge)?;
            }
            challenges.push(challenge);
        }
        at.spaces();
        if !at.rest.is_empty() && !at.rest.starts_with(',') {
            return Err("has no comma where one belongs");
        }
        at.separators();
    }
    if challenges.is_empty() {
        return Err("holds no challenge");
    }
    Ok(challenges)
}

fn put(challenge: &mut Challenge, name: &str, value: String) -> Result<(), &'static str> {
    let name = name.to_ascii_lowercase();
    if challenge.parameter(&name).is_some() {
        return Err("names a parameter twice");
    }
    challenge.parameters.push((name, value));
    Ok(())
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn spaces(&mut self) -> usize {
        let left = self.rest.trim_start_matches([' ', '\t']);
        let skipped = self.rest.len() - left.len();
        self.rest = left;
        skipped
    }

    /// Commas with nothing between them are a list's empty elements.
    fn separators(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', ',']);
    }

    fn token(&mut self) -> Option<&'a str> {
        let end = self.rest.bytes().position(|b| !is_tchar(b));
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        (!token.is_empty()).then_some(token)
    }

    /// What stands behind a scheme: a parameter, a token68, or nothing.
    fn first(&mut self, challenge: &mut Challenge) -> Result<(), &'static str> {
        if self.rest.is_empty() || self.rest.starts_with(',') {
            return Ok(());
        }
        let before = self.rest;
        if let Some(name) = self.token() {
            self.spaces();
            if self.rest.starts_with('=') && !is_padding(self.rest) {
                let value = self.value()?;
                return put(challenge, name, value);
            }
        }
        // A token68, of schemes that we do not speak.
        self.rest = before;
        let end = self.rest.bytes().position(|b| !is_token68(b));
        let (token, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        if token.is_empty() {
            return Err("has something that is neither a parameter nor a token");
        }
        self.rest = rest.trim_start_matches('=');
        Ok(())
    }

    /// `= value`, a token or a quoted string.
    fn value(&mut self) -> Result<String, &'static str> {
        self.rest = self.rest.strip_prefix('=').unwrap_or(self.rest);
        self.spaces();
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let value = self.token().ok_or("has a parameter without a value")?;
            return Ok(value.to_owned());
        };
        let mut value = String::new();
        let mut escaped = false;
        for (at, c) in quoted.char_indices() {
            match c {
                c if c.is_control() && c != '\t' => return Err("has a control character"),
                c if escaped => {
                    value.push(c);
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => {
                    self.rest = &quoted[at + 1..];
                    return Ok(value);
                }
                c => value.push(c),
            }
        }
        Err("has a quoted string without an end")
    }
}

/// Whether nothing but `=` stands up to the element's end: padding of a token68.
fn is_padding(rest: &str) -> bool {
    let left = rest.trim_start_matches('=').trim_start_matches([' ', '\t']);
    left.is_empty() || left.starts_with(',')
}

fn is_tchar(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}

fn is_token68(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"-._~+/".contains(&b)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(header: &str) -> Vec<String> {
        let all = read(header).unwrap();
        all.into_iter()
            .map(|c| {
                let each: Vec<String> = c
                    .parameters
                    .iter()
                    .map(|(name, value)| format!("{name}={value}"))
                    .collect();
                format!("{} {}", c.scheme, each.join("|"))
            })
            .collect()
    }

    #[test]
    fn challenges_are_read_as_servers_write_them() {
        assert_eq!(
            told(
                r#"Bearer realm="https://auth.example/token",service="r.example",scope="repository:a/b:pull,push""#
            ),
            [
                "bearer realm=https://auth.example/token|service=r.example|scope=repository:a/b:pull,push"
            ]
        );
        assert_eq!(
            told(r#"Basic realm="a, \"b\" c", Bearer Realm = x , charset=utf-8"#),
            ["basic realm=a, \"b\" c", "bearer realm=x|charset=utf-8"]
        );
        assert_eq!(
            told("Negotiate, Basic realm=x"),
            ["negotiate ", "basic realm=x"]
        );
        assert_eq!(
            told("NTLM TlRMTVNTUAAC/+==, , Basic realm=\"\""),
            ["ntlm ", "basic realm="]
        );
    }

    #[test]
    fn what_the_grammar_does_not_have_is_refused_whole() {
        for header in [
            "",
            " , ,",
            "=x",
            "\"Bearer\" realm=x",
            "Bearer realm",
            "Bearer realm=\"x",
            "Bearer realm=\"x\\",
            "Bearer realm=x y=z",
            "Bearer realm=x, realm=y",
            "Bearer realm=x, REALM=y",
            "Bearer realm=\"a\u{1}b\"",
            "Bearer realm=x;service=y",
            "Bearer realm=https://auth.example/",
            &format!("Bearer realm=\"{}\"", "x".repeat(9000)),
        ] {
            let read = read(header);
            // `Bearer realm` alone is a token68, and so no way in with a realm.
            let has_realm = read
                .iter()
                .flatten()
                .any(|challenge| challenge.parameter("realm").is_some());
            assert!(!has_realm, "{header}: {read:?}");
        }
    }
}
