//! Quotes any bytes but NUL as one word of a POSIX shell, on one line.

/// Appends `bytes` as a word. A newline becomes `"$LEASEHOLD_N"`, which the frame sets first: the payload is one line.
pub(super) fn word(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'\'');
    for b in bytes {
        match b {
            b'\'' => out.extend_from_slice(br"'\''"),
            b'\n' => out.extend_from_slice(br#"'"$LEASEHOLD_N"'"#),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Command, Stdio};

    use super::super::INNER;
    use super::*;

    /// What a real shell makes of the words, through the real bootstrap.
    fn through(shell: &[&str], locale: &str, words: &[Vec<u8>]) -> Vec<u8> {
        let mut line = b"LEASEHOLD_N=${IFS#??};printf '%s\\0'".to_vec();
        for w in words {
            line.push(b' ');
            word(&mut line, w);
        }
        line.extend_from_slice(b";cat\n");
        let mut child = Command::new(shell[0])
            .args(&shell[1..])
            .args(["-c", INNER])
            .env("LC_ALL", locale)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let feed = std::thread::spawn(move || {
            // In two pieces, and with the command's own input behind.
            let (a, b) = line.split_at(line.len() / 2);
            stdin.write_all(a).unwrap();
            stdin.flush().unwrap();
            stdin.write_all(b).unwrap();
            stdin.write_all(b"and the rest\nof stdin").unwrap();
        });
        let out = child.wait_with_output().unwrap();
        feed.join().unwrap();
        out.stdout
    }

    #[test]
    fn every_byte_but_nul_comes_through_every_shell_as_it_was() {
        let mut words: Vec<Vec<u8>> = vec![
            Vec::new(),
            b"'\"`$(id)\\!*?[~]{a,b};&|<>#\n\r\t \n\n".to_vec(),
            b"\\".to_vec(),
            b"\n".to_vec(),
            b"-n".to_vec(),
            (1..=255).collect(),
            (1..=255).rev().collect(),
            "ünï\u{1F600}".into(),
        ];
        // Pairs find what a lone byte does not: escapes, multi-byte starts, quote ends.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..200 {
            let mut w = Vec::new();
            for _ in 0..40 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                w.push((seed % 255 + 1) as u8);
            }
            words.push(w);
        }
        let mut expected = Vec::new();
        for w in &words {
            expected.extend_from_slice(w);
            expected.push(0);
        }
        expected.extend_from_slice(b"and the rest\nof stdin");
        let shells: [&[&str]; 5] = [
            &["/bin/sh"],
            &["dash"],
            &["bash", "--posix"],
            &["busybox", "sh"],
            &["zsh", "--emulate", "sh"],
        ];
        for shell in shells {
            if Command::new(shell[0]).arg("--version").output().is_err() {
                println!("skipped: needs {}", shell[0]);
                assert!(
                    std::env::var_os("LEASEHOLD_REQUIRE_ALL").is_none(),
                    "needs {}",
                    shell[0]
                );
                continue;
            }
            for locale in ["C", "C.UTF-8"] {
                let got = through(shell, locale, &words);
                let (have, want) = (got.len(), expected.len());
                assert!(
                    got == expected,
                    "{shell:?} {locale}: {have} of {want} bytes"
                );
            }
        }
    }
}
