//! Tests of the catalog.

use std::path::PathBuf;

use cap_std::fs::Dir;
use leasehold_authority::Options;
use leasehold_parts::skipped;
use leasehold_runtime::Settings;

use super::*;

fn component() -> Option<Bytes> {
    let folder = std::env::var_os("LEASEHOLD_COMPONENTS").map_or_else(
        || {
            let test = std::env::current_exe().unwrap();
            test.ancestors().nth(3).unwrap().join("components")
        },
        PathBuf::from,
    );
    std::fs::read(folder.join("null.wasm"))
        .ok()
        .map(Bytes::from)
}

#[tokio::test]
async fn a_component_that_was_inspected_is_installed_without_being_asked_again() {
    let Some(bytes) = component() else {
        skipped("`cargo xtask components`");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let authority = Authority::open(Options {
        database: data.join("leasehold.db"),
        data_dir: Dir::open_ambient_dir(&data, cap_std::ambient_authority()).unwrap(),
        master_key: folder.path().join("keys/master.key"),
        replica: "main".to_owned(),
    })
    .await
    .unwrap();
    let runtime = Runtime::new(Settings::default()).unwrap();
    let plugins = crate::settings::PluginSettings::default();
    let catalog = Catalog::new(
        authority,
        runtime.clone(),
        plugins.ceiling(),
        plugins.breaker,
        TaskTracker::new(),
    );
    let offer = catalog
        .inspect(bytes.clone(), Source::default())
        .await
        .unwrap();
    assert_eq!(runtime.stats().calls.ok, 1);
    let operator = Actor::local_operator();
    let grant = || {
        Some(GrantRequest {
            request_digest: offer.request_digest.clone(),
            without: Vec::new(),
        })
    };
    let installed = catalog
        .install(&operator, bytes.clone(), Source::default(), grant())
        .await
        .unwrap();
    assert_eq!(
        (installed.key.as_str(), runtime.stats().calls.ok),
        ("null", 1)
    );
    // Once: what is installed again without another look is asked again.
    catalog
        .install(&operator, bytes, Source::default(), grant())
        .await
        .unwrap();
    assert_eq!(runtime.stats().calls.ok, 2);
}
