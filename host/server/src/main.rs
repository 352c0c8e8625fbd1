//! The command `leasehold`: hands its arguments to the library and its code to the shell.

fn main() -> std::process::ExitCode {
    leasehold_server::cli::main()
}
