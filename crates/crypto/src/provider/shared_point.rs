//! ECDH on p256, for the providers that agree with it.

use p256::elliptic_curve::point::AffineCoordinates;
use zeroize::{Zeroize, Zeroizing};

use crate::{BadPoint, PublicKey, Secret32};

/// ECDH; SEC 1, section 3.3.1. Neither factor is zero, so the product is a point with an x.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "multiplication in a group does not overflow"
)]
pub(super) fn x_of_shared_point(
    key: &p256::SecretKey,
    peer: &PublicKey,
) -> Result<Secret32, BadPoint> {
    let scalar = Zeroizing::new(key.to_nonzero_scalar());
    let mut shared = (peer.to_p256()?.to_projective() * scalar.as_ref()).to_affine();
    let mut x = shared.x().0;
    shared.zeroize();
    Ok(Secret32::take(&mut x))
}
