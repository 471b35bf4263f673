//! Providers that features of the facade enable.

use tickwire::crypto::{self, Identity, Provider};
use tickwire::udp_proto::{AppId, Config, Endpoint, Listen};
use tickwire::wire::{InstanceId, Instant};

/// Checks that an endpoint with this provider can listen.
fn listens<P: Provider>(mut provider: P) {
    let identity = Identity::generate(&mut provider).unwrap();
    let key = *identity.public_key();
    let mut endpoint = Endpoint::new(Config::default(), AppId(1), provider, Instant::ZERO).unwrap();
    let listen = Listen::new(identity, InstanceId(1)).with_open_mode();
    endpoint.listen(Instant::ZERO, listen).unwrap();
    assert_eq!(endpoint.public_key(), Some(&key));
}

#[test]
fn the_provider_ring_is_available() {
    listens(crypto::Ring::new());
}

#[cfg(feature = "aws-lc-rs")]
#[test]
fn the_feature_aws_lc_rs_provides_its_provider() {
    listens(crypto::AwsLcRs::new());
}

#[cfg(feature = "rustcrypto")]
#[test]
fn the_feature_rustcrypto_provides_its_provider() {
    listens(crypto::RustCrypto::new());
}
