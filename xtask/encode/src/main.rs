//! Makes a component of a core module that is written by hand: `xtask_encode MODULE.wat WIT WORLD OUT.wasm`.
//!
//! The module has the canonical names and signatures of what the world in the folder `WIT` exports. It is a program of
//! its own, and not a part of `xtask`, because what it stands on takes long to compile and only one sample needs it. The
//! same source gives the same bytes: nothing of this machine gets into them.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [module, wit, world, out] = arguments.as_slice() else {
        bail!("usage: xtask_encode MODULE.wat WIT WORLD OUT.wasm");
    };
    let mut bytes = wat::parse_file(module)?;
    let mut resolve = Resolve::default();
    let (package, _) = resolve
        .push_dir(wit)
        .with_context(|| format!("{} does not read", wit.display()))?;
    let world = resolve.select_world(&[package], world.to_str())?;
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)?;
    let component = ComponentEncoder::default()
        .validate(true)
        .module(&bytes)
        .and_then(|encoder| encoder.encode())
        .with_context(|| format!("{} is no component of that world", module.display()))?;
    std::fs::write(out, component).with_context(|| format!("{} cannot be written", out.display()))
}
