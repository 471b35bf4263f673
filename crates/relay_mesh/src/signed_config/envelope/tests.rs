use super::*;
use crate::signed_config::fixture::{Admins, bytes, game};
use crate::signed_config::{Offered, fixture};
use proptest::prelude::*;

const OVERHEAD: usize = 8 + 1 + 4;

#[test]
fn the_bytes_are_frozen() {
    let mut admins = Admins::new(1);
    let text = admins.document(1, (&[0], 1), "");
    let envelope = admins.sign(&text, &[0]);
    let encoded = bytes(&envelope);
    let mut expected = b"tw1 conf\x01".to_vec();
    expected.extend(admins.key(0).0);
    let signature = encoded[8 + 1 + 65..][..64].try_into().unwrap();
    expected.extend(signature);
    expected.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    expected.extend(text.as_bytes());
    assert_eq!(encoded, expected);
    let message = [b"tw1 mesh config", text.as_bytes()].concat();
    assert!(admins.provider.verify(&admins.key(0), &message, &signature));
    let bare = text.as_bytes();
    assert!(!admins.provider.verify(&admins.key(0), bare, &signature));
    assert_eq!(Envelope::decode(&encoded), Ok(envelope));
}

#[test]
fn pgx7_every_flipped_bit_of_an_envelope_is_refused() {
    let mut admins = Admins::new(3);
    let text = admins.document(1, (&[0, 1], 2), &game("doom", 5_029));
    // One signature more than needed, and one of an unknown key: their bits are protected too.
    let good = admins.signed(&text, &[0, 1, 2]);
    let holder = admins.holder(&[0, 1], 2);
    for index in 0..good.len() {
        let mut changed = good.clone();
        changed[index] ^= 1 << (index % 8);
        let mut holder = holder.clone();
        let offered = holder.offer(&admins.provider, fixture::NOW, &changed);
        assert!(matches!(offered, Offered::Refused(_)), "byte {index}");
        assert_eq!(holder.document(), None);
    }
    let mut holder = holder;
    let offered = holder.offer(&admins.provider, fixture::NOW, &good);
    assert!(matches!(offered, Offered::Accepted(_)));
}

#[test]
fn every_rule_of_the_form_is_kept() {
    let mut admins = Admins::new(2);
    let text = admins.document(1, (&[0, 1], 1), "");
    let good = admins.signed(&text, &[0, 1]);
    assert_eq!(good.len(), OVERHEAD + 2 * 129 + text.len());
    for len in 0..good.len() {
        assert_eq!(
            Envelope::decode(&good[..len]),
            Err(EnvelopeError::Truncated),
            "{len}"
        );
    }
    let with = |index: usize, value: u8| {
        let mut changed = good.clone();
        changed[index] = value;
        Envelope::decode(&changed).map(|_| ())
    };
    assert_eq!(with(0, b'T'), Err(EnvelopeError::Foreign));
    assert_eq!(with(8, 0), Err(EnvelopeError::SignatureCount(0)));
    assert_eq!(with(8, 17), Err(EnvelopeError::SignatureCount(17)));
    assert_eq!(
        with(9, 5),
        Err(EnvelopeError::KeyOrder),
        "0x05 is above 0x04"
    );
    let len_at = 9 + 2 * 129;
    assert!(matches!(
        with(len_at, 1),
        Err(EnvelopeError::DocumentLen(_))
    ));
    let mut twice = good.clone();
    twice.copy_within(9..9 + 129, 9 + 129);
    assert_eq!(Envelope::decode(&twice), Err(EnvelopeError::KeyOrder));
    let mut more = good.clone();
    more.push(0);
    assert_eq!(Envelope::decode(&more), Err(EnvelopeError::Trailing));
}

#[test]
fn sixteen_sign_and_no_seventeenth() {
    let mut admins = Admins::new(17);
    let text = admins.document(1, (&[0], 1), "");
    let all: Vec<usize> = (0..16).collect();
    let mut envelope = admins.sign(&text, &all);
    assert_eq!(envelope.signers().count(), SIGNATURES_MAX);
    assert_eq!(
        Envelope::decode(&bytes(&envelope)).as_ref(),
        Ok(&envelope),
        "the most is read"
    );
    let identity = crypto::Identity::generate(&mut admins.provider).unwrap();
    let key = admins.provider.signing_key(&identity).unwrap();
    let public = *identity.public_key();
    let signed = envelope.sign(&mut admins.provider, &key, public);
    assert_eq!(signed, Err(SignError::Full));
    let other = admins.key(3);
    let signed = envelope.sign(&mut admins.provider, &key, other);
    assert_eq!(signed, Err(SignError::OtherKey));
    assert!(
        envelope
            .open(&admins.provider, &admins.keys(&[0], 1))
            .is_ok()
    );
}

/// Anybody can turn a signature into another of the same key: (r, s) into (r, n - s).
#[test]
fn pgx7_a_signature_turned_without_the_key_makes_no_other_document() {
    let mut admins = Admins::new(1);
    let text = admins.document(1, (&[0], 1), "");
    let good = admins.signed(&text, &[0]);
    let mut turned = good.clone();
    let s_at = 9 + 65 + 32;
    let s: [u8; 32] = turned[s_at..s_at + 32].try_into().unwrap();
    turned[s_at..s_at + 32].copy_from_slice(&minus(&ORDER, &s));
    assert_ne!(turned, good);
    let mut holder = admins.holder(&[0], 1);
    let first = holder.offer(&admins.provider, fixture::NOW, &turned);
    assert!(matches!(first, Offered::Accepted(_)), "{first:?}");
    let second = holder.offer(&admins.provider, fixture::NOW, &good);
    assert_eq!(second, Offered::Known, "the same document");
}

/// The order of P-256; SEC 2, section 2.4.2.
const ORDER: [u8; 32] = [
    0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6,
    0xfa, 0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
];

fn minus(one: &[u8; 32], other: &[u8; 32]) -> [u8; 32] {
    let mut out = [0; 32];
    let mut borrow = false;
    for index in (0..32).rev() {
        let (low, first) = one[index].overflowing_sub(other[index]);
        let (low, second) = low.overflowing_sub(u8::from(borrow));
        out[index] = low;
        borrow = first || second;
    }
    out
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let bytes = [&MAGIC[..], &bytes].concat();
        if let Ok(envelope) = Envelope::decode(&bytes) {
            prop_assert_eq!(fixture::bytes(&envelope), bytes);
        }
    }
}
