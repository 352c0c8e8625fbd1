//! The shape with one interface more: it says that it moves files, and moves none.

#![expect(clippy::panic, reason = "a shape that panics is one of the shapes")]

#[path = "../src/shaped.rs"]
mod shaped;

use leasehold_provider::*;
use shaped::{Config, Handle, Shaped};

impl Files for Shaped {
    fn put(_: Call<Config>, _: Handle, _path: String, _archive: Bytes) -> Result<()> {
        Err(Error::unsupported("a shape has no files"))
    }

    fn get(_: Call<Config>, _: Handle, _path: String) -> Result<Bytes> {
        Err(Error::unsupported("a shape has no files"))
    }
}

provider!(Shaped: files);
