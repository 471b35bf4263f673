#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

#[cfg(feature = "provider")]
pub mod provider;
