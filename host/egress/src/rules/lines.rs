//! An answer that is read a line at a time, looked at as one text: a value may be told over several lines.
//!
//! A line that ends in what may be the beginning of a value waits for the next. What was shown is remembered, so that a
//! value is known though its first characters, too few to be known by, have left. No line is lost. Pure.

use super::finder::Finder;

/// How much of what was shown is remembered, in bytes: a few characters, however they are written.
const REMEMBERED: usize = 256;

/// How much is held back at most: more only who ends line after line in the beginning of a value keeps waiting.
const HELD: usize = 1 << 20;

/// The lines of one answer.
#[derive(Debug, Default)]
pub(crate) struct LineNet {
    /// Lines that wait for the next.
    held: Option<String>,
    /// The end of what was shown, with the end of its line.
    shown: String,
}

/// What comes of a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Caught {
    /// The next is needed first.
    Waits,
    /// These are shown.
    Lines(Vec<String>),
    /// All lines were shown.
    End,
    /// Too much waits.
    TooMuch,
}

impl LineNet {
    /// Takes the next line; none at the end.
    pub(crate) fn take(&mut self, line: Option<String>, values: &Finder) -> Caught {
        let ended = line.is_none();
        let held = match (self.held.take(), line) {
            (None, line) => line,
            (held, None) => held,
            (Some(held), Some(line)) => Some(format!("{held}\n{line}")),
        };
        let Some(held) = held else {
            return Caught::End;
        };
        let text = format!("{}{held}", self.shown);
        if !ended && values.goes_on(format!("{text}\n").as_bytes()) {
            let much = held.len() > HELD;
            self.held = Some(held);
            return match much {
                true => Caught::TooMuch,
                false => Caught::Waits,
            };
        }
        let clean = values.clean(text);
        // Where a value began in what was shown, only its rest can be taken away.
        let same = self
            .shown
            .char_indices()
            .zip(clean.chars())
            .find(|((_, before), now)| before != now)
            .map_or(self.shown.len(), |((at, _), _)| at);
        let lines: Vec<String> = clean[same.min(clean.len())..]
            .split('\n')
            .map(str::to_owned)
            .collect();
        let mut from = clean.len().saturating_sub(REMEMBERED);
        while !clean.is_char_boundary(from) {
            from += 1;
        }
        self.shown = format!("{}\n", &clean[from..]);
        Caught::Lines(lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "canary-key-0123456789";

    /// What is shown of these lines.
    fn shown(lines: &[&str]) -> Vec<String> {
        let values = Finder::new([KEY]);
        let mut net = LineNet::default();
        let mut all = Vec::new();
        for line in lines {
            match net.take(Some((*line).to_owned()), &values) {
                Caught::Waits => {}
                Caught::Lines(lines) => all.extend(lines),
                other => panic!("{line}: {other:?}"),
            }
        }
        match net.take(None, &values) {
            Caught::Lines(lines) => all.extend(lines),
            Caught::End => {}
            other => panic!("at the end: {other:?}"),
        }
        assert_eq!(net.take(None, &values), Caught::End);
        all
    }

    #[test]
    fn lines_without_a_value_are_shown_as_they_came() {
        for lines in [
            vec![],
            vec![""],
            vec!["", "", "a"],
            vec!["one", "two canary", "three", "canary-key"],
            vec!["can", "can", "canary-", "canary-", "x"],
        ] {
            assert_eq!(shown(&lines), lines, "{lines:?}");
        }
    }

    #[test]
    fn a_value_over_lines_of_any_length_shows_three_characters_at_most() {
        for length in 1..=KEY.len() {
            let parts: Vec<&str> = KEY
                .as_bytes()
                .chunks(length)
                .map(|part| std::str::from_utf8(part).expect("ASCII"))
                .collect();
            let lines = [vec!["before"], parts, vec!["after"]].concat();
            let all = shown(&lines);
            assert_eq!(all.first().map(String::as_str), Some("before"), "{length}");
            assert_eq!(
                all.last().map(String::as_str),
                Some("after"),
                "{length}: {all:?}"
            );
            let between = all[1..all.len() - 1].concat();
            let left = between.replace("[redacted]", "");
            assert!(between.contains("[redacted]"), "{length}: {all:?}");
            assert!(
                left.len() <= 3 && KEY.starts_with(&left),
                "{length}: {all:?}"
            );
        }
    }

    #[test]
    fn lines_that_end_again_and_again_in_a_beginning_are_not_held_for_ever() {
        let values = Finder::new([KEY]);
        let mut net = LineNet::default();
        let line = format!("{}canary", "x".repeat(1000));
        let caught = (0..2000)
            .map(|_| net.take(Some(line.clone()), &values))
            .find(|caught| *caught != Caught::Waits);
        assert_eq!(caught, Some(Caught::TooMuch));
    }
}
