//! What a component asks over HTTP: its words reach egress, the answers' words come back, and the runtime's bounds hold.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use leasehold_contract::{
    ByteStream, Code, Content, Duplex, Egress, Error, ExitSource, Finding, Framing, HttpHead,
    HttpLines, HttpRequest, HttpResponse, InputEnd, NoStream, Piece, Process, ProcessEvent,
    SshSession, Wiring,
};
use leasehold_runtime::{Failure, Plugin};
use tokio::io::AsyncReadExt;

use crate::guests::guest;
use crate::support::{Nowhere, Words, command, plugin, reaching, runtime};

const HOUR: Duration = Duration::from_secs(3600);
const MIB: usize = 1 << 20;

/// Writes down what it is asked, and answers by the last part of the URL's path.
#[derive(Default)]
struct Scribe {
    asked: Mutex<Vec<(&'static str, HttpRequest)>>,
    pieces: Mutex<Vec<u8>>,
    wired: Arc<Mutex<Vec<Wiring>>>,
}

impl Scribe {
    async fn take(&self, how: &'static str, request: HttpRequest) -> Result<HttpHead, Error> {
        let last = request.url.rsplit('/').next().unwrap().to_owned();
        self.asked.lock().unwrap().push((how, request));
        if last == "slow" {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        if last == "refused" {
            return Err(Error::new(Code::PermissionDenied, "not there"));
        }
        Ok(HttpHead {
            status: 201,
            headers: vec![("x-one".into(), "1".into()), ("x-one".into(), "2".into())],
        })
    }

    fn asked(&self) -> Vec<(&'static str, HttpRequest)> {
        self.asked.lock().unwrap().clone()
    }
}

#[async_trait]
impl Egress for Scribe {
    async fn ssh_open(
        &self,
        _target: String,
        _username: Option<String>,
        _timeout: Option<Duration>,
    ) -> Result<Arc<dyn SshSession>, Error> {
        Err(Error::new(Code::Unsupported, "not here"))
    }

    async fn http_send(&self, request: HttpRequest) -> Result<HttpResponse, Error> {
        let size = request.url.rsplit('/').next().unwrap().parse::<usize>();
        let head = self.take("send", request).await?;
        let body = match size {
            Ok(size) => Content::Text("x".repeat(size)),
            Err(_) => Content::Text("whole".into()),
        };
        Ok(HttpResponse { head, body })
    }

    async fn http_open(&self, request: HttpRequest) -> Result<Box<dyn HttpLines>, Error> {
        let head = self.take("open", request).await?;
        Ok(Box::new(Told(head, vec!["two", "one"])))
    }

    async fn http_download(&self, request: HttpRequest) -> Result<(HttpHead, ByteStream), Error> {
        let head = self.take("download", request).await?;
        Ok((head, Box::pin(&b"bytes"[..])))
    }

    async fn http_upload(
        &self,
        request: HttpRequest,
        body: Vec<Piece>,
    ) -> Result<HttpResponse, Error> {
        let head = self.take("upload", request).await?;
        let mut all = Vec::new();
        for piece in body {
            match piece {
                Piece::Inline(content) => all.extend_from_slice(content.as_bytes()),
                Piece::Bytes(mut bytes) => {
                    bytes.read_to_end(&mut all).await.unwrap();
                }
            }
        }
        *self.pieces.lock().unwrap() = all;
        let body = Content::None;
        Ok(HttpResponse { head, body })
    }

    async fn upgrade(
        &self,
        request: HttpRequest,
        protocol: String,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        if request.url.ends_with("/busy") {
            return Err(NoStream::Refused {
                status: 423,
                body: "somebody is attached".into(),
            });
        }
        assert_eq!(protocol, "tcp");
        self.take("upgrade", request)
            .await
            .map_err(NoStream::Failed)?;
        Ok(Box::new(Wire(self.wired.clone())))
    }

    async fn websocket(
        &self,
        request: HttpRequest,
        protocols: Vec<String>,
    ) -> Result<Box<dyn Duplex>, NoStream> {
        assert!(!protocols.is_empty());
        self.take("websocket", request)
            .await
            .map_err(NoStream::Failed)?;
        Ok(Box::new(Wire(self.wired.clone())))
    }
}

struct Told(HttpHead, Vec<&'static str>);

#[async_trait]
impl HttpLines for Told {
    fn head(&self) -> &HttpHead {
        &self.0
    }
    async fn next(&mut self) -> Result<Option<String>, Error> {
        Ok(self.1.pop().map(str::to_owned))
    }
}

struct Wire(Arc<Mutex<Vec<Wiring>>>);

impl Duplex for Wire {
    fn wire(self: Box<Self>, wiring: Wiring) -> Result<Process, Error> {
        self.0.lock().unwrap().push(wiring.clone());
        if wiring.framing == Framing::Docker {
            return Err(Error::new(Code::Unsupported, "not over this"));
        }
        Ok(Process {
            output: Box::new(Words(vec![ProcessEvent::Stdout("wired".into())])),
            input: Box::new(Nowhere),
        })
    }
}

/// A configuration that makes these calls.
fn config(calls: &str) -> String {
    format!("{{\"calls\":[{calls}]}}")
}

fn call(how: &str, method: &str, last: &str) -> String {
    format!("{{\"how\":\"{how}\",\"method\":\"{method}\",\"url\":\"http://backend/{last}\"}}")
}

fn said(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|f| f.message.as_str()).collect()
}

#[tokio::test]
async fn requests_reach_egress_as_they_were_made_and_their_answers_come_back() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-stray-caller")).await;
    let egress = Arc::new(Scribe::default());
    let setup = reaching(egress.clone(), HOUR);
    let calls = [
        r#"{"how":"send","method":"POST","url":"http://backend/a","headers":{"x-a":"1","x-b":"2"},"body":"hello"}"#.to_owned(),
        call("open", "GET", "b"),
        call("download", "GET", "c"),
        call("upload", "PUT", "d"),
        call("upgrade", "POST", "e"),
        call("websocket", "GET", "f"),
        call("send", "GET", "refused"),
        call("open", "GET", "refused"),
        call("download", "GET", "refused"),
        call("upgrade", "POST", "refused"),
        call("upgrade", "POST", "busy"),
    ];
    let findings = plugin
        .probe(&setup, &config(&calls.join(",")))
        .await
        .unwrap();
    assert_eq!(
        said(&findings),
        [
            "201 whole",
            "201|one|two",
            "bytes",
            "201 ",
            "switched",
            "switched",
            "Code::PermissionDenied: not there",
            "Code::PermissionDenied: not there",
            "Code::PermissionDenied: not there",
            "Code::PermissionDenied: not there",
            "Code::Busy: POST http://backend/busy answered 423: somebody is attached",
        ]
    );
    let asked = egress.asked();
    let (how, first) = &asked[0];
    assert_eq!(*how, "send");
    assert_eq!(first.method, "POST");
    assert_eq!(first.url, "http://backend/a");
    let headers: Vec<_> = first
        .headers
        .iter()
        .map(|(n, v)| (n.as_str(), v.as_str()))
        .collect();
    assert_eq!(headers, [("x-a", "1"), ("x-b", "2")]);
    assert_eq!(first.body, Content::Text("hello".into()));
    let hows: Vec<_> = asked.iter().map(|(how, _)| *how).collect();
    let expected = [
        "send",
        "open",
        "download",
        "download",
        "upload",
        "upgrade",
        "websocket",
        "send",
        "open",
        "download",
        "upgrade",
    ];
    assert_eq!(hows, expected);
    assert_eq!(*egress.pieces.lock().unwrap(), b"before bytes after");
    // Nobody waits longer than the call.
    for (how, request) in asked {
        let timeout = request.timeout.expect("a request without a time");
        assert!(timeout <= HOUR, "{how}: {timeout:?}");
    }
}

#[tokio::test]
async fn a_process_of_a_stream_is_wired_as_the_component_says() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-stray-caller")).await;
    let egress = Arc::new(Scribe::default());
    let setup = reaching(egress.clone(), HOUR);
    for (how, framing) in [
        ("upgrade", "merged"),
        ("websocket", "channels"),
        ("websocket", "marks"),
    ] {
        let config = config(&format!(
            "{{\"how\":\"{how}\",\"method\":\"GET\",\"url\":\"http://backend/x\",\"framing\":\"{framing}\"}}"
        ));
        let mut started = plugin
            .start(&setup, &config, "{}", &command())
            .await
            .unwrap();
        let first = started.process.output.next().await;
        assert_eq!(first, Some(ProcessEvent::Stdout("wired".into())));
    }
    let unfit =
        config(r#"{"how":"upgrade","method":"GET","url":"http://backend/x","framing":"docker"}"#);
    let Err(Failure::Provider(error)) = plugin.start(&setup, &unfit, "{}", &command()).await else {
        panic!("it was wired");
    };
    assert_eq!(error.code, Code::Unsupported);
    let wiring = |framing, input_end, exit| Wiring {
        framing,
        input_end,
        exit,
    };
    let marks = Framing::Marks {
        stdout: vec![1],
        stderr: vec![2],
    };
    let reason = ExitSource::CloseReason("/code".into());
    assert_eq!(
        *egress.wired.lock().unwrap(),
        [
            wiring(Framing::Merged, InputEnd::HalfClose, ExitSource::Ask),
            wiring(
                Framing::Channels,
                InputEnd::HalfClose,
                ExitSource::StatusChannel
            ),
            wiring(marks, InputEnd::Bytes(vec![4]), reason),
            wiring(Framing::Docker, InputEnd::None, ExitSource::Ask),
        ]
    );
}

/// The sample under ceilings of the test's own.
async fn under(
    change: impl FnOnce(&mut leasehold_runtime::Ceilings),
    bytes: bytes::Bytes,
) -> Plugin {
    let manifest = runtime(|_| {}).prepare(bytes.clone()).await.unwrap();
    let tight = runtime(|settings| change(&mut settings.ceilings));
    let limits = manifest.manifest.request.limits;
    tight
        .load(manifest.digest, manifest.manifest, limits, || async {
            Ok(bytes)
        })
        .await
        .unwrap()
}

#[tokio::test]
async fn every_request_counts_and_none_goes_beyond_what_the_plugin_may_make() {
    let plugin = under(
        |ceilings| ceilings.exchanges = 5,
        guest!("hostile-stray-caller"),
    )
    .await;
    let egress = Arc::new(Scribe::default());
    let setup = reaching(egress.clone(), HOUR);
    let calls: Vec<String> = [
        "send",
        "open",
        "download",
        "upgrade",
        "websocket",
        "send",
        "upload",
    ]
    .iter()
    .map(|how| call(how, "GET", "x"))
    .collect();
    let findings = plugin
        .probe(&setup, &config(&calls.join(",")))
        .await
        .unwrap();
    assert_eq!(egress.asked().len(), 5);
    for refused in &said(&findings)[5..] {
        assert!(refused.starts_with("Code::QuotaExceeded"), "{refused}");
        assert!(refused.contains("limits.exchanges"), "{refused}");
    }
    // The next call has its own count.
    plugin
        .probe(&setup, &config(&call("send", "GET", "x")))
        .await
        .unwrap();
    assert_eq!(egress.asked().len(), 6);
}

#[tokio::test]
async fn a_body_larger_than_the_plugin_may_hold_passes_neither_way() {
    let plugin = under(
        |ceilings| ceilings.body_mib = 1,
        guest!("hostile-stray-caller"),
    )
    .await;
    let egress = Arc::new(Scribe::default());
    let setup = reaching(egress.clone(), HOUR);
    let sized = |bytes: usize| {
        format!(
            "{{\"how\":\"send\",\"method\":\"POST\",\"url\":\"http://backend/x\",\"body\":{bytes}}}"
        )
    };
    let calls = [
        sized(MIB),
        sized(MIB + 1),
        call("send", "GET", &MIB.to_string()),
        call("send", "GET", &(MIB + 1).to_string()),
        call("send", "POST", &(MIB + 1).to_string()),
    ];
    let findings = plugin
        .probe(&setup, &config(&calls.join(",")))
        .await
        .unwrap();
    let said = said(&findings);
    assert_eq!(said[0], "201 whole");
    assert!(
        said[1].starts_with("Code::QuotaExceeded") && said[1].contains("limits.body-mib"),
        "{said:?}"
    );
    assert_eq!(said[2], format!("201 {MIB} bytes"));
    assert!(said[3].starts_with("Code::QuotaExceeded"), "{said:?}");
    // It was done, and nobody can say what came of it.
    assert!(said[4].starts_with("Code::OutcomeUnknown"), "{said:?}");
    assert_eq!(egress.asked().len(), 4);
}

#[tokio::test]
async fn the_largest_body_passes_both_ways() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-stray-caller")).await;
    let egress = Arc::new(Scribe::default());
    let setup = reaching(egress.clone(), HOUR);
    let call = format!(
        "{{\"how\":\"send\",\"method\":\"POST\",\"url\":\"http://backend/{}\",\"body\":{}}}",
        8 * MIB,
        8 * MIB
    );
    let findings = plugin.probe(&setup, &config(&call)).await.unwrap();
    assert_eq!(said(&findings), [format!("201 {} bytes", 8 * MIB)]);
    assert_eq!(egress.asked()[0].1.body.as_bytes().len(), 8 * MIB);
}

#[tokio::test]
async fn waiting_for_an_answer_costs_no_cpu_time() {
    let plugin = under(
        |ceilings| ceilings.cpu = Duration::from_millis(400),
        guest!("hostile-stray-caller"),
    )
    .await;
    let setup = reaching(Arc::new(Scribe::default()), HOUR);
    let findings = plugin
        .probe(&setup, &config(&call("send", "GET", "slow")))
        .await
        .unwrap();
    assert_eq!(said(&findings), ["201 whole"]);
}

#[tokio::test]
async fn a_call_that_ends_before_its_answer_ends_on_its_deadline() {
    let runtime = runtime(|_| {});
    let plugin = plugin(&runtime, guest!("hostile-stray-caller")).await;
    let egress = Arc::new(Scribe::default());
    let setup = reaching(egress.clone(), Duration::from_millis(400));
    let failure = plugin
        .probe(&setup, &config(&call("send", "GET", "slow")))
        .await
        .unwrap_err();
    assert!(matches!(failure, Failure::Timeout { .. }), "{failure:?}");
    let timeout = egress.asked()[0].1.timeout.unwrap();
    assert!(timeout <= Duration::from_millis(400), "{timeout:?}");
}
