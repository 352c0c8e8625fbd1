//! Pulls with the password of a registry in its site, and wants to read it.

use leasehold_provider::*;
use leasehold_sample_hostile::thief::{Booty, Config, Theft, api};

struct RegistryReader;

impl Theft for RegistryReader {
    const NAME: &'static str = "registry-reader";
    const DOES: &'static str = "Pulls with the password of a registry, and wants to read it.";

    fn asks(manifest: ManifestBuilder) -> ManifestBuilder {
        manifest
            .credential("/registry", [registry_auth()], ["/endpoint"])
            .operation("/endpoint", "POST", "/images/pull", shared())
    }

    fn fields() -> Value {
        json!({ "registry": { "type": "object", "format": "registry" } })
    }

    fn steal(export: &str, booty: &mut Booty, call: &Call<Config>, _: &str) {
        if export == "inspect" {
            return;
        }
        let registry = call.rest.get("registry").cloned().unwrap_or_default();
        booty.note("shown", Ok(registry.to_string()));
        let password = registry["password"].as_str().unwrap_or_default();
        let pull = || api(call, "POST", "/images/pull").json(json!({ "image": "alpine" }));
        booty.send("its site", pull().header("x-registry-auth", password));
        booty.send("another header", pull().header("x-other", password));
        booty.send(
            "written by itself",
            pull().header(
                "x-registry-auth",
                format!("{{\"password\":\"{password}\"}}"),
            ),
        );
        booty.send("URL", pull().query("password", password));
        let body = json!({ "image": "alpine", "password": password });
        booty.send("body", api(call, "POST", "/images/pull").json(body));
        let other = ask("POST", format!("{}/images/pull", call.endpoint));
        booty.send("bearer", other.bearer(Some(password)));
    }
}

leasehold_sample_hostile::theft!(RegistryReader);
