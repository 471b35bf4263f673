//! Identity keys from and to PEM.

use crypto::{BadPoint, Identity, PemError, Provider, PublicKey, Ring};

const SEC1: &str = include_str!("../../testdata/pem/sec1.pem");
const SEC1_NO_PUBLIC: &str = include_str!("../../testdata/pem/sec1_no_public.pem");
const PKCS8: &str = include_str!("../../testdata/pem/pkcs8.pem");
const PUBLIC: &str = include_str!("../../testdata/pem/public.pem");

#[test]
fn both_forms_of_openssl_give_the_same_identity() {
    let sec1 = Identity::from_pem(SEC1).unwrap();
    let pkcs8 = Identity::from_pem(PKCS8).unwrap();
    let bare = Identity::from_pem(SEC1_NO_PUBLIC).unwrap();
    let public = PublicKey::from_pem(PUBLIC).unwrap();
    for identity in [&sec1, &pkcs8, &bare] {
        assert_eq!(identity.public_key(), &public);
        assert_eq!(identity.node_id(), public.node_id());
        assert_eq!(identity.scalar(), sec1.scalar());
    }
    assert_eq!(public.to_pem().unwrap(), PUBLIC);
    assert_eq!(*pkcs8.to_pem(), PKCS8);
    // As openssl writes it, after the parameters that it puts first.
    assert!(SEC1.ends_with(pkcs8.to_sec1_pem().as_str()));
}

#[test]
fn a_node_id_is_the_hash_of_the_key() {
    let public = PublicKey::from_pem(PUBLIC).unwrap();
    assert_eq!(public.node_id().0, Ring::new().sha256(&[&public.0]));
}

#[test]
fn a_saved_identity_is_loaded_and_still_signs() {
    let mut provider = Ring::new();
    let identity = Identity::generate(&mut provider).unwrap();
    let text = identity.to_pem();
    assert!(text.starts_with("-----BEGIN PRIVATE KEY-----\n"));
    let read = Identity::from_pem(&text.replace('\n', "\r\n")).unwrap();
    assert_eq!(read.public_key(), identity.public_key());
    let key = provider.signing_key(&read).unwrap();
    let signature = provider.sign(&key, b"message").unwrap();
    assert!(provider.verify(identity.public_key(), b"message", &signature));
}

#[test]
fn bad_pem_gives_an_error() {
    let error = |text: &str| Identity::from_pem(text).err();
    assert_eq!(error(""), Some(PemError::NoKey));
    assert_eq!(error(PUBLIC), Some(PemError::NoKey));
    assert_eq!(error("-----BEGIN PRIVATE KEY-----"), Some(PemError::NoKey));
    assert_eq!(
        error("-----END PRIVATE KEY----------BEGIN PRIVATE KEY-----"),
        Some(PemError::NoKey)
    );
    let encrypted = include_str!("../../testdata/pem/encrypted.pem");
    assert_eq!(error(encrypted), Some(PemError::Encrypted));
    for other in [
        include_str!("../../testdata/pem/ed25519.pem"),
        include_str!("../../testdata/pem/secp384r1.pem"),
        include_str!("../../testdata/pem/secp256k1_sec1.pem"),
        include_str!("../../testdata/pem/secp256k1_pkcs8.pem"),
        include_str!("../../testdata/pem/secp256k1_no_public.pem"),
        "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n",
    ] {
        assert_eq!(error(other), Some(PemError::Malformed), "{other}");
    }
    assert_eq!(PublicKey::from_pem(PKCS8), Err(PemError::NoKey));
    assert_eq!(
        PublicKey::from_pem("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----"),
        Err(PemError::Malformed)
    );
}

#[test]
fn mismatched_public_and_private_keys_are_refused() {
    let identity = Identity::from_pem(PKCS8).unwrap();
    // Each changed base64 digit of the body fails to parse, or is padding of the last group.
    let body = PKCS8.find('\n').unwrap() + 1..PKCS8.rfind("\n-----END").unwrap();
    let mut refused = 0;
    for index in body {
        let mut text = PKCS8.as_bytes().to_vec();
        if text[index] == b'\n' {
            continue;
        }
        text[index] = if text[index] == b'A' { b'B' } else { b'A' };
        match Identity::from_pem(core::str::from_utf8(&text).unwrap()) {
            Ok(read) => assert_eq!(read.public_key(), identity.public_key()),
            Err(error) => {
                assert_eq!(error, PemError::Malformed);
                refused += 1;
            }
        }
    }
    assert!(refused > 150, "{refused}");
}

#[test]
fn twp_k12_an_identity_prints_its_public_half_only() {
    let identity = Identity::from_pem(PKCS8).unwrap();
    let text = format!("{identity:?}");
    assert_eq!(text, "Identity { public: PublicKey(78f8fb19..), .. }");
}

#[test]
fn a_public_key_is_pinned_by_text() {
    let public = PublicKey::from_pem(PUBLIC).unwrap();
    let text = public.to_string();
    assert_eq!(text.len(), 130);
    assert_eq!(text.parse(), Ok(public));
    assert_eq!(text.to_uppercase().parse(), Ok(public));
    for bad in [
        &text[..128],
        &text.replace('0', "g"),
        "",
        &format!("{text}0"),
    ] {
        assert_eq!(bad.parse::<PublicKey>(), Err(BadPoint));
    }
    let last = if text.ends_with('0') { "1" } else { "0" };
    assert_eq!(
        format!("{}{last}", &text[..129]).parse::<PublicKey>(),
        Err(BadPoint),
        "off the curve"
    );
}
