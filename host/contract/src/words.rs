//! What a manifest asks for, in words that a person can weigh: the same where it is installed and where an upgrade is compared.
//!
//! Pure. Invariant: two requests that differ read differently, so that whoever grants the words has seen the difference.

use crate::manifest::{
    Check, Claim, Creation, Credential, Expectation, Mint, Operation, Role, Site,
};

fn site(site: &Site) -> String {
    match site {
        Site::Header(name, template) => format!("header {name}: {template}"),
        Site::Basic(user) => format!("Basic authentication with the user name of {user}"),
        Site::RegistryAuth => "registry authentication".to_owned(),
        Site::SshUsername => "SSH user name".to_owned(),
    }
}

fn sites(all: &[Site]) -> String {
    all.iter().map(site).collect::<Vec<_>>().join(" or ")
}

fn made(made: &Creation) -> String {
    let labels = made.labels.as_ref();
    let labels = labels.map(|labels| format!(" and its labels in {labels}"));
    format!("with the id in {}{}", made.id, labels.unwrap_or_default())
}

impl Credential {
    /// `the credential in /token toward /endpoint, as header authorization: Bearer {}`.
    pub fn in_words(&self) -> String {
        format!(
            "the credential in {} toward {}, as {}",
            self.pointer,
            self.to.join(" and "),
            sites(&self.sites)
        )
    }
}

impl Mint {
    /// `credentials that POST /sessions at /endpoint answers in /key, toward /endpoint, as header x-session: {}`.
    pub fn in_words(&self) -> String {
        format!(
            "credentials that {} {} at {} answers in {}, toward {}, as {}",
            self.method,
            self.path,
            self.endpoint,
            self.pointers.join(" and "),
            self.to.join(" and "),
            sites(&self.sites)
        )
    }
}

impl Operation {
    /// `the operation POST /rooms at /endpoint (create, with the id in /id)`.
    pub fn in_words(&self) -> String {
        let role = match &self.role {
            Role::Create(creation) => format!("create, {}", made(creation)),
            Role::CreateChild(creation) => format!("create a child, {}", made(creation)),
            Role::Act => "act".to_owned(),
            Role::Read => "read".to_owned(),
            Role::Shared => "change something that no lease owns".to_owned(),
        };
        format!(
            "the operation {} {} at {} ({role})",
            self.method, self.path, self.endpoint
        )
    }
}

impl Expectation {
    fn in_words(&self) -> String {
        match self {
            Expectation::Status(status) => format!("status {status}"),
            Expectation::Value(pointer) => format!("the value of {pointer}"),
            Expectation::OwnerLabel(pointer) => format!("the owner label in {pointer}"),
            Expectation::AbsentFrom(list, id) => format!("no {id} of it in {list}"),
            Expectation::File => "a file".to_owned(),
            Expectation::Tar => "an archive".to_owned(),
        }
    }
}

impl Check {
    /// ``the check of `owned` by GET /rooms/{resource} at /endpoint, which expects the owner label in /labels``.
    pub fn in_words(&self) -> String {
        let claim = match self.claim {
            Claim::Owned => "owned",
            Claim::ImageIdentity => "image-identity",
            Claim::Platform => "platform",
            Claim::Gone => "gone",
        };
        let credential = self.credential.as_ref();
        let credential = credential.map(|pointer| format!(" with the credential in {pointer}"));
        let apart = match self.apart {
            0 => String::new(),
            millis => format!(", twice, {millis} ms apart"),
        };
        let expected: Vec<String> = self.expect.iter().map(Expectation::in_words).collect();
        format!(
            "the check of `{claim}` by GET {} at {}{}, which expects {}{apart}",
            self.path,
            self.endpoint,
            credential.unwrap_or_default(),
            expected.join(" and ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn differ(all: Vec<String>) {
        for (n, one) in all.iter().enumerate() {
            assert!(!all[..n].contains(one), "{one}");
        }
    }

    #[test]
    fn requests_that_differ_in_anything_read_differently() {
        let strings = |all: &[&str]| -> Vec<String> { all.iter().map(|s| (*s).into()).collect() };
        let header = || vec![Site::Header("x-key".into(), "{}".into())];
        let credential = |pointer: &str, sites: Vec<Site>, to: &[&str]| Credential {
            pointer: pointer.into(),
            sites,
            to: strings(to),
        };
        differ(
            [
                credential("/a", header(), &["/e"]),
                credential("/b", header(), &["/e"]),
                credential("/a", vec![Site::Basic("/user".into())], &["/e"]),
                credential("/a", vec![Site::RegistryAuth], &["/e"]),
                credential("/a", header(), &["/e", "/f"]),
            ]
            .map(|c| c.in_words())
            .into(),
        );
        let mint = |path: &str, pointers: &[&str], sites: Vec<Site>, to: &[&str]| Mint {
            endpoint: "/e".into(),
            method: "POST".into(),
            path: path.into(),
            pointers: strings(pointers),
            sites,
            to: strings(to),
        };
        differ(
            [
                mint("/s", &["/k"], header(), &["/e"]),
                mint("/t", &["/k"], header(), &["/e"]),
                mint("/s", &["/k", "/l"], header(), &["/e"]),
                mint("/s", &["/k"], vec![Site::RegistryAuth], &["/e"]),
                mint("/s", &["/k"], header(), &["/f"]),
            ]
            .map(|m| m.in_words())
            .into(),
        );
        let creation = |id: &str, labels: Option<&str>| Creation {
            id: id.into(),
            labels: labels.map(str::to_owned),
        };
        let operation = |method: &str, endpoint: &str, role: Role| Operation {
            endpoint: endpoint.into(),
            method: method.into(),
            path: "/x".into(),
            role,
        };
        differ(
            [
                operation("POST", "/e", Role::Create(creation("/id", None))),
                operation("POST", "/e", Role::Create(creation("/name", None))),
                operation("POST", "/e", Role::Create(creation("/id", Some("/labels")))),
                operation("POST", "/e", Role::CreateChild(creation("/id", None))),
                operation("POST", "/e", Role::Act),
                operation("POST", "/e", Role::Read),
                operation("POST", "/e", Role::Shared),
                operation("PUT", "/e", Role::Act),
                operation("POST", "/f", Role::Act),
            ]
            .map(|o| o.in_words())
            .into(),
        );
        let check =
            |claim: Claim, credential: Option<&str>, expect: Vec<Expectation>, apart| Check {
                claim,
                endpoint: "/e".into(),
                path: "/x/{resource}".into(),
                credential: credential.map(str::to_owned),
                expect,
                apart,
            };
        let status = || vec![Expectation::Status(404)];
        differ(
            [
                check(Claim::Gone, None, status(), 0),
                check(Claim::Owned, None, status(), 0),
                check(Claim::Gone, Some("/key"), status(), 0),
                check(Claim::Gone, None, vec![Expectation::Status(410)], 0),
                check(
                    Claim::Gone,
                    None,
                    vec![Expectation::AbsentFrom("/items".into(), "/id".into())],
                    0,
                ),
                check(Claim::Gone, None, status(), 1000),
            ]
            .map(|c| c.in_words())
            .into(),
        );
    }
}
