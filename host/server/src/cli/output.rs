//! What the client prints: JSON as the API answers it, or a table for a person.

use std::io::Write;

use serde_json::Value;

use super::exit::CliError;

/// How results are printed.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    json: bool,
}

/// A column: its title, and the member of a row that it shows.
pub type Column = (&'static str, &'static str);

impl Output {
    /// JSON or text.
    pub fn new(json: bool) -> Output {
        Output { json }
    }

    /// Whether JSON was asked for.
    pub fn is_json(self) -> bool {
        self.json
    }

    /// A list as a table, or as it is.
    pub fn list(self, rows: &Value, columns: &[Column]) -> Result<(), CliError> {
        if self.json {
            return self.value(rows);
        }
        let rows = rows.as_array().or_else(|| rows["items"].as_array());
        let rows = rows.map_or(&[][..], Vec::as_slice);
        let mut lines: Vec<Vec<String>> = vec![columns.iter().map(|c| c.0.to_owned()).collect()];
        for row in rows {
            lines.push(columns.iter().map(|c| cell(&row[c.1])).collect());
        }
        write_all(table(&lines).as_bytes())
    }

    /// One thing: its members below each other, or as it is.
    pub fn one(self, value: &Value, columns: &[Column]) -> Result<(), CliError> {
        if self.json {
            return self.value(value);
        }
        let lines: Vec<Vec<String>> = columns
            .iter()
            .filter(|c| !value[c.1].is_null() && value[c.1] != Value::Array(Vec::new()))
            .map(|c| vec![c.0.to_owned(), cell(&value[c.1])])
            .collect();
        write_all(table(&lines).as_bytes())
    }

    /// A sentence for a person; with `--json` the answer instead.
    pub fn told(self, value: &Value, sentence: &str) -> Result<(), CliError> {
        if self.json {
            return self.value(value);
        }
        write_all(format!("{sentence}\n").as_bytes())
    }

    /// The answer, as JSON.
    pub fn value(self, value: &Value) -> Result<(), CliError> {
        let text =
            serde_json::to_string_pretty(value).map_err(|e| CliError::Local(e.to_string()))?;
        write_all(format!("{text}\n").as_bytes())
    }
}

/// Writes to standard output. A reader that has gone is told apart from a failure.
pub fn write_all(bytes: &[u8]) -> Result<(), CliError> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)
        .and_then(|()| out.flush())
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::BrokenPipe => CliError::OutputClosed,
            _ => CliError::Local(format!("standard output: {e}")),
        })
}

/// Text from the API on a terminal: one line, no control characters, and none that turn what stands beside them around
/// (Unicode's bidirectional controls, UAX #9) or separate lines.
pub fn plain(text: &str) -> String {
    let turns = |c: char| matches!(c, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .map(|c| if c.is_control() || turns(c) { ' ' } else { c })
        .collect()
}

fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => plain(text),
        Value::Array(list) if list.is_empty() => "-".into(),
        Value::Array(list) => list.iter().map(cell).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

fn table(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|at| {
            let cells = lines.iter().filter_map(|line| line.get(at));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    let mut out = String::new();
    for line in lines {
        let mut text = String::new();
        for (cell, width) in line.iter().zip(&widths) {
            text.push_str(cell);
            text.extend(std::iter::repeat_n(' ', width - cell.chars().count() + 2));
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_nothing_of_the_api_reaches_the_terminal_raw() {
        let lines = vec![
            vec!["ID".to_owned(), "NAME".to_owned()],
            vec![
                "env_12".to_owned(),
                cell(&Value::String("a\u{1b}[2Jb".into())),
            ],
        ];
        assert_eq!(table(&lines), "ID      NAME\nenv_12  a [2Jb\n");
    }
}
