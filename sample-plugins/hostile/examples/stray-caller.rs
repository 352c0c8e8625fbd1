//! Asks over HTTP whatever its configuration says, wherever that is, and tells what came of it.
//!
//! `{"calls": [{"how": "send", "method": "GET", "url": "…"}]}`: `how` is `send`, `open`, `download`, `upload` (the bytes
//! of a download of the same URL between two words), `upgrade` or `websocket`. `headers` is an object, `body` a text, or
//! the number of bytes of one. A probe answers one finding for each call; `start` makes its process of the first.

use leasehold_provider::*;
use leasehold_sample_hostile::{Config, Misdeed};

struct StrayCaller;

fn text<'a>(call: &'a Value, key: &str) -> &'a str {
    call[key].as_str().unwrap_or_default()
}

fn request(call: &Value) -> Ask {
    let mut ask = ask(text(call, "method"), text(call, "url"));
    for (name, value) in call["headers"].as_object().into_iter().flatten() {
        ask = ask.header(name, value.as_str().unwrap_or_default());
    }
    match &call["body"] {
        Value::String(body) => ask.body(Content::Text(body.clone())),
        Value::Number(bytes) => {
            let bytes = bytes.as_u64().unwrap_or_default() as usize;
            ask.body(Content::Bytes(vec![0xff; bytes]))
        }
        _ => ask,
    }
}

/// Every status is an answer.
fn all() -> Vec<u16> {
    (100..600).collect()
}

fn answer(answer: &Answer) -> String {
    let body = answer.text();
    match body.len() {
        0..=200 => format!("{} {body}", answer.status()),
        long => format!("{} {long} bytes", answer.status()),
    }
}

fn lines(lines: &Lines) -> Result<String> {
    let mut said = format!("{}", lines.head().status);
    while let Some(line) = lines.next()? {
        said = format!("{said}|{line}");
    }
    Ok(said)
}

fn made(call: &Value) -> Result<String> {
    let ask = request(call);
    match text(call, "how") {
        "open" => lines(&ask.lines(&all())?),
        "download" => ask.download(&all()).map(|_| "bytes".to_owned()),
        "upload" => {
            let bytes =
                crate::request(&json!({ "method": "GET", "url": call["url"] })).download(&all())?;
            let word = |word: &str| Piece::Inline(Content::Text(word.to_owned()));
            let pieces = vec![word("before "), Piece::Bytes(bytes), word(" after")];
            ask.upload(pieces, &all()).map(|a| answer(&a))
        }
        "upgrade" => ask.upgrade("tcp").map(|_| "switched".to_owned()),
        "websocket" => ask
            .websocket(&["one", "two"])
            .map(|_| "switched".to_owned()),
        _ => ask.send(&all()).map(|a| answer(&a)),
    }
}

fn calls(call: &Call<Config>) -> Vec<Value> {
    match call.rest.get("calls") {
        Some(Value::Array(calls)) => calls.clone(),
        _ => Vec::new(),
    }
}

impl Misdeed for StrayCaller {
    const NAME: &'static str = "stray-caller";
    const DOES: &'static str = "Asks over HTTP whatever its configuration says, wherever that is.";

    fn findings(call: &Call<Config>) -> Vec<Finding> {
        let told = |call: &Value| match made(call) {
            Ok(said) => info("call", said),
            Err(error) => warning("call", format!("{:?}: {}", error.code, error.message)),
        };
        calls(call).iter().map(told).collect()
    }

    fn start(call: &Call<Config>, _: Command) -> Result<Process> {
        let calls = calls(call);
        let Some(first) = calls.first() else {
            return Err(Error::internal("there is no call to make a process of"));
        };
        let duplex = match text(first, "how") {
            "websocket" => request(first).websocket(&["v5.channel.k8s.io"])?,
            _ => request(first).upgrade("tcp")?,
        };
        match text(first, "framing") {
            "channels" => duplex.process(
                Framing::Channels,
                InputEnd::HalfClose,
                ExitSource::StatusChannel,
            ),
            "marks" => duplex.process(
                Framing::Marks(Marks {
                    stdout: vec![1],
                    stderr: vec![2],
                }),
                InputEnd::Bytes(vec![4]),
                ExitSource::CloseReason("/code".to_owned()),
            ),
            "docker" => duplex.process(Framing::Docker, InputEnd::None, ExitSource::Ask),
            _ => duplex.process(Framing::Merged, InputEnd::HalfClose, ExitSource::Ask),
        }
    }
}

leasehold_sample_hostile::hostile!(StrayCaller);
