//! Packet numbers, limits and tampering of packet keys.

use crypto::packet_key::{NUMBERS_MAX, SEALS_MAX};
use crypto::{OpenError, Provider, SealError, Secret32, Suite, TrafficSecret};

crate::for_each_provider!(
    numbers_rise_by_one_and_skips_count,
    numbers_end_at_2_to_the_62,
    a_key_not_expanded_seals_nothing_and_resumes_after_expansion,
    twp_k2_any_flipped_bit_is_refused,
    an_accept_key_of_another_transcript_opens_nothing,
    twp_k12_keys_print_no_secret,
);

fn numbers_rise_by_one_and_skips_count<P: Provider>(provider: &mut P) {
    let mut key = traffic().into_sealing_key(provider, Suite::Aes128Gcm);
    let mut tag = [0; 16];
    assert_eq!(key.seal(&[], &mut [1; 4], &mut tag), Ok(0));
    assert_eq!(key.next_number(), 1);
    assert_eq!(key.skip(), Ok(1));
    assert_eq!(key.seal(&[], &mut [1; 4], &mut tag), Ok(2));
    assert_eq!(key.sealed_in_phase(), 2);
    key.update(provider);
    assert_eq!(key.sealed_in_phase(), 0);
    assert_eq!(key.seal(&[], &mut [1; 4], &mut tag), Ok(3));
}

fn numbers_end_at_2_to_the_62<P: Provider>(provider: &mut P) {
    let last = NUMBERS_MAX - 1;
    let mut key = traffic().into_sealing_key_from(provider, Suite::Aes128Gcm, last);
    let mut tag = [0; 16];
    assert_eq!(key.seal(&[], &mut [1; 4], &mut tag), Ok(last));
    let mut body = [1; 4];
    let refused = Err(SealError::NumbersUsedUp);
    assert_eq!(key.seal(&[], &mut body, &mut tag), refused);
    assert_eq!(body, [1; 4], "nothing is sealed");
    assert_eq!(key.skip(), refused);
    key.update(provider);
    assert_eq!(key.skip(), refused, "an update brings no numbers back");
    let mut beyond = traffic().into_sealing_key_from(provider, Suite::Aes128Gcm, u64::MAX);
    assert_eq!(beyond.skip(), refused);
}

/// Only with ring: it takes 2^23 seals.
#[test]
fn a_key_seals_2_to_the_23_packets_and_more_after_an_update() {
    let provider = &crypto::Ring::new();
    let mut key = traffic().into_sealing_key(provider, Suite::Aes128Gcm);
    let mut tag = [0; 16];
    for number in 0..SEALS_MAX {
        assert_eq!(key.seal(&[], &mut [], &mut tag), Ok(number));
    }
    assert_eq!(
        key.seal(&[], &mut [], &mut tag),
        Err(SealError::KeyExhausted)
    );
    assert_eq!(key.next_number(), SEALS_MAX, "a refusal uses no number");
    key.update(provider);
    assert_eq!(key.seal(&[], &mut [], &mut tag), Ok(SEALS_MAX));
}

/// Compared with a key that stays expanded: equal numbers and bytes, also over an update.
fn a_key_not_expanded_seals_nothing_and_resumes_after_expansion<P: Provider>(provider: &mut P) {
    for suite in Suite::ALL {
        let mut dropping = traffic().into_sealing_key_from(provider, suite, 7);
        let mut twin = traffic().into_sealing_key_from(provider, suite, 7);
        let expanded = dropping.memory();
        assert!(expanded > 0);
        for round in 0..6_u64 {
            dropping.drop_expanded();
            dropping.drop_expanded();
            assert_eq!(dropping.memory(), 0);
            let (mut body, mut tag) = (*b"rests", [0; 16]);
            let refused = dropping.seal(&[], &mut body, &mut tag);
            assert_eq!(refused, Err(SealError::KeyNotExpanded));
            assert_eq!((body, tag), (*b"rests", [0; 16]), "nothing is sealed");
            let counts = (dropping.next_number(), dropping.sealed_in_phase());
            assert_eq!(counts, (twin.next_number(), twin.sealed_in_phase()));
            if round % 3 == 1 {
                dropping.update(provider);
                twin.update(provider);
                assert_eq!(dropping.memory(), 0, "an update does not expand it");
            }
            if round % 3 == 2 {
                assert_eq!(dropping.skip(), twin.skip());
            }
            dropping.expand_key(provider);
            dropping.expand_key(provider);
            assert_eq!(dropping.memory(), expanded);
            for _ in 0..2 {
                let [mut ours, mut theirs] = [(*b"a packet", [0; 16]); 2];
                let number = dropping.seal(b"head", &mut ours.0, &mut ours.1);
                assert_eq!(number, twin.seal(b"head", &mut theirs.0, &mut theirs.1));
                assert_eq!(ours, theirs, "{suite:?} {round}");
            }
        }
        assert_eq!(
            SealError::KeyNotExpanded.to_string(),
            "the key is not expanded"
        );
    }
}

fn twp_k2_any_flipped_bit_is_refused<P: Provider>(provider: &mut P) {
    for suite in Suite::ALL {
        let opening = traffic().opening_key(provider, suite);
        let mut sealing = traffic().into_sealing_key_from(provider, suite, 77);
        let head = [0x40, 1, 2, 3, 4, 0, 77];
        let (mut body, mut tag) = (*b"a small packet", [0; 16]);
        sealing.seal(&head, &mut body, &mut tag).unwrap();
        let packet = [&head[..], &body, &tag].concat();
        let open = |number: u64, packet: &[u8]| {
            let (head, rest) = packet.split_at(head.len());
            let (body, tag) = rest.split_last_chunk().unwrap();
            opening.open(number, head, &mut body.to_vec(), tag)
        };
        assert_eq!(open(77, &packet), Ok(()));
        for bit in 0..packet.len() * 8 {
            let mut flipped = packet.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(77, &flipped), Err(OpenError), "{suite:?} bit {bit}");
        }
        for bit in 0..64 {
            assert_eq!(open(77_u64.wrapping_add(1 << bit), &packet), Err(OpenError));
        }
    }
}

fn an_accept_key_of_another_transcript_opens_nothing<P: Provider>(provider: &mut P) {
    let agreed = crypto::Initial::new(provider, None).agree(provider, &Secret32::new([1; 32]));
    let (mut body, mut tag) = ([5; 40], [0; 16]);
    let suite = Suite::Aes128Gcm;
    let key = agreed.accept_key(provider, suite, &[1; 32]);
    key.seal(b"head", &mut body, &mut tag);
    let other = agreed.accept_key(provider, suite, &[2; 32]);
    assert_eq!(other.open(b"head", &mut body.clone(), &tag), Err(OpenError));
    let same = agreed.accept_key(provider, suite, &[1; 32]);
    assert_eq!(same.open(b"head", &mut body, &tag), Ok(()));
    assert_eq!(body, [5; 40]);
}

fn twp_k12_keys_print_no_secret<P: Provider>(provider: &mut P) {
    let initial = crypto::Initial::new(provider, None);
    let agreed = initial.agree(provider, &Secret32::new([1; 32]));
    let text = format!("{initial:?} {agreed:?}");
    assert_eq!(text, "Initial(..) Agreed(..)");
    let key = agreed.accept_key(provider, Suite::Aes128Gcm, &[1; 32]);
    assert_eq!(format!("{key:?}"), "AcceptKey(..)");
    let secrets = agreed.traffic(provider, &[1; 32]);
    assert_eq!(
        format!("{secrets:?}"),
        "SessionSecrets { client: TrafficSecret(..), server: TrafficSecret(..), \
         exporter: Exporter(..) }"
    );
    let (_, iv) = secrets.client.expand(provider, Suite::Aes128Gcm);
    assert_eq!(format!("{iv:?}"), "Iv(..)");
    let opening = secrets.client.opening_key(provider, Suite::Aes128Gcm);
    assert_eq!(format!("{opening:?}"), "OpeningKey(..)");
    let sealing = secrets.client.into_sealing_key(provider, Suite::Aes128Gcm);
    assert_eq!(
        format!("{sealing:?}"),
        "SealingKey { suite: Aes128Gcm, next: 0, sealed: 0, .. }"
    );
}

fn traffic() -> TrafficSecret {
    TrafficSecret::new(Secret32::new([0x5A; 32]))
}
