//! Puts the placeholder of a token where a machine reached by SSH would print it or keep it: a script, its arguments, its
//! variables, its input, the path of a workspace; in every export in which the machine can be reached, and when a command is
//! asked for. Then it runs that command, with the variables that it was given. It leases like the SSH provider.

use leasehold_provider::ssh::CommandState;
use leasehold_provider::*;
use leasehold_sample_hostile::hunt::{bounded, hunted, tell};
use leasehold_sample_hostile::thief::{Booty, Config};
use serde::{Deserialize, Serialize};

struct MachineTeller;

/// Which workspace, and what was got.
#[derive(Serialize, Deserialize)]
struct Handle {
    resource: String,
    loot: String,
}

const TARGET: &str = "/target";

fn session() -> Result<ssh::Session> {
    ssh::open(TARGET)
}

fn ran(script: &str, arg: &str, variable: (&str, &str), input: &str) -> Result<String> {
    let args = match arg {
        "" => vec![],
        arg => vec![arg.to_owned()],
    };
    let env = [(variable.0.to_owned(), variable.1.to_owned())];
    let input = Content::Text(input.to_owned());
    let output = session()?.run(script, &args, &env, &input, 1 << 16, None)?;
    Ok(output.stdout.to_text())
}

/// What this export comes to with the token.
fn tried(export: &str, call: &Call<Config>) -> Booty {
    let token = call.token.as_str();
    let none = ("NONE", "");
    let parent = format!("{}/{token}", call.told("parent"));
    let mut booty = Booty::default();
    for (name, came) in [
        ("script", ran(&format!("echo {token}"), "", none, "")),
        ("argument", ran("echo \"$1\"", token, none, "")),
        ("variable", ran("echo \"$TOLD\"", "", ("TOLD", token), "")),
        ("variable's name", ran("env", "", (token, "x"), "")),
        ("input", ran("cat", "", none, &format!("{token}\n"))),
        (
            "list",
            session()
                .and_then(|s| s.list_workspaces(&parent))
                .map(|all| format!("{all:?}")),
        ),
        ("nothing", ran("echo reached", "", none, "")),
    ] {
        booty.note(name, came);
    }
    if call.lease().is_ok() {
        let made = session().and_then(|s| s.make_workspace(&parent));
        booty.note("workspace", made.map(|made| made.path));
    }
    booty.spread(export);
    tell(export, call.rest.get("hunt"));
    booty
}

impl Provider for MachineTeller {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        manifest("hostile-machine-teller", env!("CARGO_PKG_VERSION"))
            .title("machine-teller")
            .summary("Puts the placeholder of a token where a machine would print it.")
            .driver(Driver::Ssh)
            .schema(json!({
                "type": "object",
                "properties": {
                    "target": { "type": "object", "format": "ssh-target" },
                    "token": { "type": "string", "format": "secret" },
                    "parent": { "type": "string" },
                    "hunt": { "type": "object" },
                    "word": { "type": "string" }
                }
            }))
            .ssh()
            .limits(Limits {
                memory_mib: 64,
                cpu: 8000,
                exchanges: 512,
                body_mib: 1,
            })
            .build()
    }

    /// Nobody hears what `check-config` says: what it finds becomes a part of the configuration.
    fn check_config(call: Call<Config>, mut config: Value) -> Result<Value> {
        config["found"] = hunted(call.rest.get("hunt")).into();
        Ok(config)
    }

    fn probe(call: Call<Config>) -> Result<Vec<Finding>> {
        let booty = tried("probe", &call);
        Ok(vec![info("theft", bounded(booty.told(), 3 << 10))])
    }

    fn acquire(call: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        let booty = tried("acquire", &call);
        host::journal_environment(call.acquisition()?)?;
        let made = session()?.make_workspace(call.told("parent"))?;
        let handle = Handle {
            resource: made.resource.clone(),
            loot: bounded(booty.told(), 10 << 10),
        };
        Ok(acquired(made.resource, handle, made.path))
    }

    fn keep_alive(call: Call<Config>, _: Handle, _ttl: Option<u32>) -> Result<KeptAlive> {
        tried("keep-alive", &call);
        Ok(KeptAlive {
            next: None,
            ttl: None,
        })
    }

    fn inspect(call: Call<Config>, handle: Handle) -> Result<Observation> {
        let booty = tried("inspect", &call);
        let said = format!("{} | before: {}", booty.told(), handle.loot);
        Ok(condition_message(Condition::Ready, bounded(said, 3 << 10)))
    }

    fn release(call: Call<Config>, handle: Handle) -> Result<()> {
        tried("release", &call);
        session()?.remove_workspace(call.told("parent"), &handle.resource)
    }

    fn list(call: Call<Config>, query: Query) -> Result<Page<Handle>> {
        tell("list", call.rest.get("hunt"));
        Ok(session()?
            .list_workspaces(call.told("parent"))?
            .into_iter()
            .filter(|workspace| query.wants(&workspace.resource, &workspace.labels))
            .map(|workspace| {
                let handle = Handle {
                    resource: workspace.resource.clone(),
                    loot: String::new(),
                };
                listed(workspace.resource, handle, Condition::Ready).labels(workspace.labels)
            })
            .collect())
    }
}

impl Execution for MachineTeller {
    type Reference = Value;

    fn start(call: Call<Config>, _: Handle, command: Command) -> Result<Started<Value>> {
        let mut booty = tried("start", &call);
        let token = call.token.as_str();
        let parent = call.told("parent");
        let begin = |parent: &str, script: &str, args: &[&str], env: &[(String, String)]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            session()?.start(parent, script, &args, env, None)
        };
        let variable = [("TOLD".to_owned(), token.to_owned())];
        let below = format!("{parent}/{token}");
        for (name, came) in [
            (
                "script of a command",
                begin(parent, &format!("echo {token}"), &[], &[]),
            ),
            (
                "argument of a command",
                begin(parent, "echo \"$1\"", &[token], &[]),
            ),
            (
                "variable of a command",
                begin(parent, "env", &[], &variable),
            ),
            ("place of a command", begin(&below, "env", &[], &[])),
        ] {
            booty.note(name, came.map(|_| "began".to_owned()));
        }
        booty.spread("start of a command");
        tell("start of a command", call.rest.get("hunt"));
        let reference = json!({ "id": command.id });
        host::journal_command(&command.id, &reference)?;
        let argv: Vec<&str> = command.argv.iter().map(String::as_str).collect();
        let process = begin(parent, "exec \"$@\"", &argv, &command.env)?;
        Ok(started(process, reference))
    }

    fn state_of(call: Call<Config>, _: Handle, id: String, _: Option<Value>) -> Result<State> {
        tell("state-of", call.rest.get("hunt"));
        Ok(match session()?.state_of(call.told("parent"), &id)? {
            CommandState::Running => State::Running,
            CommandState::Exited(status) => State::Exited(status),
            CommandState::Signalled(signal) => State::Signalled(signal),
            CommandState::NotStarted => State::NotStarted("it never began".to_owned()),
            CommandState::Unknown => State::Unknown,
        })
    }

    fn signal(call: Call<Config>, _: Handle, reference: Value, signal: String) -> Result<()> {
        let id = reference["id"].as_str().unwrap_or_default();
        session()?.signal(call.told("parent"), id, &signal)
    }
}

provider!(MachineTeller: execution);
