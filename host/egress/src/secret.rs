//! A value that must not be printed and is wiped when it is dropped.

use zeroize::Zeroize;

/// Holds a secret: `Debug` shows nothing, `Drop` zeroes it.
#[derive(Clone, Default)]
pub struct Secret<T: Zeroize = String>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes the value in.
    pub fn new(value: T) -> Secret<T> {
        Secret(value)
    }

    /// The value, for the one place that needs it.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// The value, to be written into.
    pub(crate) fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Zeroize + Default> Secret<T> {
    /// The value, where it is a secret no longer.
    pub(crate) fn take(mut self) -> T {
        std::mem::take(&mut self.0)
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> std::fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}
