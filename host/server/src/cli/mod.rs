//! The command `leasehold`: the server, and a client of its API for everything else.
//!
//! The client knows nothing that the API does not say: whatever it does can be done by `curl`. Results go to
//! standard output, everything else to standard error.

mod access;
mod activity;
mod admin;
mod assign;
mod client;
mod component;
mod copy;
mod draft;
mod environment;
mod exec;
mod exit;
mod lease;
mod output;
mod pack;
mod plugin;
mod plugin_text;
mod progress;
mod push;
mod rekey;
mod secret;
mod select;
mod standard;
mod terminal;
mod trust;
mod unpack;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::server;
use crate::settings::{Places, ServeArgs, Settings};
use client::Client;
use exit::CliError;
use output::Output;

/// Lease execution environments to agents.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, after_long_help = exit::TABLE, propagate_version = true)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Args)]
struct Global {
    /// Print the API's answer as JSON; exec and cp print nothing of their own
    #[arg(long, global = true)]
    json: bool,

    /// Where the server is: unix:PATH or http://HOST:PORT [default: the Unix socket in the data directory]
    #[arg(long, global = true, value_name = "WHERE", env = "LEASEHOLD_SERVER")]
    server: Option<String>,

    /// File that holds the token; else it is taken from LEASEHOLD_TOKEN, and the Unix socket needs none
    #[arg(long, global = true, value_name = "FILE", env = "LEASEHOLD_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// For a command that creates something: the same key with the same request does it once
    #[arg(long, global = true, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start the server
    Serve(Box<ServeArgs>),
    /// Look at, install and switch providers
    #[command(subcommand)]
    Plugin(plugin::PluginCommand),
    /// Print who you are to the server
    Whoami,
    /// Companies, which own everything else
    #[command(subcommand)]
    Company(admin::CompanyCommand),
    /// Bearer tokens for other users of the API
    #[command(subcommand)]
    Token(admin::TokenCommand),
    /// Secrets, which environments refer to
    #[command(subcommand)]
    Secret(secret::SecretCommand),
    /// Environments: what can be leased
    #[command(subcommand)]
    Env(environment::EnvCommand),
    /// Print what this server has switched on
    Instance,
    /// Test an environment, saved or not yet
    Probe(environment::ProbeArgs),
    /// Tell which environments can do what is needed, and why each other cannot
    Select(select::SelectArgs),
    /// Tell which environment is assigned, and what decides
    Assignment(select::AssignmentArgs),
    /// Agents, and the environments that are assigned to them
    #[command(subcommand)]
    Agent(assign::RowCommand),
    /// Projects, and the environments that are assigned to them
    #[command(subcommand)]
    Project(assign::RowCommand),
    /// Workspaces, and the environments that are assigned to them
    #[command(subcommand)]
    Workspace(assign::RowCommand),
    /// Issues, and the environments that are assigned to them
    #[command(subcommand)]
    Issue(assign::RowCommand),
    /// Runs, which belong to agents and what they work on
    #[command(subcommand)]
    Run(assign::RunCommand),
    /// Leases: acquire, renew, release
    #[command(subcommand)]
    Lease(lease::LeaseCommand),
    /// Run a command in a lease, live
    Exec(exec::ExecArgs),
    /// Copy files into or out of a lease
    Cp(copy::CopyArgs),
    /// What happened: print it, follow it, take it away, prove it
    Activity(Box<activity::ActivityArgs>),
    /// Print a completion script for a shell
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

impl Command {
    /// Whether it makes something, once under an idempotency key.
    fn makes(&self) -> bool {
        use admin::{CompanyCommand, TokenCommand};
        use assign::{RowCommand, RunCommand};
        use secret::SecretCommand;
        match self {
            Command::Company(command) => matches!(command, CompanyCommand::Create { .. }),
            Command::Token(command) => matches!(command, TokenCommand::Create { .. }),
            Command::Secret(command) => matches!(
                command,
                SecretCommand::Set { .. } | SecretCommand::Rotate { .. }
            ),
            Command::Env(command) => matches!(command, environment::EnvCommand::Create { .. }),
            Command::Agent(command)
            | Command::Project(command)
            | Command::Workspace(command)
            | Command::Issue(command) => matches!(command, RowCommand::Create { .. }),
            Command::Run(command) => matches!(command, RunCommand::Create(_)),
            Command::Lease(command) => matches!(command, lease::LeaseCommand::Acquire { .. }),
            Command::Serve(_)
            | Command::Plugin(_)
            | Command::Whoami
            | Command::Instance
            | Command::Probe(_)
            | Command::Select(_)
            | Command::Assignment(_)
            | Command::Exec(_)
            | Command::Cp(_)
            | Command::Activity(_)
            | Command::Completions { .. } => false,
        }
    }
}

/// Parses the process's arguments, does what they say, and answers the exit code.
pub fn main() -> ExitCode {
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(match (e.use_stderr(), is_exec(std::env::args_os())) {
                (false, _) => exit::DONE,
                // Every other code would be taken for the command's own.
                (true, true) => exit::EXEC_FAILED,
                (true, false) => exit::USAGE,
            });
        }
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(e) => {
            let _ = e.print();
            return ExitCode::from(exit::USAGE);
        }
    };
    if cli.global.idempotency_key.is_some() && !cli.command.makes() {
        let wrong = CliError::Usage(
            "--idempotency-key: this command cannot send one; a key is for a command that creates something".into(),
        );
        return exit::report(Err(wrong), matches!(cli.command, Command::Exec(_)));
    }
    match cli.command {
        Command::Serve(args) => serve(*args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "leasehold", &mut script);
            exit::report(output::write_all(&script), false)
        }
        command => {
            let is_exec = matches!(command, Command::Exec(_));
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .enable_all()
                .build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(e) => return exit::report(Err(CliError::Local(e.to_string())), is_exec),
            };
            let done = runtime.block_on(client_command(cli.global, command));
            // A thread may still wait for a terminal's next line; nobody waits for it.
            runtime.shutdown_background();
            match done {
                Ok(code) => ExitCode::from(code),
                Err(e) => exit::report(Err(e), is_exec),
            }
        }
    }
}

/// Whether arguments that cannot be parsed were meant for `exec`: the first that names a command does.
fn is_exec(arguments: impl Iterator<Item = std::ffi::OsString>) -> bool {
    let cli = Cli::command();
    let names: Vec<&str> = cli.get_subcommands().map(clap::Command::get_name).collect();
    arguments
        .skip(1)
        .find(|argument| names.iter().any(|name| argument == name))
        .is_some_and(|name| name == "exec")
}

fn serve(args: ServeArgs) -> ExitCode {
    let settings = match Settings::resolve(args.with_environment(), &Places::of_this_user()) {
        Ok(settings) => settings,
        Err(e) => return exit::complain(&e, exit::USAGE),
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(e) => return exit::complain(&e, exit::FAILED),
    };
    let telemetry = {
        let _entered = runtime.enter();
        match server::start_logs(&settings) {
            Ok(telemetry) => telemetry,
            Err(message) => return exit::complain(&message, exit::USAGE),
        }
    };
    let ended = runtime.block_on(server::run(settings, telemetry.as_ref()));
    if let Some(telemetry) = telemetry {
        telemetry.end();
    }
    // A compilation that runs on a thread cannot be stopped, and need not be.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) if e.is_configuration() => exit::complain(&e, exit::USAGE),
        Err(e) => exit::complain(&e, exit::FAILED),
    }
}

async fn client_command(global: Global, command: Command) -> Result<u8, CliError> {
    let out = Output::new(global.json);
    let (server, token_file) = (global.server, global.token_file);
    let key = global.idempotency_key;
    let connect = || -> Result<Client, CliError> {
        let client = Client::new(access::server(server)?, access::token(token_file)?);
        Ok(client.under(key))
    };
    if let Command::Plugin(command) = command {
        return command.run(connect, &out).await;
    }
    if let Command::Activity(args) = command {
        return args.run(connect, &out).await;
    }
    let client = connect()?;
    match command {
        Command::Secret(secret::SecretCommand::Rekey(args)) => args.run(&out).await,
        Command::Whoami => admin::whoami(&client, &out).await,
        Command::Company(command) => command.run(&client, &out).await,
        Command::Token(command) => command.run(&client, &out).await,
        Command::Secret(command) => command.run(&client, &out).await,
        Command::Env(command) => command.run(&client, &out).await,
        Command::Instance => environment::instance(&client, &out).await,
        Command::Probe(args) => args.run(&client, &out).await,
        Command::Select(args) => args.run(&client, &out).await,
        Command::Assignment(args) => args.run(&client, &out).await,
        Command::Agent(command) => command.run("agents", &client, &out).await,
        Command::Project(command) => command.run("projects", &client, &out).await,
        Command::Workspace(command) => command.run("workspaces", &client, &out).await,
        Command::Issue(command) => command.run("issues", &client, &out).await,
        Command::Run(command) => command.run(&client, &out).await,
        Command::Lease(command) => command.run(&client, &out).await,
        Command::Exec(args) => args.run(&client).await,
        Command::Cp(args) => args.run(&client).await,
        Command::Serve(_)
        | Command::Plugin(_)
        | Command::Activity(_)
        | Command::Completions { .. } => Ok(exit::DONE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_wrong_flag_of_exec_is_told_from_one_of_another_command() {
        let is = |line: &str| is_exec(line.split(' ').map(Into::into));
        assert!(is("leasehold --json exec --bogus lease_1 lease"));
        assert!(!is("leasehold lease get exec --bogus"));
        assert!(!is("leasehold --bogus"));
    }

    #[test]
    fn what_exec_runs_keeps_its_own_flags() {
        let cli = Cli::try_parse_from(["leasehold", "exec", "lease_1", "--", "ls", "--json", "-l"])
            .unwrap();
        let Command::Exec(args) = cli.command else {
            panic!("not exec");
        };
        assert_eq!(args.argv, ["ls", "--json", "-l"]);
        assert!(!cli.global.json);
    }
}
