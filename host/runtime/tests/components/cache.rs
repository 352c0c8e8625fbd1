//! The cache of compiled components: used when sound, replaced without a word when not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::Dir;
use leasehold_contract::Manifest;
use leasehold_runtime::{Cache, InstallError, Plugin, Runtime, SourceError};

use crate::guests::guest;
use crate::support::{HOUR, runtime, setup};

fn cached(folder: &Path, key: u8) -> Runtime {
    let dir = Dir::open_ambient_dir(folder, ambient_authority()).unwrap();
    let cache = Arc::new(Cache::new(dir, [key; 32]));
    runtime(|settings| settings.cache = Some(cache))
}

/// Loads as at a restart; says whether the bytes were asked for.
async fn load(
    runtime: &Runtime,
    digest: [u8; 32],
    manifest: &Arc<Manifest>,
    bytes: &Bytes,
) -> (Plugin, bool) {
    let asked = AtomicU32::new(0);
    let plugin = runtime
        .load(
            digest,
            Arc::clone(manifest),
            manifest.request.limits,
            || {
                asked.fetch_add(1, Ordering::Relaxed);
                let bytes = bytes.clone();
                async move { Ok::<_, SourceError>(bytes) }
            },
        )
        .await
        .unwrap();
    plugin.acquire(&setup(HOUR), "{}", None).await.unwrap();
    (plugin, asked.into_inner() > 0)
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect()
}

#[tokio::test]
async fn a_restart_with_a_warm_cache_neither_compiles_nor_describes() {
    let folder = tempfile::tempdir().unwrap();
    let bytes = guest!("null");
    let first = cached(folder.path(), 1);
    let prepared = first.prepare(bytes.clone()).await.unwrap();
    drop(first);

    let again = cached(folder.path(), 1);
    let (plugin, asked) = load(&again, prepared.digest, &prepared.manifest, &bytes).await;
    assert!(!asked);
    assert_eq!(plugin.digest_hex(), prepared.digest_hex());
    assert_eq!(again.stats().calls.ok, 1, "acquire alone, no describe");
}

#[tokio::test]
async fn a_damaged_or_foreign_entry_is_compiled_anew_and_replaced() {
    type Damage = fn(Vec<u8>) -> Vec<u8>;
    let damages: [(&str, Damage); 6] = [
        ("empty", |_| Vec::new()),
        ("garbage", |sound| vec![0x5a; sound.len()]),
        ("truncated", |sound| sound[..sound.len() / 2].to_vec()),
        ("longer", |mut sound| {
            sound.push(0);
            sound
        }),
        ("one bit in the code", |mut sound| {
            let last = sound.len() - 1;
            sound[last] ^= 1;
            sound
        }),
        ("one bit in the authentication", |mut sound| {
            sound[10] ^= 1;
            sound
        }),
    ];
    let folder = tempfile::tempdir().unwrap();
    let bytes = guest!("null");
    let prepared = cached(folder.path(), 1)
        .prepare(bytes.clone())
        .await
        .unwrap();
    for (name, damage) in damages {
        let [path] = entries(folder.path()).try_into().unwrap();
        let sound = std::fs::read(&path).unwrap();
        std::fs::write(&path, damage(sound)).unwrap();
        let (_, asked) = load(
            &cached(folder.path(), 1),
            prepared.digest,
            &prepared.manifest,
            &bytes,
        )
        .await;
        assert!(asked, "{name}");
        let (_, asked) = load(
            &cached(folder.path(), 1),
            prepared.digest,
            &prepared.manifest,
            &bytes,
        )
        .await;
        assert!(!asked, "{name}: not replaced");
    }
    let (_, asked) = load(
        &cached(folder.path(), 2),
        prepared.digest,
        &prepared.manifest,
        &bytes,
    )
    .await;
    assert!(asked, "another key");
}

#[tokio::test]
async fn an_entry_of_one_component_is_of_no_use_under_the_name_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let null = guest!("null");
    let other = guest!("hostile-endless-loop");
    let runtime = cached(folder.path(), 1);
    let prepared = runtime.prepare(null.clone()).await.unwrap();
    let [path] = entries(folder.path()).try_into().unwrap();
    runtime.prepare(other).await.unwrap();
    let wrong = entries(folder.path())
        .into_iter()
        .find(|p| *p != path)
        .unwrap();
    std::fs::copy(wrong, &path).unwrap();
    let (plugin, asked) = load(
        &cached(folder.path(), 1),
        prepared.digest,
        &prepared.manifest,
        &null,
    )
    .await;
    assert!(asked);
    assert_eq!(plugin.manifest().key, "null");
}

#[tokio::test]
async fn bytes_of_another_digest_are_refused() {
    let bytes = guest!("null");
    let runtime = runtime(|_| {});
    let prepared = runtime.prepare(bytes).await.unwrap();
    let limits = prepared.manifest.request.limits;
    let error = runtime
        .load([7; 32], prepared.manifest, limits, || async {
            Ok::<_, SourceError>(Bytes::from_static(b"something else"))
        })
        .await
        .unwrap_err();
    assert!(matches!(error, InstallError::Digest { .. }), "{error:?}");
}

#[tokio::test]
async fn an_entry_is_for_its_owner_alone_and_nothing_half_written_stays() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let runtime = cached(folder.path(), 1);
    runtime.prepare(guest!("null")).await.unwrap();
    let [path] = entries(folder.path()).try_into().unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(path.extension().unwrap(), "cwasm");
}
