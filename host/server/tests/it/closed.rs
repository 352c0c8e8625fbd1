//! Environments that all companies see and that one of them alone can lease: nobody else is offered them, and nobody else is
//! kept from anything by them.

use serde_json::{Value, json};

use crate::selection::{House, lack, names, pair};

#[test]
fn a_shared_environment_with_another_companys_secret_is_no_candidate_and_keeps_no_other_from_being_leased()
 {
    let Some(house) = House::new() else {
        return;
    };
    let rival = house.server.company("rival");
    let value = json!({ "name": "key", "value": "v" });
    let secret = house.post(&house.path("secrets"), &value).json();
    let reference = json!({ "type": "secret_ref", "secretId": secret["id"], "version": "latest" });
    house.environment(
        "a shared one",
        &json!({ "companyId": null, "envVars": { "KEY": reference } }),
    );
    let own = json!({ "name": "their own", "driver": "sandbox", "provider": "null" });
    let theirs = format!("/api/companies/{rival}");
    let made = house.post(&format!("{theirs}/environments"), &own);
    assert_eq!(made.status, 201, "{}", made.body);
    let all = house.post(&format!("{theirs}/environments/select"), &json!({}));
    let all = all.json();
    assert_eq!(names(&all, "candidates"), ["their own"], "{all}");
    assert_eq!(
        lack(&all, "a shared one"),
        [pair("lifecycle", "configuration")]
    );
    let mine = house.select(&json!({}));
    assert_eq!(names(&mine, "candidates"), ["a shared one"], "{mine}");
    // By the command, where the company has to be named.
    let out = house
        .server
        .home
        .leasehold()
        .args([
            "--json",
            "lease",
            "acquire",
            "-C",
            "rival",
            "--require",
            "lifecycle",
        ])
        .output()
        .unwrap();
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    let leased: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!(leased["lease"]["companyId"], rival, "{leased}");
    assert_eq!(leased["lease"]["environmentId"], made.json()["id"]);
}
