//! The one writer: a task that owns a connection and runs everything that changes the database.
//!
//! A piece of work runs in a transaction and is answered only after the commit, which is durable
//! (`synchronous=FULL`). Work that waits while another runs shares its transaction, each under a savepoint
//! of its own, so that many callers pay for one flush. Work that fails is undone alone; a failure of the
//! database undoes the whole transaction and is answered to everyone in it. Work goes on when its caller
//! goes away: it is never half done.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use sqlx::{Connection as _, SqliteConnection};
use tokio::sync::{mpsc, oneshot, watch};

use super::now_ms;
use crate::activity::Head;
use crate::error::{Error, Result};
use crate::keys::Keys;

/// Pieces of work in one transaction at most.
const BATCH: usize = 64;
/// Pieces of work that wait at most; beyond it callers wait to be let in.
const QUEUE: usize = 1024;

/// What the writer needs besides its connection.
pub(crate) struct WriterParts {
    /// The subkeys.
    pub keys: Arc<Keys>,
    /// The name of this replica.
    pub replica: Arc<str>,
    /// The end of its activity chain.
    pub head: Head,
}

/// The transaction that a piece of work runs in.
pub(crate) struct Tx {
    /// The connection; statements on it belong to the transaction.
    pub db: SqliteConnection,
    /// The subkeys.
    pub keys: Arc<Keys>,
    /// The name of this replica.
    pub replica: Arc<str>,
    /// The end of this replica's activity chain, as this transaction will leave it.
    pub head: Head,
    now: i64,
    after: Vec<Box<dyn FnOnce() + Send>>,
}

impl Tx {
    /// The database's time when this transaction began. Not for decisions: those take the time in their
    /// statement.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// To be done once this transaction is durable, and only then; before the caller hears of it.
    pub fn after_commit(&mut self, done: impl FnOnce() + Send + 'static) {
        self.after.push(Box::new(done));
    }

    async fn begin(&mut self) -> Result<()> {
        // One way to the database for both.
        self.now = sqlx::query_scalar(concat!("BEGIN IMMEDIATE; SELECT ", now_ms!()))
            .fetch_one(&mut self.db)
            .await?;
        Ok(())
    }

    async fn execute(&mut self, sql: &'static str) -> Result<()> {
        sqlx::query(sql).execute(&mut self.db).await?;
        Ok(())
    }

    /// Undoes the whole transaction; there may be none any more, when the database undid it itself.
    async fn roll_back(&mut self, head: &Head) {
        if let Err(error) = self.execute("ROLLBACK").await {
            tracing::debug!(%error, "rollback");
        }
        self.head = head.clone();
        self.after.clear();
    }
}

/// How a piece of work ended.
enum Verdict {
    Keep,
    Undo,
    Spoil(Error),
}

/// A piece of work that ran, and the way to tell its caller.
struct Ran {
    verdict: Verdict,
    /// With the failure of the transaction that it ran in, if it failed.
    tell: Box<dyn FnOnce(Option<Error>) + Send>,
}

trait Job: Send {
    fn run(self: Box<Self>, tx: &mut Tx) -> BoxFuture<'_, Ran>;
    fn refuse(self: Box<Self>, error: Error);
}

struct Work<T, F> {
    work: F,
    answer: oneshot::Sender<Result<T>>,
}

impl<T, F> Job for Work<T, F>
where
    T: Send + 'static,
    F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T>> + Send + 'static,
{
    fn run(self: Box<Self>, tx: &mut Tx) -> BoxFuture<'_, Ran> {
        Box::pin(async move {
            let Work { work, answer } = *self;
            let outcome = AssertUnwindSafe(async { work(tx).await })
                .catch_unwind()
                .await
                .unwrap_or_else(|_| Err(Error::Internal("a write panicked".into())));
            let verdict = match &outcome {
                Ok(_) => Verdict::Keep,
                Err(e) if e.spoils_the_batch() => Verdict::Spoil(e.again()),
                Err(_) => Verdict::Undo,
            };
            Ran {
                verdict,
                tell: Box::new(move |failure| {
                    let answered = match (outcome, failure) {
                        (Ok(_), Some(failure)) => Err(failure),
                        (outcome, _) => outcome,
                    };
                    // The caller may have gone away.
                    let _ = answer.send(answered);
                }),
            }
        })
    }

    fn refuse(self: Box<Self>, error: Error) {
        let _ = self.answer.send(Err(error));
    }
}

/// The way to the task.
pub(crate) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    task: Mutex<Option<tokio::task::JoinHandle<()>>>,
    recorded: watch::Sender<i64>,
}

impl Writer {
    pub fn start(db: SqliteConnection, parts: WriterParts) -> Writer {
        let (jobs, queue) = mpsc::channel(QUEUE);
        let recorded = watch::Sender::new(parts.head.sequence);
        let tx = Tx {
            db,
            keys: parts.keys,
            replica: parts.replica,
            head: parts.head,
            now: 0,
            after: Vec::new(),
        };
        Writer {
            jobs: Mutex::new(Some(jobs)),
            task: Mutex::new(Some(tokio::spawn(serve(tx, queue, recorded.clone())))),
            recorded,
        }
    }

    /// The end of this replica's activity chain, after each commit that moved it.
    pub fn recorded(&self) -> watch::Receiver<i64> {
        self.recorded.subscribe()
    }

    pub async fn write<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: for<'t> FnOnce(&'t mut Tx) -> BoxFuture<'t, Result<T>> + Send + 'static,
    {
        let jobs = self
            .jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .ok_or(Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        jobs.send(Box::new(Work { work, answer }))
            .await
            .map_err(|_| Error::Closed)?;
        drop(jobs);
        answered.await.map_err(|_| Error::Closed)?
    }

    pub async fn close(&self) {
        drop(
            self.jobs
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        let task = self
            .task
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }
}

async fn serve(mut tx: Tx, mut queue: mpsc::Receiver<Box<dyn Job>>, recorded: watch::Sender<i64>) {
    while let Some(job) = queue.recv().await {
        transaction(&mut tx, job, &mut queue).await;
        if *recorded.borrow() != tx.head.sequence {
            recorded.send_replace(tx.head.sequence);
        }
    }
    let _ = tx.db.close().await;
}

/// One transaction: `first`, and whatever waits when its turn comes.
async fn transaction(tx: &mut Tx, first: Box<dyn Job>, queue: &mut mpsc::Receiver<Box<dyn Job>>) {
    let before = tx.head.clone();
    if let Err(error) = tx.begin().await {
        tx.roll_back(&before).await;
        first.refuse(error);
        return;
    }
    let ran = first.run(tx).await;
    match ran.verdict {
        Verdict::Keep => {}
        Verdict::Undo | Verdict::Spoil(_) => {
            tx.roll_back(&before).await;
            (ran.tell)(None);
            return;
        }
    }
    let mut kept = vec![ran.tell];
    while kept.len() < BATCH {
        let Ok(job) = queue.try_recv() else { break };
        match beside(tx, job).await {
            Ok(Some(tell)) => kept.push(tell),
            Ok(None) => {}
            Err(failure) => {
                tx.roll_back(&before).await;
                kept.into_iter()
                    .for_each(|tell| tell(Some(failure.again())));
                return;
            }
        }
    }
    match tx.execute("COMMIT").await {
        Ok(()) => {
            std::mem::take(&mut tx.after).into_iter().for_each(|f| f());
            kept.into_iter().for_each(|tell| tell(None));
        }
        Err(failure) => {
            tx.roll_back(&before).await;
            kept.into_iter()
                .for_each(|tell| tell(Some(failure.again())));
        }
    }
}

type Tell = Box<dyn FnOnce(Option<Error>) + Send>;

/// Runs `job` under a savepoint. An error is one that spoils the transaction; the job has been told.
async fn beside(tx: &mut Tx, job: Box<dyn Job>) -> Result<Option<Tell>> {
    if let Err(error) = tx.execute("SAVEPOINT work").await {
        job.refuse(error.again());
        return Err(error);
    }
    let head = tx.head.clone();
    let after = tx.after.len();
    let ran = job.run(tx).await;
    let ended = match ran.verdict {
        Verdict::Keep => tx.execute("RELEASE work").await,
        Verdict::Undo => {
            tx.head = head;
            tx.after.truncate(after);
            match tx.execute("ROLLBACK TO work").await {
                Ok(()) => tx.execute("RELEASE work").await,
                failed => failed,
            }
        }
        Verdict::Spoil(error) => {
            (ran.tell)(None);
            return Err(error);
        }
    };
    match (ended, ran.verdict) {
        (Ok(()), Verdict::Keep) => Ok(Some(ran.tell)),
        (Ok(()), _) => {
            (ran.tell)(None);
            Ok(None)
        }
        (Err(error), _) => {
            (ran.tell)(Some(error.again()));
            Err(error)
        }
    }
}
