//! A server whose settings know a registry and a key, and what is typed to publish there.

use std::collections::BTreeSet;
use std::path::PathBuf;

use leasehold_parts::Registry;
use leasehold_tests::http::{Answer, text};
use leasehold_tests::server::{Ran, Server};
use leasehold_tests::shape::shaped;
use leasehold_tests::signing::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with keys and settings, and the server that has them.
pub struct House {
    pub server: Server,
    pub folder: TempDir,
    /// The key that counts, by the name `acme`.
    pub acme: KeyPair,
}

impl House {
    /// A server whose settings end with this; `acme` is a key of theirs.
    pub fn with(settings: &str) -> Option<House> {
        House::begun_with(settings, &[])
    }

    /// The same, in an environment that has these variables too.
    pub fn begun_with(settings: &str, variables: &[(&str, &str)]) -> Option<House> {
        let folder = tempfile::tempdir().expect("a folder");
        let acme = KeyPair::generate();
        let key = folder.path().join("acme.pub");
        std::fs::write(&key, acme.public()).expect("a file");
        let text = format!(
            "[plugins]\npull-seconds = 60\n[plugins.keys]\nacme = '{}'\n{settings}",
            key.display()
        );
        let file = folder.path().join("leasehold.toml");
        std::fs::write(&file, text).expect("a file");
        let mut server = Server::new(&["--config", &file.display().to_string()])?;
        for (name, value) in variables {
            server.set_variable(name, value);
        }
        server.begin();
        Some(House {
            server,
            folder,
            acme,
        })
    }

    /// A file in the folder.
    pub fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> String {
        let path: PathBuf = self.folder.path().join(name);
        std::fs::write(&path, bytes).expect("a file");
        path.display().to_string()
    }

    /// A shape, as a file.
    pub fn shape(&self, name: &str, shape: &Value) -> String {
        self.file(name, shaped(shape))
    }

    /// Publishes with these flags beside.
    pub fn push(&self, file: &str, reference: &str, flags: &[&str]) -> Ran {
        let args = ["--json", "plugin", "push", file, reference, "--plain-http"];
        self.server.run(&[&args, flags].concat())
    }

    /// Publishes, signed by this key, and answers the reference with its digest.
    pub fn push_signed(
        &self,
        key: &KeyPair,
        file: &str,
        reference: &str,
        flags: &[&str],
    ) -> String {
        let payload = self.folder.path().join("payload").display().to_string();
        let wrote = self.push(file, reference, &[&["--payload", &payload], flags].concat());
        assert_eq!(wrote.code, 0, "{}", wrote.stderr);
        let signature = key.sign(&std::fs::read(&payload).expect("the payload"));
        let signature = self.file("signature", signature);
        pushed(self.push(
            file,
            reference,
            &[&["--signature", &signature], flags].concat(),
        ))
    }

    /// Asks for an installation by its name, with what stands in the query.
    pub fn install(&self, reference: &str, query: &str) -> Answer {
        let body = json!({ "reference": reference });
        let path = format!("/api/plugins{query}");
        self.server.call("POST", &path, Some(&body))
    }

    /// Looks at what a name stands for.
    pub fn inspect(&self, reference: &str) -> Answer {
        let body = json!({ "reference": reference });
        self.server
            .call("POST", "/api/plugins/inspect", Some(&body))
    }

    /// Installs what a name stands for, granted.
    #[track_caller]
    pub fn granted(&self, reference: &str) -> Value {
        let shown = self.inspect(reference).expect(200);
        let grant = text(&shown["requestDigest"]);
        self.install(reference, &format!("?grant={grant}"))
            .expect(201)
    }

    /// An environment of the shape sample.
    pub fn environment(&self) -> String {
        let draft =
            json!({ "name": "box", "driver": "sandbox", "provider": "shape", "config": {} });
        text(&self.server.environment(&draft).expect(201)["id"])
    }

    /// What the activity says that was refused, of rows with this action: by which rule, of what, asked for by what.
    pub fn turned_down(&self, action: &str) -> BTreeSet<[String; 3]> {
        let path = format!("/api/activity?outcome=denied&limit=500&action={action}");
        let rows = self.server.get(&path)["items"].as_array().cloned();
        let rows = rows.into_iter().flatten();
        let told = rows.map(|row| {
            let details = &row["details"];
            [&details["rule"], &row["subjectId"], &details["operation"]].map(text)
        });
        told.collect()
    }

    /// The plugin as it is shown.
    pub fn plugin(&self) -> Value {
        self.server.get("/api/plugins/shape")
    }
}

/// What [`House::turned_down`] answers for these rules, each of both ways to ask.
pub fn by_both(rules: &[&str], subject: &str) -> BTreeSet<[String; 3]> {
    let ways = ["inspectPlugin", "installPlugin"];
    let all = rules
        .iter()
        .flat_map(|rule| ways.map(|way| [*rule, subject, way]));
    all.map(|one| one.map(str::to_owned)).collect()
}

/// The reference that a push printed, which must have worked.
#[track_caller]
pub fn pushed(ran: Ran) -> String {
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let told: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    text(&told["reference"])
}

/// The settings of a registry on loopback over plain HTTP.
pub fn source(authority: &str, signed_by: &str, more: &str) -> String {
    format!(
        "[[plugins.sources]]\nregistry = '{authority}'\nsigned-by = {signed_by}\nplain-http = true\n{more}\n"
    )
}

/// Says that there is no registry to be started here.
pub fn registry(options: &leasehold_parts::RegistryOptions) -> Option<Registry> {
    if !Registry::available() {
        leasehold_parts::skipped("docker-registry");
        return None;
    }
    Some(Registry::start(options).expect("a registry"))
}
