//! What a collector of traces is told of what was asked of a target: what, of whom, and how it ended.
//!
//! Spans have names, targets and codes from closed sets, and no word of what was said or answered.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_contract::{
    ByteStream, Code, CommandState, Content, Duplex, Error, Output, Process, Size, SshSession,
    Workspace,
};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::scope::Action;
use crate::session::Session;

/// A span whose end is told, also where nobody waited for it.
pub(crate) struct Asked {
    span: Span,
    /// Of the answer; 0 before there is one.
    status: AtomicU16,
    ended: bool,
}

impl Asked {
    /// Of what is asked over SSH.
    pub(crate) fn ssh(action: Action, target: Option<&str>) -> Asked {
        Asked::of(info_span!(
            target: "leasehold::trace",
            "ssh",
            otel.name = format!("ssh {}", action.as_str()),
            otel.kind = "client",
            otel.status_code = Empty,
            "error.type" = Empty,
            leasehold.target = target,
        ))
    }

    /// Of what is asked over HTTP; `name` says whether an answer is wanted or a stream.
    pub(crate) fn http(name: &'static str, target: &str, act: &'static str) -> Asked {
        Asked::of(info_span!(
            target: "leasehold::trace",
            "http",
            otel.name = name,
            otel.kind = "client",
            otel.status_code = Empty,
            http.response.status_code = Empty,
            "error.type" = Empty,
            leasehold.target = target,
            leasehold.act = act,
        ))
    }

    fn of(span: Span) -> Asked {
        Asked {
            span,
            status: AtomicU16::new(0),
            ended: false,
        }
    }

    /// The span, for what is learnt on the way.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// An answer of this status came.
    pub(crate) fn answered(&self, status: u16) {
        self.span.record("http.response.status_code", status);
        self.status.store(status, Ordering::Relaxed);
    }

    fn failed(&self, kind: &str) {
        self.span.record("error.type", kind);
        self.span.record("otel.status_code", "ERROR");
    }

    /// It is over. An answer that refuses is a failure, by the semantic conventions of clients.
    pub(crate) fn end<T>(mut self, done: &Result<T, Error>) {
        self.ended = true;
        match done {
            Err(error) => self.failed(error.code.as_str()),
            Ok(_) => match self.status.load(Ordering::Relaxed) {
                0..400 => {}
                status => self.failed(&status.to_string()),
            },
        }
    }

    /// Does it, and tells how it ended.
    pub(crate) async fn whole<T>(
        self,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let done = work.instrument(self.span.clone()).await;
        self.end(&done);
        done
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.ended {
            self.failed(Code::Cancelled.as_str());
        }
    }
}

/// A session, each of whose operations is a span.
pub(crate) struct Traced(Session);

impl Traced {
    pub(crate) fn new(session: Session) -> Traced {
        Traced(session)
    }

    async fn told<T>(
        &self,
        action: Action,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let asked = Asked::ssh(action, Some(self.0.target()));
        let done = asked.whole(work).await;
        if let Err(error) = &done {
            self.0.refused_late(action, error).await;
        }
        done
    }
}

#[async_trait]
impl SshSession for Traced {
    async fn make_workspace(&self, parent: String) -> Result<Workspace, Error> {
        let work = self.0.make_workspace(parent);
        self.told(Action::MakeWorkspace, work).await
    }

    async fn list_workspaces(&self, parent: String) -> Result<Vec<Workspace>, Error> {
        let work = self.0.list_workspaces(parent);
        self.told(Action::ListWorkspaces, work).await
    }

    async fn remove_workspace(&self, parent: String, resource: String) -> Result<(), Error> {
        let work = self.0.remove_workspace(parent, resource);
        self.told(Action::RemoveWorkspace, work).await
    }

    async fn run(
        &self,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        stdin: Content,
        limit: u32,
        deadline: Option<Duration>,
    ) -> Result<Output, Error> {
        let work = self.0.run(script, args, env, stdin, limit, deadline);
        self.told(Action::Run, work).await
    }

    async fn start(
        &self,
        parent: String,
        script: String,
        args: Vec<String>,
        env: Vec<(String, String)>,
        tty: Option<Size>,
    ) -> Result<Process, Error> {
        let work = self.0.start(parent, script, args, env, tty);
        self.told(Action::Start, work).await
    }

    async fn state_of(&self, parent: String, id: String) -> Result<CommandState, Error> {
        let work = self.0.state_of(parent, id);
        self.told(Action::StateOf, work).await
    }

    async fn signal(&self, parent: String, id: String, signal: String) -> Result<(), Error> {
        let work = self.0.signal(parent, id, signal);
        self.told(Action::Signal, work).await
    }

    async fn put(&self, root: String, archive: ByteStream) -> Result<(), Error> {
        self.told(Action::Put, self.0.put(root, archive)).await
    }

    async fn get(&self, root: String, path: String) -> Result<ByteStream, Error> {
        self.told(Action::Get, self.0.get(root, path)).await
    }

    async fn forward(&self, port: u16) -> Result<Box<dyn Duplex>, Error> {
        self.told(Action::Forward, self.0.forward(port)).await
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex, PoisonError};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// What is recorded of spans, after they began.
    #[derive(Clone, Default)]
    struct Recorded(Arc<Mutex<Vec<(&'static str, String)>>>);

    impl Visit for Recorded {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            all.push((field.name(), format!("{value:?}").replace('"', "")));
        }
    }

    impl Subscriber for Recorded {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, values: &Record<'_>) {
            values.record(&mut self.clone());
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    /// What is told of something that is asked and ends so.
    fn told(ends: impl FnOnce(Asked)) -> Vec<(&'static str, String)> {
        let recorded = Recorded::default();
        tracing::subscriber::with_default(recorded.clone(), || {
            ends(Asked::http(
                "http exchange",
                "https://a.example",
                "http-read",
            ));
        });
        let all = recorded.0.lock().unwrap();
        all.clone()
    }

    #[test]
    fn what_is_asked_ends_well_or_by_its_error_or_its_status_and_one_that_nobody_waits_for_is_cancelled()
     {
        let status = |status: &str| ("http.response.status_code", status.to_owned());
        let failed = |kind: &str| {
            [
                ("error.type", kind.to_owned()),
                ("otel.status_code", "ERROR".to_owned()),
            ]
        };
        let error = || Error::new(Code::Unavailable, "the backend's own words");
        assert_eq!(told(|asked| asked.end(&Ok(()))), []);
        let well = told(|asked| {
            asked.answered(204);
            asked.end(&Ok(()));
        });
        assert_eq!(well, [status("204")]);
        let refused = told(|asked| {
            asked.answered(404);
            asked.end(&Ok(()));
        });
        assert_eq!(refused, [&[status("404")][..], &failed("404")].concat());
        let broken = told(|asked| {
            asked.answered(500);
            asked.end::<()>(&Err(error()));
        });
        assert_eq!(
            broken,
            [&[status("500")][..], &failed("unavailable")].concat()
        );
        assert_eq!(told(drop), failed("cancelled"));
    }
}
