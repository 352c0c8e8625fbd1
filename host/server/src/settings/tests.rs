//! Precedence of the sources, and what is refused.

use clap::Parser;

use super::*;

#[derive(Parser)]
struct Line {
    #[command(flatten)]
    serve: ServeArgs,
}

fn args(line: &[&str]) -> ServeArgs {
    Line::try_parse_from(std::iter::once(&"serve").chain(line))
        .unwrap()
        .serve
}

struct Room {
    dir: tempfile::TempDir,
}

impl Room {
    fn new(file: Option<&str>) -> Room {
        let dir = tempfile::tempdir().unwrap();
        if let Some(text) = file {
            std::fs::write(dir.path().join("leasehold.toml"), text).unwrap();
        }
        Room { dir }
    }

    fn places(&self) -> Places {
        Places {
            settings_file: self.dir.path().join("leasehold.toml"),
            data_dir: self.dir.path().join("data"),
            master_key: self.dir.path().join("master.key"),
        }
    }

    fn resolve(&self, line: &[&str]) -> Result<Settings, SettingsError> {
        Settings::resolve(args(line), &self.places())
    }
}

#[test]
fn defaults_hold_when_nothing_is_said() {
    let room = Room::new(None);
    let settings = room.resolve(&[]).unwrap();
    assert_eq!(settings.listen, Listen::At(DEFAULT_LISTEN.parse().unwrap()));
    assert_eq!(settings.socket, room.dir.path().join("data/leasehold.sock"));
    assert_eq!(settings.master_key, room.dir.path().join("master.key"));
    assert_eq!(settings.limits, Limits::default());
}

#[test]
fn the_file_outweighs_defaults_and_a_flag_outweighs_the_file() {
    let room = Room::new(Some(
        "listen = \"127.0.0.1:9000\"\nlog-format = \"json\"\n[limits]\nconnections = 7\n",
    ));
    let settings = room.resolve(&[]).unwrap();
    assert_eq!(
        settings.listen,
        Listen::At("127.0.0.1:9000".parse().unwrap())
    );
    assert_eq!(settings.log_format, LogFormat::Json);
    assert_eq!(settings.limits.connections, 7);
    let settings = room.resolve(&["--listen", "off"]).unwrap();
    assert_eq!(settings.listen, Listen::Off);
    assert_eq!(settings.log_format, LogFormat::Json);
}

#[test]
fn a_component_that_could_not_be_stored_is_refused_as_a_limit() {
    let with = |bytes: u64| {
        Room::new(Some(&format!("[limits]\ncomponent-bytes = {bytes}\n"))).resolve(&[])
    };
    assert_eq!(with(500 << 20).unwrap().limits.component, 500 << 20);
    let error = with(2 << 30).unwrap_err().to_string();
    assert!(
        error.starts_with("limits.component-bytes: is 2147483648"),
        "{error}"
    );
}

#[test]
fn a_limit_that_no_machine_has_is_refused_by_its_name() {
    for (text, name) in [
        ("connections = 9223372036854775807", "limits.connections"),
        (
            "unauthenticated-streams = 9223372036854775807",
            "limits.unauthenticated-streams",
        ),
        (
            "shutdown-grace-seconds = 9223372036854775807",
            "limits.shutdown-grace-seconds",
        ),
        (
            "head-timeout-seconds = 40000000",
            "limits.head-timeout-seconds",
        ),
        (
            "body-timeout-seconds = 40000000",
            "limits.body-timeout-seconds",
        ),
    ] {
        let refused = Room::new(Some(&format!("[limits]\n{text}\n"))).resolve(&[]);
        let error = refused.unwrap_err().to_string();
        assert!(error.starts_with(name), "{error}");
        assert!(error.contains("it is at most"), "{error}");
    }
}

#[test]
fn a_key_that_the_file_does_not_know_is_named() {
    for text in ["lisen = \"x\"\n", "[limits]\nconections = 3\n"] {
        let message = Room::new(Some(text)).resolve(&[]).unwrap_err().to_string();
        assert!(message.contains("unknown field"), "{message}");
        assert!(message.contains("leasehold.toml"), "{message}");
    }
}

#[test]
fn a_file_that_was_asked_for_must_be_there() {
    let room = Room::new(None);
    let missing = room.dir.path().join("none.toml");
    let error = room
        .resolve(&["--config", missing.to_str().unwrap()])
        .unwrap_err();
    assert!(matches!(error, SettingsError::Read { .. }), "{error}");
}

#[test]
fn an_address_of_other_machines_needs_a_host_name() {
    let room = Room::new(None);
    let error = room.resolve(&["--listen", "0.0.0.0:7717"]).unwrap_err();
    assert!(error.to_string().contains("--allowed-host"), "{error}");
    room.resolve(&["--listen", "0.0.0.0:7717", "--allowed-host", "box.example"])
        .unwrap();
}

#[test]
fn host_names_are_checked() {
    let room = Room::new(None);
    for good in ["a.example", "a.example:8443", "[fd00::1]:80", "10.0.0.1"] {
        room.resolve(&["--allowed-host", good]).unwrap();
    }
    for bad in ["http://a.example", "a b", "*", "a:99999", "[zz]"] {
        assert!(room.resolve(&["--allowed-host", bad]).is_err(), "{bad}");
    }
    // As a variable that is set to nothing gives it.
    for (flag, setting, variable) in [
        ("--allowed-host=", "allowed-host", "LEASEHOLD_ALLOWED_HOSTS"),
        (
            "--allow-host-root=",
            "allow-host-root",
            "LEASEHOLD_ALLOW_HOST_ROOT",
        ),
    ] {
        let refused = room.resolve(&[flag]).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("{setting}: is empty;")),
            "{refused}"
        );
        assert!(refused.contains(variable), "{refused}");
    }
}

#[test]
fn the_master_key_may_not_lie_in_the_data_directory() {
    let room = Room::new(None);
    let inside = room.dir.path().join("data/master.key");
    let error = room
        .resolve(&["--master-key", inside.to_str().unwrap()])
        .unwrap_err();
    assert!(error.to_string().starts_with("master-key"), "{error}");
}

#[test]
fn a_socket_path_that_cannot_be_bound_is_refused_with_its_length() {
    let long = format!("/{}", "x".repeat(120));
    let error = Room::new(None).resolve(&["--socket", &long]).unwrap_err();
    assert!(error.to_string().contains("121 bytes"), "{error}");
}

#[test]
fn root_has_the_systems_places_and_users_have_their_own() {
    let none = |_: &str| None;
    assert_eq!(
        Places::of(true, none).master_key,
        PathBuf::from("/etc/leasehold/master.key")
    );
    let home = |name: &str| (name == "HOME").then(|| "/home/ada".into());
    let places = Places::of(false, home);
    assert_eq!(
        places.master_key,
        PathBuf::from("/home/ada/.config/leasehold/master.key")
    );
    assert_eq!(
        places.data_dir,
        PathBuf::from("/home/ada/.local/share/leasehold")
    );
    let relative = |name: &str| Some(if name == "HOME" { "/home/ada" } else { "x" }.into());
    assert_eq!(Places::of(false, relative).data_dir, places.data_dir);
}

#[test]
fn the_documented_table_of_plugins_is_what_holds_where_nothing_is_said() {
    let page = include_str!("../../../../docs/plugins.md");
    let table = page
        .split("```toml\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let documented = Room::new(Some(table)).resolve(&[]).unwrap().plugins;
    assert_eq!(documented, PluginSettings::default());
    assert_eq!(table.lines().count(), 13, "every key is in it");
}

#[test]
fn the_documented_sources_can_be_written_like_that() {
    let page = include_str!("../../../../docs/plugins.md");
    let table = page
        .split("```toml\n")
        .nth(2)
        .and_then(|rest| rest.split("```").next())
        .unwrap();
    let sources = Room::new(Some(table)).resolve(&[]).unwrap().plugins.sources;
    assert_eq!(sources.registries.len(), 2);
    assert!(sources.registries[0].covers("acme/ssh"));
    assert_eq!(sources.files, SignedBy::Anyone);
}

#[test]
fn the_table_of_plugins_bounds_them_and_what_cannot_be_is_told_by_its_key() {
    let settings = Room::new(Some(
        "[plugins]\nmemory-mib = 32\nallow-ssh = false\nbreaker-failures = 3\n",
    ))
    .resolve(&[])
    .unwrap()
    .plugins;
    let ceiling = settings.ceiling();
    assert!(!ceiling.ssh && ceiling.streams && ceiling.origins);
    assert_eq!(ceiling.limits.memory_mib, 32);
    assert_eq!(settings.ceilings.memory_mib, 32);
    assert_eq!(settings.breaker.failures, 3);
    for (line, key) in [
        ("memory-mib = 0", "plugins.memory-mib"),
        ("memory-mib = 5000", "plugins.memory-mib"),
        ("cpu-ms = 0", "plugins.cpu-ms"),
        ("breaker-failures = 0", "plugins.breaker-failures"),
        ("breaker-window-seconds = 0", "breaker-window-seconds"),
        ("breaker-backoff-seconds = 0", "breaker-backoff-seconds"),
        (
            "breaker-longest-backoff-seconds = 1",
            "plugins.breaker-longest-backoff-seconds",
        ),
        ("alow-ssh = false", "alow-ssh"),
    ] {
        let refused = Room::new(Some(&format!("[plugins]\n{line}\n")))
            .resolve(&[])
            .unwrap_err();
        assert!(refused.to_string().contains(key), "{line}: {refused}");
    }
}

#[test]
fn an_engine_that_may_be_root_is_named_by_one_path_or_url_and_a_flag_outweighs_the_file() {
    let room = Room::new(Some("allow-host-root = [\"/run/docker.sock\"]\n"));
    let names = |settings: Settings| settings.host_roots.names().collect::<Vec<_>>();
    assert_eq!(
        names(Room::new(None).resolve(&[]).unwrap()),
        Vec::<String>::new()
    );
    assert_eq!(
        names(room.resolve(&[]).unwrap()),
        ["unix:///run/docker.sock"]
    );
    let flags = [
        "--allow-host-root=/run/podman/podman.sock",
        "--allow-host-root=https://127.0.0.1:2376",
    ];
    assert_eq!(
        names(room.resolve(&flags).unwrap()),
        ["unix:///run/podman/podman.sock", "https://127.0.0.1:2376"]
    );
    for wrong in [
        "podman.sock",
        "/run/../x.sock",
        "/run/",
        "tcp://127.0.0.1:2375",
    ] {
        let error = room.resolve(&["--allow-host-root", wrong]).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("allow-host-root: "), "{error}");
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn what_of_environments_is_there_is_said_by_flags_then_the_file() {
    let settings = Room::new(None).resolve(&[]).unwrap();
    assert_eq!(settings.environments, EnvironmentSettings::default());
    assert!(settings.environments.enabled && !settings.environments.managed_only);
    let room = Room::new(Some(
        "enable-environments = false\nenable-managed-sandbox-only = true\n\
         [managed-sandbox]\nprovider = \"null\"\n[managed-sandbox.config]\nsize = 2\n",
    ));
    let of_file = room.resolve(&[]).unwrap().environments;
    let managed = of_file.managed.unwrap();
    assert_eq!((of_file.enabled, of_file.managed_only), (false, true));
    assert_eq!((&*managed.name, &*managed.provider), ("sandbox", "null"));
    assert_eq!(managed.config["size"], 2);
    let line = [
        "--enable-environments",
        "--enable-managed-sandbox-only=false",
    ];
    let of_flags = room.resolve(&line).unwrap().environments;
    assert_eq!((of_flags.enabled, of_flags.managed_only), (true, false));
    for (file, name) in [
        (
            "enable-managed-sandbox-only = true",
            "enable-managed-sandbox-only",
        ),
        (
            "[managed-sandbox]\nprovider = \"No\"",
            "managed-sandbox.provider",
        ),
        (
            "[managed-sandbox]\nprovider = \"null\"\nname = \" \"",
            "managed-sandbox.name",
        ),
        (
            "[managed-sandbox]\nprovider = \"null\"\nsecret = 1",
            "unknown field",
        ),
    ] {
        let error = Room::new(Some(file)).resolve(&[]).unwrap_err().to_string();
        assert!(error.contains(name), "{file}: {error}");
    }
}
