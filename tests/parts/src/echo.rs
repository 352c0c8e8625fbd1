//! Answers that give back the credential that came with their request, in whatever way a server could: one for each way, as
//! the bytes that are written.
//!
//! Nothing here decides who may ask; it never says anything that it was not told.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

/// The ways in which only the writing differs: the body has the key in this encoding, twice.
pub const ENCODED: &[&str] = &[
    "plain",
    "upper",
    "base64",
    "base64url",
    "basic",
    "wrapped",
    "hex",
    "upper-hex",
    "percent",
    "json",
    "units",
    "html",
    "html-decimal",
];

/// Ways that no redaction knows: what they say must be worth nothing to whoever is not meant to have it.
pub const UNKNOWN: &[&str] = &["reversed", "spaced", "twice"];

/// The key in one encoding; none for a way that is another kind of thing.
pub fn encoded(way: &str, key: &str) -> Option<String> {
    let each = |of: &dyn Fn(u8) -> String| key.bytes().map(of).collect::<String>();
    let html = |of: &dyn Fn(char) -> String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        key.chars()
            .map(|c| if plain(c) { c.to_string() } else { of(c) })
            .collect::<String>()
    };
    Some(match way {
        "plain" => key.to_owned(),
        "upper" => key.to_ascii_uppercase(),
        "base64" => STANDARD.encode(key),
        "base64url" => URL_SAFE.encode(key),
        "basic" => STANDARD.encode(format!("admin:{key}")),
        "wrapped" => lines(&STANDARD.encode(key), 16),
        "hex" => each(&|b| format!("{b:02x}")),
        "upper-hex" => each(&|b| format!("{b:02X}")),
        "percent" => each(&|b| format!("%{b:02X}")),
        "json" => serde_json::Value::from(key).to_string().replace('/', "\\/"),
        "units" => each(&|b| format!("\\u{b:04x}")),
        "html" => html(&|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '"' => "&quot;".to_owned(),
            other => format!("&#x{:x};", u32::from(other)),
        }),
        "html-decimal" => html(&|c| format!("&#{};", u32::from(c))),
        "reversed" => key.chars().rev().collect(),
        "spaced" => key.chars().flat_map(|c| [c, ' ']).collect(),
        "twice" => STANDARD.encode(STANDARD.encode(key)),
        _ => return None,
    })
}

/// A text in lines of so many characters.
fn lines(text: &str, length: usize) -> String {
    let parts: Vec<String> = text
        .as_bytes()
        .chunks(length)
        .map(|part| String::from_utf8_lossy(part).into_owned())
        .collect();
    parts.join("\n")
}

fn whole(status: &str, more: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A body in chunks of three bytes, with trailers behind it.
fn chunked(more: &str, body: &str, trailers: &str) -> Vec<u8> {
    let mut all =
        format!("HTTP/1.1 200 Said\r\n{more}transfer-encoding: chunked\r\n\r\n").into_bytes();
    for piece in body.as_bytes().chunks(3) {
        all.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        all.extend_from_slice(piece);
        all.extend_from_slice(b"\r\n");
    }
    all.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    all
}

/// The answer of one way; none where there is no such way. After [`ends`] ones nothing more can be said.
pub fn answer(way: &str, key: &str) -> Option<Vec<u8>> {
    let said = format!("you said {key}");
    Some(match way {
        "chunks" => chunked("", &format!("{said}, {said}"), ""),
        "lines" => chunked("", &format!("first\n{}\nlast", lines(key, 7)), ""),
        "trailer" => chunked(
            "trailer: x-trailer\r\n",
            "nothing here",
            &format!("x-trailer: {key}\r\n"),
        ),
        "status" => whole(&format!("200 {key}"), "", "nothing here"),
        "header" => whole(
            "200 Said",
            &format!(
                "x-echo: {key}\r\nwww-authenticate: Basic realm=\"{key}\"\r\nset-cookie: session={key}; path=/\r\nlocation: /{key}\r\n"
            ),
            "nothing here",
        ),
        "name" => whole("200 Said", &format!("{key}: x\r\n"), "nothing here"),
        "error" => whole("500 Failed", "content-type: text/html\r\n", &said),
        "refused" => whole("403 Refused", "", &said),
        "coding" => whole("200 Said", &format!("content-encoding: {key}\r\n"), &said),
        // None of these is HTTP to its end.
        "garbage" => format!("{key}\r\n{key}\r\n\r\n").into_bytes(),
        "version" => format!("HTTP/{key} 200 Said\r\n\r\n").into_bytes(),
        "length" => format!("HTTP/1.1 200 Said\r\ncontent-length: {key}\r\n\r\n{key}").into_bytes(),
        "short" => format!("HTTP/1.1 200 Said\r\ncontent-length: 9999\r\n\r\n{key}").into_bytes(),
        "chunk" => {
            format!("HTTP/1.1 200 Said\r\ntransfer-encoding: chunked\r\n\r\n{key}\r\n").into_bytes()
        }
        other => {
            let key = encoded(other, key)?;
            whole(
                "200 Said",
                "content-type: text/plain\r\n",
                &format!("a {key} b {key}"),
            )
        }
    })
}

/// Whether a way is no whole answer, so that its connection ends with it.
pub fn ends(way: &str) -> bool {
    matches!(way, "garbage" | "version" | "length" | "short" | "chunk")
}
