#![doc = include_str!("../README.md")]
#![no_std]
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]
#![warn(clippy::std_instead_of_core, clippy::std_instead_of_alloc)]

extern crate alloc;
#[cfg(feature = "std")]
extern crate std;

pub mod address_list;
pub mod certificate;
pub mod client_grant;
pub mod hkdf;
pub mod identity;
#[cfg(feature = "std")]
pub mod identity_file;
pub mod key_schedule;
pub mod packet_key;
pub mod provider;
pub mod public_key;
#[cfg(feature = "std")]
pub mod reset_file;
pub mod secret;
pub mod suite;
#[cfg(feature = "tls")]
pub mod tls;
pub mod token;

pub use address_list::{AddressCount, AddressList};
pub use certificate::{Certificate, CertificateError};
pub use client_grant::{ClientGrant, GrantError, ServerKeys};
pub use identity::{Identity, PemError};
pub use key_schedule::{Agreed, Exporter, Initial, Label, SessionSecrets, TrafficSecret};
pub use packet_key::{AcceptKey, Iv, NUMBERS_MAX, OpeningKey, SEALS_MAX, SealError, SealingKey};
#[cfg(feature = "aws-lc-rs")]
pub use provider::AwsLcRs;
#[cfg(feature = "ring")]
pub use provider::Ring;
#[cfg(feature = "rustcrypto")]
pub use provider::RustCrypto;
pub use provider::{Aead, NoEntropy, OpenError, Provider, Role};
pub use public_key::{BadPoint, PublicKey};
pub use secret::{Secret32, equal};
pub use suite::{Suite, SuiteSet};
pub use token::{
    Audience, ConnectToken, SealTokenError, SealedToken, TokenError, TokenGrant, TokenHeader,
    TokenId, TokenKey, UserData, UserDataTooLong,
};
