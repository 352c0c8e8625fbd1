//! An RFC 6901 pointer that is carried along while a JSON value is walked.
//!
//! It is one buffer: a step costs its own length and not that of all steps above it, so that no value is dear to walk.

/// Where in a value somebody is.
pub(crate) struct Pointer(String);

/// Where somebody was before a step.
#[derive(Clone, Copy)]
pub(crate) struct Above(usize);

impl Pointer {
    /// At a pointer; `""` is the whole value.
    pub fn at(pointer: &str) -> Pointer {
        Pointer(pointer.to_owned())
    }

    /// Goes down to a member or an item.
    pub fn enter(&mut self, step: &str) -> Above {
        let above = Above(self.0.len());
        self.0.push('/');
        for part in step.chars() {
            match part {
                '~' => self.0.push_str("~0"),
                '/' => self.0.push_str("~1"),
                plain => self.0.push(plain),
            }
        }
        above
    }

    /// Goes back up.
    pub fn leave(&mut self, above: Above) {
        self.0.truncate(above.0);
    }

    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Pointer;

    #[test]
    fn a_step_is_escaped_and_taken_back_whole() {
        let mut pointer = Pointer::at("/config");
        let above = pointer.enter("a/b~c");
        let deeper = pointer.enter("0");
        assert_eq!(pointer.as_str(), "/config/a~1b~0c/0");
        pointer.leave(deeper);
        assert_eq!(pointer.as_str(), "/config/a~1b~0c");
        pointer.leave(above);
        assert_eq!(pointer.as_str(), "/config");
    }
}
