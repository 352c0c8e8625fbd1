//! The provider that takes the shape that a test gives it: its manifest stands in one place of the component, as JSON after
//! a mark, and a test writes another there.
//!
//! It leases nothing and reaches nothing.

use leasehold_provider::*;
use serde::{Deserialize, Serialize};

/// Bytes of the place, mark and all.
const LENGTH: usize = 4096;

/// The place. A test finds it by the mark and overwrites what comes after, up to the length; spaces mean nothing.
static SHAPE: [u8; LENGTH] = padded(b"LEASEHOLD-SHAPE:{}");

/// What the mark says.
const MARK: usize = "LEASEHOLD-SHAPE:".len();

const fn padded(text: &[u8]) -> [u8; LENGTH] {
    let mut all = [b' '; LENGTH];
    let mut at = 0;
    while at < text.len() {
        all[at] = text[at];
        at += 1;
    }
    all
}

/// What a test can say; everything may be left out.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
struct Shape {
    version: Option<String>,
    origins: Vec<String>,
    ssh: bool,
    streams: bool,
    /// Leased to one at a time.
    exclusive_target: bool,
    /// `plugin`; without: `sandbox`.
    driver: Option<String>,
    memory_mib: Option<u32>,
    cpu: Option<u32>,
    exchanges: Option<u32>,
    body_mib: Option<u32>,
    /// JSON Schema of the configuration.
    schema: Option<Value>,
    /// Pointer, header, template, destination.
    credentials: Vec<(String, String, String, String)>,
    /// Endpoint, method, path, pointer into the answer; shown as a bearer's token at the endpoint.
    mints: Vec<(String, String, String, String)>,
    /// Endpoint, method, path, of role `act`.
    operations: Vec<(String, String, String)>,
    /// Endpoint, path: the check of `owned`.
    checks: Vec<(String, String)>,
    /// Field.
    image: Option<String>,
    /// The export that panics.
    traps: Option<String>,
}

fn shape() -> Shape {
    // Read at run time, whatever the compiler knows about what stood there when it was built.
    let place = std::hint::black_box(&SHAPE);
    let text = place.get(MARK..).unwrap_or_default();
    match serde_json::from_slice(text) {
        Ok(shape) => shape,
        Err(error) => panic!("the shape is not one: {error}"),
    }
}

fn trap(export: &str) {
    if shape().traps.as_deref() == Some(export) {
        panic!("this shape panics in {export}");
    }
}

pub struct Shaped;

#[derive(Deserialize)]
pub struct Config {}

#[derive(Serialize, Deserialize)]
pub struct Handle {}

impl Provider for Shaped {
    type Config = Config;
    type Handle = Handle;

    fn describe() -> Manifest {
        trap("describe");
        let shape = shape();
        let mut made = manifest("shape", shape.version.as_deref().unwrap_or("1.0.0"))
            .title("Shape")
            .summary("Leases nothing, in whatever shape a test gives it.")
            .schema(shape.schema.unwrap_or_else(|| json!({ "type": "object" })))
            .limits(Limits {
                memory_mib: shape.memory_mib.unwrap_or(16),
                cpu: shape.cpu.unwrap_or(1000),
                exchanges: shape.exchanges.unwrap_or(8),
                body_mib: shape.body_mib.unwrap_or(1),
            })
            .acquire_timeout(5_000);
        for origin in &shape.origins {
            made = made.origin(origin);
        }
        if shape.ssh {
            made = made.ssh();
        }
        if shape.streams {
            made = made.streams();
        }
        if shape.exclusive_target {
            made = made.features(Features::EXCLUSIVE_TARGET);
        }
        if shape.driver.as_deref() == Some("plugin") {
            made = made.driver(Driver::Plugin);
        }
        for (endpoint, method, path, pointer) in &shape.mints {
            made = made.mint(Mint {
                endpoint: endpoint.clone(),
                method: method.clone(),
                path: path.clone(),
                pointers: vec![pointer.clone()],
                sites: vec![header("authorization", "Bearer {}")],
                to: vec![endpoint.clone()],
            });
        }
        for (pointer, name, template, to) in &shape.credentials {
            made = made.credential(pointer, [header(name, template)], [to.as_str()]);
        }
        for (endpoint, method, path) in &shape.operations {
            made = made.operation(endpoint, method, path, act());
        }
        for (endpoint, path) in &shape.checks {
            made = made.check(check(Claim::Owned, endpoint, path).expect(owner_label("/labels")));
        }
        if let Some(field) = &shape.image {
            made = made.image(ImageKind::Opaque, field, &[], &[]);
        }
        made.build()
    }

    fn probe(_: Call<Config>) -> Result<Vec<Finding>> {
        trap("probe");
        Ok(vec![info("reach", "there is nothing to reach")])
    }

    fn acquire(c: Call<Config>, _ttl: Option<u32>) -> Result<Acquired<Handle>> {
        trap("acquire");
        Ok(acquired(c.acquisition()?, Handle {}, "/"))
    }

    fn inspect(_: Call<Config>, _: Handle) -> Result<Observation> {
        trap("inspect");
        Ok(observation(Condition::Ready))
    }

    fn release(_: Call<Config>, _: Handle) -> Result<()> {
        trap("release");
        Ok(())
    }

    fn list(_: Call<Config>, _: Query) -> Result<Page<Handle>> {
        trap("list");
        Ok(Page::from_iter([]))
    }
}
