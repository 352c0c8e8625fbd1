//! Builds the one line that the bootstrap reads: marks, variables, arguments and the script, quoted.

use leasehold_contract::{Code, Error};

use super::{BOOTSTRAP, quote};
use crate::channel::Payload;
use crate::secret::Secret;

/// The most that a script may take with its arguments and variables: it is read a byte at a time, and the server takes
/// it whole before anything is read from it.
const MOST: usize = 1024 * 1024;

/// Variables that are the host's own.
const RESERVED: &str = "LEASEHOLD_";

/// A variable and its value.
pub(crate) type Variable<'a> = (&'a str, Secret<Vec<u8>>);

/// A script with what it is given.
pub(crate) struct Frame<'a> {
    /// The host's own: messages in English, and nothing of the account's locale.
    host: bool,
    /// Marks to stand in the environment before the shell that runs the script begins.
    pub(crate) marks: Vec<(&'a str, &'a str)>,
    pub(crate) env: Vec<Variable<'a>>,
    pub(crate) args: Vec<&'a [u8]>,
    pub(crate) script: &'a str,
    /// The supervisor's arguments, where the command is supervised: parent, acquisition, owner, id.
    pub(crate) supervised: Option<[&'a str; 4]>,
    pub(crate) tty: bool,
}

impl<'a> Frame<'a> {
    /// One of the host's own scripts.
    pub(crate) fn host(script: &'a str, args: &[&'a str]) -> Frame<'a> {
        let mut frame = Frame::of(script, args);
        frame.host = true;
        frame
    }

    /// A script of somebody else's.
    pub(crate) fn of(script: &'a str, args: &[&'a str]) -> Frame<'a> {
        Frame {
            host: false,
            marks: Vec::new(),
            env: Vec::new(),
            args: args.iter().map(|a| a.as_bytes()).collect(),
            script,
            supervised: None,
            tty: false,
        }
    }

    /// The line or lines, with a nonce of their own.
    ///
    /// # Errors
    /// `invalid-config` for a NUL, which no shell can carry.
    pub(crate) fn payload(&self) -> Result<Payload, Error> {
        let nonce = crate::random_hex::<16>();
        let mut text = Vec::with_capacity(self.script.len() + 1024);
        if let Some(of) = &self.supervised {
            let tty = if self.tty { "tty" } else { "" };
            let args = [&nonce, of[0], of[1], of[2], of[3], tty, super::SUPERVISED];
            begin(&mut text);
            let args: Vec<&[u8]> = args.iter().map(|a| a.as_bytes()).collect();
            finish(&mut text, &args, super::supervisor());
            self.inner(&mut text, None);
        } else if self.marks.is_empty() {
            self.inner(&mut text, Some(&nonce));
        } else {
            // A shell's own environment shows what it was begun with: so a second shell is begun.
            begin(&mut text);
            export(
                &mut text,
                self.marks.iter().map(|(k, v)| (*k, v.as_bytes())),
            );
            text.extend_from_slice(BOOTSTRAP.as_bytes());
            text.push(b'\n');
            self.inner(&mut text, Some(&nonce));
        }
        if text.contains(&0) {
            return Err(Error::new(
                Code::InvalidConfig,
                "a script, an argument or a variable has a NUL character, which no shell can pass on",
            ));
        }
        if text.len() > MOST {
            return Err(Error::new(
                Code::InvalidConfig,
                format!(
                    "a script with its arguments and variables takes {} bytes, at most {MOST} are passed; give the rest on stdin",
                    text.len()
                ),
            ));
        }
        Ok(Payload {
            text: Secret::new(text),
            nonce,
        })
    }

    fn inner(&self, text: &mut Vec<u8>, nonce: Option<&str>) {
        begin(text);
        if let Some(nonce) = nonce {
            text.extend_from_slice(
                format!("printf '%s ok\\n' {nonce};printf '%s\\n' {nonce} >&2;").as_bytes(),
            );
        }
        if self.host {
            text.extend_from_slice(b"export LC_ALL=C;");
        }
        if self.supervised.is_some() {
            text.extend_from_slice(b"cd \"$LEASEHOLD_WORK\";unset LEASEHOLD_WORK;");
            if self.tty {
                text.extend_from_slice(b"stty sane 2>/dev/null;");
            }
        }
        export(
            text,
            self.env.iter().map(|(k, v)| (*k, v.expose().as_slice())),
        );
        finish(text, &self.args, self.script);
    }
}

fn begin(text: &mut Vec<u8>) {
    // The third of the default separators: a newline that costs no process.
    text.extend_from_slice(b"LEASEHOLD_N=${IFS#??};");
}

fn export<'b>(text: &mut Vec<u8>, pairs: impl Iterator<Item = (&'b str, &'b [u8])>) {
    for (name, value) in pairs {
        text.extend_from_slice(b"export ");
        text.extend_from_slice(name.as_bytes());
        text.push(b'=');
        quote::word(text, value);
        text.push(b';');
    }
}

/// Sets the arguments and runs the script, with nothing of the frame left in its variables.
fn finish(text: &mut Vec<u8>, args: &[&[u8]], script: &str) {
    text.extend_from_slice(b"set --");
    for arg in args {
        text.push(b' ');
        quote::word(text, arg);
    }
    text.extend_from_slice(b";eval ");
    let mut whole = b"unset LEASEHOLD_P\n".to_vec();
    whole.extend_from_slice(script.as_bytes());
    quote::word(text, &whole);
    text.push(b'\n');
}

/// Whether names can be variables, and are not the host's own.
///
/// # Errors
/// `invalid-config`, naming the first that cannot.
pub(crate) fn check_environment(env: &[(String, String)]) -> Result<(), Error> {
    for (name, _) in env {
        let mut bytes = name.bytes();
        let sane = bytes
            .next()
            .is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
            && bytes.all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !sane {
            return Err(Error::new(
                Code::InvalidConfig,
                format!(
                    "{:?} cannot be a variable's name; use letters, digits and _, not a digit first",
                    crate::error::quote(name.as_bytes())
                ),
            ));
        }
        if name.starts_with(RESERVED) {
            return Err(Error::new(
                Code::InvalidConfig,
                format!(
                    "the variable {name} is the host's own; use a name that does not begin with {RESERVED}"
                ),
            ));
        }
    }
    Ok(())
}
