//! The user's own terminal, put into raw mode for a command that has one, and put back whatever happens.

use std::io::{IsTerminal, stdin, stdout};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

/// Raw while it lives.
pub struct Raw {
    before: Termios,
}

impl Raw {
    /// Puts standard input's terminal into raw mode; none when it is no terminal.
    pub fn enter() -> Option<Raw> {
        let stdin = stdin();
        if !stdin.is_terminal() {
            return None;
        }
        let before = tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        Some(Raw { before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Drain, &self.before);
    }
}

/// The terminal's size, columns and rows, or what a terminal has that does not say.
pub fn size() -> (u16, u16) {
    match tcgetwinsize(stdout()).or_else(|_| tcgetwinsize(stdin())) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => (80, 24),
    }
}
