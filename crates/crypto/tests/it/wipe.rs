//! Secrets are wiped from memory on drop and do not appear in debug output.

use core::fmt::Debug;
use core::mem::MaybeUninit;

use crypto::{
    Agreed, Exporter, Identity, Initial, Iv, Provider, Role, Secret32, Suite, TokenKey,
    TrafficSecret,
};
use zeroize::ZeroizeOnDrop;

crate::for_each_provider!(twp_k12_providers_print_no_secret);

fn twp_k12_providers_print_no_secret<P: Provider + Debug>(provider: &mut P)
where
    P::Aead: Debug,
    P::Ephemeral: Debug,
    P::SigningKey: Debug,
{
    let identity = Identity::generate(provider).unwrap();
    let mut texts = vec![
        format!("{provider:?}"),
        format!("{:?}", provider.signing_key(&identity).unwrap()),
    ];
    for role in [Role::Dialler, Role::Accepter] {
        texts.push(format!("{:?}", provider.ephemeral(role).unwrap().0));
    }
    for suite in Suite::ALL {
        let aead = provider.aead(suite, &Secret32::new([0xAB; 32]));
        texts.push(format!("{aead:?}"));
    }
    for text in texts {
        // Only the type's name.
        let name = text.strip_suffix("(..)").unwrap_or(&text);
        assert!(name.chars().all(char::is_alphabetic), "{text}");
    }
}

#[test]
fn twp_k12_every_type_with_a_secret_wipes_it_on_drop() {
    const fn wiped_on_drop<T: ZeroizeOnDrop>() {}
    wiped_on_drop::<Secret32>();
    wiped_on_drop::<Iv>();
    wiped_on_drop::<Initial>();
    wiped_on_drop::<Agreed>();
    wiped_on_drop::<TrafficSecret>();
    wiped_on_drop::<Exporter>();
    wiped_on_drop::<TokenKey>();
    wiped_on_drop::<Identity>();
}

#[cfg(feature = "rustcrypto")]
#[test]
fn twp_k12_rustcrypto_wipes_all_its_keys_on_drop() {
    use crypto::provider::{RustCryptoAead, RustCryptoEphemeral, RustCryptoSigningKey};
    const fn wiped_on_drop<T: ZeroizeOnDrop>() {}
    wiped_on_drop::<RustCryptoAead>();
    wiped_on_drop::<RustCryptoEphemeral>();
    wiped_on_drop::<RustCryptoSigningKey>();
}

#[test]
fn twp_k12_no_byte_of_a_secret_remains_in_memory() {
    let provider = &crypto::Ring::new();
    let initial = || Initial::new(provider, Some(&Secret32::new([7; 32])));
    let agreed = || initial().agree(provider, &Secret32::new([8; 32]));
    let secrets = agreed().traffic(provider, &[9; 32]);

    assert_eq!(
        remains([7_u8; 32]),
        [7; 32],
        "the look itself wipes nothing"
    );
    assert_eq!(remains(Secret32::new([7; 32])), [0; 32]);
    assert_eq!(remains(Iv::take(&mut [7; 12])), [0; 12]);
    assert_eq!(remains(initial()), [0; 32]);
    assert_eq!(remains(agreed()), [0; 32]);
    assert_eq!(remains(secrets.client), [0; 32]);
    assert_eq!(remains(secrets.exporter), [0; 32]);
    // The type that holds the scalar of an `Identity` and of ephemeral keys.
    let scalar = p256::SecretKey::from_slice(&[7; 32]).unwrap();
    assert_eq!(remains(scalar), [0; 32]);
}

/// The bytes of a value's memory after its drop; for types of `LEN` bytes without padding.
#[expect(unsafe_code, reason = "safe code cannot look where a value stood")]
fn remains<T, const LEN: usize>(value: T) -> [u8; LEN] {
    const { assert!(size_of::<T>() == LEN, "no more and no less") };
    let mut place = MaybeUninit::new(value);
    // SAFETY: the value is there, and this is its only drop.
    unsafe { place.assume_init_drop() };
    // SAFETY: `LEN` bytes that were written, since these types are byte or word arrays without
    // padding; the place itself still lives.
    unsafe { place.as_ptr().cast::<[u8; LEN]>().read_volatile() }
}
