//! The command `leasehold`: hands its arguments to the library and its code to the shell.

/// A call of a component makes and frees some hundred small things on whatever thread is free; this allocator is made for it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    leasehold_server::cli::main()
}
