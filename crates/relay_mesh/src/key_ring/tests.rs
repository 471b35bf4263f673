use super::*;
use crypto::Secret32;
use netsim::provider::SimProvider;
use wire::Seed;

fn seal(provider: &SimProvider, secret: &TrafficSecret, number: u64) -> (Vec<u8>, [u8; 16]) {
    let (aead, iv) = secret.expand(provider, Suite::Aes128Gcm);
    let (mut body, mut tag) = (b"body".to_vec(), [0; 16]);
    aead.seal(iv.nonce(number), b"aad", &mut body, &mut tag);
    (body, tag)
}

fn mask(number: u64) -> [u8; 12] {
    let [_, _, _, _, mask @ ..] = u128::from(number).to_be_bytes();
    mask
}

#[test]
fn follows_phases_and_forgets_the_one_before() {
    let provider = SimProvider::new(Seed::from_number(1));
    let secret = || TrafficSecret::new(Secret32::new([7; 32]));
    let mut ring = KeyRing::new(&provider, Suite::Aes128Gcm, secret(), 4);
    let mut secrets = vec![secret()];
    for phase in 1..6 {
        secrets.push(secrets[phase - 1].next(&provider));
    }
    let mut open = |at: u64, phase: usize, number: u64| {
        let (mut body, tag) = seal(&provider, &secrets[phase], number);
        let sealed = Sealed {
            phase: u8::try_from(phase % 4).unwrap(),
            mask: mask(number),
            aad: b"aad",
            body: &mut body,
            tag: &tag,
        };
        ring.open(&provider, Instant::from_millis(at), sealed)
            .is_ok()
    };
    assert!(open(0, 0, 0));
    assert!(open(1, 1, 2), "one ahead moves on");
    assert!(open(2, 0, 3), "a late one still opens");
    assert!(!open(3_001, 0, 4), "and not for ever");
    for phase in 2..6 {
        assert!(open(4_000, phase, 5), "{phase}");
    }
}

#[test]
fn phases_that_were_missed_are_skipped() {
    let provider = SimProvider::new(Seed::from_number(1));
    let secret = || TrafficSecret::new(Secret32::new([7; 32]));
    let mut secrets = vec![secret()];
    for phase in 1..12 {
        secrets.push(secrets[phase - 1].next(&provider));
    }
    let mut ring = KeyRing::new(&provider, Suite::Aes128Gcm, secret(), 4);
    let mut open = |at: u64, phase: usize, number: u64| {
        let (mut body, tag) = seal(&provider, &secrets[phase], number);
        let sealed = Sealed {
            phase: u8::try_from(phase % 4).unwrap(),
            mask: mask(number),
            aad: b"aad",
            body: &mut body,
            tag: &tag,
        };
        ring.open(&provider, Instant::from_millis(at), sealed)
            .is_ok()
    };
    assert!(open(0, 2, 0), "one was missed");
    assert!(open(1, 1, 1), "and a late packet of it opens");
    assert!(!open(2, 5, 2), "three ahead reads as one before");
    assert!(open(3_001, 5, 3), "and no longer, once that is forgotten");
    assert!(open(3_002, 7, 4));
    assert!(!open(9_000, 11, 5), "four ahead reads as the present");
}

#[test]
fn phases_one_round_behind_are_reached_after_a_notice() {
    let provider = SimProvider::new(Seed::from_number(1));
    let secret = || TrafficSecret::new(Secret32::new([7; 32]));
    let mut secrets = vec![secret()];
    for phase in 1..12 {
        secrets.push(secrets[phase - 1].next(&provider));
    }
    let mut ring = KeyRing::new(&provider, Suite::Aes128Gcm, secret(), 4);
    let open = |ring: &mut KeyRing<_>, phase: usize| {
        let (mut body, tag) = seal(&provider, &secrets[phase], 1);
        let sealed = Sealed {
            phase: u8::try_from(phase % 4).unwrap(),
            mask: mask(1),
            aad: b"aad",
            body: &mut body,
            tag: &tag,
        };
        ring.open(&provider, Instant::ZERO, sealed).is_ok()
    };
    assert!(open(&mut ring, 2));
    assert!(!open(&mut ring, 9), "reads as the one before");
    assert!(!ring.reach(&provider, Instant::ZERO, 2 + ADVANCE_BURST + 1));
    assert!(ring.reach(&provider, Instant::ZERO, 9));
    assert!(ring.ahead.is_empty());
    assert!(open(&mut ring, 9) && open(&mut ring, 8) && open(&mut ring, 10));
    // An earlier phase changes nothing.
    assert!(ring.reach(&provider, Instant::ZERO, 4));
    assert!(open(&mut ring, 10));
    // Unused budget of a day is not accumulated.
    let later = Instant::from_millis(86_400_000);
    assert!(!ring.reach(&provider, later, 10 + ADVANCE_BURST + 1));
    assert!(ring.reach(&provider, later, 10 + ADVANCE_BURST));
    assert!(!ring.reach(&provider, later, 10 + ADVANCE_BURST + 1));
    let next = Instant::from_millis(86_402_000);
    assert!(!ring.reach(&provider, next, 10 + ADVANCE_BURST + 2 * ADVANCE_RATE + 1));
    assert!(ring.reach(&provider, next, 10 + ADVANCE_BURST + 2 * ADVANCE_RATE));
}

#[test]
fn many_missed_phases_are_skipped_if_the_wire_distinguishes_them() {
    let provider = SimProvider::new(Seed::from_number(1));
    let secret = || TrafficSecret::new(Secret32::new([7; 32]));
    let mut secrets = vec![secret()];
    for phase in 1..120 {
        secrets.push(secrets[phase - 1].next(&provider));
    }
    let mut ring = KeyRing::new(&provider, Suite::Aes128Gcm, secret(), 64);
    let mut open = |at: u64, phase: usize, forged: u8| {
        let (mut body, tag) = seal(&provider, &secrets[phase], 1);
        body[0] ^= forged;
        let sealed = Sealed {
            phase: u8::try_from(phase % 64).unwrap(),
            mask: mask(1),
            aad: b"aad",
            body: &mut body,
            tag: &tag,
        };
        ring.open(&provider, Instant::from_millis(at), sealed)
            .is_ok()
    };
    assert!(open(0, 0, 0) && open(0, 20, 0), "20 were missed");
    assert!(
        open(1, 19, 0) && open(1, 20, 0),
        "a late one of the last of them"
    );
    assert!(!open(1, 53, 0), "33 ahead reads as 31 behind");
    // Forged packets change nothing, and are limited to 64 at once and one a second.
    let moved = (0..100).filter(|_| open(2, 24, 1)).count();
    assert_eq!(moved, 0);
    assert!(!open(3, 52, 0), "spent");
    assert!(open(32_003, 52, 0) && open(32_004, 53, 0));
}

#[test]
fn a_forged_phase_does_not_move_it() {
    let provider = SimProvider::new(Seed::from_number(1));
    let secret = || TrafficSecret::new(Secret32::new([7; 32]));
    let mut ring = KeyRing::new(&provider, Suite::Aes128Gcm, secret(), 4);
    let (mut forged, tag) = (b"body".to_vec(), [0; 16]);
    let sealed = Sealed {
        phase: 1,
        mask: mask(0),
        aad: b"aad",
        body: &mut forged,
        tag: &tag,
    };
    assert_eq!(ring.open(&provider, Instant::ZERO, sealed), Err(OpenError));
    assert_eq!(ring.phase, 0);
    let (mut body, tag) = seal(&provider, &secret(), 1);
    let sealed = Sealed {
        phase: 0,
        mask: mask(1),
        aad: b"aad",
        body: &mut body,
        tag: &tag,
    };
    assert_eq!(ring.open(&provider, Instant::ZERO, sealed), Ok(()));
}
