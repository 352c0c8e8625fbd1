//! A provider that takes the shape that a test gives it.
//!
//! What comes of that is a component like any other, with a digest of its own: an upgrade that asks for more, or a
//! revision that crashes, without a build for each. What it exports cannot be written into its bytes: the example `files`
//! is the same with one interface more.

#![expect(clippy::panic, reason = "a shape that panics is one of the shapes")]

mod shaped;

use leasehold_provider::provider;
use shaped::Shaped;

provider!(Shaped);
