//! The public API of `crypto`, with every available provider.

#![cfg(test)]

mod alloc;
mod certificate;
mod grant;
mod identity;
mod identity_file;
mod no_entropy;
mod packet_key;
mod pairs;
mod provider;
mod reset_file;
mod schedule;
mod sim_provider;
mod token;
mod vectors;
mod wipe;
mod wycheproof;

/// Makes a test of each function for each provider.
macro_rules! for_each_provider {
    ($($name:ident),+ $(,)?) => {
        mod ring {
            $(#[test] fn $name() { super::$name(&mut crypto::Ring::new()); })+
        }
        #[cfg(feature = "aws-lc-rs")]
        mod aws_lc_rs {
            $(#[test] fn $name() { super::$name(&mut crypto::AwsLcRs::new()); })+
        }
        #[cfg(feature = "rustcrypto")]
        mod rustcrypto {
            $(#[test] fn $name() { super::$name(&mut crypto::RustCrypto::new()); })+
        }
        mod sim {
            $(#[test] fn $name() {
                let seed = wire::Seed::from_number(1);
                super::$name(&mut netsim::provider::SimProvider::new(seed));
            })+
        }
    };
}
use for_each_provider;
