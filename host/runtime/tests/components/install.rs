//! What is taken and what is refused, each with the word that mends it.

use bytes::Bytes;
use leasehold_runtime::{Failure, InstallError, Limit};

use crate::guests::{guest, with_module};
use crate::support::runtime;

async fn refused(bytes: Bytes) -> InstallError {
    runtime(|_| {}).prepare(bytes).await.unwrap_err()
}

#[tokio::test]
async fn a_foreign_import_is_refused_by_its_name() {
    let error = refused(guest!("hostile-foreign-import")).await;
    let InstallError::Incompatible(misfit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(misfit.import, "acme:drill/bit@1.0.0");
    assert_eq!(misfit.wanted, "version 1.0.0");
    assert!(error.to_string().contains("acme:drill/bit@1.0.0"));
}

#[tokio::test]
async fn what_is_no_component_is_refused_in_one_sentence() {
    let core = wat::parse_str("(module)").unwrap();
    let error = refused(core.into()).await;
    assert!(
        matches!(&error, InstallError::Unsound(why) if why.contains("wasm32-wasip2")),
        "{error}"
    );
    for garbage in [&b""[..], b"\0asm", b"not wasm at all", &[0; 4096]] {
        let error = refused(Bytes::copy_from_slice(garbage)).await;
        assert!(matches!(error, InstallError::Unsound(_)), "{error}");
    }
}

#[tokio::test]
async fn a_component_cut_off_anywhere_is_refused_and_never_a_panic() {
    let whole = guest!("null");
    let runtime = runtime(|_| {});
    for part in 1..16 {
        let cut = whole.slice(..whole.len() * part / 16);
        let error = runtime.prepare(cut).await.unwrap_err();
        assert!(
            matches!(
                error,
                InstallError::Unsound(_) | InstallError::Incompatible(_)
            ),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_component_without_lifecycle_is_refused() {
    let empty = wat::parse_str("(component)").unwrap();
    let error = refused(empty.into()).await;
    let InstallError::Incompatible(misfit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(misfit.import, "leasehold:provider/lifecycle");
}

#[tokio::test]
async fn async_built_ins_are_refused_with_the_flag_that_turns_them_off() {
    let component = wat::parse_str("(component (core func (canon task.cancel)))").unwrap();
    let error = refused(component.into()).await;
    let InstallError::Incompatible(misfit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(misfit.import, "task.cancel");
    assert!(error.to_string().contains("--backend-qjs-disable-async"));
}

#[tokio::test]
async fn javascript_that_was_built_with_async_is_refused_with_the_flags_of_both_tools() {
    let error = refused(guest!("cabin-js-async")).await;
    let InstallError::Incompatible(misfit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(misfit.wanted, "the component model's async");
    let told = error.to_string();
    for flag in ["componentize-qjs --sync", "--backend-qjs-disable-async"] {
        assert!(told.contains(flag), "{flag}: {told}");
    }
}

#[tokio::test]
async fn each_language_is_taken_with_what_its_engine_imports_and_asks_for_the_same() {
    let mut asked = Vec::new();
    for name in ["cabin", "cabin-js", "cabin-py"] {
        let prepared = runtime(|_| {}).prepare(guest!(name)).await.unwrap();
        assert_eq!(prepared.capabilities.names(), ["execution"], "{name}");
        let imports = |name: &str| {
            prepared
                .imports
                .iter()
                .any(|import| import.starts_with(name))
        };
        // What an engine might reach for is there and empty; what the provider reaches for is ours.
        assert!(
            imports("leasehold:provider/http"),
            "{name}: {:?}",
            prepared.imports
        );
        for of_engines in ["wasi:filesystem/preopens", "wasi:clocks/wall-clock"] {
            assert_eq!(imports(of_engines), name != "cabin", "{name} {of_engines}");
        }
        let mut manifest = (*prepared.manifest).clone();
        assert_eq!(std::mem::take(&mut manifest.key), name);
        manifest.title.clear();
        asked.push((name, manifest));
    }
    for (name, manifest) in &asked[1..] {
        assert_eq!(*manifest, asked[0].1, "{name} and Rust");
    }
}

#[tokio::test]
async fn an_import_of_ours_with_other_types_is_refused_with_the_whole_cause() {
    let component = wat::parse_str(
        r#"(component
             (import "leasehold:provider/host@0.1.0" (instance (export "remaining" (func (result string)))))
             (instance $lifecycle)
             (export "leasehold:provider/lifecycle@0.1.0" (instance $lifecycle)))"#,
    )
    .unwrap();
    let error = refused(component.into()).await;
    let InstallError::Incompatible(misfit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(misfit.import, "leasehold:provider/host@0.1.0");
    // From the outermost to what is wrong: the function, what the component has there, and what the host has.
    let told = error.to_string();
    for words in [
        "matching implementation was not found",
        "`remaining`",
        "`string`",
        "`u32`",
    ] {
        assert!(told.contains(words), "{words}: {told}");
    }
    assert!(misfit.causes.len() >= 3, "{:?}", misfit.causes);
}

#[tokio::test]
async fn an_export_of_ours_without_a_function_is_refused_with_its_name() {
    let component = wat::parse_str(
        r#"(component
             (instance $lifecycle)
             (export "leasehold:provider/lifecycle@0.1.0" (instance $lifecycle)))"#,
    )
    .unwrap();
    let error = refused(component.into()).await;
    let InstallError::Incompatible(misfit) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(misfit.import, "leasehold:provider/lifecycle@0.1.0");
    assert!(error.to_string().contains("describe"), "{error}");
}

#[tokio::test]
async fn a_component_over_the_size_limit_is_not_looked_at() {
    let runtime = runtime(|settings| settings.component_bytes = 1000);
    let error = runtime.prepare(vec![0; 1001].into()).await.unwrap_err();
    assert!(
        matches!(
            error,
            InstallError::TooLarge {
                size: 1001,
                limit: 1000
            }
        ),
        "{error:?}"
    );
}

#[tokio::test]
async fn growth_in_many_memories_is_summed() {
    // None of them may become larger than 20 MiB, and all together may be more than any call may have.
    let memories: String = (0..16).map(|n| format!("(memory $m{n} 1 320)")).collect();
    let grows: String = (0..16)
        .map(|n| format!("(br_if $out (i32.eq (memory.grow $m{n} (i32.const 11)) (i32.const -1)))"))
        .collect();
    let module = format!(
        "(module {memories} (func $f (block $out (loop $again {grows} (br $again))) unreachable) (start $f))"
    );
    let runtime = runtime(|_| {});
    let error = runtime
        .prepare(with_module(&guest!("null"), &module))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            InstallError::Describe(Failure::Limit {
                which: Limit::Memory,
                ..
            })
        ),
        "{error:?}"
    );
    let peak = runtime.stats().memory_peak;
    assert!(peak > 200 << 20 && peak <= 256 << 20, "{peak}");
}

#[tokio::test]
async fn growth_of_tables_is_summed() {
    let module = "(module (table $t 1 funcref) (func $f (block $out (loop $again \
        (br_if $out (i32.eq (table.grow $t (ref.null func) (i32.const 1000)) (i32.const -1))) (br $again))) \
        unreachable) (start $f))";
    let error = refused(with_module(&guest!("null"), module)).await;
    let InstallError::Describe(Failure::Limit {
        which: Limit::Tables,
        ..
    }) = &error
    else {
        panic!("{error:?}");
    };
}

#[tokio::test]
async fn more_memory_or_memories_than_any_call_may_have_are_refused_at_install() {
    let null = guest!("null");
    let many: String = (0..40).map(|_| "(memory 1)").collect();
    for module in [
        format!("(module {many})"),
        "(module (memory 16384))".to_owned(),
    ] {
        let error = refused(with_module(&null, &module)).await;
        assert!(matches!(error, InstallError::Demanding(_)), "{error:?}");
    }
}

#[tokio::test]
async fn a_failed_growth_that_was_never_asked_about_does_not_lower_the_count() {
    // A memory with a maximum: growing past it fails in the engine. After each success such a failure
    // follows; were it taken back, the sum would never rise.
    let module = "(module (memory $small 1 2) (memory $big 1) (func $f (block $out (loop $again \
        (br_if $out (i32.eq (memory.grow $big (i32.const 16)) (i32.const -1))) \
        (drop (memory.grow $small (i32.const 100000))) (br $again))) unreachable) (start $f))";
    let error = refused(with_module(&guest!("null"), module)).await;
    let InstallError::Describe(Failure::Limit {
        which: Limit::Memory,
        ..
    }) = &error
    else {
        panic!("{error:?}");
    };
}

#[tokio::test]
async fn a_manifest_beyond_the_hosts_ceilings_is_refused_with_both_numbers() {
    let runtime = runtime(|settings| settings.ceilings.memory_mib = 8);
    let error = runtime.prepare(guest!("null")).await.unwrap_err();
    let InstallError::Manifest(violations) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(violations[0].pointer, "/request/limits/memory-mib");
    assert!(
        error.to_string().contains("16 MiB") && error.to_string().contains('8'),
        "{error}"
    );
}

#[tokio::test]
async fn several_installs_at_once_all_end() {
    let runtime = runtime(|settings| settings.compilations = 1);
    let bytes = guest!("null");
    let all: Vec<_> = (0..4)
        .map(|_| {
            let (runtime, bytes) = (runtime.clone(), bytes.clone());
            tokio::spawn(async move { runtime.prepare(bytes).await })
        })
        .collect();
    let mut digests = Vec::new();
    for each in all {
        digests.push(each.await.unwrap().unwrap().digest_hex());
    }
    digests.dedup();
    assert_eq!(digests.len(), 1);
}
