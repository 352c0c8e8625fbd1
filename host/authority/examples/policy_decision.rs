//! Times the policy by itself: one decision about one row, as a request and each row of it ask for one.
//!
//! `policy_decision SAMPLES` prints JSON with the median and the slowest hundredth, in nanoseconds for one decision. A
//! sample is a run of decisions that hold every operation against every kind of actor and of row, so that a clock's own
//! time counts for nothing.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::time::Instant;

use leasehold_authority::{Actor, ActorKind, Operation, Role, Scope, decide};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let samples: usize = std::env::args()
        .nth(1)
        .ok_or("how many samples?")?
        .parse()?;
    let token = |role| Actor {
        kind: ActorKind::Token {
            id: "tok_1".into(),
            role,
        },
        display: "token".into(),
    };
    // A board member of as many companies as anybody would be of.
    let companies: BTreeSet<String> = (0..100).map(|n| format!("com_{n:026}")).collect();
    let own = companies.first().cloned().ok_or("a company")?;
    let actors = [
        Actor::local_operator(),
        token(Role::Admin),
        token(Role::Member { companies }),
        token(Role::Agent {
            company: own.clone(),
            run: Some("run-1".into()),
        }),
    ];
    let scopes = [
        Scope::Unseen,
        Scope::Company(&own),
        Scope::Company("com_of_somebody_else"),
        Scope::Run {
            company: &own,
            run: Some("run-1"),
        },
    ];
    let decisions = Operation::ALL.len() * actors.len() * scopes.len();
    let mut times = Vec::with_capacity(samples);
    for sample in 0..samples + samples / 10 {
        let began = Instant::now();
        for operation in Operation::ALL {
            for actor in &actors {
                for scope in scopes {
                    let _ = black_box(decide(black_box(actor), *operation, black_box(scope)));
                }
            }
        }
        let each = began.elapsed().as_secs_f64() * 1e9 / decisions as f64;
        if sample >= samples / 10 {
            times.push(each);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |part: f64| times[((times.len() as f64 * part) as usize).min(times.len() - 1)];
    println!(
        "{}",
        serde_json::json!({ "samples": samples, "p50_ns": at(0.5), "p99_ns": at(0.99) })
    );
    Ok(())
}
