//! The sample components that these tests run, as `cargo xtask components` builds them.

use std::path::PathBuf;

use bytes::Bytes;

/// Where the components are: `LEASEHOLD_COMPONENTS`, or beside this test's own build.
fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("LEASEHOLD_COMPONENTS") {
        return folder.into();
    }
    let test = std::env::current_exe().unwrap();
    let target = test.ancestors().nth(3).unwrap();
    target.join("components")
}

/// The bytes of a component, or none with the word that says what is missing.
pub fn bytes(name: &str) -> Option<Bytes> {
    let path = folder().join(format!("{name}.wasm"));
    match std::fs::read(&path) {
        Ok(bytes) => Some(bytes.into()),
        Err(error) => {
            println!(
                "skipped: needs `cargo xtask components` ({}: {error})",
                path.display()
            );
            assert!(
                std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none_or(|v| v != "1"),
                "{name}.wasm is not built"
            );
            None
        }
    }
}

/// The bytes of a component; ends the test where it is not built.
macro_rules! guest {
    ($name:expr) => {
        match $crate::guests::bytes($name) {
            Some(bytes) => bytes,
            None => return,
        }
    };
}
pub(crate) use guest;

/// The component with one more core module in it, which is instantiated with it: its start function
/// runs in every instance before any export can be called.
pub fn with_module(component: &Bytes, module: &str) -> Bytes {
    let module = wat::parse_str(module).unwrap();
    let mut depth = 0;
    let mut modules = 0u32;
    for payload in wasmparser::Parser::new(0).parse_all(component) {
        match payload.unwrap() {
            wasmparser::Payload::ModuleSection { .. } => {
                if depth == 0 {
                    modules += 1;
                }
                depth += 1;
            }
            wasmparser::Payload::ComponentSection { .. } => depth += 1,
            wasmparser::Payload::End(_) => depth -= 1,
            _ => {}
        }
    }
    let mut bytes = component.to_vec();
    bytes.push(1);
    leb(&mut bytes, module.len());
    bytes.extend(module);
    let mut instance = vec![1, 0];
    leb(&mut instance, modules as usize);
    instance.push(0);
    bytes.push(2);
    leb(&mut bytes, instance.len());
    bytes.extend(instance);
    bytes.into()
}

fn leb(bytes: &mut Vec<u8>, mut value: usize) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            return bytes.push(low);
        }
        bytes.push(low | 0x80);
    }
}
