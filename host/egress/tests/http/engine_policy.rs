//! What of an engine's API a component may use: every trick of the body, the path and the query, and nothing of it arrives.

use leasehold_contract::{Code, Content, HttpRequest, NoStream, Operation, Piece};
use leasehold_egress::Reach;

use crate::engine_dock::{Dock, EXEC, OWN, PAYLOAD, PAYLOAD_TOKEN, THEIRS, lax};

/// A body that is good but for what is in it.
fn host_config(more: &str) -> String {
    format!(r#"{{"Image":"busybox:1","HostConfig":{{{more}}}}}"#)
}

fn beside(more: &str) -> String {
    format!(r#"{{"Image":"busybox:1",{more}}}"#)
}

/// Everything that would give a container more of its engine's machine, and every way to say it that an engine would read.
fn tricks() -> Vec<String> {
    let mut all: Vec<String> = [
        // Of the machine's files.
        r#""Binds":["/:/host"]"#,
        r#""Binds":[]"#,
        r#""Binds":null"#,
        r#""Mounts":[{"Type":"bind","Source":"/","Target":"/host"}]"#,
        r#""Mounts":[{"Type":"volume","Target":"/x","VolumeOptions":{"DriverConfig":{"Options":{"type":"none","o":"bind","device":"/"}}}}]"#,
        r#""Mounts":[]"#,
        r#""VolumesFrom":["theirs"]"#,
        r#""VolumeDriver":"local""#,
        r#""Tmpfs":{"/proc":""}"#,
        r#""Tmpfs":{"/sys/fs/cgroup":""}"#,
        r#""Tmpfs":{"/dev":""}"#,
        r#""Tmpfs":{"/dev/shm/../../proc":""}"#,
        r#""Tmpfs":{"/":""}"#,
        r#""Tmpfs":{"proc":""}"#,
        r#""Tmpfs":{"/x:/y":""}"#,
        r#""Tmpfs":{"/x":"bind,source=/"}"#,
        r#""Tmpfs":{"/x":"dev,suid"}"#,
        // Of its rights.
        r#""Privileged":true"#,
        r#""Privileged":false"#,
        r#""CapAdd":["SYS_ADMIN"]"#,
        r#""CapAdd":["ALL"]"#,
        r#""Capabilities":["CAP_SYS_ADMIN"]"#,
        r#""SecurityOpt":["seccomp=unconfined"]"#,
        r#""SecurityOpt":["seccomp:unconfined"]"#,
        r#""SecurityOpt":["apparmor=unconfined"]"#,
        r#""SecurityOpt":["label=disable"]"#,
        r#""SecurityOpt":["label=type:spc_t"]"#,
        r#""SecurityOpt":["systempaths=unconfined"]"#,
        r#""SecurityOpt":["no-new-privileges","unmask=ALL"]"#,
        r#""SecurityOpt":["no-new-privileges:false"]"#,
        r#""MaskedPaths":[]"#,
        r#""ReadonlyPaths":[]"#,
        r#""GroupAdd":["disk"]"#,
        r#""OomScoreAdj":-1000"#,
        r#""OomKillDisable":true"#,
        r#""Sysctls":{"kernel.core_pattern":"|/x"}"#,
        r#""Runtime":"/tmp/x""#,
        r#""CgroupParent":"/""#,
        r#""Cgroup":"host""#,
        r#""Annotations":{"io.podman.annotations.privileged":"TRUE"}"#,
        // Of its devices.
        r#""Devices":[{"PathOnHost":"/dev/sda","PathInContainer":"/dev/sda","CgroupPermissions":"rwm"}]"#,
        r#""DeviceRequests":[{"Driver":"nvidia","Count":-1}]"#,
        r#""DeviceCgroupRules":["a *:* rwm"]"#,
        r#""BlkioDeviceReadBps":[{"Path":"/dev/sda","Rate":1}]"#,
        // Of its namespaces, and of other containers'.
        r#""NetworkMode":"host""#,
        r#""NetworkMode":"container:theirs""#,
        r#""NetworkMode":"ns:/proc/1/ns/net""#,
        r#""NetworkMode":"slirp4netns:allow_host_loopback=true""#,
        r#""NetworkMode":"internal-network""#,
        r#""PidMode":"host""#,
        r#""PidMode":"container:theirs""#,
        r#""PidMode":"""#,
        r#""IpcMode":"host""#,
        r#""IpcMode":"container:theirs""#,
        r#""UTSMode":"host""#,
        r#""UsernsMode":"host""#,
        r#""CgroupnsMode":"host""#,
        r#""Links":["theirs:db"]"#,
        r#""ExtraHosts":["engine:host-gateway"]"#,
        // Of its ports, its logs and its life.
        r#""PortBindings":{"22/tcp":[{"HostPort":"22"}]}"#,
        r#""PublishAllPorts":true"#,
        r#""LogConfig":{"Type":"syslog","Config":{"syslog-address":"tcp://10.0.0.5:514"}}"#,
        r#""ContainerIDFile":"/etc/cron.d/x""#,
        r#""RestartPolicy":{"Name":"always"}"#,
        r#""AutoRemove":true"#,
        r#""StorageOpt":{"size":"1T"}"#,
        r#""Isolation":"process""#,
        // Other case of letters: engines take any.
        r#""privileged":true"#,
        r#""PRIVILEGED":true"#,
        r#""binds":["/:/host"]"#,
        r#""BINDS":["/:/host"]"#,
        r#""capAdd":["ALL"]"#,
        r#""networkMode":"host""#,
        r#""pidmode":"host""#,
        r#""\u017fecurityopt":["seccomp=unconfined"]"#,
        // Escapes in keys and values.
        r#""Priv\u0069leged":true"#,
        r#""\u0042inds":["/:/host"]"#,
        r#""NetworkMode":"h\u006fst""#,
        r#""NetworkMode":"\u0068\u006f\u0073\u0074""#,
        r#""SecurityOpt":["seccomp\u003dunconfined"]"#,
        // Keys that stand twice, of which the last would count, or the first.
        r#""NetworkMode":"none","NetworkMode":"host""#,
        r#""NetworkMode":"host","NetworkMode":"none""#,
        r#""NetworkMode":"none","Network\u004dode":"host""#,
        r#""Init":true,"Init":true"#,
    ]
    .iter()
    .map(|more| host_config(more))
    .collect();
    all.extend(
        [
            // Beside the part where it belongs, and a part that stands twice.
            r#""Privileged":true"#,
            r#""Binds":["/:/host"]"#,
            r#""Volumes":{"/host":{}}"#,
            r#""hostConfig":{"Privileged":true}"#,
            r#""HOSTCONFIG":{"Privileged":true}"#,
            r#""hostconfig":{"Binds":["/:/host"]}"#,
            r#""HostConfig":{},"HostConfig":{"Privileged":true}"#,
            r#""HostConfig":{"Privileged":true},"HostConfig":{}"#,
            r#""HostConfig":{},"Host\u0043onfig":{"Privileged":true}"#,
            r#""HostConfig":[{"Privileged":true}]"#,
            r#""HostConfig":"{\"Privileged\":true}""#,
            r#""HostConfig":{"HostConfig":{"Privileged":true}}"#,
            r#""HostConfig":{"Resources":{"Devices":[]}}"#,
            r#""Config":{"HostConfig":{"Privileged":true}}"#,
            r#""NetworkingConfig":{"EndpointsConfig":{"host":{}}}"#,
            r#""ExposedPorts":{"22/tcp":{}}"#,
            r#""MacAddress":"00:11:22:33:44:55""#,
            r#""Healthcheck":{"Test":["CMD","x"]}"#,
            r#""OnBuild":["x"]"#,
            r#""Shell":["x"]"#,
            r#""ArgsEscaped":true"#,
            r#""Domainname":"x""#,
            r#""NetworkDisabled":false"#,
            // Labels that somebody else obeys, or another lease's.
            r#""Labels":{"leasehold-owner":"another-mac"}"#,
            r#""Labels":{"leasehold-owner":"owner-mac","leasehold-owner":"another-mac"}"#,
            r#""Labels":{"Leasehold-Owner":"another-mac"}"#,
            r#""Labels":{"traefik.enable":"true"}"#,
            r#""Labels":{"io.containers.autoupdate":"registry"}"#,
            r#""Labels":{"leasehold-lease":"lea_2"}"#,
            r#""labels":{"leasehold-owner":"owner-mac"}"#,
            // Of the engine's own environment, and its files.
            r#""Env":["PATH"]"#,
            r#""Env":["AWS_*"]"#,
            r#""Env":["=x"]"#,
            r#""Env":["A=\u0000"]"#,
            r#""Cmd":"sh -c x""#,
            r#""WorkingDir":"x""#,
            r#""User":"a b""#,
            r#""User":"../x""#,
            r#""Hostname":"a b""#,
            r#""Cmd":["x"],"Cmd":["y"]"#,
        ]
        .iter()
        .map(|more| beside(more)),
    );
    for image in [
        "dir:/etc",
        "oci-archive:/etc/x",
        "docker-archive:x",
        "containers-storage:x",
        "../x",
        "/etc/passwd",
        "x?y",
        "",
    ] {
        all.push(format!(r#"{{"Image":"{image}"}}"#));
    }
    let deep = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    all.extend([
        String::new(),
        "null".into(),
        "[]".into(),
        "{}".into(),
        r#"{"image":"busybox:1"}"#.into(),
        r#"{"Image":"busybox:1"} {"HostConfig":{"Privileged":true}}"#.into(),
        r#"{"Image":"busybox:1"}{}"#.into(),
        r#"{"Image":"busybox:1",}"#.into(),
        r#"{"Image":"busybox:1"/**/}"#.into(),
        "{'Image':'busybox:1'}".into(),
        r#"{"Image":"busybox:1","Cmd":["\ud800"]}"#.into(),
        "\u{feff}{\"Image\":\"busybox:1\"}".into(),
        beside(&format!(r#""Cmd":{}"#, deep(100))),
        host_config(&format!(r#""Memory":{}"#, deep(20_000))),
        host_config(r#""Memory":1e3"#),
        host_config(r#""Memory":-1"#),
        host_config(r#""Memory":99999999999999999999999"#),
        host_config(r#""Memory":"1""#),
        host_config(r#""Init":1"#),
    ]);
    all
}

/// Declares the operations with the version of the API as well.
fn versioned(dock: &mut Dock) {
    let mut all = dock.facts.asked.operations.clone();
    let with = all.clone().into_iter().map(|operation| Operation {
        path: format!("/v1.41{}", operation.path),
        ..operation
    });
    all.extend(with);
    dock.declare(all);
}

async fn denied(dock: &Dock, request: HttpRequest, what: &str) -> String {
    let error = match dock.call().http_send(request).await {
        Ok(answer) => panic!("{what} was let through: {answer:?}"),
        Err(error) => error,
    };
    assert_eq!(error.code, Code::PermissionDenied, "{what}: {error}");
    error.message
}

#[tokio::test]
async fn no_container_that_has_anything_of_the_machine_is_ever_asked_for_however_it_is_written() {
    let dock = Dock::new().await;
    for body in tricks() {
        let shown: String = body.chars().take(160).collect();
        denied(&dock, dock.post("/containers/create", &body), &shown).await;
        // By the encodings of a body that is not looked into, too.
        let mut packed = dock.post("/containers/create", &body);
        packed.headers = vec![("content-encoding".into(), "gzip".into())];
        denied(&dock, packed, &shown).await;
        let mut form = dock.post("/containers/create", &body);
        form.headers = vec![(
            "content-type".into(),
            "application/x-www-form-urlencoded".into(),
        )];
        denied(&dock, form, &shown).await;
    }
    assert_eq!(dock.accepted(), 0, "nothing reached the engine");
    assert!(
        dock.book()
            .iter()
            .all(|line| line.starts_with("refused unix:///"))
    );
}

#[tokio::test]
async fn what_an_engine_is_sent_is_written_by_the_host_from_what_it_read() {
    let mut dock = Dock::new().await;
    versioned(&mut dock);
    let body = format!(
        " {{ \"Im\\u0061ge\" : \"busybox:1\", \"Env\": [\"TOKEN={PAYLOAD_TOKEN}\", \"A=\\u00e9\\/\\n\"],\n\
         \"Cmd\": [\"sleep\", \"9\"], \"Entrypoint\": null, \"Tty\": true, \"OpenStdin\": false,\n\
         \"Labels\": {{ \"leasehold-lease\": \"lea_1\" }},\n\
         \"HostConfig\": {{ \"Memory\": 1048576, \"NetworkMode\": \"n\\u006fne\", \"Init\": true, \"CapDrop\": [\"ALL\"],\n\
         \"SecurityOpt\": [\"no-new-privileges\"], \"Tmpfs\": {{ \"/tmp\": \"rw,size=1m,mode=1777\" }},\n\
         \"Ulimits\": [{{ \"Name\": \"nofile\", \"Soft\": 64, \"Hard\": 64 }}] }} }} "
    );
    let mut request = dock.post("/v1.41/containers/create?name=acq-1", &body);
    request
        .query
        .push(("platform".into(), "linux/amd64".into()));
    let answer = dock.call().http_send(request).await.expect("a container");
    assert_eq!(answer.head.status, 201);
    let heard = dock.heard();
    assert_eq!(
        heard[0].line,
        "POST /v1.41/containers/create?name=acq-1&platform=linux%2Famd64"
    );
    assert_eq!(
        heard[0].body,
        format!(
            r#"{{"Image":"busybox:1","Cmd":["sleep","9"],"Env":["TOKEN={PAYLOAD}","A=é/\n"],"Tty":true,"OpenStdin":false,"#
        ) + r#""Labels":{"leasehold-lease":"lea_1","leasehold-owner":"owner-mac"},"#
            + r#""HostConfig":{"Memory":1048576,"Ulimits":[{"Name":"nofile","Soft":64,"Hard":64}],"Init":true,"CapDrop":["ALL"],"#
            + r#""SecurityOpt":["no-new-privileges"],"NetworkMode":"none","Tmpfs":{"/tmp":"rw,size=1m,mode=1777"}}}"#
    );
    let header = |name: &str| -> Vec<&str> {
        let all = heard[0].headers.iter().filter(|(n, _)| n == name);
        all.map(|(_, value)| value.as_str()).collect()
    };
    assert_eq!(header("content-type"), ["application/json"]);
    assert_eq!(header("host"), ["localhost"]);
    assert!(
        dock.book().contains(&format!("created {OWN}")),
        "{:?}",
        dock.book()
    );
}

#[tokio::test]
async fn what_a_payload_stands_for_is_judged_as_it_is_sent_and_told_to_nobody() {
    let dock = Dock::new().await;
    for body in [
        host_config(&format!(r#""NetworkMode":"{PAYLOAD_TOKEN}""#)),
        host_config(&format!(r#""Memory":"{PAYLOAD_TOKEN}""#)),
        host_config(&format!(r#""Tmpfs":{{"/x":"{PAYLOAD_TOKEN}"}}"#)),
        beside(&format!(
            r#""Labels":{{"leasehold-owner":"{PAYLOAD_TOKEN}"}}"#
        )),
        beside(&format!(r#""{PAYLOAD_TOKEN}":1"#)),
        // These would do as they are written, and not as they are sent.
        beside(&format!(r#""User":"{PAYLOAD_TOKEN}""#)),
        beside(&format!(r#""Hostname":"{PAYLOAD_TOKEN}""#)),
        format!(r#"{{"Image":"{PAYLOAD_TOKEN}"}}"#),
    ] {
        let told = denied(&dock, dock.post("/containers/create", &body), &body).await;
        assert!(!told.contains(PAYLOAD), "{told}");
    }
    assert_eq!(dock.accepted(), 0);
}

#[tokio::test]
async fn nothing_is_done_to_a_container_or_in_one_that_is_not_this_leases_by_its_whole_id() {
    let mut dock = Dock::leased().await;
    let names = [
        THEIRS,
        "theirs",
        "acq-1",
        &OWN[..12],
        &OWN[..63],
        &OWN.to_uppercase(),
        &format!("{OWN}0"),
        &format!("{OWN}%20"),
        &format!("{OWN};"),
        &format!("{OWN}%2f..%2f{THEIRS}"),
        &format!("../containers/{THEIRS}"),
        EXEC,
        "*",
        "%00",
        "json",
        "create",
    ];
    let calls = [
        ("POST", "/containers/{}/exec", r#"{"Cmd":["id"]}"#),
        ("POST", "/containers/{}/start", ""),
        ("POST", "/containers/{}/stop", ""),
        ("POST", "/containers/{}/kill", ""),
        ("POST", "/containers/{}/wait", ""),
        ("DELETE", "/containers/{}", ""),
        ("PUT", "/containers/{}/archive?path=/", "x"),
        ("GET", "/containers/{}/archive?path=/", ""),
        ("HEAD", "/containers/{}/archive?path=/", ""),
        ("GET", "/containers/{}/json", ""),
        ("GET", "/containers/{}/logs?stdout=1", ""),
    ];
    for operations in [dock.facts.asked.operations.clone(), lax()] {
        dock.declare(operations);
        for name in names {
            for (method, path, body) in calls {
                let path = path.replace("{}", name);
                let request = HttpRequest {
                    body: Content::Text(body.into()),
                    ..dock.ask(method, &path)
                };
                denied(&dock, request, &format!("{method} {path}")).await;
            }
            for (method, path, body) in [
                ("POST", "/exec/{}/start", "{}"),
                ("POST", "/exec/{}/resize?h=1&w=1", ""),
                ("GET", "/exec/{}/json", ""),
            ] {
                let path = path.replace("{}", if name == EXEC { OWN } else { name });
                let request = HttpRequest {
                    body: Content::Text(body.into()),
                    ..dock.ask(method, &path)
                };
                denied(&dock, request.clone(), &format!("{method} {path}")).await;
                let none = dock.call().upgrade(request, "tcp".into()).await.err();
                assert!(
                    matches!(none, Some(NoStream::Failed(_))),
                    "{path}: {none:?}"
                );
            }
        }
    }
    assert_eq!(dock.accepted(), 0, "nothing reached the engine");
}

#[tokio::test]
async fn what_is_not_on_the_list_is_refused_whatever_the_manifest_declares() {
    let mut dock = Dock::leased().await;
    dock.declare(lax());
    for (method, path) in [
        // Of Docker's API.
        ("GET", "/info"),
        ("GET", "/events"),
        ("GET", "/system/df"),
        ("GET", "/images/json"),
        ("GET", "/images/busybox/get"),
        ("GET", "/images/busybox/history"),
        ("POST", "/images/load"),
        ("POST", "/images/busybox/push"),
        ("POST", "/images/busybox/tag"),
        ("DELETE", "/images/busybox"),
        ("POST", "/build"),
        ("POST", "/commit"),
        ("POST", "/auth"),
        ("POST", "/session"),
        ("POST", "/grpc"),
        ("GET", "/volumes"),
        ("POST", "/volumes/create"),
        ("GET", "/networks"),
        ("POST", "/networks/create"),
        ("POST", "/networks/bridge/connect"),
        ("GET", "/plugins"),
        ("POST", "/plugins/pull"),
        ("POST", "/swarm/init"),
        ("GET", "/secrets"),
        ("GET", "/configs"),
        ("POST", "/containers/prune"),
        ("GET", "/distribution/busybox/json"),
        // Of the lease's own container.
        ("POST", &format!("/containers/{OWN}/update")),
        ("POST", &format!("/containers/{OWN}/rename?name=x")),
        ("POST", &format!("/containers/{OWN}/attach")),
        ("POST", &format!("/containers/{OWN}/restart")),
        ("GET", &format!("/containers/{OWN}/attach/ws")),
        ("GET", &format!("/containers/{OWN}/export")),
        ("GET", &format!("/containers/{OWN}/top")),
        ("GET", &format!("/containers/{OWN}/stats")),
        ("GET", &format!("/containers/{OWN}/changes")),
        ("GET", &format!("/containers/{OWN}")),
        // Of Podman's own.
        ("GET", "/libpod/info"),
        ("POST", "/libpod/containers/create"),
        ("POST", "/v4.3.1/libpod/containers/create"),
        ("GET", &format!("/libpod/containers/{OWN}/json")),
        // Other spellings of what is.
        ("GET", "/Version"),
        ("GET", "/version/"),
        ("GET", "/v1.41"),
        ("GET", "/v1.41/v1.41/version"),
        ("GET", "/v1.12/version"),
        ("GET", "/v1.23/version"),
        ("GET", "/v1.041/version"),
        ("GET", "/v1.100/version"),
        ("GET", "/v2.41/version"),
        ("GET", "/V1.41/version"),
        ("GET", "/v1.4%31x/version"),
        ("PATCH", "/containers/create"),
        ("PUT", "/containers/create"),
        ("HEAD", "/version"),
        ("GET", "/"),
    ] {
        denied(&dock, dock.ask(method, path), &format!("{method} {path}")).await;
    }
    assert_eq!(dock.accepted(), 0, "nothing reached the engine");
}

#[tokio::test]
async fn what_acts_is_sent_by_an_operation_that_acts_and_by_no_lesser_one() {
    let mut dock = Dock::leased().await;
    dock.declare(lax());
    for (method, path, body) in [
        (
            "POST",
            "/containers/create".to_owned(),
            r#"{"Image":"busybox:1"}"#,
        ),
        ("POST", format!("/containers/{OWN}/start"), ""),
        ("POST", format!("/containers/{OWN}/kill"), ""),
        ("DELETE", format!("/containers/{OWN}"), ""),
        ("PUT", format!("/containers/{OWN}/archive?path=/"), "x"),
        (
            "POST",
            format!("/containers/{OWN}/exec"),
            r#"{"Cmd":["id"]}"#,
        ),
        ("POST", format!("/exec/{EXEC}/start"), "{}"),
    ] {
        let request = HttpRequest {
            body: Content::Text(body.into()),
            ..dock.ask(method, &path)
        };
        let told = denied(&dock, request, &path).await;
        assert!(told.contains("must be an operation of role"), "{told}");
    }
    dock.declare(crate::engine_dock::honest());
    dock.reach = Reach::Read;
    for (method, path) in [
        ("POST", format!("/containers/{OWN}/start")),
        ("DELETE", format!("/containers/{OWN}")),
    ] {
        denied(&dock, dock.ask(method, &path), &path).await;
    }
    assert_eq!(dock.accepted(), 0);
}

#[tokio::test]
async fn a_parameter_is_known_stands_once_and_is_written_anew() {
    let (dock, making) = (Dock::leased().await, Dock::new().await);
    let own = |rest: &str| format!("/containers/{OWN}{rest}");
    for (method, path) in [
        ("POST", "/containers/create?name=theirs".to_owned()),
        (
            "POST",
            "/containers/create?name=acq-1&name=theirs".to_owned(),
        ),
        ("POST", "/containers/create?Name=acq-1".to_owned()),
        ("POST", "/containers/create?name=acq-1;x=y".to_owned()),
        ("POST", "/images/create?fromImage=busybox".to_owned()),
        (
            "POST",
            "/images/create?fromImage=busybox:1&tag=2".to_owned(),
        ),
        (
            "POST",
            "/images/create?fromSrc=http://169.254.169.254/".to_owned(),
        ),
        ("POST", "/images/create?fromImage=dir:/etc&tag=1".to_owned()),
        (
            "POST",
            "/images/create?fromImage=docker-archive&tag=x".to_owned(),
        ),
        (
            "POST",
            "/images/create?fromImage=busybox&tag=1&repo=x".to_owned(),
        ),
        (
            "POST",
            "/images/create?fromImage=busybox&tag=1&changes=USER+root".to_owned(),
        ),
        ("GET", "/containers/json?filters=%7B%7D".to_owned()),
        ("GET", "/containers/json?all=yes".to_owned()),
        ("DELETE", own("?link=1")),
        ("DELETE", own("?force=1&force=0")),
        ("DELETE", own("?Force=1")),
        ("POST", own("/start?detachKeys=a")),
        ("POST", own("/kill?signal=a%20b")),
        ("GET", own("/archive?path=x")),
        ("GET", own("/archive?path=%2Fa%00")),
        ("GET", own("/logs?since=x")),
    ] {
        let (dock, body) = match path.contains("containers/create") {
            true => (&making, r#"{"Image":"busybox:1"}"#),
            false => (&dock, ""),
        };
        let request = HttpRequest {
            body: Content::Text(body.into()),
            ..dock.ask(method, &path)
        };
        let told = denied(dock, request, &format!("{method} {path}")).await;
        assert!(told.contains("the engine policy"), "{told}");
    }
    assert_eq!((dock.accepted(), making.accepted()), (0, 0));
    let call = dock.call();
    call.http_send(dock.ask("GET", &own("/archive?path=/etc/%6dotd")))
        .await
        .expect("a file");
    call.http_send(dock.ask("DELETE", &own("?force=true&v=1")))
        .await
        .expect("gone");
    let lines: Vec<String> = dock.heard().into_iter().map(|heard| heard.line).collect();
    assert_eq!(
        lines,
        [
            format!("GET /containers/{OWN}/archive?path=%2Fetc%2Fmotd"),
            format!("DELETE /containers/{OWN}?force=true&v=1"),
        ]
    );
}

#[tokio::test]
async fn a_list_holds_the_leases_own_containers_and_nobody_elses() {
    let dock = Dock::leased().await;
    let answer = dock
        .call()
        .http_send(dock.ask("GET", "/containers/json?all=1"))
        .await
        .expect("a list");
    let Content::Text(text) = &answer.body else {
        panic!("{answer:?}");
    };
    assert!(
        text.contains(OWN) && !text.contains(THEIRS) && !text.contains("canary"),
        "{text}"
    );
    assert_eq!(
        dock.heard()[0].line,
        "GET /containers/json?all=1&filters=%7B%22label%22%3A%5B%22leasehold-owner%3Downer-mac%22%5D%7D"
    );
    // Not past the one form whose answer is read whole.
    let list = || dock.ask("GET", "/containers/json?all=1");
    assert!(dock.call().http_open(list()).await.is_err());
    assert!(dock.call().http_download(list()).await.is_err());
    assert_eq!(dock.heard().len(), 1);
}

#[tokio::test]
async fn the_way_of_an_honest_provider_is_open() {
    let mut dock = Dock::new().await;
    versioned(&mut dock);
    let call = dock.call();
    let body = r#"{"Image":"busybox:1","Cmd":["sleep","9"]}"#;
    call.http_send(dock.ask("GET", "/version"))
        .await
        .expect("a version");
    let mut pull = dock.ask("POST", "/images/create?fromImage=registry.example%2Fbox");
    pull.query.push(("tag".into(), "1".into()));
    call.http_open(pull).await.expect("a pull");
    call.http_send(dock.post("/containers/create", body))
        .await
        .expect("a container");
    call.http_send(dock.ask("POST", &format!("/containers/{OWN}/start")))
        .await
        .expect("a start");
    let piece = Piece::Inline(Content::Bytes(vec![0; 1024]));
    let put = dock.ask("PUT", &format!("/v1.41/containers/{OWN}/archive?path=/tmp"));
    call.http_upload(put, vec![piece]).await.expect("files");
    let exec = r#"{"Cmd":["sh"],"AttachStdout":true,"User":"1000:1000","Env":["A=b"]}"#;
    call.http_send(dock.post(&format!("/containers/{OWN}/exec"), exec))
        .await
        .expect("a command");
    let start = dock.post(&format!("/exec/{EXEC}/start"), r#"{"Tty":false}"#);
    for protocol in ["h2c", "websocket", "TCP"] {
        let none = call.upgrade(start.clone(), protocol.into()).await.err();
        assert!(
            matches!(none, Some(NoStream::Failed(_))),
            "{protocol}: {none:?}"
        );
    }
    call.upgrade(start, "tcp".into())
        .await
        .map(drop)
        .expect("a stream");
    call.http_send(dock.ask("GET", &format!("/exec/{EXEC}/json")))
        .await
        .expect("a command's end");
    call.http_send(dock.ask("DELETE", &format!("/containers/{OWN}?force=1")))
        .await
        .expect("gone");
    let lines: Vec<String> = dock.heard().into_iter().map(|heard| heard.line).collect();
    assert_eq!(lines.len(), 9, "{lines:?}");
    assert_eq!(
        lines[1],
        "POST /images/create?fromImage=registry.example%2Fbox&tag=1"
    );
    for heard in dock.heard() {
        let kind = heard
            .headers
            .iter()
            .find(|(name, _)| name == "content-type");
        let kind = kind.map(|(_, value)| value.as_str());
        let expected = match heard.line.as_str() {
            line if line.starts_with("PUT") => Some("application/x-tar"),
            line if line.ends_with("/create") || line.ends_with("/exec") => {
                Some("application/json")
            }
            line if line.ends_with(&format!("{EXEC}/start")) => Some("application/json"),
            _ => None,
        };
        assert_eq!(kind, expected, "{heard:?}");
    }
    assert_eq!(
        dock.heard()[5].body,
        r#"{"Cmd":["sh"],"Env":["A=b"],"User":"1000:1000","AttachStdout":true}"#
    );
    assert_eq!(dock.heard()[6].body, r#"{"Detach":false,"Tty":false}"#);
}

#[tokio::test]
async fn a_command_with_more_rights_than_its_container_is_refused() {
    let dock = Dock::leased().await;
    for body in [
        r#"{"Cmd":["id"],"Privileged":true}"#,
        r#"{"Cmd":["id"],"privileged":true}"#,
        r#"{"Cmd":["id"],"Priv\u0069leged":true}"#,
        r#"{"Cmd":["id"],"Cmd":["sh"]}"#,
        r#"{"Cmd":["id"],"Env":["PATH"]}"#,
        r#"{"Cmd":["id"],"DetachKeys":"a"}"#,
        r#"{"Cmd":"id"}"#,
        r#"{}"#,
        "",
    ] {
        let path = format!("/containers/{OWN}/exec");
        denied(&dock, dock.post(&path, body), body).await;
    }
    for header in ["x-registry-config", "x-docker-anything", "x-meta-a"] {
        let mut request = dock.ask("POST", &format!("/containers/{OWN}/start"));
        request.headers = vec![(header.into(), "x".into())];
        denied(&dock, request, header).await;
    }
    // Engines before API 1.24 took another configuration here.
    let start = dock.post(
        &format!("/containers/{OWN}/start"),
        r#"{"Privileged":true}"#,
    );
    denied(&dock, start, "a start with a body").await;
    assert_eq!(dock.accepted(), 0);
}
