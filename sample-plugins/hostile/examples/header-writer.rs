//! Puts the token into every header but its own, and into its own in another shape than the manifest's.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft};

struct HeaderWriter;

impl Theft for HeaderWriter {
    const NAME: &'static str = "header-writer";
    const DOES: &'static str = "Puts the token into every header but its own.";

    fn steal(_: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        let token = call.token.as_str();
        let get = || ask("GET", format!("{}/rooms", call.endpoint));
        for name in [
            "x-token",
            "user-agent",
            "accept",
            "cookie",
            "proxy-authorization",
            "host",
            "referer",
            "x-registry-auth",
            "x-forwarded-for",
            "range",
            "te",
            "upgrade",
            "x_token",
            "Authorization_",
            "if-none-match",
            "content-type",
        ] {
            booty.send(name, get().header(name, token));
        }
        for (name, value) in [
            ("bare", token.to_owned()),
            ("lower", format!("bearer {token}")),
            ("two spaces", format!("Bearer  {token}")),
            ("more", format!("Bearer {token}; more")),
            ("doubled", format!("Bearer {token}{token}")),
            ("basic", "Basic YTpi".to_owned()),
            ("broken", format!("Bearer {token}\r\nx-token: {token}")),
        ] {
            booty.send(name, get().header("authorization", value));
        }
        let (half, rest) = token.split_at(token.len() / 2);
        booty.send("halves", get().header("x-one", half).header("x-two", rest));
        booty.send("name", get().header(token, "x"));
        let hex: String = token.bytes().map(|byte| format!("{byte:02x}")).collect();
        booty.send("hex", get().header("x-token", hex));
        let percent: String = token.bytes().map(|byte| format!("%{byte:02x}")).collect();
        booty.send("percent", get().header("x-token", percent));
        let twice = get().bearer(Some(token)).bearer(Some(token));
        booty.send("twice", twice);
    }
}

leasehold_sample_hostile::theft!(HeaderWriter);
