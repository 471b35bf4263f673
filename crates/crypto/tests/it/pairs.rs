//! Each pair of providers: each accepts what the other makes.

use crypto::{
    Audience, Exporter, Identity, Initial, Label, Provider, PublicKey, Role, SealingKey, Secret32,
    Suite, TokenKey, TrafficSecret,
};

use crate::token::{largest, smallest};

/// Makes a test of each function for each ordered pair of providers.
macro_rules! for_each_pair {
    ($($name:ident),+ $(,)?) => {
        $(mod $name {
            use crypto::Ring;
            #[cfg(feature = "rustcrypto")]
            use crypto::RustCrypto;
            #[cfg(feature = "aws-lc-rs")]
            use crypto::AwsLcRs;

            pair!($name, ring_to_ring, Ring, Ring);
            #[cfg(feature = "rustcrypto")]
            pair!($name, ring_to_rustcrypto, Ring, RustCrypto);
            #[cfg(feature = "rustcrypto")]
            pair!($name, rustcrypto_to_ring, RustCrypto, Ring);
            #[cfg(feature = "rustcrypto")]
            pair!($name, rustcrypto_to_rustcrypto, RustCrypto, RustCrypto);
            #[cfg(feature = "aws-lc-rs")]
            pair!($name, ring_to_aws_lc_rs, Ring, AwsLcRs);
            #[cfg(feature = "aws-lc-rs")]
            pair!($name, aws_lc_rs_to_ring, AwsLcRs, Ring);
            #[cfg(feature = "aws-lc-rs")]
            pair!($name, aws_lc_rs_to_aws_lc_rs, AwsLcRs, AwsLcRs);
            #[cfg(all(feature = "aws-lc-rs", feature = "rustcrypto"))]
            pair!($name, aws_lc_rs_to_rustcrypto, AwsLcRs, RustCrypto);
            #[cfg(all(feature = "aws-lc-rs", feature = "rustcrypto"))]
            pair!($name, rustcrypto_to_aws_lc_rs, RustCrypto, AwsLcRs);
        })+
    };
}

macro_rules! pair {
    ($name:ident, $pair:ident, $from:ident, $to:ident) => {
        #[test]
        fn $pair() {
            super::$name(&mut $from::new(), &mut $to::new());
        }
    };
}

for_each_pair!(
    twp_k11_a_handshake_agrees,
    twp_k11_a_signature_verifies,
    twp_k11_a_token_opens,
);

fn twp_k11_a_handshake_agrees<A: Provider, B: Provider>(dialler: &mut A, accepter: &mut B) {
    for suite in Suite::ALL {
        let (mut own, ce) = dialler.ephemeral(Role::Dialler).unwrap();
        let (mut other, se) = accepter.ephemeral(Role::Accepter).unwrap();
        let psk = Secret32::random(dialler).unwrap();

        let (accept, at_accepter) = accept(accepter, suite, &mut other, (&ce, &se), &psk);
        let at_dialler = take(dialler, suite, &mut own, (&ce, &se), (&psk, &accept));

        let label = Label::new("tw1 link");
        assert_eq!(
            at_dialler.2.expand(dialler, label, &[0]),
            at_accepter.2.expand(accepter, label, &[0]),
        );
        let to_accepter = at_accepter.1.opening_key(accepter, suite);
        let sealing = at_dialler.0.into_sealing_key(dialler, suite);
        packets_go_over(sealing, |number, body, tag| {
            to_accepter.open(number, b"head", body, tag).unwrap();
        });
        let to_dialler = at_dialler.1.opening_key(dialler, suite);
        let sealing = at_accepter.0.into_sealing_key(accepter, suite);
        packets_go_over(sealing, |number, body, tag| {
            to_dialler.open(number, b"head", body, tag).unwrap();
        });
    }
}

type Keys = (TrafficSecret, TrafficSecret, Exporter);

/// The accepting half: a sealed body with its tag, and the session's secrets.
fn accept<P: Provider>(
    provider: &P,
    suite: Suite,
    own: &mut P::Ephemeral,
    (ce, se): (&PublicKey, &PublicKey),
    psk: &Secret32,
) -> (Vec<u8>, Keys) {
    let shared = provider.agree(own, ce).unwrap();
    let agreed = Initial::new(provider, Some(psk)).agree(provider, &shared);
    let th0 = provider.sha256(&[&ce.0, &se.0]);
    let (mut body, mut tag) = (BODY.to_vec(), [0; 16]);
    let key = agreed.accept_key(provider, suite, &th0);
    key.seal(b"head", &mut body, &mut tag);
    let th1 = provider.sha256(&[&th0, &body, &tag]);
    let secrets = agreed.traffic(provider, &th1);
    body.extend(tag);
    (body, secrets.split(Role::Accepter))
}

/// The dialing half.
fn take<P: Provider>(
    provider: &P,
    suite: Suite,
    own: &mut P::Ephemeral,
    (ce, se): (&PublicKey, &PublicKey),
    (psk, accept): (&Secret32, &[u8]),
) -> Keys {
    let shared = provider.agree(own, se).unwrap();
    let agreed = Initial::new(provider, Some(psk)).agree(provider, &shared);
    let th0 = provider.sha256(&[&ce.0, &se.0]);
    let th1 = provider.sha256(&[&th0, accept]);
    let (body, tag) = accept.split_last_chunk().unwrap();
    let mut body = body.to_vec();
    let key = agreed.accept_key(provider, suite, &th0);
    key.open(b"head", &mut body, tag).unwrap();
    assert_eq!(body, BODY);
    agreed.traffic(provider, &th1).split(Role::Dialler)
}

fn packets_go_over<A: crypto::Aead>(
    mut sealing: SealingKey<A>,
    open: impl Fn(u64, &mut [u8], &[u8; 16]),
) {
    for len in 0..70 {
        let (mut body, mut tag) = (vec![0xC3; len], [0; 16]);
        let number = sealing.seal(b"head", &mut body, &mut tag).unwrap();
        open(number, &mut body, &tag);
        assert_eq!(body, vec![0xC3; len]);
    }
}

fn twp_k11_a_signature_verifies<A: Provider, B: Provider>(signer: &mut A, verifier: &mut B) {
    for len in [0, 1, 32, 63, 64, 65, 300] {
        let identity = Identity::generate(signer).unwrap();
        let key = signer.signing_key(&identity).unwrap();
        let message = vec![0x3C; len];
        let signature = signer.sign(&key, &message).unwrap();
        assert!(verifier.verify(identity.public_key(), &message, &signature));
        let longer = [&message[..], &[0]].concat();
        assert!(!verifier.verify(identity.public_key(), &longer, &signature));
    }
}

fn twp_k11_a_token_opens<A: Provider, B: Provider>(matchmaker: &mut A, server: &mut B) {
    let key = TokenKey::generate(server, 7).unwrap();
    for grant in [smallest(), largest()] {
        let audience = Audience {
            app_id: 5,
            server_id: grant.server_id,
        };
        let registered = TokenKey::from_bytes(&key.to_bytes());
        let token = registered.seal(matchmaker, 5, &grant).unwrap();
        let opened = key.open(server, audience, grant.issued_at, token.as_bytes());
        assert_eq!(opened.unwrap().grant, grant);
    }
}

const BODY: &[u8] = b"identity and signature";
