//! A place for one test: a data directory, a master key beside it, an authority, and what most tests need.

use std::path::PathBuf;

use cap_std::fs::Dir;
use leasehold_authority::*;
use leasehold_contract::{Driver, Features, Grant, Limits, Manifest, Purpose, Request};
use serde_json::{Value, json};
use sqlx::{Connection as _, SqliteConnection};
use zeroize::Zeroizing;

pub struct Place {
    pub temp: tempfile::TempDir,
    pub authority: Authority,
}

impl std::ops::Deref for Place {
    type Target = Authority;
    fn deref(&self) -> &Authority {
        &self.authority
    }
}

pub fn options_in(root: &std::path::Path, replica: &str) -> Options {
    let data = root.join("data");
    std::fs::create_dir_all(&data).unwrap();
    Options {
        database: data.join("leasehold.db"),
        data_dir: Dir::open_ambient_dir(&data, cap_std::ambient_authority()).unwrap(),
        master_key: root.join("keys/master.key"),
        replica: replica.into(),
    }
}

/// Asks again while the lock of a replica is held that was let go: a process that another test forks has it until it
/// becomes another program.
pub async fn once_free<T, F>(ask: impl Fn() -> F) -> Result<T, OpenError>
where
    F: Future<Output = Result<T, OpenError>>,
{
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        match ask().await {
            Err(OpenError::ReplicaRunning(_)) if std::time::Instant::now() < until => {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            other => return other,
        }
    }
}

/// Opens what a server that ended left.
pub async fn opened(root: &std::path::Path) -> Result<Authority, OpenError> {
    once_free(|| Authority::open(options_in(root, "main"))).await
}

impl Place {
    pub async fn new() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let authority = Authority::open(options_in(temp.path(), "main"))
            .await
            .unwrap();
        Place { temp, authority }
    }

    /// The same place after the server ended and started again.
    pub async fn again(self) -> Place {
        let Place { temp, authority } = self;
        authority.close().await;
        drop(authority);
        let authority = opened(temp.path()).await.unwrap();
        Place { temp, authority }
    }

    /// What a next start says, once this one ended.
    pub async fn next_start(self) -> Result<(), OpenError> {
        let Place { temp, authority } = self;
        authority.close().await;
        drop(authority);
        opened(temp.path()).await.map(drop)
    }

    pub fn database(&self) -> PathBuf {
        self.temp.path().join("data/leasehold.db")
    }

    /// Somebody with a shell and the database's file.
    pub async fn edit(&self, sql: impl Into<String>) -> u64 {
        let url = format!("sqlite://{}", self.database().display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("PRAGMA busy_timeout = 5000")
            .execute(&mut db)
            .await
            .unwrap();
        let changed = sqlx::raw_sql(sqlx::AssertSqlSafe(sql.into()))
            .execute(&mut db)
            .await
            .unwrap()
            .rows_affected();
        db.close().await.unwrap();
        changed
    }

    /// The same, with another database beside it under the name `other`.
    pub async fn splice(&self, other: &std::path::Path, sql: &'static str) {
        let url = format!("sqlite://{}", self.database().display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("ATTACH DATABASE $1 AS other")
            .bind(other.to_str().unwrap())
            .execute(&mut db)
            .await
            .unwrap();
        assert_eq!(
            sqlx::query(sql)
                .execute(&mut db)
                .await
                .unwrap()
                .rows_affected(),
            1
        );
        db.close().await.unwrap();
    }

    pub async fn count(&self, sql: &'static str) -> i64 {
        let url = format!("sqlite://{}", self.database().display());
        let mut db = SqliteConnection::connect(&url).await.unwrap();
        let count = sqlx::query_scalar(sql).fetch_one(&mut db).await.unwrap();
        db.close().await.unwrap();
        count
    }

    pub async fn company(&self, name: &str) -> String {
        self.companies().create(&operator(), name).await.unwrap().id
    }

    pub async fn secret(&self, company: &str, name: &str, value: &str) -> String {
        self.secrets()
            .create(&operator(), new_secret(Some(company), name, value))
            .await
            .unwrap()
            .id
    }

    pub async fn plugin(&self, key: &str, body: &[u8]) -> Plugin {
        let new = revision(key, Driver::Ssh, body);
        let grant = Grant::asked(&new.manifest);
        self.plugins()
            .install(&operator(), new, Some(grant))
            .await
            .unwrap()
    }

    /// A company with the plugin `ssh`, a secret, and an environment that uses it twice.
    pub async fn furnished(&self) -> Furniture {
        let company = self.company("acme").await;
        let plugin = self.plugin("ssh", b"component 1").await;
        let secret = self.secret(&company, "key", "value one").await;
        let environment = self
            .environments()
            .create(
                &operator(),
                &company,
                draft("build box", &secret),
                vec![key_use("10.0.0.5")],
            )
            .await
            .unwrap();
        Furniture {
            company,
            plugin,
            secret,
            environment,
        }
    }
}

pub struct Furniture {
    pub company: String,
    pub plugin: Plugin,
    pub secret: String,
    pub environment: Environment,
}

impl Furniture {
    pub fn intent(&self) -> AcquireIntent {
        AcquireIntent {
            environment: self.environment.id.clone(),
            company: None,
            target_revision: self.environment.target_revision,
            plugin_digest: now(&self.plugin).digest.clone(),
            purpose: Purpose::Run,
            exclusive_key: None,
            account_key: None,
            ttl: None,
            caller: CallerRefs::default(),
            idempotency_key: None,
            asked: None,
        }
    }
}

pub fn operator() -> Actor {
    Actor::local_operator()
}

pub fn agent(company: &str) -> Actor {
    Actor {
        kind: ActorKind::Token {
            id: "tok_x".into(),
            role: Role::agent(company),
        },
        display: "agent".into(),
    }
}

/// Whoever resolves in a test.
pub fn by() -> Accessor {
    Accessor::of(&operator(), "test")
}

pub fn new_secret(company: Option<&str>, name: &str, value: &str) -> NewSecret {
    NewSecret {
        company: company.map(str::to_owned),
        name: name.into(),
        purpose: SecretPurpose::Other,
        description: None,
        value: bytes(value),
    }
}

pub fn bytes(value: &str) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(value.as_bytes().to_vec())
}

/// What one account has at one endpoint.
pub fn claim(resource: &str) -> ResourceClaim {
    ResourceClaim {
        endpoint: "https://rooms.example/v1".into(),
        account: "sec_1".into(),
        resource: resource.into(),
    }
}

/// A minted value to be kept.
pub fn kept(name: &str) -> KeptSecret {
    KeptSecret {
        name: name.into(),
        place: KeptPlace {
            endpoint: "/api".into(),
            method: "POST".into(),
            path: "/rooms/{resource}/token".into(),
            pointer: "/token".into(),
        },
        value: bytes("canary-minted-value"),
    }
}

pub fn reference(secret: &str) -> Value {
    json!({ "type": "secret_ref", "secretId": secret, "version": "latest" })
}

pub fn key_use(host: &str) -> SecretUse {
    SecretUse {
        pointer: "/target/privateKey".into(),
        sites: vec!["ssh-key".into()],
        destinations: vec![format!("ssh://ci@{host}:22")],
    }
}

pub fn draft(name: &str, secret: &str) -> EnvironmentDraft {
    draft_to(name, secret, "10.0.0.5")
}

pub fn draft_to(name: &str, secret: &str, host: &str) -> EnvironmentDraft {
    serde_json::from_value(json!({
        "name": name, "driver": "ssh", "provider": "ssh",
        "config": { "target": { "host": host, "username": "ci", "privateKey": reference(secret) },
                    "remoteWorkspacePath": "/srv/leases" },
        "envVars": { "CI": "1", "TOKEN": reference(secret) },
    }))
    .unwrap()
}

pub fn digest(body: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(body)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect()
}

pub fn revision(key: &str, driver: Driver, body: &[u8]) -> NewRevision {
    NewRevision {
        digest: digest(body),
        bytes: body.to_vec(),
        manifest: Manifest {
            key: key.into(),
            version: "1.0.0".into(),
            title: key.to_uppercase(),
            summary: String::new(),
            driver,
            config_schema: json!({ "type": "object" }),
            image: None,
            request: Request {
                origins: vec![],
                ssh: true,
                streams: false,
                limits: Limits {
                    memory_mib: 16,
                    cpu: 1000,
                    exchanges: 10,
                    body_mib: 1,
                },
            },
            credentials: vec![],
            mints: vec![],
            operations: vec![],
            checks: vec![],
            features: Features::default(),
            acquire_timeout: 30_000,
        },
        capabilities: vec!["lifecycle".into(), "execution".into()],
        asks: json!(["scripts on the configured target"]),
        request_digest: "r1".into(),
        source: Source::default(),
    }
}

/// What new leases of a plugin use.
pub fn now(plugin: &Plugin) -> &Revision {
    plugin.current.as_ref().unwrap()
}

/// The conflict's code, or the whole error as text.
pub fn code_of<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Conflict { code, .. }) => code.into(),
        other => format!("{other:?}"),
    }
}

pub fn is_corrupt<T: std::fmt::Debug>(result: Result<T, Error>) -> bool {
    matches!(result, Err(Error::Corrupt { .. }))
}

pub fn pointers<T: std::fmt::Debug>(result: Result<T, Error>) -> Vec<String> {
    match result {
        Err(Error::Invalid { violations }) => violations.into_iter().map(|v| v.pointer).collect(),
        other => panic!("{other:?}"),
    }
}

/// Prints why a test did not run, and fails where every part has to be there.
pub fn skipped(what: &str) {
    println!("skipped: needs {what}");
    assert!(
        std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none_or(|v| v != "1"),
        "skipped: needs {what}"
    );
}
