//! Keys and grants as text, which `crypto` reads from users and files.

use crypto::{ClientGrant, Identity, PublicKey};

/// Parses a client grant. Any accepted text equals its canonical encoding.
pub fn client_grant(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    if let Ok(grant) = ClientGrant::from_text(text) {
        assert_eq!(
            grant.to_text().as_str(),
            text.trim_ascii(),
            "two ways to write one grant"
        );
    }
}

/// Parses a private key in PEM. An accepted key survives a round trip through its encoding.
pub fn identity_pem(data: &[u8]) {
    let Ok(text) = core::str::from_utf8(data) else {
        return;
    };
    if let Ok(identity) = Identity::from_pem(text) {
        let again = Identity::from_pem(&identity.to_pem());
        let public = again.map(|again| *again.public_key());
        assert_eq!(public.as_ref(), Ok(identity.public_key()));
    }
}

/// Parses a public key from hexadecimal digits, PEM and bytes. Every accepted key is a curve point.
pub fn public_key(data: &[u8]) {
    if let Ok(text) = core::str::from_utf8(data) {
        if let Ok(key) = text.parse::<PublicKey>() {
            assert_eq!(key.to_string(), text.to_ascii_lowercase());
            check(&key);
        }
        if let Ok(key) = PublicKey::from_pem(text) {
            check(&key);
        }
    }
    if let Ok(key) = PublicKey::parse(data) {
        assert_eq!(key.0, data);
        check(&key);
    }
}

fn check(key: &PublicKey) {
    assert_eq!(PublicKey::parse(&key.0), Ok(*key), "a key that is no point");
    let pem = key.to_pem().map(|pem| PublicKey::from_pem(&pem));
    assert_eq!(pem, Ok(Ok(*key)), "what is written is not read");
}
