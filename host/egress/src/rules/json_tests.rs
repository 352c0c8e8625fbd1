//! Tests of the strict reader.

use super::*;

fn accepts(text: &str) -> bool {
    read(text, |_, _| Ok(None)).is_ok()
}

#[test]
fn what_parsers_differ_on_is_refused() {
    for text in [
        r#"{"a":1,"a":2}"#,
        r#"{"a":1,"\u0061":2}"#,
        r#"{"x":{"a":1,"b":2,"a":3}}"#,
        r#""\ud800""#,
        r#""\ud800\u0041""#,
        r#""\udc00""#,
        "\"a\nb\"",
        "1 2",
        "{} x",
        "01",
        "1.",
        "+1",
        "NaN",
        "[1,]",
        r#"{"a":1,}"#,
        "{'a':1}",
        "// x\n1",
        "",
        "\u{feff}1",
        r#""\x""#,
        r#""\u00"#,
        "\"",
    ] {
        assert!(!accepts(text), "{text:?} was taken");
    }
    let deep = format!("{}1{}", "[".repeat(DEPTH + 1), "]".repeat(DEPTH + 1));
    assert!(!accepts(&deep));
    let nearly = format!("{}1{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    assert!(accepts(&nearly));
}

#[test]
fn every_byte_but_the_replaced_strings_is_kept() {
    let text = "{ \"n\" : 1.50e+10,\t\"big\":123456789012345678901234567890 ,\"s\":\"\\u0061\\/\", \"x\" :[ \"put\" , true,null ]}\n";
    let edits = read(text, |_, token| {
        Ok((token == Token::Text("put")).then(|| Secret::new("a\"\\\n\u{1}é".to_owned())))
    })
    .expect("JSON");
    let out = apply(text, &edits);
    let want = text.replace("\"put\"", r#""a\"\\\n\u0001é""#);
    assert_eq!(String::from_utf8_lossy(out.expose()), want);
}

#[test]
fn places_are_those_of_rfc_6901() {
    let text = r#"{"a/b":[{"~":"x"},7],"k":"x"}"#;
    let found = |pointer: &str| {
        let pointer = Pointer::parse(pointer).expect("a pointer");
        let mut found = None;
        read(text, |place, token| {
            if pointer.is(place) && !matches!(token, Token::Key(_)) {
                found = Some(format!("{token:?}"));
            }
            Ok(None)
        })
        .expect("JSON");
        found
    };
    assert_eq!(found("/a~1b/0/~0").as_deref(), Some("Text(\"x\")"));
    assert_eq!(found("/a~1b/1").as_deref(), Some("Number(\"7\")"));
    assert_eq!(found("/a~1b/01"), None);
    assert_eq!(Pointer::parse("a"), None);
    assert_eq!(Pointer::parse("/~2"), None);
}

#[test]
fn whatever_is_taken_reads_the_same_elsewhere() {
    const PIECES: &[&str] = &[
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "\"\\ud83d\\ude00\"",
        "\"\\ud83d\"",
        "\"\\n\\/\"",
        "\"x",
        "\\",
        "0",
        "-",
        "1",
        "1.5",
        "1e9",
        ".5",
        "e",
        "true",
        "false",
        "null",
        " ",
        "\n",
        "\t",
        "nul",
        "\u{a0}",
    ];
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        usize::try_from(seed % u64::try_from(below).expect("small")).expect("small")
    };
    let mut taken = 0;
    for _ in 0..200_000 {
        let text: String = (0..=next(9)).map(|_| PIECES[next(PIECES.len())]).collect();
        let elsewhere = serde_json::from_str::<serde_json::Value>(&text);
        match read(&text, |_, _| Ok(None)) {
            Ok(edits) => {
                taken += 1;
                // A number that is none there is written as it came.
                let same = elsewhere
                    .as_ref()
                    .map_or_else(|e| e.to_string().contains("out of range"), |_| true);
                assert!(same, "{text:?} is taken here alone");
                assert_eq!(apply(&text, &edits).expose(), text.as_bytes());
            }
            Err(Stopped::Broken("a key stands twice in one object", _)) => {}
            Err(why) => assert!(
                elsewhere.is_err(),
                "{text:?} is refused here alone: {why:?}"
            ),
        }
    }
    assert!(taken > 1000, "{taken}");
}

#[test]
fn surrogate_pairs_are_one_character() {
    let mut seen = String::new();
    read(r#""\ud83d\ude00""#, |_, token| {
        if let Token::Text(text) = token {
            seen = text.to_owned();
        }
        Ok(None)
    })
    .expect("JSON");
    assert_eq!(seen, "😀");
}
