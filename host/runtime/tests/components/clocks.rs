//! The two clocks of a call, and that one call's computing does not stop anything else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use leasehold_runtime::{Failure, InstallError, Limit, Outcome, Phase};
use sha2::{Digest, Sha256};

use crate::guests::{guest, with_module};
use crate::support::{HOUR, Opener, at, command, plugin, reaching, runtime, setup};

/// A time that ran out while nobody was asked.
fn timeout_in(phase: Phase) -> Failure {
    Failure::Timeout {
        phase,
        waits_for: None,
    }
}

#[tokio::test]
async fn an_endless_loop_ends_at_its_cpu_limit_and_the_plugin_serves_on() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-endless-loop")).await;
    for export in ["probe", "check-config", "release"] {
        let failure = match export {
            "probe" => plugin.probe(&setup(HOUR), &at(export)).await.map(drop),
            "release" => plugin.release(&setup(HOUR), &at(export), "{}").await,
            _ => plugin
                .check_config(&setup(HOUR), &at(export))
                .await
                .map(drop),
        }
        .unwrap_err();
        assert!(
            matches!(
                failure,
                Failure::Limit {
                    which: Limit::Cpu,
                    ..
                }
            ),
            "{failure:?}"
        );
        plugin
            .inspect(&setup(HOUR), &at("nowhere"), "{}")
            .await
            .unwrap();
    }
    let budget = Duration::from_millis(plugin.manifest().request.limits.cpu.into());
    assert!(plugin.stats().cpu_time >= budget * 3);
}

/// Between two beats the thread computes for less than 50 ms: measured in its own CPU time, so that a
/// busy machine does not matter, and of 95 beats in 100, because on one the clock's own thread comes late.
/// The one thread runs everything: components, beats and timers.
#[tokio::test(flavor = "current_thread")]
async fn on_one_thread_endless_loops_leave_room_for_everything_else() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-endless-loop")).await;
    let done = Arc::new(AtomicBool::new(false));
    let heart = tokio::spawn({
        let done = Arc::clone(&done);
        async move {
            let mut beats = 0;
            while !done.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(1)).await;
                beats += 1;
            }
            beats
        }
    });
    let (setup, config) = (setup(HOUR), at("probe"));
    let (a, b, c) = tokio::join!(
        plugin.probe(&setup, &config),
        plugin.probe(&setup, &config),
        plugin.probe(&setup, &config),
    );
    for result in [a, b, c] {
        assert!(
            matches!(
                result,
                Err(Failure::Limit {
                    which: Limit::Cpu,
                    ..
                })
            ),
            "{result:?}"
        );
    }
    done.store(true, Ordering::Relaxed);
    // The loops burn a second and a half of this thread's CPU between them: that many beats are one in forty
    // milliseconds of it, however busy the machine is.
    let beats = heart.await.unwrap();
    assert!(beats >= 40, "{beats} beats");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_endless_loops_than_threads_leave_another_plugin_served() {
    let runtime = runtime(|_| {});
    let looping = plugin(&runtime, guest!("hostile-endless-loop")).await;
    let quick = plugin(&runtime, guest!("null")).await;
    let loops: Vec<_> = (0..8)
        .map(|_| {
            let looping = looping.clone();
            tokio::spawn(async move { looping.probe(&setup(HOUR), &at("probe")).await })
        })
        .collect();
    let mut served = 0;
    while loops.iter().any(|l| !l.is_finished()) {
        quick.inspect(&setup(HOUR), "{}", "{}").await.unwrap();
        served += 1;
        tokio::task::yield_now().await;
    }
    assert!(served >= 100, "{served}");
    for each in loops {
        let result = each.await.unwrap();
        assert!(
            matches!(
                result,
                Err(Failure::Limit {
                    which: Limit::Cpu,
                    ..
                })
            ),
            "{result:?}"
        );
    }
}

#[tokio::test]
async fn an_endless_wait_ends_at_the_wall_deadline_in_phase_call() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-endless-wait")).await;
    let failure = plugin
        .probe(&setup(Duration::from_millis(200)), &at("probe"))
        .await
        .unwrap_err();
    assert_eq!(failure, timeout_in(Phase::Call));
    assert!(failure.reached_component());
    plugin
        .inspect(&setup(HOUR), &at("nowhere"), "{}")
        .await
        .unwrap();
}

#[tokio::test]
async fn an_endless_loop_also_ends_at_the_wall_deadline_where_that_is_earlier() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-endless-loop")).await;
    let failure = plugin
        .probe(&setup(Duration::from_millis(60)), &at("probe"))
        .await
        .unwrap_err();
    assert_eq!(failure, timeout_in(Phase::Call));
}

#[tokio::test]
async fn who_watches_is_told_whether_a_call_that_ran_out_of_time_had_gone_out() {
    let runtime = runtime(|_| {});
    for (name, goes_out) in [
        ("hostile-endless-wait", false),
        ("hostile-stray-target", true),
    ] {
        let plugin = plugin(&runtime, guest!(name)).await;
        let heard: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
        let told = Arc::clone(&heard);
        let mut setup = reaching(Opener::after(HOUR), Duration::from_millis(200));
        setup.watch = Some(Arc::new(move |outcome: Outcome<'_>| {
            let kind = outcome.result.err().map_or("ok", Failure::kind);
            told.lock()
                .unwrap()
                .push((kind.to_owned(), outcome.went_out));
        }));
        plugin.probe(&setup, &at("probe")).await.unwrap_err();
        assert_eq!(
            *heard.lock().unwrap(),
            [("timeout".to_owned(), goes_out)],
            "{name}"
        );
    }
}

#[tokio::test]
async fn time_parked_in_the_host_is_not_cpu_time() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-bench-start")).await;
    let budget = Duration::from_millis(plugin.manifest().request.limits.cpu.into());
    let waits = budget + Duration::from_millis(200);
    let began = Instant::now();
    plugin
        .start(
            &reaching(Opener::after(waits), HOUR),
            "{}",
            "{}",
            &command(),
        )
        .await
        .unwrap();
    assert!(began.elapsed() >= waits);
    assert!(plugin.stats().cpu_time < budget / 2);
}

#[tokio::test]
async fn a_component_that_computes_before_any_export_is_called_is_stopped_at_install() {
    let runtime = runtime(|settings| settings.ceilings.cpu = Duration::from_millis(200));
    let refused = runtime
        .prepare(spinning(&guest!("null")))
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            InstallError::Describe(Failure::Limit {
                which: Limit::Cpu,
                ..
            })
        ),
        "{refused:?}"
    );
}

#[tokio::test]
async fn a_deadline_that_passes_while_the_instance_is_made_is_told_as_phase_instantiate() {
    let runtime = runtime(|_| {});
    let null = guest!("null");
    let mut manifest = (*runtime.prepare(null.clone()).await.unwrap().manifest).clone();
    manifest.request.limits.cpu = 10_000;
    let bytes = spinning(&null);
    let digest = Sha256::digest(&bytes).into();
    let limits = manifest.request.limits;
    let load = runtime.load(digest, Arc::new(manifest), limits, || async { Ok(bytes) });
    let plugin = load.await.unwrap();
    let failure = plugin
        .acquire(&setup(Duration::from_millis(60)), "{}", None)
        .await
        .unwrap_err();
    assert_eq!(failure, timeout_in(Phase::Instantiate));
    assert!(!failure.reached_component());
}

/// The component with a start function that never ends.
fn spinning(component: &Bytes) -> Bytes {
    with_module(component, "(module (func $f (loop (br 0))) (start $f))")
}

#[tokio::test]
async fn waiting_for_a_turn_is_told_as_phase_queue_and_does_not_blame_the_provider() {
    let runtime = runtime(|settings| settings.concurrency = 1);
    let waiting = plugin(&runtime, guest!("hostile-endless-wait")).await;
    let quick = plugin(&runtime, guest!("null")).await;
    let held = tokio::spawn({
        let waiting = waiting.clone();
        async move { waiting.probe(&setup(HOUR), &at("probe")).await }
    });
    while waiting.stats().in_flight == 0 {
        tokio::task::yield_now().await;
    }
    let failure = quick
        .inspect(&setup(Duration::from_millis(50)), "{}", "{}")
        .await
        .unwrap_err();
    assert_eq!(failure, timeout_in(Phase::Queue));
    assert!(!failure.reached_component() && !failure.blames_provider());
    held.abort();
    assert!(held.await.unwrap_err().is_cancelled());
    quick.inspect(&setup(HOUR), "{}", "{}").await.unwrap();
    assert_eq!(waiting.stats().calls.cancelled, 1);
}
