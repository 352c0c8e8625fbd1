//! Limits on how many calls run at once, and that every one gives back what it held.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use leasehold_runtime::Failure;

use crate::guests::guest;
use crate::support::{HOUR, Opener, at, command, plugin, reaching, runtime, setup};

#[tokio::test]
async fn a_full_pool_is_busy_and_not_the_plugins_fault() {
    let runtime = runtime(|settings| {
        settings.pool.components = 2;
        settings.concurrency = 8;
    });
    if !runtime.is_pooled() {
        println!("skipped: needs address space for a pool");
        assert!(std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none_or(|v| v != "1"));
        return;
    }
    let waiting = plugin(&runtime, guest!("hostile-endless-wait")).await;
    let held: Vec<_> = (0..2)
        .map(|_| {
            let waiting = waiting.clone();
            tokio::spawn(async move { waiting.probe(&setup(HOUR), &at("probe")).await })
        })
        .collect();
    let failure = loop {
        let nowhere = at("nowhere");
        match waiting.inspect(&setup(HOUR), &nowhere, "{}").await {
            Ok(_) => tokio::task::yield_now().await,
            Err(failure) => break failure,
        }
    };
    assert!(matches!(failure, Failure::Busy(_)), "{failure:?}");
    assert!(!failure.blames_provider() && !failure.reached_component());
    for each in held {
        each.abort();
        let _ = each.await;
    }
    waiting
        .inspect(&setup(HOUR), &at("nowhere"), "{}")
        .await
        .unwrap();
}

#[tokio::test]
async fn one_plugins_overload_leaves_anothers_calls_alone() {
    let runtime = runtime(|settings| {
        settings.concurrency = 8;
        settings.concurrency_per_plugin = 2;
    });
    let waiting = plugin(&runtime, guest!("hostile-endless-wait")).await;
    let quick = plugin(&runtime, guest!("null")).await;
    let held: Vec<_> = (0..50)
        .map(|_| {
            let waiting = waiting.clone();
            tokio::spawn(async move { waiting.probe(&setup(HOUR), &at("probe")).await })
        })
        .collect();
    while waiting.stats().in_flight < 50 {
        tokio::task::yield_now().await;
    }
    for _ in 0..20 {
        quick
            .inspect(&setup(Duration::from_secs(20)), "{}", "{}")
            .await
            .unwrap();
    }
    assert_eq!(quick.stats().queued, 0);
    for each in held {
        each.abort();
    }
}

#[tokio::test]
async fn a_call_dropped_at_any_await_gives_back_what_it_held() {
    let runtime = runtime(|settings| {
        settings.concurrency = 1;
        settings.pool.components = 1;
    });
    let plugin = plugin(&runtime, guest!("hostile-bench-start")).await;
    let command = command();
    for polls in 0..6 {
        let setup = reaching(Opener::after(Duration::from_millis(1)), HOUR);
        {
            let mut call = pin!(plugin.start(&setup, "{}", "{}", &command));
            for _ in 0..polls {
                let ended = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_ready())).await;
                if ended {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        let next = reaching(Opener::after(Duration::ZERO), HOUR);
        plugin.start(&next, "{}", "{}", &command).await.unwrap();
    }
    let stats = plugin.stats();
    assert_eq!(stats.in_flight, 0);
    assert!(stats.calls.cancelled >= 1, "{stats:?}");
}

#[tokio::test]
async fn many_calls_at_once_through_few_slots_are_all_served() {
    let runtime = runtime(|settings| {
        settings.concurrency = 4;
        settings.pool.components = 8;
    });
    let plugin = plugin(&runtime, guest!("null")).await;
    let calls: Vec<_> = (0..500)
        .map(|_| {
            let plugin = plugin.clone();
            tokio::spawn(async move { plugin.inspect(&setup(HOUR), "{}", "{}").await })
        })
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(plugin.stats().calls.ok, 500);
}

#[tokio::test]
async fn components_also_run_where_no_pool_can_be_had() {
    let runtime = runtime(|settings| settings.allocation = leasehold_runtime::Allocation::OnDemand);
    assert!(!runtime.is_pooled());
    let plugin = plugin(&runtime, guest!("null")).await;
    plugin.acquire(&setup(HOUR), "{}", None).await.unwrap();
}
