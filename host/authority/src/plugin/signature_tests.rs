//! Tests of signatures: what counts, and how what does not is told.

use p256::ecdsa::SigningKey as PrivateKey;
use p256::ecdsa::signature::Signer as _;
use p256::pkcs8::EncodePublicKey as _;
use serde_json::{Value, json};

use super::*;

/// Made by OpenSSL: `openssl dgst -sha256 -sign key.pem component`, as `cosign sign-blob` signs.
const OPENSSL_KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEIqwkBClhiTux+7uZfSol1imlvBFe
VKl4HjdQTwI+mGKfta50NiHvHFJoOH/1t/OyneLZv37sIeEGN47p5d7acw==
-----END PUBLIC KEY-----
";
const OPENSSL_SIGNED: &[u8] = b"a component";
const OPENSSL_SIGNATURE: &str = "MEUCIGec+PneW8LDl5w/Bx8duBhzXQgjGWv9e29vr0EKNec7AiEAh8mTs4i+ZdaKBw+fCTDiyP/ReE7g4oRFeRiZs43homc=";
/// Of P-384.
const OTHER_CURVE: &str = "-----BEGIN PUBLIC KEY-----
MHYwEAYHKoZIzj0CAQYFK4EEACIDYgAEVkovGln345o2b/8zTSfJnooTmnJEUBBT
Z0HKX6IURnx2lzJWt1Nk8fJw8xnJCCiLUXlKDDuKSptJD9sxYulrm0sT3dup9tkc
seXrB3eca2TqMMYUoyYe2k6k0+bFv1hr
-----END PUBLIC KEY-----
";

const PLACE: &str = "r.example:5000/acme/ssh";

struct Pair {
    private: PrivateKey,
    public: SigningKey,
}

fn pair(name: &str, seed: u8) -> Pair {
    let private = PrivateKey::from_slice(&[seed; 32]).unwrap();
    let pem = private
        .verifying_key()
        .to_public_key_pem(Default::default())
        .unwrap();
    Pair {
        public: SigningKey::read(name, &pem).unwrap(),
        private,
    }
}

fn sign(pair: &Pair, bytes: &[u8]) -> String {
    let signature: Signature = pair.private.sign(bytes);
    STANDARD.encode(signature.to_der())
}

fn digest() -> String {
    format!("sha256:{}", "a".repeat(64))
}

fn payload(digest: &str, place: &str) -> Value {
    json!({ "critical": {
        "identity": { "docker-reference": place },
        "image": { "docker-manifest-digest": digest },
        "type": TYPE,
    }, "optional": { "creator": "somebody" } })
}

/// What becomes of one payload that this key signed.
fn judged(pair: &Pair, payload: &str) -> Result<Option<Signed>, Unsigned> {
    let signature = sign(pair, payload.as_bytes());
    let policy = SignaturePolicy::SignedBy(vec![pair.public.clone()]);
    let beside = Beside {
        payload: payload.as_bytes(),
        signature: &signature,
    };
    policy.pulled(&digest(), PLACE, &[beside])
}

#[test]
fn a_signature_that_openssl_made_is_one() {
    let key = SigningKey::read("acme", OPENSSL_KEY).unwrap();
    let policy = SignaturePolicy::SignedBy(vec![key]);
    let with_newline = format!("{OPENSSL_SIGNATURE}\n");
    let signed = policy.sent(OPENSSL_SIGNED, Some(&with_newline)).unwrap();
    let signed = signed.unwrap();
    assert_eq!(signed.key(), "acme");
    let digest = format!("sha256:{}", hex(&Sha256::digest(OPENSSL_SIGNED)));
    assert_eq!(signed.digest(), digest);
}

#[test]
fn only_a_public_key_of_p_256_is_a_key() {
    let private = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n";
    for text in ["", "acme", OTHER_CURVE, private, &OPENSSL_KEY[..80]] {
        assert_eq!(SigningKey::read("acme", text), Err(NoKey), "{text}");
    }
}

#[test]
fn what_was_sent_is_taken_only_with_a_signature_over_it_by_a_key_that_counts() {
    let (acme, other, stranger) = (pair("acme", 1), pair("other", 2), pair("stranger", 3));
    let policy = SignaturePolicy::SignedBy(vec![acme.public.clone(), other.public.clone()]);
    let good = sign(&other, b"component");
    let signed = policy.sent(b"component", Some(&good)).unwrap().unwrap();
    assert_eq!(signed.key(), "other");
    let missing = policy.sent(b"component", None).unwrap_err();
    assert!(
        missing.to_string().contains("the key acme or other"),
        "{missing}"
    );
    let raw: Signature = acme.private.sign(b"component");
    // As `base64` wraps it.
    let wrapped = format!("{}\n{}\n", &good[..40], &good[40..]);
    assert!(policy.sent(b"component", Some(&wrapped)).is_ok());
    for wrong in [sign(&stranger, b"component"), sign(&acme, b"Component")] {
        let refused = policy.sent(b"component", Some(&wrong)).unwrap_err();
        assert!(
            matches!(refused, Unsigned::Stranger(_)),
            "{wrong}: {refused}"
        );
    }
    for wrong in [
        good[..good.len() - 8].to_owned(),
        STANDARD.encode(raw.to_bytes()),
        "not base64".to_owned(),
        String::new(),
        "A".repeat(5000),
    ] {
        let refused = policy.sent(b"component", Some(&wrong)).unwrap_err();
        assert!(matches!(refused, Unsigned::NotOne), "{wrong}: {refused}");
    }
    // Where nothing is asked for, nothing is said to have been verified.
    assert_eq!(
        SignaturePolicy::Anyone.sent(b"component", Some(&good)),
        Ok(None)
    );
}

#[test]
fn a_manifest_is_taken_with_a_payload_that_names_it_in_its_place() {
    let acme = pair("acme", 1);
    for place in [
        "",
        PLACE,
        &format!("{PLACE}:1.0"),
        &format!("{PLACE}@{}", digest()),
    ] {
        let signed = judged(&acme, &payload(&digest(), place).to_string())
            .unwrap()
            .unwrap();
        assert_eq!(
            (signed.key(), signed.digest()),
            ("acme", digest().as_str()),
            "{place}"
        );
    }
}

#[test]
fn a_payload_for_another_digest_or_place_or_of_another_kind_is_told_as_that() {
    let acme = pair("acme", 1);
    let other = format!("sha256:{}", "b".repeat(64));
    let refused = judged(&acme, &payload(&other, PLACE).to_string()).unwrap_err();
    assert!(matches!(refused, Unsigned::OtherDigest { .. }), "{refused}");
    assert!(refused.to_string().contains(&other), "{refused}");
    for place in [
        "r.example:5000/acme/ssh2",
        "r.example:5000/acme/ssh/more",
        "r.example/acme/ssh",
        "evil.example/r.example:5000/acme/ssh",
    ] {
        let refused = judged(&acme, &payload(&digest(), place).to_string()).unwrap_err();
        assert!(
            matches!(refused, Unsigned::OtherPlace { .. }),
            "{place}: {refused}"
        );
        assert!(refused.to_string().contains(place), "{refused}");
    }
    let mut attestation = payload(&digest(), PLACE);
    attestation["critical"]["type"] = json!("something else");
    let twice = payload(&digest(), PLACE).to_string().replacen(
        "\"image\":",
        &format!(
            "\"image\":{{\"docker-manifest-digest\":{:?}}},\"image\":",
            digest()
        ),
        1,
    );
    for text in [attestation.to_string(), twice, "{}".to_owned(), digest()] {
        let refused = judged(&acme, &text).unwrap_err();
        assert!(
            matches!(refused, Unsigned::OtherKind(_)),
            "{text}: {refused}"
        );
    }
}

#[test]
fn one_good_signature_among_others_is_enough_and_one_of_a_stranger_is_none() {
    let (acme, stranger) = (pair("acme", 1), pair("stranger", 3));
    let policy = SignaturePolicy::SignedBy(vec![acme.public.clone()]);
    let good = payload(&digest(), PLACE).to_string();
    let stale = payload(&format!("sha256:{}", "b".repeat(64)), PLACE).to_string();
    let all = [
        (&good, sign(&stranger, good.as_bytes())),
        (&stale, sign(&acme, stale.as_bytes())),
        (&good, sign(&acme, good.as_bytes())),
    ];
    let beside = |of: &[usize]| {
        let found: Vec<Beside<'_>> = of
            .iter()
            .map(|&at| Beside {
                payload: all[at].0.as_bytes(),
                signature: &all[at].1,
            })
            .collect();
        policy.pulled(&digest(), PLACE, &found)
    };
    assert_eq!(beside(&[0, 1, 2]).unwrap().unwrap().key(), "acme");
    assert!(matches!(beside(&[0]), Err(Unsigned::Stranger(_))));
    assert!(matches!(beside(&[0, 1]), Err(Unsigned::OtherDigest { .. })));
    assert!(matches!(beside(&[]), Err(Unsigned::Missing(_))));
    // A good payload with another one's signature is signed by nobody.
    let swapped = Beside {
        payload: good.as_bytes(),
        signature: &all[1].1,
    };
    assert!(policy.pulled(&digest(), PLACE, &[swapped]).is_err());
}
