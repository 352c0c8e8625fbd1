//! The list of what is let through, beside the document that tells people of it.

use super::calls::CALLS;

#[test]
fn the_document_has_every_call_and_parameter_that_is_let_through_and_no_other() {
    let document = include_str!("../../../../docs/engines.md");
    let told: Vec<String> = document
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter(|line| line.starts_with(char::is_uppercase) && line.contains(" /"))
        .map(|line| {
            let mut cells = line.split('|').map(str::trim);
            let call = cells.next().unwrap_or_default().trim_end_matches('`');
            let parameters = cells.next().unwrap_or_default().replace('`', "");
            format!("{call} {parameters}")
        })
        .collect();
    let known: Vec<String> = CALLS
        .iter()
        .map(|call| {
            let names: Vec<&str> = call.query.iter().map(|(name, _)| *name).collect();
            format!("{call} {}", names.join(", "))
        })
        .collect();
    assert_eq!(told, known);
}
