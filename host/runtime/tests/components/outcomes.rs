//! Each misdeed in each place ends in its typed outcome, and the next call of the same plugin, and of
//! another, is served.

use std::sync::Arc;
use std::time::Duration;

use leasehold_contract::{Code, Condition, Driver, Level, ProcessEvent, Query, Severity, Size};
use leasehold_runtime::{CallSetup, Failure, Limit, Plugin, TrapCode};

use crate::guests::guest;
use crate::support::{HOUR, Listener, Opener, at, command, plugin, reaching, runtime, setup};

/// Calls one export by its name in the contract.
async fn call(
    plugin: &Plugin,
    setup: &CallSetup,
    export: &str,
    config: &str,
) -> Result<(), Failure> {
    let (handle, reference) = ("{}", "{}");
    match export {
        "check-config" => plugin.check_config(setup, config).await.map(drop),
        "probe" => plugin.probe(setup, config).await.map(drop),
        "acquire" => plugin.acquire(setup, config, Some(60)).await.map(drop),
        "keep-alive" => plugin
            .keep_alive(setup, config, handle, None)
            .await
            .map(drop),
        "inspect" => plugin.inspect(setup, config, handle).await.map(drop),
        "release" => plugin.release(setup, config, handle).await,
        "list" => plugin
            .list(setup, config, &Query::default())
            .await
            .map(drop),
        "start" => plugin
            .start(setup, config, handle, &command())
            .await
            .map(drop),
        "attach" => plugin
            .attach(setup, config, handle, reference, 0, 0)
            .await
            .map(drop),
        "state-of" => plugin
            .state_of(setup, config, handle, "c-1", Some(reference))
            .await
            .map(drop),
        "signal" => {
            plugin
                .signal(setup, config, handle, reference, "TERM")
                .await
        }
        "resize" => {
            let size = Size { cols: 80, rows: 24 };
            plugin.resize(setup, config, handle, reference, size).await
        }
        "put" => {
            let archive = Box::pin(&b""[..]);
            plugin.put(setup, config, handle, "/x", archive).await
        }
        "get" => plugin.get(setup, config, handle, "/x").await.map(drop),
        "suspend" => plugin.suspend(setup, config, handle).await.map(drop),
        "resume" => plugin.resume(setup, config, handle).await.map(drop),
        other => panic!("no export {other}"),
    }
}

const EXPORTS: [&str; 16] = [
    "check-config",
    "probe",
    "acquire",
    "keep-alive",
    "inspect",
    "release",
    "list",
    "start",
    "attach",
    "state-of",
    "signal",
    "resize",
    "put",
    "get",
    "suspend",
    "resume",
];

/// The plugin still answers where it does not misbehave.
async fn serves(plugin: &Plugin) {
    let observed = plugin
        .inspect(&setup(HOUR), &at("nowhere"), "{}")
        .await
        .unwrap();
    assert_eq!(observed.condition, Condition::Ready);
}

#[tokio::test]
async fn the_null_provider_answers_every_function_that_it_exports() {
    let runtime = runtime(|_| {});
    let prepared = runtime.prepare(guest!("null")).await.unwrap();
    assert_eq!(prepared.manifest.key, "null");
    assert_eq!(prepared.manifest.driver, Driver::Sandbox);
    assert!(prepared.capabilities.names().is_empty());
    let plugin = prepared.plugin;
    let setup = setup(HOUR);

    let acquired = plugin.acquire(&setup, "{}", None).await.unwrap();
    assert_eq!(acquired.resource, "a-1");
    assert_eq!(plugin.check_config(&setup, "{}").await.unwrap(), "{}");
    assert_eq!(plugin.probe(&setup, "{}").await.unwrap().len(), 1);
    assert!(
        plugin
            .list(&setup, "{}", &Query::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    plugin
        .release(&setup, "{}", &acquired.handle)
        .await
        .unwrap();
    let refused = plugin
        .start(&setup, "{}", "{}", &command())
        .await
        .unwrap_err();
    let Failure::Provider(error) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(error.code, Code::Unsupported);
    assert_eq!(runtime.stats().calls.ok, 6, "describe counts");
}

#[tokio::test]
async fn a_started_process_outlives_the_instance_that_started_it() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-bench-start")).await;
    let egress = Opener::after(Duration::ZERO);
    let setup = reaching(egress, HOUR);
    let mut started = plugin.start(&setup, "{}", "{}", &command()).await.unwrap();
    drop(plugin);
    drop(runtime);
    let first = started.process.output.next().await;
    assert_eq!(first, Some(ProcessEvent::Stdout("uname -a".into())));
}

#[tokio::test]
async fn a_trap_in_any_export_carries_the_panic_message_and_the_next_call_is_served() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-trap-everywhere")).await;
    for export in EXPORTS {
        let failure = call(&plugin, &setup(HOUR), export, &at(export))
            .await
            .unwrap_err();
        let Failure::Trap { code, message } = &failure else {
            panic!("{export}: {failure:?}");
        };
        assert_eq!(*code, TrapCode::Unreachable, "{export}");
        assert!(
            message.contains(&format!("panics in {export}")),
            "{export}: {message}"
        );
        serves(&plugin).await;
    }
    let stats = plugin.stats();
    assert_eq!(stats.calls.trap, 16);
    assert_eq!(stats.calls.ok, 16);
    assert_eq!(stats.in_flight, 0);
}

#[tokio::test]
async fn what_a_panic_says_is_redacted() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-trap-everywhere")).await;
    let setup = CallSetup {
        redactor: Arc::new(|text: &str| text.replace("this provider", "[redacted]")),
        ..setup(HOUR)
    };
    let failure = call(&plugin, &setup, "probe", &at("probe"))
        .await
        .unwrap_err();
    let text = failure.to_string();
    assert!(text.contains("[redacted] panics"), "{text}");
    assert!(!text.contains("this provider"), "{text}");
}

#[tokio::test]
async fn deep_recursion_is_a_stack_overflow_of_the_component_alone() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-deep-recursion")).await;
    let failure = call(&plugin, &setup(HOUR), "probe", &at("probe"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Trap {
                code: TrapCode::StackOverflow,
                ..
            }
        ),
        "{failure:?}"
    );
    serves(&plugin).await;
}

#[tokio::test]
async fn memory_without_end_is_a_memory_limit() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-memory-one")).await;
    let failure = call(&plugin, &setup(HOUR), "acquire", &at("acquire"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Limit {
                which: Limit::Memory,
                ..
            }
        ),
        "{failure:?}"
    );
    let most = u64::from(plugin.manifest().request.limits.memory_mib) << 20;
    assert!(plugin.stats().memory_peak <= most);
    serves(&plugin).await;
}

#[tokio::test]
async fn strings_and_lists_too_large_to_copy_are_a_limit_and_never_reach_the_host() {
    let runtime = runtime(|settings| settings.ceilings.memory_mib = 1024);
    for name in ["hostile-huge-strings", "hostile-huge-lists"] {
        let plugin = plugin(&runtime, guest!(name)).await;
        for export in ["probe", "acquire", "inspect", "list"] {
            let listener = Arc::new(Listener::default());
            let setup = CallSetup {
                host: Arc::<Listener>::clone(&listener),
                ..setup(HOUR)
            };
            let failure = call(&plugin, &setup, export, &at(export))
                .await
                .unwrap_err();
            assert!(
                matches!(
                    failure,
                    Failure::Limit {
                        which: Limit::CopiedBytes | Limit::Memory,
                        ..
                    }
                ),
                "{name} {export}: {failure:?}"
            );
            assert!(listener.lines.lock().unwrap().is_empty());
            serves(&plugin).await;
        }
    }
    assert!(runtime.stats().calls.limit >= 8);
}

#[tokio::test]
async fn a_host_call_that_copies_more_than_is_allowed_is_the_copy_limit() {
    let runtime = runtime(|settings| settings.copied_bytes = 2000);
    let bytes = guest!("hostile-endless-log");
    let manifest = self::runtime(|_| {}).prepare(bytes.clone()).await.unwrap();
    let limits = manifest.manifest.request.limits;
    let plugin = runtime
        .load(manifest.digest, manifest.manifest, limits, || async {
            Ok(bytes)
        })
        .await
        .unwrap();
    let failure = call(&plugin, &setup(HOUR), "inspect", &at("inspect"))
        .await
        .unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Limit {
                which: Limit::CopiedBytes,
                ..
            }
        ),
        "{failure:?}"
    );
    serves(&plugin).await;
}

#[tokio::test]
async fn a_log_without_end_is_cut_off_and_ends_at_the_cpu_limit() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-endless-log")).await;
    let listener = Arc::new(Listener::default());
    let setup = CallSetup {
        host: Arc::<Listener>::clone(&listener),
        ..setup(HOUR)
    };
    let failure = call(&plugin, &setup, "probe", &at("probe"))
        .await
        .unwrap_err();
    let Failure::Limit {
        which: Limit::Cpu,
        message,
    } = &failure
    else {
        panic!("{failure:?}");
    };
    assert!(message.len() <= (4 << 10) + '…'.len_utf8());
    let lines = listener.lines.lock().unwrap().clone();
    assert_eq!(lines.len(), 1001);
    assert_eq!(lines[1000].0, Level::Warn);
    serves(&plugin).await;
}

#[tokio::test]
async fn a_handle_of_one_mebibyte_is_an_answer_that_breaks_the_contract() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-huge-handle")).await;
    let failure = call(&plugin, &setup(HOUR), "acquire", "{}")
        .await
        .unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Answer {
                field: "acquire.handle",
                ..
            }
        ),
        "{failure:?}"
    );
    assert!(failure.reached_component());
    serves(&plugin).await;
}

#[tokio::test]
async fn arguments_against_the_contract_never_reach_a_component() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-endless-loop")).await;
    let setup = setup(HOUR);
    let handle = "x".repeat((16 << 10) + 1);
    let failure = plugin.inspect(&setup, "{}", &handle).await.unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Argument {
                field: "handle",
                ..
            }
        ),
        "{failure:?}"
    );
    let config = "x".repeat((1 << 20) + 1);
    let failure = plugin.probe(&setup, &config).await.unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Argument {
                field: "config",
                ..
            }
        ),
        "{failure:?}"
    );
    let failure = plugin
        .signal(&setup, "{}", "{}", "{}", "SIG TERM")
        .await
        .unwrap_err();
    assert!(
        matches!(
            failure,
            Failure::Argument {
                field: "signal",
                ..
            }
        ),
        "{failure:?}"
    );
    assert!(!failure.reached_component());
}

#[tokio::test]
async fn a_target_that_egress_refuses_is_a_value_for_the_component() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-stray-target")).await;
    let failure = call(&plugin, &setup(HOUR), "probe", &at("probe"))
        .await
        .unwrap_err();
    let Failure::Provider(error) = failure else {
        panic!("{failure:?}");
    };
    assert_eq!(error.code, Code::PermissionDenied);
}

#[tokio::test]
async fn check_config_reaches_nothing_whatever_egress_it_is_given() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-stray-target")).await;
    let egress = Opener::after(Duration::ZERO);
    let setup = reaching(Arc::<Opener>::clone(&egress), HOUR);
    let failure = call(&plugin, &setup, "check-config", &at("check-config"))
        .await
        .unwrap_err();
    let Failure::Provider(error) = failure else {
        panic!("{failure:?}");
    };
    assert_eq!(error.code, Code::PermissionDenied);
    assert_eq!(egress.opened.load(std::sync::atomic::Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_component_sees_no_environment_no_arguments_no_files_and_no_network() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-environment-peeker")).await;
    let findings = plugin.probe(&setup(HOUR), &at("nowhere")).await.unwrap();
    assert_eq!(findings.len(), 8);
    for finding in findings {
        assert_eq!(finding.severity, Severity::Info, "{finding:?}");
    }
}
