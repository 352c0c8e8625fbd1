//! Files go into the workspace and come out of it, and nowhere else.

use leasehold_contract::Code;
use tokio::io::AsyncReadExt;

use crate::machine::{act, command, machine, provider_error};

fn archive(name: &str, text: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(text.len() as u64);
    header.set_mode(0o640);
    tar.append_data(&mut header, name, text.as_bytes())
        .expect("appends");
    tar.into_inner().expect("a tar")
}

#[tokio::test]
async fn a_file_that_was_put_is_seen_by_commands_and_comes_back_the_same() {
    let Some(m) = machine().await else { return };
    let (handle, workspace) = m.acquire("a1").await;
    let bytes = archive("note.txt", "from here\n");
    m.plugin
        .put(
            &m.setup(&act("a1")),
            &m.config(),
            &handle,
            ".",
            Box::pin(std::io::Cursor::new(bytes)),
        )
        .await
        .expect("put");
    let (out, err, _) = m
        .run("a1", &handle, command("c1", &["cat", "note.txt"], ""))
        .await
        .expect("runs");
    assert_eq!(out, "from here\n", "{err}");

    let path = format!("{workspace}/note.txt");
    let mut stream = m
        .plugin
        .get(&m.setup(&act("a1")), &m.config(), &handle, &path)
        .await
        .expect("a tar");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).await.expect("whole");
    let mut tar = tar::Archive::new(bytes.as_slice());
    let mut names = Vec::new();
    for entry in tar.entries().expect("entries") {
        let mut entry = entry.expect("an entry");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).expect("reads");
        names.push((entry.path().expect("a path").display().to_string(), text));
    }
    assert_eq!(names, [("note.txt".to_owned(), "from here\n".to_owned())]);
}

#[tokio::test]
async fn a_path_outside_the_workspace_is_refused_with_the_mend() {
    let Some(m) = machine().await else { return };
    let (handle, workspace) = m.acquire("a1").await;
    for path in ["/etc", "..", "a/../../..", "/"] {
        let bytes = Box::pin(std::io::Cursor::new(archive("x", "y")));
        let put = m
            .plugin
            .put(&m.setup(&act("a1")), &m.config(), &handle, path, bytes)
            .await;
        let error = provider_error(put);
        assert_eq!(error.code, Code::PermissionDenied, "{error}");
        assert!(error.message.contains(&workspace), "{error}");
        let got = m
            .plugin
            .get(&m.setup(&act("a1")), &m.config(), &handle, path)
            .await;
        assert_eq!(provider_error(got.map(drop)).code, Code::PermissionDenied);
    }
}

#[tokio::test]
async fn a_link_in_the_workspace_takes_no_upload_out_of_it() {
    let Some(m) = machine().await else { return };
    let (handle, workspace) = m.acquire("a1").await;
    let links = "ln -s ../.. up; ln -s ../.leasehold marker; mkdir in; ln -s in within";
    m.run("a1", &handle, command("c1", &["sh", "-c", links], ""))
        .await
        .expect("links are made");
    for link in ["up", "marker"] {
        let bytes = Box::pin(std::io::Cursor::new(archive("owner", "forged")));
        let path = format!("{workspace}/{link}");
        let put = m
            .plugin
            .put(&m.setup(&act("a1")), &m.config(), &handle, &path, bytes)
            .await;
        let error = provider_error(put);
        assert_eq!(error.code, Code::PermissionDenied, "{error}");
    }
    let bytes = Box::pin(std::io::Cursor::new(archive("x", "y")));
    let path = format!("{workspace}/within");
    m.plugin
        .put(&m.setup(&act("a1")), &m.config(), &handle, &path, bytes)
        .await
        .expect("a link that stays inside is followed");
}
