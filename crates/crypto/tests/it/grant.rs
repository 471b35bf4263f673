//! Client grants: the text that a player gets.

use crypto::{ClientGrant, GrantError, PublicKey, Ring, ServerKeys, TokenError, TokenKey};
use proptest::prelude::*;
use wire::UnixTime;

use crate::token::{largest, smallest};

#[test]
fn what_is_written_is_read() {
    for grant in [grant_of_one(), grant_of_all()] {
        let text = grant.to_text();
        assert!(text.starts_with("TWG1"));
        assert!(
            text.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        );
        assert_eq!(ClientGrant::from_text(&text), Ok(grant.clone()));
        let file = format!(" {}\r\n", *text);
        assert_eq!(file.parse(), Ok(grant));
    }
    assert_eq!(grant_of_all().to_text().len(), 1_679);
}

#[test]
fn too_long_text_is_refused_before_parsing() {
    let text = format!("{}A", *grant_of_all().to_text());
    assert_eq!(
        ClientGrant::from_text(&text),
        Err(GrantError::TooLong(1_680))
    );
}

#[test]
fn any_change_of_a_character_is_refused() {
    let text = grant_of_one().to_text();
    for index in 0..text.len() {
        for other in ["A", "B", "_", "!"] {
            let mut changed = text.to_string();
            changed.replace_range(index..=index, other);
            if changed != *text {
                assert!(ClientGrant::from_text(&changed).is_err(), "{index} {other}");
            }
        }
        assert!(
            ClientGrant::from_text(&text[..index]).is_err(),
            "cut at {index}"
        );
    }
}

#[test]
fn errors_name_the_fault() {
    let error = |text: &str| ClientGrant::from_text(text).unwrap_err();
    assert_eq!(error(""), GrantError::Prefix);
    assert_eq!(error("TWG2AAAA"), GrantError::Prefix);
    assert_eq!(error("TWG1===="), GrantError::Encoding);
    assert_eq!(error("TWG1AAA+"), GrantError::Encoding);
    assert_eq!(error("TWG1"), GrantError::Checksum);
    assert_eq!(error("TWG1AAAAAAAA"), GrantError::Checksum);
    let text = grant_of_one().to_text();
    assert_eq!(error(&text[..text.len() - 2]), GrantError::Checksum);
    assert_eq!(error(&sum_up(b"short")), GrantError::Malformed);

    let fields = fields(&grant_of_one());
    let with = |offset: usize, value: u8| {
        let mut fields = fields.clone();
        fields[offset] = value;
        error(&sum_up(&fields))
    };
    assert_eq!(
        with(8, 0xFF),
        GrantError::Malformed,
        "expiry past the clock"
    );
    assert_eq!(with(48, 0), GrantError::Malformed, "no server key");
    assert_eq!(with(48, 5), GrantError::Malformed, "five server keys");
    assert_eq!(with(49, 2), GrantError::ServerKey);
    assert_eq!(with(49 + 64, fields[49 + 64] ^ 1), GrantError::ServerKey);
    assert_eq!(with(114, 0), GrantError::Malformed, "no address");
    let length = 115 + 19;
    let token_error = GrantError::Token(TokenError::Length(142));
    assert_eq!(with(length + 1, 142), token_error);
    assert_eq!(with(length + 1, 144), GrantError::Malformed);
    assert_eq!(
        with(length + 2, 9),
        GrantError::Token(TokenError::Version(9))
    );
    let longer = [&fields[..], &[0]].concat();
    assert_eq!(error(&sum_up(&longer)), GrantError::Malformed);
}

#[test]
fn server_keys_are_one_to_four() {
    let key = public_key();
    assert_eq!(ServerKeys::new(&[]), None);
    assert_eq!(ServerKeys::new(&[key; 4]).unwrap().as_slice(), [key; 4]);
    assert_eq!(ServerKeys::new(&[key; 5]), None);
}

#[test]
fn twp_k12_a_grant_prints_no_secret() {
    let text = format!("{:?}", grant_of_one());
    assert!(text.contains("psk: Secret32(..)"), "{text}");
    assert!(text.contains("token: SealedToken(143 bytes)"), "{text}");
}

proptest! {
    #[test]
    fn any_text_is_refused_or_reencoded_unchanged(text in "(TWG1)?[A-Za-z0-9_-]{0,400}") {
        prop_assert!(ClientGrant::from_text(&text).is_err());
    }

    #[test]
    fn any_fields_with_a_valid_checksum_are_refused_or_reencoded(
        changes in prop::collection::vec((0_usize..280, any::<u8>()), 0..4),
        cut in 0_usize..3,
    ) {
        let mut fields = fields(&grant_of_one());
        for (offset, value) in changes {
            if let Some(byte) = fields.get_mut(offset) {
                *byte = value;
            }
        }
        fields.truncate(fields.len() - cut);
        let text = sum_up(&fields);
        if let Ok(grant) = ClientGrant::from_text(&text) {
            prop_assert_eq!(&*grant.to_text(), &text);
        }
    }
}

fn grant_of_one() -> ClientGrant {
    grant(&smallest(), &[public_key()])
}

fn grant_of_all() -> ClientGrant {
    grant(&largest(), &[public_key(); 4])
}

fn grant(token: &crypto::TokenGrant, keys: &[PublicKey]) -> ClientGrant {
    let mut provider = Ring::new();
    let key = TokenKey::generate(&mut provider, 1).unwrap();
    ClientGrant {
        app_id: 9,
        expires_at: UnixTime::from_secs(token.expires_at.as_secs()),
        psk: token.psk.clone(),
        server_keys: ServerKeys::new(keys).unwrap(),
        addresses: token.addresses.clone(),
        token: key.seal(&mut provider, 9, token).unwrap(),
    }
}

fn public_key() -> PublicKey {
    PublicKey::from_pem(include_str!("../../testdata/pem/public.pem")).unwrap()
}

/// The bytes of a grant without their checksum.
fn fields(grant: &ClientGrant) -> Vec<u8> {
    use base64ct::Encoding;
    let text = grant.to_text();
    let mut bytes = base64ct::Base64UrlUnpadded::decode_vec(&text[4..]).unwrap();
    bytes.truncate(bytes.len() - 4);
    bytes
}

/// A text with a valid checksum of `fields`.
fn sum_up(fields: &[u8]) -> String {
    use base64ct::Encoding;
    use crypto::Provider;
    let sum = Ring::new().sha256(&[fields]);
    let bytes = [fields, &sum[..4]].concat();
    format!("TWG1{}", base64ct::Base64UrlUnpadded::encode_string(&bytes))
}
