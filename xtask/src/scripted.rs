//! Samples in JavaScript and Python: a folder of `sample-plugins` with a `provider.js` or a `provider.py`.
//!
//! What goes into a component is staged first, in a folder that looks the same wherever the checkout lies: the sample, its
//! `wit` with the contract, the SDK of its language. A component is made anew only where something of that, or a tool,
//! has changed: both tools are slow, and neither gives the same bytes twice (both keep memory as it stood after a start that
//! read the clock and random numbers).

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::checkout::Checkout;
use crate::shell;
use crate::tools::{Tools, hex};

/// Changes whenever components are to be made in another way, of the same inputs.
const RECIPE: &str = "1";

/// The example that is built with the component model's async in it, to be refused.
const ASYNC: &str = "async";

/// A language that a sample is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// QuickJS, by `componentize-qjs`.
    JavaScript,
    /// CPython, by `componentize-py`.
    Python,
}

impl Language {
    fn extension(self) -> &'static str {
        match self {
            Language::JavaScript => "js",
            Language::Python => "py",
        }
    }

    /// Where the SDK is in the repository, and where the tool looks for it in the stage.
    fn sdk(self) -> (&'static str, &'static str) {
        match self {
            Language::JavaScript => ("sdk/javascript", "node_modules/leasehold-provider"),
            Language::Python => ("sdk/python/leasehold_provider", "leasehold_provider"),
        }
    }
}

/// A sample.
#[derive(Debug)]
pub struct Script {
    language: Language,
    folder: PathBuf,
}

/// The samples, by the names of their folders.
pub fn find(checkout: &Checkout) -> Result<BTreeMap<String, Script>> {
    let samples = checkout.root.join("sample-plugins");
    let mut found = BTreeMap::new();
    for entry in
        fs::read_dir(&samples).with_context(|| format!("{} does not read", samples.display()))?
    {
        let folder = entry?.path();
        for language in [Language::JavaScript, Language::Python] {
            let provider = folder.join("provider").with_extension(language.extension());
            if let (true, Some(name)) = (provider.is_file(), folder.file_name()) {
                let name = name.to_string_lossy().into_owned();
                let folder = folder.clone();
                found.insert(name, Script { language, folder });
            }
        }
    }
    Ok(found)
}

/// Builds a sample and its examples where they are not up to date; answers what stands where, and the file that each
/// component is to be.
pub fn build(
    checkout: &Checkout,
    tools: &Tools,
    name: &str,
    script: &Script,
) -> Result<Vec<(PathBuf, String)>> {
    let work = checkout.target.join("guests/scripted").join(name);
    let stage = work.join("stage");
    stage_inputs(checkout, script, &stage)?;
    let inputs = inputs(&stage, tools)?;
    let mut made = Vec::new();
    for (module, file) in modules(&stage, name, script.language)? {
        let built = work.join(&file);
        let stamp = built.with_extension("inputs");
        let current = fs::read_to_string(&stamp).is_ok_and(|stamp| stamp == inputs);
        if !(current && built.is_file()) {
            // What an earlier run left must not pass for this one's.
            let _ = fs::remove_file(&stamp);
            let mut command = command(tools, script.language, &work, &module, &built)?;
            // What went wrong is on standard error; what went well nobody asked.
            command.current_dir(&stage).stdout(Stdio::null());
            shell::run(&mut command)?;
            fs::write(&stamp, &inputs)
                .with_context(|| format!("{} cannot be written", stamp.display()))?;
        }
        made.push((built, file));
    }
    Ok(made)
}

/// Lays out what goes into the components of a sample.
fn stage_inputs(checkout: &Checkout, script: &Script, stage: &Path) -> Result<()> {
    if stage.exists() {
        fs::remove_dir_all(stage)
            .with_context(|| format!("{} cannot be removed", stage.display()))?;
    }
    let extension = script.language.extension();
    let source = |path: &Path| path.extension().is_some_and(|ending| ending == extension);
    copy(&script.folder, stage, &source)?;
    let wit = |path: &Path| path.extension().is_some_and(|ending| ending == "wit");
    copy(&script.folder.join("wit"), &stage.join("wit"), &wit)?;
    let (sdk, place) = script.language.sdk();
    let whole =
        |path: &Path| source(path) || path.extension().is_some_and(|ending| ending == "json");
    copy(&checkout.root.join(sdk), &stage.join(place), &whole)
}

/// Copies the files below `from` that are wanted; what a link points to is copied in its place.
fn copy(from: &Path, to: &Path, wanted: &dyn Fn(&Path) -> bool) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let entries =
        fs::read_dir(from).with_context(|| format!("{} does not read", from.display()))?;
    for entry in entries {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            // What an author's own tools leave in the folder is not a part of the sample.
            let made = name == "node_modules"
                || name == "__pycache__"
                || name.as_encoded_bytes().starts_with(b".");
            if !made {
                copy(&path, &to.join(name), wanted)?;
            }
        } else if wanted(&path) {
            fs::copy(&path, to.join(name))
                .with_context(|| format!("{} cannot be copied", path.display()))?;
        }
    }
    Ok(())
}

/// Everything that a component of this stage depends on, as one word.
fn inputs(stage: &Path, tools: &Tools) -> Result<String> {
    let mut files = Vec::new();
    below(stage, &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    for part in [RECIPE, tools.digest()] {
        hash.update(Sha256::digest(part));
    }
    for file in files {
        let name = file.strip_prefix(stage)?;
        hash.update(Sha256::digest(name.as_os_str().as_encoded_bytes()));
        let bytes = fs::read(&file).with_context(|| format!("{} does not read", file.display()))?;
        hash.update(Sha256::digest(bytes));
    }
    Ok(hex(&hash.finalize()))
}

fn below(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            below(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// The modules that become components, as paths in the stage, with the files that these are to be.
fn modules(stage: &Path, name: &str, language: Language) -> Result<Vec<(PathBuf, String)>> {
    let extension = language.extension();
    let mut all = vec![(
        Path::new("provider").with_extension(extension),
        format!("{name}.wasm"),
    )];
    let examples = stage.join("examples");
    if examples.is_dir() {
        for entry in fs::read_dir(&examples)? {
            let file = PathBuf::from(entry?.file_name());
            let stem = file.file_stem().unwrap_or_default().to_string_lossy();
            all.push((
                Path::new("examples").join(&file),
                format!("{name}-{stem}.wasm"),
            ));
        }
    }
    all.sort();
    Ok(all)
}

/// The command that makes a component of a module.
fn command(
    tools: &Tools,
    language: Language,
    work: &Path,
    module: &Path,
    built: &Path,
) -> Result<Command> {
    let stem = module.file_stem().unwrap_or_default();
    match language {
        Language::JavaScript => {
            let mut command = tools.componentize_qjs()?;
            command
                .args(["--wit", "wit", "--module-root", ".", "--js"])
                .arg(module);
            if stem != ASYNC {
                command.arg("--sync");
            }
            command.arg("--output").arg(built);
            Ok(command)
        }
        Language::Python => {
            let Some(stem) = stem.to_str() else {
                bail!("{} is no name of a module", module.display());
            };
            let mut command = tools.componentize_py(&work.join("no-modules"))?;
            command
                .args(["--quiet", "--wit-path", "wit", "componentize", stem])
                .args([
                    "--python-path",
                    ".",
                    "--python-path",
                    "examples",
                    "--output",
                ])
                .arg(built);
            Ok(command)
        }
    }
}
