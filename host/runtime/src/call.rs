//! One call: its turn, its instance, its two clocks, and its outcome.
//!
//! The wall deadline is outermost and covers queueing, instantiation and the call. The instance is
//! made for the call and dropped with its store whatever happened: nothing of a call is left for the
//! next, and no call enters an instance that trapped.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_contract::Error;
use tokio::sync::{Semaphore, SemaphorePermit};
use tracing::{Instrument, Span};
use wasmtime::Store;
use wasmtime::component::{Instance, InstancePre};
use wasmtime_wasi::{ResourceTable, WasiCtxBuilder};

use crate::bounds;
use crate::engine::Shared;
use crate::failure::{self, Cause, Failure, Limit, Phase, TrapCode};
use crate::limiter::{Allowance, Limiter};
use crate::meter::Meter;
use crate::setup::{CallSetup, Outcome};
use crate::state::{Lines, State};
use crate::stats::Counters;
use crate::stderr::Tail;
use crate::text;
use crate::v0;

/// The function of the contract that is called; it decides what the component may do meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Describe,
    CheckConfig,
    Probe,
    Acquire,
    KeepAlive,
    Inspect,
    Release,
    List,
    Start,
    Attach,
    StateOf,
    Signal,
    Resize,
    Put,
    Get,
    Suspend,
    Resume,
}

impl Function {
    /// As the contract names it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Function::Describe => "describe",
            Function::CheckConfig => "check-config",
            Function::Probe => "probe",
            Function::Acquire => "acquire",
            Function::KeepAlive => "keep-alive",
            Function::Inspect => "inspect",
            Function::Release => "release",
            Function::List => "list",
            Function::Start => "start",
            Function::Attach => "attach",
            Function::StateOf => "state-of",
            Function::Signal => "signal",
            Function::Resize => "resize",
            Function::Put => "put",
            Function::Get => "get",
            Function::Suspend => "suspend",
            Function::Resume => "resume",
        }
    }

    /// Whether egress is closed, whatever object the caller gave.
    pub(crate) fn reaches_nothing(self) -> bool {
        matches!(self, Function::Describe | Function::CheckConfig)
    }
}

/// What the component answered: a value, or its own error.
type Answer<R> = wasmtime::Result<Result<R, v0::Error>>;

/// The call of one export, on a store and an instance made for it.
pub(crate) type Calling<'a, R> = Pin<Box<dyn Future<Output = Answer<R>> + Send + 'a>>;

/// What a call is made with. `'env` is what the call borrows from its caller: it outlives `'a`, which
/// is what the marker tells the compiler.
pub(crate) struct Made<'a, 'env> {
    pub(crate) store: &'a mut Store<State>,
    pub(crate) instance: &'a Instance,
    pub(crate) context: &'a v0::Context,
    scope: PhantomData<&'a &'env ()>,
}

/// How often an instantiation is tried again while the pool is full, and the first pause between.
const RETRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// Which plugin it is, as people and the records know it.
pub(crate) struct Named {
    /// Its key.
    pub(crate) key: String,
    /// The digest of its component.
    pub(crate) revision: String,
}

/// What a plugin's calls are made of.
pub(crate) struct Body {
    /// None before it has said what it is.
    pub(crate) named: Option<Named>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) pre: InstancePre<State>,
    pub(crate) exports: v0::Exports,
    pub(crate) permits: Semaphore,
    pub(crate) allowance: Allowance,
    pub(crate) counters: Counters,
}

impl Body {
    /// Makes one call: `calling` gets the instance that was made for it.
    pub(crate) async fn run<'env, R, F>(
        &self,
        setup: &CallSetup,
        function: Function,
        calling: F,
    ) -> Result<R, Failure>
    where
        R: Send,
        F: for<'a> FnOnce(Made<'a, 'env>) -> Calling<'a, R> + Send,
    {
        let shared = &*self.shared;
        let meter = Arc::new(Meter::new(self.allowance.cpu, Arc::clone(&shared.turns)));
        let span = setup.span(function, self.named.as_ref());
        let mut under_way = UnderWay::new(&self.counters, &shared.counters, &meter, span.clone());
        let _ticking = shared.ticker.hold();

        let whole = meter.measure(async {
            let waiting = Instant::now();
            let (_own, own_waited) = turn(&self.permits).await?;
            let (_all, all_waited) = turn(&shared.permits).await?;
            if own_waited || all_waited {
                under_way.waited(waiting.elapsed());
            }
            meter.enter(Phase::Instantiate);
            let (mut store, instance) = self.instantiate(setup, function, &meter).await?;
            meter.enter(Phase::Call);
            let remaining = store.data().remaining();
            let context = v0::context(&setup.call, remaining);
            let answer = calling(Made {
                store: &mut store,
                instance: &instance,
                context: &context,
                scope: PhantomData,
            })
            .await;
            under_way.memory(store.data().limiter.peak());
            outcome(answer, store.data(), &meter)
        });
        let whole = tokio::time::timeout(setup.deadline, whole).instrument(span);
        let result = match whole.await {
            Ok(result) => result,
            Err(_elapsed) => Err(Failure::Timeout {
                phase: meter.phase(),
                waits_for: setup.egress.waits_for(),
            }),
        };
        under_way.finish(&result);
        if let Some(watch) = &setup.watch {
            watch(Outcome {
                result: result.as_ref().map(|_| ()),
                went_out: meter.went_out(),
            });
        }
        result
    }

    async fn instantiate(
        &self,
        setup: &CallSetup,
        function: Function,
        meter: &Arc<Meter>,
    ) -> Result<(Store<State>, Instance), Failure> {
        let mut pause = FIRST_PAUSE;
        let mut tries = 0;
        loop {
            let mut store = self.store(setup, function, meter);
            let error = match self.pre.instantiate_async(&mut store).await {
                Ok(instance) => return Ok((store, instance)),
                Err(error) => error,
            };
            let peak = store.data().limiter.peak();
            self.counters.remember_memory(peak);
            self.shared.counters.remember_memory(peak);
            match failure_of(&error, store.data(), meter) {
                Failure::Busy(_) if tries < RETRIES => {
                    drop(store);
                    tries += 1;
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                failure => return Err(failure),
            }
        }
    }

    fn store(&self, setup: &CallSetup, function: Function, meter: &Arc<Meter>) -> Store<State> {
        let shared = &*self.shared;
        let stderr = Tail::default();
        let mut wasi = WasiCtxBuilder::new();
        wasi.stderr(stderr.clone());
        wasi.max_random_size(RANDOM);
        crate::clocks::stop(&mut wasi);
        let mut table = ResourceTable::new();
        table.set_max_capacity(shared.resources);
        let until = meter
            .origin()
            .checked_add(setup.deadline)
            .unwrap_or_else(|| meter.origin() + FAR);
        let mut store = Store::new(
            &shared.engine,
            State {
                table,
                wasi: wasi.build(),
                limiter: Limiter::new(self.allowance),
                meter: Arc::clone(meter),
                stderr,
                host: Arc::clone(&setup.host),
                egress: if function.reaches_nothing() {
                    Arc::clone(&shared.refusing)
                } else {
                    Arc::clone(&setup.egress)
                },
                redactor: Arc::clone(&setup.redactor),
                function,
                until,
                exchanges: self.allowance.exchanges,
                body: self.allowance.body,
                lines: Lines::default(),
            },
        );
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(shared.copied_bytes);
        store.set_epoch_deadline(1);
        let meter = Arc::clone(meter);
        store.epoch_deadline_callback(move |_store| Ok(meter.tick()));
        store
    }
}

/// The most random bytes that a component may ask for at once.
const RANDOM: u64 = 1 << 20;
/// Stands for a deadline that no clock can hold.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// A permit, and whether it had to be waited for.
async fn turn(permits: &Semaphore) -> Result<(SemaphorePermit<'_>, bool), Failure> {
    if let Ok(permit) = permits.try_acquire() {
        return Ok((permit, false));
    }
    match permits.acquire().await {
        Ok(permit) => Ok((permit, true)),
        Err(_closed) => Err(Failure::Host("the runtime is closed".to_owned())),
    }
}

fn outcome<R>(answer: Answer<R>, state: &State, meter: &Meter) -> Result<R, Failure> {
    match answer {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => {
            let error: Error = v0::error(error);
            Err(Failure::Provider(bounds::error(error, &state.redactor)))
        }
        Err(error) => Err(failure_of(&error, state, meter)),
    }
}

/// What an error of wasmtime means, with what the store remembers of the call.
fn failure_of(error: &wasmtime::Error, state: &State, meter: &Meter) -> Failure {
    let said = || text::clean_tail(&state.stderr.text(), text::MESSAGE, &state.redactor);
    if meter.exhausted() {
        return Failure::Limit {
            which: Limit::Cpu,
            message: said(),
        };
    }
    match failure::cause_of(error) {
        Cause::PoolFull(what) => Failure::Busy(what),
        Cause::Limit(which) => Failure::Limit {
            which,
            message: said(),
        },
        Cause::Trap(code) => match (state.limiter.refused(), code) {
            // A language's allocator aborts when a growth is refused; an instance whose first memory is
            // refused is never made. Running out of stack or calling `exit` is something else.
            (Some(which), TrapCode::Unreachable | TrapCode::Abi | TrapCode::OutOfBounds) => {
                Failure::Limit {
                    which,
                    message: said(),
                }
            }
            (_, code) => {
                let mut message = said();
                if message.is_empty() && matches!(code, TrapCode::Abi | TrapCode::Other) {
                    let causes = failure::chain(error).join(": ");
                    message = text::clean(&causes, text::MESSAGE, &state.redactor);
                }
                Failure::Trap { code, message }
            }
        },
    }
}

/// Counts a call and tells its trace however it ends, also when its caller drops it.
struct UnderWay<'a> {
    own: &'a Counters,
    all: &'a Counters,
    meter: &'a Meter,
    span: Span,
    ended: bool,
}

impl<'a> UnderWay<'a> {
    fn new(own: &'a Counters, all: &'a Counters, meter: &'a Meter, span: Span) -> UnderWay<'a> {
        own.began();
        all.began();
        UnderWay {
            own,
            all,
            meter,
            span,
            ended: false,
        }
    }

    fn waited(&self, span: Duration) {
        self.own.waited(span);
        self.all.waited(span);
    }

    fn memory(&self, peak: usize) {
        self.own.remember_memory(peak);
        self.all.remember_memory(peak);
    }

    fn failed(&self, kind: &'static str) {
        self.span.record("error.type", kind);
        self.span.record("otel.status_code", "ERROR");
    }

    fn finish<R>(&mut self, result: &Result<R, Failure>) {
        self.ended = true;
        if let Err(failure) = result {
            self.failed(failure.kind());
        }
        let outcome = Some(result.as_ref().map(|_| ()));
        let cpu = self.meter.cpu();
        self.own.ended(outcome, cpu);
        self.all.ended(outcome, cpu);
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.failed("cancelled");
            let cpu = self.meter.cpu();
            self.own.ended(None, cpu);
            self.all.ended(None, cpu);
        }
    }
}
