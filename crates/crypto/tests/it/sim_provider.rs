//! The seeded provider and the wrappers, against published vectors and ring.

use crypto::{Aead, Identity, Provider, Ring, Role, Secret32, Suite, TrafficSecret};
use netsim::provider::{CallCounts, Counting, Counts, NonceLog, Recording, SimProvider};
use wire::Seed;

use crate::vectors::unhex_array;

/// RFC 6979, appendix A.2.5: P-256 with SHA-256.
#[test]
fn signatures_are_those_of_rfc_6979() {
    let pem = include_str!("../../testdata/pem/rfc6979.pem");
    let identity = Identity::from_pem(pem).unwrap();
    let mut provider = sim(1);
    let key = provider.signing_key(&identity).unwrap();
    for (message, signature) in [
        (
            "sample",
            concat!(
                "efd48b2aacb6a8fd1140dd9cd45e81d69d2c877b56aaf991c34d0ea84eaf3716",
                "f7cb1c942d657c41d436c7a1b6e29f65f3e900dbb9aff4064dc4ab2f843acda8",
            ),
        ),
        (
            "test",
            concat!(
                "f1abb023518351cd71d881567b1ea663ed3efcf6c5132b354f28d3b0b7d38367",
                "019f4113742a2b14bd25926b49c649155f267e60d3814b4c0cc84250e46f0083",
            ),
        ),
    ] {
        let made = provider.sign(&key, message.as_bytes()).unwrap();
        assert_eq!(made, unhex_array::<64>(signature));
    }
}

#[test]
fn one_seed_gives_the_same_bytes_and_another_does_not() {
    let run = |number: u64| {
        let mut provider = sim(number);
        let mut out = Vec::new();
        let (_, dialler) = provider.ephemeral(Role::Dialler).unwrap();
        let (_, accepter) = provider.ephemeral(Role::Accepter).unwrap();
        let identity = Identity::generate(&mut provider).unwrap();
        let key = provider.signing_key(&identity).unwrap();
        out.extend(dialler.0);
        out.extend(accepter.0);
        out.extend(provider.sign(&key, b"message").unwrap());
        let mut random = [0; 32];
        provider.random(&mut random).unwrap();
        out.extend(random);
        out
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn the_stream_is_frozen() {
    // Replay commands and stored traces of older runs depend on this output.
    let mut provider = sim(1);
    let (_, public) = provider.ephemeral(Role::Dialler).unwrap();
    assert_eq!(format!("{public:?}"), "PublicKey(e221a0b2..)");
}

#[test]
fn each_kind_of_call_is_counted_once() {
    let counts = Counts::default();
    let mut provider = Counting::new(Ring::new(), &counts);
    let identity = Identity::generate(&mut sim(1)).unwrap();
    let mut expected = CallCounts::default();

    provider.random(&mut [0; 4]).unwrap();
    expected.random += 1;
    assert_eq!(counts.now(), expected);
    let (mut own, public) = provider.ephemeral(Role::Dialler).unwrap();
    expected.ephemeral += 1;
    assert_eq!(counts.now(), expected);
    provider.agree(&mut own, &public).unwrap();
    expected.agree += 1;
    assert_eq!(counts.now(), expected);
    let key = provider.signing_key(&identity).unwrap();
    expected.signing_key += 1;
    assert_eq!(counts.now(), expected);
    let signature = provider.sign(&key, b"m").unwrap();
    expected.sign += 1;
    assert_eq!(counts.now(), expected);
    assert!(provider.verify(identity.public_key(), b"m", &signature));
    expected.verify += 1;
    assert_eq!(counts.now(), expected);
    provider.sha256(&[]);
    expected.sha256 += 1;
    assert_eq!(counts.now(), expected);
    provider.hmac_sha256(&[], &[]);
    expected.hmac += 1;
    assert_eq!(counts.now(), expected);
    let aead = provider.aead(Suite::Aes128Gcm, &Secret32::new([1; 32]));
    expected.aead += 1;
    assert_eq!(counts.now(), expected);
    let (mut body, mut tag) = ([0; 4], [0; 16]);
    aead.seal([0; 12], &[], &mut body, &mut tag);
    expected.seal += 1;
    assert_eq!(counts.now(), expected);
    assert!(aead.open([1; 12], &[], &mut body, &tag).is_err());
    expected.open += 1;
    assert_eq!(counts.now(), expected);

    assert_eq!((expected.elliptic_curve(), expected.hash()), (4, 2));
    let before = counts.now();
    provider.sha256(&[]);
    let difference = counts.now() - before;
    assert_eq!(
        difference,
        CallCounts {
            sha256: 1,
            ..CallCounts::default()
        }
    );
}

#[test]
fn twp_k1_a_recorder_detects_nonce_reuse() {
    let log = NonceLog::default();
    let provider = Recording::new(sim(1), &log);
    let mut key = traffic(1).into_sealing_key(&provider, Suite::Aes128Gcm);
    for number in 0..10_000 {
        if number % 64 == 0 {
            key.update(&provider);
        }
        key.seal(&[], &mut [], &mut [0; 16]).unwrap();
    }
    assert_eq!((log.sealed(), log.keys()), (10_000, 157));
    assert_eq!(log.reuses(), []);

    // The types forbid a second key from equal secrets within one session.
    let other = Recording::new(sim(2), &log);
    let mut twin = traffic(1).into_sealing_key(&other, Suite::Aes128Gcm);
    twin.update(&other);
    twin.seal(&[], &mut [], &mut [0; 16]).unwrap();
    let reuses = log.reuses();
    assert_eq!(reuses.len(), 1, "{reuses:?}");
    assert_eq!(reuses[0].times, 2);
    assert_eq!(log.reuses(), reuses, "asking changes nothing");
}

#[test]
fn a_recorder_distinguishes_keys_and_nonces() {
    let log = NonceLog::default();
    let provider = Recording::new(sim(1), &log);
    let seal = |suite, key: u8, nonce: u8| {
        let aead = provider.aead(suite, &Secret32::new([key; 32]));
        aead.seal([nonce; 12], &[], &mut [], &mut [0; 16]);
    };
    seal(Suite::Aes128Gcm, 1, 1);
    seal(Suite::Aes128Gcm, 1, 2);
    seal(Suite::Aes128Gcm, 2, 1);
    assert_eq!(log.reuses(), []);
    seal(Suite::Aes128Gcm, 1, 2);
    seal(Suite::Aes128Gcm, 1, 2);
    let reuses = log.reuses();
    assert_eq!(reuses.len(), 1);
    assert_eq!((reuses[0].nonce, reuses[0].times), ([2; 12], 3));
}

#[test]
fn wrappers_nest_and_change_no_byte() {
    let (counts, log) = (Counts::default(), NonceLog::default());
    let mut nested = Counting::new(Recording::new(sim(1), &log), &counts);
    let mut plain = sim(1);
    assert_eq!(
        nested.ephemeral(Role::Dialler).unwrap().1,
        plain.ephemeral(Role::Dialler).unwrap().1
    );
    let mut packets = [[0; 16]; 2];
    let mut key = traffic(1).into_sealing_key(&nested, Suite::Aes256Gcm);
    key.seal(b"head", &mut [1, 2], &mut packets[0]).unwrap();
    let mut key = traffic(1).into_sealing_key(&plain, Suite::Aes256Gcm);
    key.seal(b"head", &mut [1, 2], &mut packets[1]).unwrap();
    assert_eq!(packets[0], packets[1]);
    assert_eq!((counts.now().seal, log.sealed()), (1, 1));
}

fn traffic(byte: u8) -> TrafficSecret {
    TrafficSecret::new(Secret32::new([byte; 32]))
}

fn sim(number: u64) -> SimProvider {
    SimProvider::new(Seed::from_number(number))
}
