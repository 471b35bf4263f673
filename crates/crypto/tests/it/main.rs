//! The public API of `crypto`, over every provider at hand.

#![cfg(test)]

mod identity;
mod packet_key;
mod provider;
mod schedule;
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
