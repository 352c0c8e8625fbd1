//! What an id in a path looks like: one that cannot be one is refused as that, before anything is looked for.
//!
//! Ids of the server's own rows are a prefix and lower-case letters and digits; which prefix, the name of the path's
//! parameter says, here and in the OpenAPI document alike. Other names are the clients' own.

use super::errors::{ApiError, ErrorCode, shown};

/// Characters after the prefix at most.
const LONGEST: usize = 64;
/// Characters of a name that is a client's own at most.
const LONGEST_NAME: usize = 200;

/// Each parameter of a path that is an id, with how such ids begin.
const PREFIXES: [(&str, &str); 6] = [
    ("companyId", "com_"),
    ("environmentId", "env_"),
    ("executionId", "exe-"),
    ("leaseId", "lease_"),
    ("secretId", "sec_"),
    ("tokenId", "tok_"),
];

fn prefix(parameter: &str) -> Option<&'static str> {
    PREFIXES
        .iter()
        .find_map(|(name, prefix)| (*name == parameter).then_some(*prefix))
}

/// The regular expression of a parameter's values, for the OpenAPI document.
pub fn pattern(parameter: &str) -> Option<String> {
    match (parameter, prefix(parameter)) {
        (_, Some(prefix)) => Some(format!("^{prefix}[a-z0-9]{{1,{LONGEST}}}$")),
        ("key", None) => Some("^[a-z0-9][a-z0-9-]{0,62}$".to_owned()),
        _ => None,
    }
}

/// Refuses what cannot be a value of this parameter of the path.
///
/// # Errors
/// 400, with the parameter's name.
pub fn check(parameter: &str, value: &str) -> Result<(), ApiError> {
    wrong(parameter, value).map_or(Ok(()), |why| {
        let text = format!("{parameter} in the path: {why}");
        Err(ApiError::new(ErrorCode::BadRequest, text))
    })
}

/// Refuses what cannot be a value of this parameter of the query, where it is given.
///
/// # Errors
/// 400, with the parameter's name.
pub fn check_filter(parameter: &str, value: Option<&str>) -> Result<(), ApiError> {
    let why = value.and_then(|value| wrong(parameter, value));
    why.map_or(Ok(()), |why| {
        Err(ApiError::field(format!("?{parameter}"), why))
    })
}

/// What is wrong with a value of a parameter, if something is.
fn wrong(parameter: &str, value: &str) -> Option<String> {
    let letters = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    let (good, shape) = match (parameter, prefix(parameter)) {
        (_, Some(prefix)) => (
            value
                .strip_prefix(prefix)
                .is_some_and(|rest| (1..=LONGEST).contains(&rest.len()) && letters(rest)),
            format!("`{prefix}` and lower-case letters and digits"),
        ),
        ("key" | "provider", None) => (
            value.len() <= 63
                && !value.is_empty()
                && !value.starts_with('-')
                && value.split('-').all(letters),
            "1 to 63 of a-z, 0-9 and -".to_owned(),
        ),
        _ => (
            !value.is_empty()
                && value.len() <= LONGEST_NAME
                && !value.chars().any(char::is_control),
            format!("1 to {LONGEST_NAME} bytes without control characters"),
        ),
    };
    (!good).then(|| format!("`{}` is none; it is {shape}", shown(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_an_id_is_told_from_one_that_is_nobodys() {
        for (parameter, value) in [
            ("environmentId", "env_a2"),
            ("executionId", "exe-a2"),
            ("key", "ssh"),
            ("key", "a-b-2"),
            ("progressId", "A name of one's own"),
        ] {
            assert!(check(parameter, value).is_ok(), "{parameter} {value}");
        }
        let long = format!("env_{}", "a".repeat(65));
        for (parameter, value) in [
            ("environmentId", ""),
            ("environmentId", "not-an-id"),
            ("environmentId", "env_"),
            ("environmentId", "env_A2"),
            ("environmentId", "env_a%00"),
            ("environmentId", "com_a2"),
            ("environmentId", long.as_str()),
            ("key", "-a"),
            ("key", "SSH"),
            ("progressId", "a\u{0}"),
        ] {
            let error = check(parameter, value).unwrap_err();
            assert_eq!(error.code, ErrorCode::BadRequest);
            assert!(error.message.starts_with(parameter), "{error}");
        }
    }
}
