//! The public API of `crypto`, over every provider at hand.

#![cfg(test)]

mod grant;
mod identity;
mod identity_file;
mod packet_key;
mod provider;
mod schedule;
mod token;
mod vectors;

/// Makes a test of each function for each provider.
macro_rules! for_each_provider {
    ($($name:ident),+ $(,)?) => {
        mod ring {
            $(#[test] fn $name() { super::$name(&mut crypto::Ring::new()); })+
        }
    };
}
use for_each_provider;
